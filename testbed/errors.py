"""
Everything testbed raises on purpose::

    TestbedError                 exit status 1: the run did not end as it should
    ├── InputError                           2: a file, a name or a value the user gave
    ├── UnsupportedError                     3: this machine cannot do it (tool, kernel, space, network)
    ├── MachineError                         1: the guest hung, panicked or ended early
    ├── DeadlineError                        1: a condition did not come true in time
    └── ConnectError                         1: the kernel refused to connect a queue pair (workload)

A message has three parts: what is wrong, where, and what to do about it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""The numbers of an OSError that is the user's to mend, wherever it comes from."""


class TestbedError(Exception):
    """Base of the tree. `where` is a place a person can go to (``file:line:column``), `hint` the next thing to do,
    `also` what else is wrong: places, or nothing, with a message each."""

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
    exit_status = 2


class UnsupportedError(TestbedError):
    exit_status = 3


class MachineError(TestbedError):
    pass


class DeadlineError(TestbedError):
    pass


def nearest(name: str, known: Iterable[str]) -> str | None:
    """What is known and spelled most like `name`, in upper or lower case; None when nothing is near."""
    from difflib import get_close_matches

    by_key = {one.lower(): one for one in known}
    return next((by_key[key] for key in get_close_matches(name.lower(), by_key, 1)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`Did you mean x? ` to begin a hint with, when something known is near, else nothing."""
    near = nearest(name, known)
    return f"Did you mean {near}? " if near else ""
