"""A user's pytest files on a machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from testbed.errors import InputError, MachineError
from testbed.machine import scenarios
from testbed.machine.local import Machine
from testbed.machine.scenarios import Source
from testbed.protocol import Job

LIMIT_S = 30 * 86400.0
"""Virtual seconds for a whole session of tests."""
USAGE = (2, 3, 4, 5)
"""Statuses of pytest that mean a wrong call: interrupted, internal error, usage, no tests collected."""


def split(words: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Paths that exist, and the words from the first option on, which are pytest's."""
    texts = [str(word) for word in words]
    first = next((number for number, text in enumerate(texts) if text.startswith("-")), len(texts))
    tests = [Path(text.partition("::")[0]) for text in texts[:first]]
    for path in tests:
        if not path.exists():
            raise InputError("there is no such file or directory", where=str(path))
    return [Path(text) for text in texts[:first]], texts[first:]


def place(tests: Sequence[Path]) -> tuple[Path, list[str]]:
    """The directory that holds all tests and their conftest.py files, and their names below it, with ``::`` parts."""
    split_names = [str(test).partition("::") for test in tests]
    files = [Path(name).resolve() for name, _, _ in split_names]
    top = Path(os.path.commonpath([path if path.is_dir() else path.parent for path in files]))
    while (top.parent / "conftest.py").is_file():
        top = top.parent
    return top, [f"{path.relative_to(top)}{sep}{rest}" for path, (_, sep, rest) in zip(files, split_names, strict=True)]


async def run(
    tests: Sequence[Path],
    arguments: Sequence[str],
    *,
    seed: int,
    training: bool,
    machine: Machine,
    out: Path,
    show: Callable[[str], None],
) -> int:
    """Runs the tests with everything in their common directory beside them. 0 all passed, 1 not, 2 no such test.

    `show` gets what they write to the terminal.
    """
    top, names = place(tests)
    source = Source("pytest", top / scenarios.FILE)
    job: Job = {
        "kind": "pytest",
        "name": "pytest",
        "seed": seed,
        "training": training,
        "arguments": [*names, *arguments],
    }

    def listen(record: dict[str, Any]) -> None:
        match record:
            case {"write": str(text)}:
                show(text)
            case _:
                raise MachineError(f"a line of progress is no output: {str(record)[:80]}")

    await machine.run(job, source.files(), out, listen, limit_s=LIMIT_S)
    scenarios.raise_refusal(out, source)
    match scenarios.left_json(out, "status.json"):
        case int(status):
            return 2 if status in USAGE else status
        case _:
            raise MachineError("the tests' code ended its process before pytest was done")
