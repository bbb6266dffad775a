"""The kernel's log, one record per read, with a count of lost ones. Source: Documentation/ABI/testing/dev-kmsg."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DEVICE = Path("/dev/kmsg")
LONGEST = 1 << 14
"""Bytes, more than any record has (PRINTK_MESSAGE_MAX): a read with a smaller buffer fails with EINVAL."""


class Record(NamedTuple):
    """An entry of the log. Its text has unprintable characters and backslashes as ``\\xNN``."""

    us: int
    """Microseconds of the kernel's log clock."""
    text: str
    kernel: bool
    """True if the kernel wrote it; programs write to this log too."""
    lost: int
    """Records overwritten before they could be read, directly before this one."""


class KernelLog:
    """The records written from now on; with `whole`, all since boot."""

    def __init__(self, *, whole: bool = False) -> None:
        self._file = os.open(DEVICE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._next: int | None = 0
        """The number of the next record, if known."""
        if not whole:
            os.lseek(self._file, 0, os.SEEK_END)
            self._next = None

    def close(self) -> None:
        os.close(self._file)

    def records(self) -> Iterator[Record]:
        """Yield the records written since the last call, without waiting."""
        gap = 0
        while True:
            try:
                data = os.read(self._file, LONGEST)
            except BlockingIOError:
                return
            except BrokenPipeError:  # the next one was overwritten: reading goes on after the gap
                gap = 1
                continue
            head, _, rest = data.decode(errors="replace").partition(";")
            priority, number, us, *_ = head.split(",")
            lost = gap if self._next is None else int(number) - self._next
            gap, self._next = 0, int(number) + 1
            text = rest.partition("\n")[0]  # continuation lines are a dictionary for programs
            yield Record(int(us), text, int(priority) >> 3 == 0, lost)
