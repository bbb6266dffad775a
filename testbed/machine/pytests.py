"""A user's pytest files on a machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.errors import InputError, MachineError, TestbedError
from testbed.machine import files
from testbed.machine.jobs import Job, Machine, below
from testbed.protocol import TESTS, Tested
from testbed.protocol.requests import Pytest
from testbed.records import json_files, run_readme

LIMIT_S = 30 * 86400.0
"""Virtual seconds for a whole session of tests without a limit of its own."""
END_S = 300.0
"""Virtual seconds after the limit of a session for the teardown of its labs. What hangs then is killed."""
TEXT = "pytest.txt"
"""File in a run's directory: pytest's output, without colours."""
LONGEST_S = 1e12
"""Virtual seconds of a test, at most: more is no time of a machine, nor is NaN."""
REPORT = re.compile(r"reports/[a-z-]+/[^/\0]+")
"""The path where a session writes a report (scenario/session.py)."""
CONTROL = re.compile(r"(?P<colour>\x1b\[[0-9;]*m)|[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Characters of a test's output that control a terminal, except newlines and tabs: colours, and all others; and those
that cannot be written."""
FAILURES = ("failed", "error")
"""Outcomes of tests: failed in the test itself, or around it."""
USAGE = (2, 3, 4, 5)
"""Statuses of pytest that mean a wrong call: interrupted, internal error, usage, no tests collected."""


