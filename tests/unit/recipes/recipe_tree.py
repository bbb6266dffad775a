"""The recipes of docs/architecture.md, and the copy of the package on which each is carried out."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
SECTION = PAGE.partition("## Extending it\n")[2].partition("\n## ")[0]
RECIPES = {
    heading: " ".join(text.split())
    for heading, text in re.findall(r"^\*\*(.+?)\.\*\* (.*?)(?=\n\n|\Z)", SECTION, re.DOTALL | re.MULTILINE)
}


class Tree:
    """A copy of the package, and the files of it that were changed. Files are shared with the original until then."""

    def __init__(self, directory: Path) -> None:
        self._root, self._package = directory, directory / "testbed"
        self.changed: set[str] = set()
        shutil.copytree(ROOT / "testbed", self._package, copy_function=linked)

    def write(self, name: str, text: str) -> None:
        file = self._package / name
        file.unlink(missing_ok=True)
        file.write_text(text)
        self.changed.add(name)

    def read(self, name: str) -> str:
        return (self._package / name).read_text()

    def add(self, name: str, text: str) -> None:
        """Write a new file, or the end of one."""
        self.write(name, (self.read(name) if (self._package / name).exists() else "") + dedent(text))

    def copy(self, name: str, other: str) -> None:
        shutil.copy2(self._package / name, self._package / other)
        self.changed.add(other)

    def insert(self, name: str, anchor: str, text: str = "", *, before: str = "") -> None:
        """Put a text behind the only place of another one, or before it."""
        there = self.read(name)
        assert there.count(anchor) == 1, f"{name} has no single {anchor!r}"
        self.write(name, there.replace(anchor, before + anchor + text))

    def check(self, program: str) -> None:
        """Run a program that imports the copy and nothing of the original."""
        environment = {**os.environ, "PYTHONPATH": str(self._root), "PYTHONDONTWRITEBYTECODE": "1"}
        body = f"import testbed\nassert testbed.__file__.startswith({str(self._root)!r})\n{dedent(program)}"
        command = [sys.executable, "-P", "-c", body]
        done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


CARRIED_OUT: dict[str, Callable[[Tree], None]] = {}


def recipe(heading: str) -> Callable[[Callable[[Tree], None]], Callable[[Tree], None]]:
    def register(carry_out: Callable[[Tree], None]) -> Callable[[Tree], None]:
        CARRIED_OUT[heading] = carry_out
        return carry_out

    return register
