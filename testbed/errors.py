"""
Exceptions that testbed raises on purpose::

    TestbedError                 exit status 1: the run did not end as it should
    ├── InputError                           2: a file, a name or a value the user gave
    ├── UnsupportedError                     3: this machine cannot do it (tool, kernel, space, network)
    ├── MachineError                         1: the guest hung, panicked or ended early
    ├── DeadlineError                        1: a condition did not come true in time
    ├── FaultError                           1: verification misses a fault, or finds it after recovery (faults)
    ├── ConnectError                         1: the kernel refused to connect a queue pair (workload)
    └── CollectiveError                      1: a message between two ranks failed (workload)

A message has three parts: the problem, its place, and what to do.
"""

import contextlib
import errno
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

__all__ = ["DeadlineError", "InputError", "MachineError", "TestbedError", "UnsupportedError"]

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Kernel errors that the user must fix, wherever they occur."""


class TestbedError(Exception):
    """Base of the tree. `where` is a place that a person can open (``file:line:column``), `hint` the next thing to do.
    `also` lists further problems: places, or nothing, with a message each."""

    __test__ = False
    exit_status = 1

    def __init__(self, message: str, *, where: str = "", hint: str = "", also: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        self.also = tuple(also)

    def __str__(self) -> str:
        problems = ((self.where, self.message), *self.also)
        lines = [f"{where}: {message}" if where else message for where, message in problems]
        return "\n".join([*lines, *([f"  {self.hint}"] if self.hint else [])])


class InputError(TestbedError):
    """A file, a name or a value that the user gave is wrong."""

    exit_status = 2


class UnsupportedError(TestbedError):
    """This machine cannot do it: a tool, the kernel, space or the network is missing."""

    exit_status = 3


class MachineError(TestbedError):
    """The guest hung, panicked or ended early."""


class DeadlineError(TestbedError):
    """A condition did not come true in time."""


_MOST_COMPARED = 200


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to `name`, None if none is near. Ignore case; treat `-` as `_`."""
    from difflib import get_close_matches

    by_key = {_key(one): one for one in known}
    return next((by_key[key] for key in get_close_matches(_key(name), by_key, 1)), None)


def did_you_mean(name: object, known: Iterable[object], *, aside: bool = False) -> str:
    """Return `Did you mean x? ` to begin a hint, or nothing if no known name is near.

    `aside`: return `; did you mean 'x'?` to end the message of one of many problems. Only the first of many names are
    compared then.
    """
    near = nearest(str(name), map(str, islice(known, _MOST_COMPARED) if aside else known))
    if near is None:
        return ""
    return f"; did you mean {near!r}?" if aside else f"Did you mean {near}? "


def _key(name: str) -> str:
    return name.lower().replace("_", "-")


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in an OSError that names none, such as that of a write to a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
