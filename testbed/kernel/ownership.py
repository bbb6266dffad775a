"""
What a run on this very kernel owns: a record of it, written before anything changes, and a mark on what it makes.

So what a run that was killed left can be found and taken back, and nothing else (executor/leftovers.py). In a micro-VM,
which is gone when its run ends, there is no run here, and nothing in this module does anything.

Marks: a network namespace has one in the alias of its `lo`; what is in it goes with it. A program has one in its
environment. Files and settings, which have no place for a mark, are in the record.
"""

from __future__ import annotations

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
"""Gone with the next boot, as all that a run makes."""
VARIABLE = "TESTBED_RUN"
ALIAS = "testbed run "
DEAD = "ZX"
"""States of a process that has ended (proc_pid_stat(5))."""


@dataclass
class Run:
    """A run, and its record. Its owner is a process, told from a later one of its number by its time of birth."""

    name: str
    pid: int
    born: int
    """Clock ticks after boot."""
    exclusive: bool
    """The RDMA netns mode before."""
    sysctls: dict[str, str] = field(default_factory=dict)
    """The values before, by paths below /proc/sys."""
    namespaces: list[str] = field(default_factory=list)
    """All names that it gave, or was about to give."""
    interfaces: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Interfaces of this machine that it took, by their names: what it has to know to give them back."""
    files: list[str] = field(default_factory=list)
    """Files and directories outside the run directory, made or about to be."""
    probes: bool = False
    """Whether it has the kernel trace queue pairs."""

    @property
    def file(self) -> Path:
        return RUNS / f"{self.name}.json"

    @property
    def draft(self) -> Path:
        """The record while it is written."""
        return self.file.with_suffix(".new")

    @property
    def lives(self) -> bool:
        return _birth(self.pid) == self.born

    def save(self) -> None:
        """Write the record, whole or not at all."""
        self.draft.write_text(json.dumps(dataclasses.asdict(self)))
        self.draft.replace(self.file)


_OWN: list[Run] = []
"""The run of this process, if it has one."""


def _birth(pid: int) -> int | None:
    """Return when a process was born; None if there is none, or only its status is left."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in DEAD else int(fields[18])


def runs() -> list[Run]:
    """Return the runs that have a record, dead ones too."""
    return [_read(file) for file in sorted(RUNS.glob("*.json"))]


def _read(file: Path) -> Run:
    try:
        return Run(**json.loads(file.read_text()))
    except (ValueError, TypeError) as error:
        hint = "It is of another version of testbed, or damaged: look for what the run changed by hand, then delete it."
        raise TestbedError(f"is no record of a run: {error}", where=str(file), hint=hint) from None


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
    """Forget a run that has left nothing."""
    run.draft.unlink(missing_ok=True)  # it was killed while it wrote
    run.file.unlink()
    if run in _OWN:
        _OWN.remove(run)
        del os.environ[VARIABLE]


def current() -> Run | None:
    """Return the run of this process; None in a micro-VM."""
    return _OWN[0] if _OWN else None


def claim_namespace(name: str) -> None:
    """Record a network namespace that is about to be made."""
    if run := current():
        run.namespaces.append(name)
        run.save()


def claim_interface(run: Run, name: str, before: dict[str, Any]) -> None:
    """Record an interface of this machine that is about to be taken."""
    run.interfaces[name] = before
    run.save()


def release_interface(run: Run, name: str) -> None:
    """Forget one that has been given back."""
    del run.interfaces[name]
    run.save()


def claim_file(path: str | os.PathLike[str]) -> None:
    """Record a file or a directory that is about to be made."""
    if run := current():
        run.files.append(os.fspath(path))
        run.save()


def claim_probes() -> None:
    """Record that the kernel is about to trace queue pairs."""
    if run := current():
        run.probes = True
        run.save()


def change_sysctl(path: str, value: int | str) -> None:
    """Set a value of the machine until the run ends, if this kernel has it."""
    if (run := current()) and (sysctl.ROOT / path).exists():
        run.sysctls.setdefault(path, sysctl.read(path))
        run.save()
        sysctl.write(path, value)


def owner_of(alias: str) -> str:
    """Return the run that an alias names; nothing for any other alias."""
    return alias.removeprefix(ALIAS) if alias.startswith(ALIAS) else ""


def owner_of_process(pid: int) -> str:
    """Return the run that a process has in its environment, if any."""
    with contextlib.suppress(OSError):  # it has ended meanwhile
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name == VARIABLE.encode():
                return value.decode(errors="replace")
    return ""
