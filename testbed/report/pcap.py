"""Frames of a pcap file, as tcpdump writes it. What a run was cut short in the middle of is read up to there."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAGIC = {b"\xa1\xb2\xc3\xd4": (">", 1000), b"\xd4\xc3\xb2\xa1": ("<", 1000),
         b"\xa1\xb2\x3c\x4d": (">", 1), b"\x4d\x3c\xb2\xa1": ("<", 1)}  # fmt: skip
"""The first four bytes: the order of bytes, and the nanoseconds of the smaller unit of time.
Source: draft-ietf-opsawg-pcap."""
ETHERNET = 1
LONGEST = 1 << 18
"""Bytes of a frame; more is a damaged file."""


@dataclass(frozen=True, slots=True)
class Frame:
    """`number` is Wireshark's frame.number, `t_ns` CLOCK_REALTIME."""

    number: int
    t_ns: int
    data: bytes


def frames(file: Path) -> Iterator[Frame]:
    """The frames of an Ethernet capture; none of a file that is no such capture."""
    with file.open("rb") as source:
        head = source.read(24)
        if len(head) < 24 or head[:4] not in MAGIC:
            return
        order, unit = MAGIC[head[:4]]
        if struct.unpack(f"{order}I", head[20:24])[0] & 0xFFFF != ETHERNET:
            return
        record = struct.Struct(f"{order}IIII")
        number = 0
        while len(header := source.read(record.size)) == record.size:
            seconds, fraction, length, _ = record.unpack(header)
            if length > LONGEST or len(data := source.read(length)) < length:
                return
            number += 1
            yield Frame(number, seconds * 10**9 + fraction * unit, data)
