"""
Netlink: its framing (include/uapi/linux/netlink.h), and a socket that sends requests and listens.

All requests of testbed to rtnetlink and RDMA netlink use it. pyroute2 has no client for the latter, and its general
codec costs an emulated processor more than a millisecond per message, which dominates the time to build a lab.
"""

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import Self

REQUEST, ACK, ECHO, DUMP, REPLACE, EXCLUSIVE, CREATE = 0x1, 0x4, 0x8, 0x300, 0x100, 0x200, 0x400
"""Request flags."""
INTERRUPTED = 0x10
"""The flag of a dump during which the table changed."""
ERROR, DONE = 2, 3
"""Types of the message that ends a response."""
NESTED = 0x8000
"""Flag in the type of an attribute that contains others."""

Message = tuple[int, bytes]
"""Type and body."""
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_RECEIVE = 1 << 16
"""Bytes, twice the kernel's largest datagram."""
_SOL_NETLINK, _ADD_MEMBERSHIP, _LISTEN_ALL_NSID = 270, 1, 8
_CONTROL = socket.CMSG_SPACE(4)
_SO_RCVBUFFORCE, _SO_MEMINFO = 33, 55
_MEMINFO = struct.Struct("=9I")
"""The last one counts drops for lack of buffer space (SK_MEMINFO_DROPS)."""
_DUMPS = 10
"""Attempts to dump a table while it changes."""


class Netlink:
    """A socket of the calling thread's network namespace; any thread may use it later."""

    def __init__(self, family: int) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, family)
        self._socket.bind((0, 0))  # a socket without a port receives no group
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
        """Send a request and return the messages of the response. OSError with the kernel's errno if it refuses."""
        for _ in range(_DUMPS):
            self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind, REQUEST | ACK | flags, 0, 0) + body)
            answers, consistent = self._answers()
            if consistent:
                return answers
        raise OSError(errno.EAGAIN, f"a table changed during each of {_DUMPS} dumps")

    def _answers(self) -> tuple[list[Message], bool]:
        """Receive up to the message that ends a response; False if the messages mix two states of a table."""
        answers: list[Message] = []
        consistent = True
        while True:
            for answer, flags, content in messages(self._socket.recv(_RECEIVE)):
                consistent &= not flags & INTERRUPTED
                if answer in (ERROR, DONE):
                    (number,) = struct.unpack_from("=i", content)
                    if number:
                        raise OSError(-number, os.strerror(-number))
                    return answers, consistent
                answers.append((answer, content))

    def listen(self, groups: Iterable[int], *, buffer: int = 0, everywhere: bool = False) -> None:
        """Join multicast groups. From now on only `news` may be called.

        The kernel buffers up to `buffer` bytes. `everywhere`: also from other network namespaces that have a number in
        this one.
        """
        self._socket.setblocking(False)
        if buffer:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, buffer)
        if everywhere:
            self._socket.setsockopt(_SOL_NETLINK, _LISTEN_ALL_NSID, 1)
        for group in groups:
            self._socket.setsockopt(_SOL_NETLINK, _ADD_MEMBERSHIP, group)

    def news(self) -> Iterator[Message]:
        """Yield the messages that have arrived, without waiting. `lost` counts dropped ones."""
        return ((kind, body) for _, kind, body in self.news_by_namespace())

    def news_by_namespace(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield them with the number that the sender's network namespace has in this one; -1: it is this one."""
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(_RECEIVE, _CONTROL)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self._overflowed = True
                continue
            numbers = [value for level, kind, value in ancillary if (level, kind) == (_SOL_NETLINK, _LISTEN_ALL_NSID)]
            number = int.from_bytes(numbers[0], sys.byteorder, signed=True) if numbers else -1
            yield from ((number, kind, body) for kind, _, body in messages(data))

    def lost(self) -> int:
        """Return the number of messages dropped since the last call, as far as `news` has read."""
        if not self._overflowed:
            return 0
        before = self._dropped
        *_, self._dropped = _MEMINFO.unpack(self._socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _MEMINFO.size))
        self._overflowed = False
        return max(1, self._dropped - before)


def messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield (kind, flags, body) of the messages in one packet."""
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
    """Decode an attribute that is an unsigned number in the machine's byte order."""
    return int.from_bytes(value, sys.byteorder)


def string(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def mac_bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def elements(data: bytes, offset: int = 0) -> Iterator[Message]:
    """Yield (type, value) of each attribute from `offset` on; in a list of equal elements all have one type."""
    head, unpack, last = _ATTRIBUTE.size, _ATTRIBUTE.unpack_from, len(data) - _ATTRIBUTE.size
    while offset <= last:
        length, kind = unpack(data, offset)
        yield kind & ~NESTED, data[offset + head : offset + length]
        offset += (length + 3) & ~3


def attributes(data: bytes, offset: int = 0) -> dict[int, bytes]:
    """Return the attributes from `offset` on by type."""
    return dict(elements(data, offset))


def text(value: bytes) -> str:
    """Decode a string attribute."""
    return value.rstrip(b"\0").decode()


def _aligned(length: int) -> int:
    return (length + 3) & ~3