def split(words: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return the paths that exist, and the words from the first option on, which are pytest's."""
    texts = [str(word) for word in words]
    first = next((number for number, text in enumerate(texts) if text.startswith("-")), len(texts))
    tests = [Path(text.partition("::")[0]) for text in texts[:first]]
    for path in tests:
        if not path.exists():
            raise InputError("there is no such file or directory", where=str(path))
    return [Path(text) for text in texts[:first]], texts[first:]


def place(tests: Sequence[Path], root: Path | None = None) -> tuple[Path, list[str]]:
    """Return the directory that holds all tests, their packages and their conftest.py files, of those below `root`; and
    the tests' names below it, with ``::`` parts."""
    split_names = [str(test).partition("::") for test in tests]
    files = [Path(name).resolve() for name, _, _ in split_names]
    top = Path(os.path.commonpath([path if path.is_dir() else path.parent for path in files]))
    while top != root and ((top.parent / "conftest.py").is_file() or (top / "__init__.py").is_file()):
        top = top.parent
    return top, [f"{path.relative_to(top)}{sep}{rest}" for path, (_, sep, rest) in zip(files, split_names, strict=True)]


@dataclass(frozen=True)
class SessionFiles:
    """The files for a session, by their paths below the directory `top`."""

    top: Path
    contents: Mapping[str, bytes]
    executable: Sequence[str]

    @classmethod
    def below(cls, top: Path) -> SessionFiles:
        found = files.below(top)
        return cls(top, found, files.executable(top, found))

    @classmethod
    def of(cls, root: Path, tests: Sequence[Path], also: Sequence[str]) -> SessionFiles:
        """Collect the files beside tests, those named or below the paths `also`; nothing else below `root`."""
        root = root.resolve()
        for test in tests:
            if not test.resolve().is_relative_to(root):
                raise InputError(f"is not below pytest's rootdir, {root}", where=str(test), hint="Give --rootdir.")
        found: dict[str, bytes] = {}
        for top in (place(tests, root)[0], *(root / name for name in also)):
            if not top.resolve().is_relative_to(root):
                raise InputError(f"is not below pytest's rootdir, {root}", where=str(top))
            single = {"": files.read(top)} if top.is_file() else files.below(top)
            found |= {os.path.normpath(top.relative_to(root) / name): data for name, data in single.items()}
        return cls(root, found, files.executable(root, found))


class Ended(Tested):
    """A line of tests.jsonl: a machine's report, and the wall seconds that the test took."""

    wall_s: float


class SessionRecorder:
    """Recorder of a session's reports: each is written to the directory `out` at once, however the session ends. `show`
    gets what tests write to the terminal, `reported` pytest's own serialized reports."""

    def __init__(
        self, out: Path, show: Callable[[str], None], reported: Callable[[dict[str, Any]], None] | None = None
    ) -> None:
        self.out = out
        self._show = show
        self._reported = reported
        self.running = ""
        self._since = time.monotonic()
        self.tests: list[Ended] = []
        self.reports: dict[str, str] = {}
        """Files below `out` that pytest was to write, and where the user wants them."""

    def listen(self, record: dict[str, Any]) -> None:
        match record:
            case {"write": str(text)}:
                self.write(text)
            case {"running": str(test)}:
                self.running, self._since = test, time.monotonic()
            case {
                "result": {
                    "test": str(),
                    "outcome": str(),
                    "virtual_s": int() | float() as virtual_s,
                    "directory": str(),
                    "text": str(text),
                } as result
            } if abs(virtual_s) < LONGEST_S:
                self.running = ""
                now = time.monotonic()
                result["text"] = text.encode(errors="backslashreplace").decode()
                ended = Ended(**result, wall_s=round(now - self._since, 3))  # type: ignore[typeddict-item]
                self._since = now
                self.tests.append(ended)
                with (self.out / TESTS).open("a") as file:
                    file.write(json.dumps(ended) + "\n")
            case {"report": {"file": str(file), "given": str(given)}} if REPORT.fullmatch(file):
                self.reports[file] = given
            case {"reported": dict(report)} if self._reported:
                self._reported(report)
            case _:
                raise MachineError(f"a line of progress is not an output: {str(record)[:80]}")

    def write(self, text: str) -> None:
        """Show a text with its colours, and record it without. Drop all other terminal control characters."""
        self._show(CONTROL.sub(lambda found: found["colour"] or "", text))
        with (self.out / TEXT).open("a", errors="backslashreplace") as file:
            file.write(CONTROL.sub("", text))

    def cut_short(self) -> None:
        """Write what pytest would have written at its end: why tests failed."""
        for test in self.tests:
            if test["text"] and test["outcome"] in FAILURES:
                self.write(f"\n{test['outcome'].upper()} {test['test']}\n{test['text']}\n")

    def deliver(self, arguments: Sequence[str]) -> None:
        """Copy reports to where the user's own words name them; a file of the machine names nothing here."""
        for file, given in self.reports.items():
            source, place = self.out / file, Path(os.path.expanduser(os.path.expandvars(given)))
            if source.is_file() and any(word == given or word.endswith(f"={given}") for word in arguments):
                try:
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(source, place)
                except OSError as error:
                    message = f"cannot be written: {error.strerror}"
                    raise InputError(message, where=given, hint=f"It is in {source}.") from None


def ended(directory: Path) -> list[Ended]:
    """Return the tests of a session that ended, from its run directory, without damaged lines."""
    file = directory / TESTS
    return [test for _, test in json_files.lines(file) if test is not None]


def explain(directory: Path) -> None:
    """Write README.txt for the files that are there now."""
    run_readme.explain(directory, "Files of a pytest session")


async def run(
    tests: Sequence[Path],
    asked: Pytest,
    *,
    seed: int,
    training: bool,
    machine: Machine,
    out: Path,
    show: Callable[[str], None],
) -> int:
    """Run the tests with all files in their common directory. Return 0 if all passed, 1 if not, 2 if there is no such
    test. `show` gets their terminal output. Ended tests are recorded and running ones named, however it ends."""
    top, names = place(tests)
    bundle = SessionFiles.below(top)
    recorder = SessionRecorder(out, show)
    asked = replace(asked, arguments=[*names, *asked.arguments])
    status = await execute(asked, bundle, recorder, seed=seed, training=training, machine=machine)
    return 2 if status in USAGE else status


async def execute(
    asked: Pytest, bundle: SessionFiles, recorder: SessionRecorder, *, seed: int, training: bool, machine: Machine
) -> int:
    """Run a pytest session; return its status. Ended tests are recorded and running ones named, however it ends."""
    limit_s, out = LIMIT_S if asked.limit_s is None else asked.limit_s + END_S, recorder.out
    given = bundle.contents, bundle.executable
    job = Job([asked], *given, limit_s=limit_s, seed=seed, training=training, listen=recorder.listen)
    try:
        await machine.run(job, out)
        status = job.answer(about=bundle.top, place=below(bundle.top))
    except TestbedError as error:
        if error.exit_status != 1:
            raise
        recorder.cut_short()
        hint = f"{len(recorder.tests)} tests had ended: {out / TESTS}, {out / TEXT}"
        raise MachineError(error.message, where=recorder.running or str(bundle.top), hint=hint) from error
    finally:
        try:
            recorder.deliver(asked.arguments)
        finally:
            run_readme.remove_empty(out)
            explain(out)
    if not 0 <= status < 256:
        raise MachineError(f"the response is damaged: {status} is not an exit status")
    return status
