"""
Netlink: its framing (include/uapi/linux/netlink.h), and a socket that asks and listens.

All that testbed asks of rtnetlink and of RDMA netlink goes this way. pyroute2 has no client for the latter, and its
general codec costs an emulated processor more than a millisecond a message, which is what building a lab consists of.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import Self

REQUEST, ACK, DUMP, REPLACE, EXCLUSIVE, CREATE = 0x1, 0x4, 0x300, 0x100, 0x200, 0x400
"""Flags of a request."""
INTERRUPTED = 0x10
"""The flag of a dump during which the table has changed."""
ERROR, DONE = 2, 3
"""Types of the message that ends an answer."""
NESTED = 0x8000
"""In the type of an attribute that holds others."""

Message = tuple[int, bytes]
"""Type and body."""
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_RECEIVE = 1 << 16
"""Twice what the kernel puts into one datagram."""
_SOL_NETLINK, _ADD_MEMBERSHIP, _LISTEN_ALL_NSID = 270, 1, 8
_SO_RCVBUFFORCE, _SO_MEMINFO = 33, 55
_MEMINFO = struct.Struct("=9I")
"""The last one counts what found no room (SK_MEMINFO_DROPS)."""
_DUMPS = 10
"""Dumps that are tried while a table changes."""


class Netlink:
    """A socket of the network namespace that the calling thread is in; any thread may use it later."""

    def __init__(self, family: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)
        self._socket.bind((0, 0))  # one without a port of its own hears no group
        self._overflowed, self._dropped = False, 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(self, kind: int, body: bytes, flags: int = 0) -> list[Message]:
        """Send a request and return the messages that answer it. OSError with the kernel's errno if it refuses."""
        for _ in range(_DUMPS):
            self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind, REQUEST | ACK | flags, 0, 0) + body)
            answers, consistent = self._answers()
            if consistent:
                return answers
        raise OSError(errno.EAGAIN, f"a table changed during each of {_DUMPS} dumps")

    def _answers(self) -> tuple[list[Message], bool]:
        """Receive up to the message that ends an answer; False if what came is of two states of a table."""
        answers: list[Message] = []
        consistent = True
        while True:
            for answer, flags, content in _messages(self._socket.recv(_RECEIVE)):
                consistent &= not flags & INTERRUPTED
                if answer in (ERROR, DONE):
                    (number,) = struct.unpack_from("=i", content)
                    if number:
                        raise OSError(-number, os.strerror(-number))
                    return answers, consistent
                answers.append((answer, content))

    def listen(self, groups: Iterable[int], *, buffer: int = 0, everywhere: bool = False) -> None:
        """Join multicast groups. From now on only `news` may be called.

        The kernel keeps up to `buffer` bytes of news. `everywhere`: also from the other network namespaces that have
        a number in this one.
        """
        self._socket.setblocking(False)
        if buffer:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer)
        if everywhere:
            self._socket.setsockopt(_SOL_NETLINK, _LISTEN_ALL_NSID, 1)
        for group in groups:
            self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)

    def news(self) -> Iterator[Message]:
        """Yield what has arrived, without waiting. `lost` counts what found no room."""
        while True:
            try:
                data = self._socket.recv(_RECEIVE)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._overflowed = True
                continue
            yield from ((kind, body) for kind, _, body in _messages(data))

    def lost(self) -> int:
        """Return how many messages found no room since the last call, as far as `news` has come."""
        if not self._overflowed:
            return 0
        before = self._dropped
        *_, self._dropped = _MEMINFO.unpack(self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))
        self._overflowed = False
        return max(1, self._dropped - before)


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield (type, flags, body)."""
    offset = 0
    while offset < len(data):
        length, kind, flags, *_ = _HEADER.unpack_from(data, offset)
        yield kind, flags, data[offset + _HEADER.size : offset + length]
        offset += _aligned(length)


def attribute(kind: int, value: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind) + value + bytes(_aligned(length) - length)


def nested(kind: int, *attributes: bytes) -> bytes:
    return attribute(kind | NESTED, b"".join(attributes))


def u8(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=B", value))


def u16(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=H", value))


def u32(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def number(value: bytes) -> int:
    """Decode the value of an attribute that is an unsigned number of the machine's byte order."""
    return int.from_bytes(value, sys.byteorder)


def string(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def mac_bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def elements(data: bytes, offset: int = 0) -> Iterator[Message]:
    """Yield (type, value) of each attribute from `offset` on; in a list of equals they have one type."""
    while offset + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        yield kind & ~NESTED, data[offset + _ATTRIBUTE.size : offset + length]
        offset += _aligned(length)


def attributes(data: bytes, offset: int = 0) -> dict[int, bytes]:
    """Return the attributes from `offset` on by their type."""
    return dict(elements(data, offset))


def text(value: bytes) -> str:
    """Decode the value of a string attribute."""
    return value.rstrip(b"\0").decode()


def _aligned(length: int) -> int:
    return (length + 3) & ~3
