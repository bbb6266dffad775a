"""A TCP connection as a probe: how long it takes, and whether a segment of full size then arrives."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from contextlib import ExitStack
from typing import NamedTuple, Self

from testbed.lab import HostInterface
from testbed.topology import Family

WITHIN_S = 1.5
"""A lost SYN is sent again after a second (RFC 6298), so a loss shows as a second more."""
AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER: close by RST, so that no connection lingers on."""
FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}


class Connected(NamedTuple):
    """`elapsed_ns` from the SYN to its answer; `error` says what did not arrive."""

    elapsed_ns: int
    error: str


class TcpEnd:
    """A listener at an address of a NIC. Close it."""

    def __init__(self, interface: HostInterface, size: int, family: Family = 4) -> None:
        """`size` is the number of bytes that a probe sends."""
        self.interface = interface
        self.ip = interface.address(family).ip
        self._size = size
        self._ready = interface.node.context.scheduler.ready
        self._family = FAMILIES[family]
        self._listener = self._socket()
        try:
            self._listener.bind((str(self.ip), 0))
            self._listener.listen()
        except BaseException:
            self.close()
            raise

    def _socket(self) -> socket.socket:
        with self.interface.node.entered():
            return socket.socket(self._family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)

    def close(self) -> None:
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def probe(self, to: TcpEnd) -> Connected:
        """Connect to another NIC and send it data."""
        with ExitStack() as stack:
            near = stack.enter_context(self._socket())
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            near.bind((str(self.ip), 0))
            writable = stack.enter_context(select.epoll())
            deadline = time.monotonic() + WITHIN_S
            began = time.monotonic_ns()
            error = near.connect_ex(to._listener.getsockname()[:2])
            if error == errno.EINPROGRESS:
                writable.register(near, select.EPOLLOUT)
                if not self._ready([writable], WITHIN_S):
                    return Connected(0, f"no answer to the SYN in {WITHIN_S:g} s")
                error = near.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            elapsed = time.monotonic_ns() - began
            if error:
                return Connected(0, os.strerror(error).lower())
            near.send(bytes(self._size))
            left = self._size
            if self._ready([to._listener], max(0.0, deadline - time.monotonic())):
                far = stack.enter_context(to._listener.accept()[0])
                while left and self._ready([far], max(0.0, deadline - time.monotonic())):
                    if not (data := far.recv(left)):
                        break
                    left -= len(data)
            return Connected(elapsed, f"it connects, but of {self._size} bytes {left} do not arrive" if left else "")
