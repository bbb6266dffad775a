"""
Things that a run on this very kernel owns: a record of it, written before any change, and a mark on what it creates.

So leftovers of a killed run can be found and removed, and nothing else (executor/leftovers.py). A micro-VM is gone
when its run ends: there is no run there, and this module does nothing.

Marks: a network namespace has one in the alias of its `lo`, for all in it. A program has one in its environment. Files
and settings have no place for a mark; they are in the record.
"""

import contextlib
import dataclasses
import json
import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed import protocol
from testbed.errors import TestbedError
from testbed.kernel import sysctl

RUNS = Path(protocol.RUNS)
"""A directory that the next boot clears, like all that a run creates."""
VARIABLE = "TESTBED_RUN"
ALIAS = "testbed run "
DEAD = "ZX"
"""States of an ended process (proc_pid_stat(5))."""


@dataclass
class Run:
    """A run and its record. Its owner is a process; its birth time tells it from a later one with the same PID."""

    name: str
    pid: int
    born: int
    """Birth time of the process, in clock ticks after boot."""
    exclusive: bool
    """The RDMA netns mode before."""
    sysctls: dict[str, str] = field(default_factory=dict)
    """Values before the run, by paths below /proc/sys."""
    namespaces: list[str] = field(default_factory=list)
    """All names that it created, or was about to."""
    interfaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    """This machine's interfaces that it took, by name, with the state to restore."""
    files: list[str] = field(default_factory=list)
    """Files and directories outside the run directory, created or about to be."""
    places: list[str] = field(default_factory=list)
    """Directories and empty files that it made, or was about to, to mount files of nodes on."""
    probes: bool = False
    """True if it makes the kernel trace queue pairs."""

    @property
    def file(self) -> Path:
        return RUNS / f"{self.name}.json"

    @property
    def draft(self) -> Path:
        """Return the path of the record while it is written."""
        return self.file.with_suffix(".new")

    @property
    def lives(self) -> bool:
        return _birth(self.pid) == self.born

    def save(self) -> None:
        """Write the record atomically."""
        self.draft.write_text(json.dumps(dataclasses.asdict(self)))
        self.draft.replace(self.file)


_OWN: list[Run] = []
"""This process's run, if any."""


def _birth(pid: int) -> int | None:
    """Return a process's birth time; None if it does not exist, or only its status is left."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in DEAD else int(fields[18])


def runs() -> list[Run]:
    """Return the runs with a record, including dead ones."""
    return [_read(file) for file in sorted(RUNS.glob("*.json"))]


def _read(file: Path) -> Run:
    try:
        return Run(**json.loads(file.read_text()))
    except (ValueError, TypeError) as error:
        hint = "Another version of testbed wrote it, or it is damaged: undo the run's changes by hand, then delete it."
        raise TestbedError(f"is not a record of a run: {error}", where=str(file), hint=hint) from None


def begin(*, exclusive: bool) -> Run:
    """Make this process the owner of a run, with a record; programs that it starts from now on have the mark."""
    pid = os.getpid()
    born = _birth(pid)
    assert born is not None
    run = Run(f"{pid}-{secrets.token_hex(4)}", pid, born, exclusive)
    run.save()
    _OWN.append(run)
    os.environ[VARIABLE] = run.name
    return run


def end(run: Run) -> None:
    """Delete the record of a run that has left nothing."""
    run.draft.unlink(missing_ok=True)  # left if it was killed while writing
    run.file.unlink()
    if run in _OWN:
        _OWN.remove(run)
        del os.environ[VARIABLE]


def current() -> Run | None:
    """Return this process's run; None in a micro-VM."""
    return _OWN[0] if _OWN else None


def claim_namespace(name: str) -> None:
    """Record a network namespace before its creation."""
    if run := current():
        run.namespaces.append(name)
        run.save()


def claim_interface(run: Run, name: str, before: dict[str, Any]) -> None:
    """Record an interface of this machine before it is taken."""
    run.interfaces[name] = before
    run.save()


def release_interface(run: Run, name: str) -> None:
    """Remove a returned interface from the record."""
    del run.interfaces[name]
    run.save()


def claim_file(path: str | os.PathLike[str]) -> None:
    """Record a file or directory before its creation."""
    if run := current():
        run.files.append(os.fspath(path))
        run.save()


def claim_place(path: str | os.PathLike[str]) -> None:
    """Record a directory or an empty file, before its creation, on which something is mounted for programs."""
    if run := current():
        run.places.append(os.fspath(path))
        run.save()


def leave_place(path: str | os.PathLike[str]) -> None:
    """Remove such a place, unless somebody has put something there."""
    place = Path(path)
    with contextlib.suppress(OSError):  # not empty, or gone
        if place.is_dir():
            place.rmdir()
        elif place.stat().st_size == 0:
            place.unlink()


def claim_probes() -> None:
    """Record that the kernel is about to trace queue pairs."""
    if run := current():
        run.probes = True
        run.save()


def change_sysctl(path: str, value: int | str) -> None:
    """Set a sysctl of the machine until the run ends, if this kernel has it."""
    if (run := current()) and (sysctl.ROOT / path).exists():
        run.sysctls.setdefault(path, sysctl.read(path))
        run.save()
        sysctl.write(path, value)


def owner_of(alias: str) -> str:
    """Return the run that an alias names; empty for any other alias."""
    return alias.removeprefix(ALIAS) if alias.startswith(ALIAS) else ""


def owner_of_process(pid: int) -> str:
    """Return the run named in a process's environment, if any."""
    with contextlib.suppress(OSError):  # it has ended
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name == VARIABLE.encode():
                return value.decode(errors="replace")
    return ""
