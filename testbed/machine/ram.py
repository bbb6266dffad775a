"""RAM of a running QEMU, which maps a snapshot copy-on-write: read and write access to the changed pages.

They are in the process's own memory. /proc/PID/pagemap lists them (Documentation/admin-guide/mm/pagemap.rst), and
/proc/PID/mem has them; both are open to the parent of a process.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.errors import MachineError, UnsupportedError

PAGE = 4096
ENTRY = 8
CHANGED = re.compile(rb"[\x40-\x5f\x80-\x9f\xc0-\xdf]+")
"""The highest byte of a pagemap entry of an anonymous page: present (80) or swapped (40), and not of the file (20)."""
PIECE = 1 << 20
Runs = list[tuple[int, int]]
"""Ranges of pages: the number of the first in RAM, and how many."""


class Ram:
    """RAM of the process `pid`, which maps the open file `snapshot`."""

    def __init__(self, pid: int, snapshot: int) -> None:
        self._pid = pid
        status = os.fstat(snapshot)
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
        self._maps = []
        """Start and end in the process, and the offset in RAM."""
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            addresses, mode, offset, where, inode = line.split(maxsplit=5)[:5]
            if (where, inode) == (device, str(status.st_ino)) and mode[3] == "p":
                start, end = (int(address, 16) for address in addresses.split("-"))
                self._maps.append((start, end, int(offset, 16)))
        if not self._maps:
            raise MachineError("the guest's RAM was not found in QEMU's memory")

    def changed(self) -> Runs:
        """Return the pages that differ from the snapshot's."""
        found: Runs = []
        with self._open("pagemap", os.O_RDONLY) as handle:
            for start, end, offset in self._maps:
                entries = read(handle, (end - start) // PAGE * ENTRY, start // PAGE * ENTRY)
                first = offset // PAGE
                found += [(first + run.start(), len(run[0])) for run in CHANGED.finditer(entries[ENTRY - 1 :: ENTRY])]
        return found

    def pages(self, runs: Runs) -> Iterator[tuple[int, bytes]]:
        """Yield the contents of pages, up to PIECE at a time: the number of the first one, and the bytes."""
        with self._open("mem", os.O_RDONLY) as handle:
            for first, count in runs:
                for page in range(first, first + count, PIECE // PAGE):
                    size = min(PIECE // PAGE, first + count - page) * PAGE
                    yield page, read(handle, size, self._address(page))

    def write(self, pages: Iterator[tuple[int, bytes]]) -> None:
        with self._open("mem", os.O_RDWR) as handle:
            for page, data in pages:
                if os.pwrite(handle, data, self._address(page)) != len(data):
                    raise MachineError(f"QEMU's memory could not be written at page {page}")

    def _address(self, page: int) -> int:
        """Return the address of a page in the process; reads and writes from there stay in one of its mappings."""
        at = page * PAGE
        for start, end, offset in self._maps:
            if offset <= at < offset + end - start:
                return start + at - offset
        raise MachineError(f"page {page} is not in the machine's RAM")

    @contextmanager
    def _open(self, name: str, flags: int) -> Iterator[int]:
        path = f"/proc/{self._pid}/{name}"
        try:
            handle = os.open(path, flags)
        except PermissionError:
            text = "a process cannot read the memory of its child here"
            raise UnsupportedError(
                text, where=path, hint="Steps of a run can be kept where ptrace is allowed."
            ) from None
        try:
            yield handle
        finally:
            os.close(handle)


def read(handle: int, size: int, offset: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        piece = os.pread(handle, size - len(found), offset + len(found))
        if not piece:
            raise MachineError("QEMU's memory ends early")
        found += piece
    return bytes(found)
