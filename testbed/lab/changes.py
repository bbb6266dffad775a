"""
What wakes a wait besides the switches: news of the nodes' kernels, files of the run directory, the ends of programs.

A condition that is looked at now and then misses what holds for a short while, and one that is looked at often keeps
the processor busy in hours in which nothing happens. So whoever waits sleeps until something has changed:

- links, addresses, routes and neighbour entries of every node: rtnetlink, one socket for all namespaces
  (NETLINK_LISTEN_ALL_NSID; each needs a number in the namespace of the listener, RTM_NEWNSID);
- what programs write: inotify on the run directory, where each program's output is;
- a program that ends: its pidfd.

Counters (of interfaces, RDMA devices, qdiscs) change without notice.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from testbed.errors import TestbedError
from testbed.kernel import netlink, netns
from testbed.kernel.readiness import readable

RTM_NEWNSID = 88
NETNSA_NSID, NETNSA_FD = 1, 3
ANY_NUMBER = struct.pack("=i", -1)
_GENERIC = bytes(4)
"""struct rtgenmsg of no family."""
SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, NETLINK_LISTEN_ALL_NSID = 270, 1, 8
GROUPS = (1, 3, 5, 7, 9, 11)
"""RTNLGRP_LINK, _NEIGH, _IPV4_IFADDR, _IPV4_ROUTE, _IPV6_IFADDR, _IPV6_ROUTE (linux/rtnetlink.h)."""
IN_MODIFY, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x2, 0x80, 0x100, 0x200
_EVENT = struct.Struct("=iIII")  # watch, mask, cookie, length of the name
_libc = ctypes.CDLL(None, use_errno=True)


class Changes:
    """A context manager; what changes from its beginning on makes one of `watched` readable."""

    def __init__(self, namespaces: Iterable[str], directory: Path, programs: Iterable[int]) -> None:
        """`programs` are process IDs of children of this process."""
        self._namespaces = namespaces
        self._directory = directory
        self._programs = programs

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            self._kernels = opened.enter_context(
                socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
            )
            for namespace in self._namespaces:
                self._number(namespace)
            self._kernels.setsockopt(SOL_NETLINK, NETLINK_LISTEN_ALL_NSID, 1)
            for group in GROUPS:
                self._kernels.setsockopt(SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, group)
            self._kernels.setblocking(False)
            self._files = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
            if self._files < 0:
                raise TestbedError(f"inotify: {os.strerror(ctypes.get_errno())}")
            opened.callback(os.close, self._files)
            self._watch(self._directory)
            self._ends = {}
            for program in self._programs:
                self._ends[program] = os.pidfd_open(program)
                opened.callback(os.close, self._ends[program])
            self._close = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._close.close()

    @property
    def watched(self) -> list[int]:
        return [self._kernels.fileno(), self._files, *self._ends.values()]

    def pending(self) -> bool:
        """Whether there is something to take."""
        return readable(self.watched, 0)

    def take(self) -> None:
        """Takes what has come, so that only something new wakes again; a program ends once."""
        while True:
            try:
                self._kernels.recv(1 << 16)
            except BlockingIOError:
                break
            except OSError:  # ENOBUFS: more came than there is room for
                continue
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._files, 1 << 16):
                if any(mask & IN_CREATE for mask in _masks(data)):
                    self._watch(self._directory)
        for program in [program for program in self._ends if _has_ended(program)]:
            del self._ends[program]

    def _number(self, namespace: str) -> None:
        """Gives a namespace a number here, if it has none yet: without it nothing is heard of it."""
        handle = os.open(netns.path(namespace), os.O_RDONLY | os.O_CLOEXEC)
        try:
            body = _GENERIC + netlink.attribute(NETNSA_NSID, ANY_NUMBER) + netlink.u32(NETNSA_FD, handle)
            self._kernels.send(netlink.request(RTM_NEWNSID, body))
            for _, answer in netlink.messages(self._kernels.recv(1 << 16)):
                with contextlib.suppress(FileExistsError):
                    netlink.check(answer)
        finally:
            os.close(handle)

    def _watch(self, directory: Path) -> None:
        """The directory and those in it: jobs have directories of their own. What is watched already stays so."""
        mask = IN_MODIFY | IN_MOVED_TO | IN_CREATE | IN_DELETE
        for place, _, _ in os.walk(directory):
            _libc.inotify_add_watch(self._files, os.fsencode(place), mask)


def _masks(data: bytes) -> Iterable[int]:
    offset = 0
    while offset < len(data):
        _, mask, _, length = _EVENT.unpack_from(data, offset)
        offset += _EVENT.size + length
        yield mask


def _has_ended(program: int) -> bool:
    """Whether a child of ours has; it stays for its owner to wait for."""
    try:
        return os.waitid(os.P_PID, program, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True
