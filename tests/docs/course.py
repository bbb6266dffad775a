"""The course of docs/course.md, typed lesson by lesson: `make examples` puts what its commands print below them, and a
test compares.

A lesson is a section with commands in blocks of text, as `$ testbed …`. It has a lab of its own.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import own_terminal

TOP = Path(__file__).parents[2]
PAGE = TOP / "docs" / "course.md"
SECTION = re.compile(r"^(## \d+\. .*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"(?<=^```text\n)(\$ .*?)(?=^```$)", re.MULTILINE | re.DOTALL)
COLUMNS = 100


class Typed(NamedTuple):
    """A command and what it printed on its standard output."""

    command: str
    printed: str

    def __str__(self) -> str:
        return f"$ {self.command}\n{self.printed}"


def lessons(page: str) -> list[str]:
    return SECTION.findall(page)


def transcript(lesson: str) -> list[Typed]:
    """The commands of a lesson with what the page says that they print."""
    return [typed for block in BLOCK.findall(lesson) for typed in parts(block)]


def parts(block: str) -> Iterator[Typed]:
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield Typed(command, printed)


def play(lesson: str, directory: Path) -> list[Typed]:
    """Type the commands of a lesson in an empty directory, and return them with what they print."""
    env = own_terminal.opened(directory, COLUMNS=str(COLUMNS), NO_COLOR="1", PYTHONIOENCODING="utf-8")
    try:
        return [Typed(command, shown(command, directory, env)) for command, _ in transcript(lesson)]
    finally:
        subprocess.run([directory / "testbed", "down", "--all"], env=env, capture_output=True, check=False)


def shown(command: str, directory: Path, env: dict[str, str]) -> str:
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=directory,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.stderr and done.returncode and not done.stdout:
        raise SystemExit(f"{command} ended with status {done.returncode}:\n{done.stderr}")
    return "".join(f"{line.rstrip()}\n" for line in done.stdout.rstrip().replace(f"{directory}/", "").splitlines())


def written(lesson: str, played: list[Typed]) -> str:
    """The lesson with what its commands printed."""
    left = iter(played)
    return BLOCK.sub(lambda block: "".join(str(next(left)) for _ in parts(block[1])), lesson)


def main() -> None:
    """`course.py 3 7` plays these lessons; without numbers all."""
    page = PAGE.read_text()
    for number, lesson in enumerate(lessons(page), 1):
        if sys.argv[1:] and str(number) not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory(prefix="testbed-") as directory:
            page = page.replace(lesson, written(lesson, play(lesson, Path(directory))))
        PAGE.write_text(page)
        print(f"lesson {number}: played")


if __name__ == "__main__":
    main()
