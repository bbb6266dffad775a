"""
The netlink messages a switch needs while it runs.

pyroute2 builds the switch. This is for what it has no names for (fdb_max_learned, rules by DSCP), and for what happens
per port or neighbour entry: its general codec costs an emulated processor more than a millisecond a message.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator

RTM_NEWLINK, RTM_SETLINK = 16, 19
RTM_NEWROUTE, RTM_DELROUTE = 24, 25
RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 28, 29, 30
RTM_NEWRULE, RTM_DELRULE = 32, 33
RTMGRP_NEIGH = 1 << 2
NLM_F_REPLACE, NLM_F_CREATE = 0x100, 0x400
NLA_F_NESTED = 0x8000

_NLM_F_REQUEST, _NLM_F_ACK = 0x1, 0x4
_NLMSG_ERROR = 2
SO_RCVBUFFORCE = 33
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ATTRIBUTE = struct.Struct("=HH")  # length, type


class Rtnetlink:
    """A socket in the namespace the calling thread is in; it may be used from any other later."""

    def __init__(self, groups: int = 0) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.bind((0, groups))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def request(self, kind: int, body: bytes, flags: int = 0) -> None:
        """One request and its answer, which is there when the send returns. OSError if the kernel refused."""
        flags |= _NLM_F_REQUEST | _NLM_F_ACK
        self._socket.send(_HEADER.pack(_HEADER.size + len(body), kind, flags, 0, 0) + body)
        answer = self._socket.recv(65536)
        (number,) = struct.unpack_from("=i", answer, _HEADER.size)
        if number:
            raise OSError(-number, os.strerror(-number))

    def listen(self, buffer: int) -> None:
        """From now on `messages` takes what is there without waiting; the kernel keeps up to `buffer` bytes."""
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, buffer)

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """(type, body) of each message that has arrived. OSError (ENOBUFS) if the kernel had to drop some."""
        while True:
            try:
                data = self._socket.recv(1 << 20)
            except BlockingIOError:
                return
            offset = 0
            while offset < len(data):
                length, kind, *_ = _HEADER.unpack_from(data, offset)
                yield kind, data[offset + _HEADER.size : offset + length]
                offset += _aligned(length)


def attribute(kind: int, value: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind) + value + bytes(_aligned(length) - length)


def nested(kind: int, *attributes: bytes) -> bytes:
    return attribute(kind | NLA_F_NESTED, b"".join(attributes))


def u32(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def attributes(data: bytes, offset: int) -> dict[int, bytes]:
    found = {}
    while offset + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        found[kind & ~NLA_F_NESTED] = data[offset + _ATTRIBUTE.size : offset + length]
        offset += _aligned(length)
    return found


def missing(error: OSError) -> bool:
    """The thing to delete was not there."""
    return error.errno in (errno.ENOENT, errno.ESRCH)


def _aligned(length: int) -> int:
    return (length + 3) & ~3
