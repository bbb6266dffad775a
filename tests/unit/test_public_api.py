"""The public API: shipped scenarios import nothing else of testbed; docs/api.md, docs/faults.md and the
tools in docs/mcp.md are up to date."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from testbed.machine.scenarios import shipped

TOP = Path(__file__).parents[2]
PAGES = [TOP / "tests" / "docs" / name for name in ("api.py", "assistants.py", "faults.py")]
MODULES = ("testbed", "testbed.faults", "testbed.workload", "testbed.session", "testbed.errors")
PROGRAMS = sorted(file for source in shipped() for file in (TOP / "scenarios" / source.name).rglob("*.py"))


def exported(module: ModuleType) -> list[str]:
    """The names that a module exports: its `__all__`, else what it imports or defines without an underscore."""
    own = [name for name, thing in vars(module).items() if name[0] != "_" and not isinstance(thing, ModuleType)]
    return list(getattr(module, "__all__", own))


def private_imports(text: str) -> Iterator[str]:
    """What a program imports of testbed that is not public, a line each."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if re.match(r"testbed\b", alias.name))
        elif isinstance(node, ast.ImportFrom) and re.match(r"testbed\b", module := node.module or ""):
            public = exported(import_module(module)) if module in MODULES else []
            yield from (f"{module}.{alias.name}" for alias in node.names if alias.name not in public)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: str(path.relative_to(TOP / "scenarios")))
def test_shipped_scenarios_import_only_the_public_api(program: Path) -> None:
    assert list(private_imports(program.read_text())) == []


@pytest.mark.parametrize(
    ("text", "private"),
    [
        ("from testbed import Run, Scenario\nfrom testbed.faults import ArpDrop\nimport testbedding", []),
        ("from testbed.lab import Host", ["testbed.lab.Host"]),
        ("from testbed import Run, no_such_name", ["testbed.no_such_name"]),
        ("from testbed.faults import fault", ["testbed.faults.fault"]),
        ("def f():\n    from testbed.workload.verbs import Endpoint as E", ["testbed.workload.verbs.Endpoint"]),
        ("import testbed.kernel.counters as c", ["testbed.kernel.counters"]),
        ("import testbed", ["testbed"]),
        ("from testbed import *", ["testbed.*"]),
    ],
)
def test_an_import_of_anything_else_is_found(text: str, private: list[str]) -> None:
    assert list(private_imports(text)) == private


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_says_what_the_code_says(page: Path) -> None:
    """In a Python of its own: to read docstrings it lets this one import what needs pyverbs."""
    done = subprocess.run([sys.executable, str(page), "--check"], cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
