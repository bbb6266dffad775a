"""The user's modules, importable beside ours: modules of Python, its packages and testbed keep their names.

Much is imported late. Without this, a reader of a topology would import a yaml.py beside a scenario as PyYAML.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

THEIRS = ("test",)
"""A package of Python's own tests, which nobody imports, and a usual name for a directory of tests."""


class OwnFirst(MetaPathFinder):
    """A finder of top-level modules where they were found before directories of the user were importable."""

    def __init__(self, path: Sequence[str]) -> None:
        self._path = list(path)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if path is not None or name in THEIRS:
            return None
        found = PathFinder.find_spec(name, self._path)
        return found if found and found.loader else None  # a directory without an __init__.py is no module of ours


def add(directory: Path) -> None:
    """Make the modules in `directory` importable, and in those that the user's code puts in front of sys.path."""
    if not any(isinstance(finder, OwnFirst) for finder in sys.meta_path):
        place = next((number for number, finder in enumerate(sys.meta_path) if finder is PathFinder), 0)
        sys.meta_path.insert(place, OwnFirst(sys.path))
    sys.path.insert(0, str(directory))


def hidden(directory: Path) -> list[str]:
    """Return the files in `directory` that cannot be imported: other modules have their names."""
    loaded = {path.name: sys.modules.get(path.stem) for path in sorted(directory.glob("*.py"))}
    return [
        name
        for name, module in loaded.items()
        if module and Path(getattr(module, "__file__", None) or "").parent != directory
    ]
