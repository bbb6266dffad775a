"""
Events that wake a wait, besides those of a lab's sources: changes in the nodes' kernels, files of the run.

A condition polled rarely misses short states. A condition polled often keeps the processor busy for hours in which
nothing happens. So a wait sleeps until something changes:

- links, addresses, routes and neighbour entries of every node: rtnetlink, one socket for all namespaces;
- output of programs: inotify on the run directory, where each program's output is.

Counters (of interfaces, RDMA devices, qdiscs) change without notification.
"""

import contextlib
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from testbed.kernel import netns, syscalls
from testbed.kernel import rtnetlink as rt
from testbed.kernel.rtnetlink import Rtnetlink
from testbed.kernel.syscalls import readable

GROUPS = (rt.LINK, rt.NEIGH, rt.IPV4_IFADDR, rt.IPV4_ROUTE, rt.IPV6_IFADDR, rt.IPV6_ROUTE)
IN_MODIFY, IN_MOVED_TO, IN_CREATE, IN_DELETE, IN_Q_OVERFLOW = 0x2, 0x80, 0x100, 0x200, 0x4000
_EVENT = struct.Struct("=iIII")  # watch, mask, cookie, length of the name


class Changes:
    """A context manager: each change after entry makes one of `watched` readable."""

    def __init__(self, namespaces: Iterable[str], directory: Path) -> None:
        self._namespaces = namespaces
        self._directory = directory

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            self._kernels = opened.enter_context(Rtnetlink())
            for namespace in self._namespaces:
                self._kernels.number_namespace(netns.path(namespace))
            self._kernels.listen(GROUPS, everywhere=True)
            with syscalls.explained("inotify"):
                self._files = syscalls.call("inotify_init1", os.O_CLOEXEC | os.O_NONBLOCK)
            opened.callback(os.close, self._files)
            self._watch(self._directory)
            self._close = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._close.close()

    @property
    def watched(self) -> list[int]:
        return [self._kernels.fileno(), self._files]

    def pending(self) -> bool:
        """Return whether a change is pending."""
        return readable(self.watched, 0)

    def drain(self) -> None:
        """Consume pending changes, so that only a new one wakes again."""
        for _ in self._kernels.news():  # overflow loses nothing: a condition reads the state
            pass
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._files, 1 << 16):
                if any(mask & (IN_CREATE | IN_Q_OVERFLOW) for mask in _masks(data)):
                    self._watch(self._directory)

    def _watch(self, directory: Path) -> None:
        """Watch a directory and those in it, which jobs have. A directory that is already watched stays so."""
        mask = IN_MODIFY | IN_MOVED_TO | IN_CREATE | IN_DELETE
        for place, _, _ in os.walk(directory):
            with contextlib.suppress(OSError):  # deleted, or too many: the wait polls too
                syscalls.call("inotify_add_watch", self._files, os.fsencode(place), mask)


def _masks(data: bytes) -> Iterable[int]:
    offset = 0
    while offset < len(data):
        _, mask, _, length = _EVENT.unpack_from(data, offset)
        offset += _EVENT.size + length
        yield mask
