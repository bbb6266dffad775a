"""The result file of a sweep: an SQLite database with a row for each run.

The table `sweep` has the origin of all runs; runs of another origin are refused, so the file can be continued by the
same command, and by one with more seeds or values.
"""

import errno
import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from testbed.errors import InputError, TestbedError
from testbed.machine.record import WORDS, Origin, RunResult
from testbed.machine.sweeps.points import Key, Point
from testbed.protocol import Observed
from testbed.records import json_files

APPLICATION = 0x54425357
"""`TBSW` in the file's header, where SQLite keeps the application's ID."""
SCHEMA = Path(__file__).with_suffix(".sql")
INSERT = f"INSERT INTO runs VALUES ({', '.join('?' * 16)})"  # noqa: S608
ANOTHER = "Name another file with --results, or remove this one to start again."


@dataclass(frozen=True)
class Recorded:
    """The part of a row that commands show. `directory` is that of a run which was kept."""

    expected: Observed
    observed: Observed | None
    as_expected: bool
    failures: Sequence[str]
    evidence: Mapping[str, Any]
    virtual_s: float
    directory: str | None


class Results:
    """An open result file, which no other command writes to meanwhile."""

    def __init__(self, path: Path, scenario: str, origin: Origin) -> None:
        """Open the file or create it. InputError for one that is no result file, or has runs of something else."""
        self.path = path
        self._origin = origin
        with ExitStack() as stack:
            stack.enter_context(_locked(path))
            with _explained(path):
                self._database = stack.enter_context(closing(sqlite3.connect(path)))
                self._begin(scenario)
            self._close = stack.pop_all().close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _begin(self, scenario: str) -> None:
        if not self._database.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
            made_from = json.dumps(asdict(self._origin))
            with self._database:
                self._database.executescript(f"BEGIN;{SCHEMA.read_text()}PRAGMA application_id = {APPLICATION};")
                self._database.execute("INSERT INTO sweep VALUES (?, ?)", (scenario, made_from))
            return
        if self._database.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
            raise InputError("is not a sweep's result file", where=str(self.path), hint="Name another with --results.")
        with _undamaged(self.path):
            other, then = self._database.execute("SELECT scenario, made_from FROM sweep").fetchone()
            differ = differences(json_files.parsed(then), asdict(self._origin))
        if other != scenario:
            raise InputError(f"has runs of another scenario: {other}", where=str(self.path), hint=ANOTHER)
        if differ:
            text = f"has runs with other inputs: {', '.join(differ)}"
            raise InputError(text, where=str(self.path), hint=ANOTHER)

    def add(self, point: Point, result: RunResult, directory: Path | None) -> None:
        """Record a run; it is on the disk when this returns. Refuse one of another origin."""
        if differ := differences(asdict(self._origin), asdict(result.made_from)):
            text = f"a run has other inputs than the rest of the sweep: {', '.join(differ)}"
            raise TestbedError(text, hint="All machines of a sweep need the same QEMU.")
        [one] = result.variants
        row = (
            *point.key,
            one.parameters and json.dumps(one.parameters),
            one.expected,
            one.observed,
            result.verdict,
            json.dumps(one.failures),
            json.dumps(one.evidence),
            one.trace,
            one.virtual_s,
            one.wall_s,
            directory and str(directory),
            result.image,
            result.made_from.code,
            result.made_from.qemu,
        )
        with _explained(self.path), self._database:
            self._database.execute(INSERT, row)

    def recorded(self) -> dict[Key, Recorded]:
        columns = "variant, settings, seed, expected, observed, verdict, failures, evidence, virtual_s, directory"
        with _explained(self.path), _undamaged(self.path):
            rows = self._database.execute(f"SELECT {columns} FROM runs").fetchall()  # noqa: S608
            return {
                (str(variant), str(settings), int(seed)): Recorded(
                    expected,
                    observed,
                    verdict == "as-expected",
                    [*map(str, json_files.parsed(failures))],
                    dict(json_files.parsed(evidence)),
                    float(virtual_s),
                    kept and str(kept),
                )
                for variant, settings, seed, expected, observed, verdict, failures, evidence, virtual_s, kept in rows
            }


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return words for the differences of two origins. Testbed's version may differ: its code inside may not."""
    found = [WORDS[key] for key in WORDS if key != "testbed" and then.get(key) != now.get(key)]
    names = sorted({*then["files"], *now["files"]})
    found += [f"{name} of the scenario" for name in names if then["files"].get(name) != now["files"].get(name)]
    given = ("file", "given_topology", "given_program")
    return found + [f"{key.replace('_', ' ')} {now[key] or 'none'}" for key in given if then[key] != now[key]]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the file against other commands. SQLite's own locks are of another kind, and readers are let in."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = "Wait for it, or name another file with --results."
            raise InputError("another sweep is writing to it", where=str(path), hint=hint) from None
        yield
    finally:
        os.close(handle)


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    """Turn an error about what the file has into one of the project's."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        text = f"is damaged: {type(error).__name__}: {error}"
        raise InputError(text, where=str(path), hint="Name another with --results.") from None


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn an error of SQLite into one of the project's."""
    try:
        yield
    except sqlite3.Error as error:
        match getattr(error, "sqlite_errorcode", 0) & 0xFF:
            case sqlite3.SQLITE_FULL:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path)) from None
            case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
                hint = "Name another with --results."
                raise InputError("is not a sweep's result file, or is damaged", where=str(path), hint=hint) from None
        raise TestbedError(f"cannot be read or written: {error}", where=str(path)) from error
