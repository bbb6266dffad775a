"""Reading of pcap files, in the form of libpcap (pcap-savefile(5)), as far as they are complete."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from testbed.records.regular_files import opened

HEADER, RECORD = struct.Struct("IHHIIII"), struct.Struct("IIII")
NANOSECONDS = {0xA1B23C4D: 1, 0xA1B2C3D4: 1000}
"""Nanoseconds in a unit of the fractions of a second, by magic number."""
LONGEST = 262144
"""Bytes of a packet: libpcap's MAXIMUM_SNAPLEN."""
ETHERNET = 1
"""LINKTYPE_ETHERNET."""


@dataclass(frozen=True, slots=True)
class Packet:
    """A captured packet; `t_ns` is CLOCK_REALTIME, `length` its bytes on the wire."""

    t_ns: int
    length: int
    data: bytes


@dataclass(frozen=True)
class Pcap:
    """A pcap file. `order` is the byte order in `struct` notation; `unit` the nanoseconds of its fractions."""

    path: Path
    order: str
    unit: int
    link_type: int
    snap_length: int

    @classmethod
    def open(cls, path: Path) -> Pcap | None:
        """Open a pcap file; None for a file of another kind. OSError."""
        with opened(path) as file:
            head = file.read(HEADER.size)
        for order in "<>" if len(head) == HEADER.size else "":
            magic, _, _, _, _, snap_length, link_type = struct.unpack(order + HEADER.format, head)
            if magic in NANOSECONDS:
                return cls(path, order, NANOSECONDS[magic], link_type & 0xFFFF, snap_length)
        return None

    def packets(self) -> Iterator[Packet]:
        """Yield its packets up to the first that is cut off or damaged, one at a time."""
        record = struct.Struct(self.order + RECORD.format)
        with opened(self.path) as file:
            file.seek(HEADER.size)
            while (found := self._packet(file, record)) is not None:
                yield found

    def _packet(self, file: IO[bytes], record: struct.Struct) -> Packet | None:
        head = file.read(record.size)
        if len(head) < record.size:
            return None
        seconds, fraction, kept, length = record.unpack(head)
        if kept > LONGEST or len(data := file.read(kept)) < kept:
            return None
        return Packet(seconds * 10**9 + fraction * self.unit, length, data)
