"""No module imports one that imports it in turn: not for its types alone, and not late, inside a function."""

import ast
from collections.abc import Iterator, Mapping
from importlib.util import resolve_name
from pathlib import Path

import pytest

import testbed

Graph = Mapping[str, set[str]]


def imports(package: Path) -> Graph:
    """What each module of a package imports of the package, anywhere in its file."""
    files = {}
    for file in package.rglob("*.py"):
        parts = file.relative_to(package.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return {
        module: {found for name in named(module, file) if (found := known(name, files))} - {module}
        for module, file in files.items()
    }


def named(module: str, file: Path) -> Iterator[str]:
    """The names that the import statements of a module's file have: `from a import b` is a.b."""
    parent = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for statement in ast.walk(ast.parse(file.read_text())):
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            base = resolve_name("." * statement.level + (statement.module or ""), parent)
            yield from (f"{base}.{alias.name}" for alias in statement.names)


def known(name: str, modules: Mapping[str, Path]) -> str:
    """The module that has a name, which may be one of its own names; none if it is not one of ours."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def circles(graph: Graph) -> set[frozenset[str]]:
    """The groups that reach each other."""
    reached = {one: set(found) for one, found in graph.items()}
    for through in graph:
        for one in graph:
            if through in reached[one]:
                reached[one] |= reached[through]
    return {frozenset(other for other in reached[one] if one in reached[other]) for one in graph if one in reached[one]}


def packages(graph: Graph) -> Graph:
    """The same between the packages right below the top."""
    found: dict[str, set[str]] = {}
    for module, targets in graph.items():
        ours = found.setdefault(package_of(module), set())
        ours |= {package_of(target) for target in targets} - {package_of(module)}
    return found


def package_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


@pytest.fixture(scope="module")
def graph() -> Graph:
    return imports(Path(testbed.__file__).parent)


def test_no_module_is_in_a_circle(graph: Graph) -> None:
    assert circles(graph) == set()


def test_no_package_is_in_a_circle(graph: Graph) -> None:
    assert circles(packages(graph)) == set()


@pytest.mark.parametrize(
    "back",
    [
        "import ours.one",
        "from ours.one import name",
        "from ours import one",
        "from .one import name",
        "from . import one",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ours.one import Name",
        "def late():\n    from ours import one",
    ],
)
def test_every_way_to_import_counts(tmp_path: Path, back: str) -> None:
    package = tmp_path / "ours"
    package.mkdir()
    for name, text in ("__init__", ""), ("one", "import ours.two"), ("two", back), ("three", "from ours import one"):
        (package / f"{name}.py").write_text(text)
    assert circles(imports(package)) == {frozenset({"ours.one", "ours.two"})}
