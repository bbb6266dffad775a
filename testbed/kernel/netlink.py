"""
Netlink's framing, to and from bytes (include/uapi/linux/netlink.h).

pyroute2 builds a lab. This is for the families it has no client for, and for what happens per port, neighbour entry or
device: its general codec costs an emulated processor more than a millisecond a message.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

REQUEST, ACK, DUMP, REPLACE, CREATE = 0x1, 0x4, 0x300, 0x100, 0x400
"""Flags of a request."""
ERROR, DONE = 2, 3
"""Types of the message that ends an answer."""
NESTED = 0x8000
"""In the type of an attribute that holds others."""

_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ATTRIBUTE = struct.Struct("=HH")  # length, type


def request(kind: int, body: bytes, flags: int = 0) -> bytes:
    """A message that the kernel answers or acknowledges."""
    return _HEADER.pack(_HEADER.size + len(body), kind, REQUEST | ACK | flags, 0, 0) + body


def messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(type, body) of each."""
    offset = 0
    while offset < len(data):
        length, kind, *_ = _HEADER.unpack_from(data, offset)
        yield kind, data[offset + _HEADER.size : offset + length]
        offset += _aligned(length)


def check(body: bytes) -> None:
    """OSError with the kernel's errno if the body of an ERROR message is one; errno 0 acknowledges."""
    (number,) = struct.unpack_from("=i", body)
    if number:
        raise OSError(-number, os.strerror(-number))


def attribute(kind: int, value: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind) + value + bytes(_aligned(length) - length)


def nested(kind: int, *attributes: bytes) -> bytes:
    return attribute(kind | NESTED, b"".join(attributes))


def u32(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack("=I", value))


def string(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def attributes(data: bytes, offset: int = 0) -> Iterator[tuple[int, bytes]]:
    """(type, value) of each from `offset` on; in a list of equals they have one type."""
    while offset + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        yield kind, data[offset + _ATTRIBUTE.size : offset + length]
        offset += _aligned(length)


def _aligned(length: int) -> int:
    return (length + 3) & ~3
