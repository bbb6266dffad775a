"""Reading of pcapng files (draft-ietf-opsawg-pcapng), as far as they are complete."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from testbed.records.pcap import LONGEST, Packet
from testbed.records.regular_files import opened

SECTION, INTERFACE, OLD_PACKET, PACKET = 0x0A0D0D0A, 1, 2, 6
MAGIC = {"<": b"\x4d\x3c\x2b\x1a", ">": b"\x1a\x2b\x3c\x4d"}
NAME, RESOLUTION, OFFSET = 2, 9, 14
"""Options of an interface."""
MOST_BLOCK = LONGEST + (1 << 20)
"""Bytes of a block: a packet, and its options."""
MOST_INTERFACES = 4096


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface of a section; `per_second` is the unit of its times."""

    name: str
    link_type: int
    per_second: int
    offset_s: int


@dataclass
class Pcapng:
    """A pcapng file. `complete` is whether the packets that were read are all of it."""

    path: Path
    complete: bool = True
    _interfaces: list[Interface] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path) -> Pcapng | None:
        """Open a pcapng file; None for a file of another kind. OSError."""
        with opened(path) as file:
            head = file.read(12)
        known = head[:4] == SECTION.to_bytes(4, "big") and head[8:] in MAGIC.values()
        return cls(path) if known else None

    def packets(self) -> Iterator[tuple[Interface, Packet]]:
        """Yield packets that have a time, up to the first block that is cut off or damaged."""
        with opened(self.path) as file:
            order = "<"
            while head := file.read(8):
                if head[:4] == SECTION.to_bytes(4, "big"):
                    magic = file.read(4)
                    order = next((name for name, bytes_ in MAGIC.items() if bytes_ == magic), "")
                    self._interfaces = []
                    file.seek(-len(magic), 1)
                body = _body(file, head, order)
                if body is None:
                    self.complete = False
                    return
                kind = struct.unpack(f"{order}I", head[:4])[0]
                try:
                    if kind == INTERFACE and len(self._interfaces) < MOST_INTERFACES:
                        self._interfaces.append(_interface(body, order))
                    elif kind in (PACKET, OLD_PACKET):
                        yield self._packet(body, order, "IIIII" if kind == PACKET else "HHIIII")
                except (struct.error, IndexError, ValueError):
                    self.complete = False
                    return

    def _packet(self, body: bytes, order: str, layout: str) -> tuple[Interface, Packet]:
        number, *_, high, low, kept, length = struct.unpack_from(order + layout, body)
        at = struct.calcsize(order + layout)
        if kept > LONGEST or at + kept > len(body):
            raise ValueError("it is cut off")
        interface = self._interfaces[number]
        t = (high << 32 | low) * 10**9 // interface.per_second + interface.offset_s * 10**9
        return interface, Packet(t, length, body[at : at + kept])


def _body(file: IO[bytes], head: bytes, order: str) -> bytes | None:
    """Return the contents of a block; None if it is cut off or damaged."""
    if len(head) < 8 or not order:
        return None
    total = struct.unpack(f"{order}I", head[4:])[0]
    if total % 4 or not 12 <= total <= MOST_BLOCK:
        return None
    body = file.read(total - 8)
    return body[:-4] if len(body) == total - 8 and body[-4:] == head[4:] else None


def _interface(body: bytes, order: str) -> Interface:
    [link_type] = struct.unpack_from(f"{order}H", body)
    options = dict(_options(body[8:], order))
    unit = options.get(RESOLUTION, b"\x06")[0]
    per_second = 1 << (unit & 0x7F) if unit & 0x80 else 10 ** min(unit, 18)
    [offset] = struct.unpack(f"{order}q", options[OFFSET]) if OFFSET in options else [0]
    return Interface(options.get(NAME, b"").decode(errors="replace"), link_type, per_second, offset)


def _options(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        code, length = struct.unpack_from(f"{order}HH", data, at)
        if not code:
            return
        yield code, data[at + 4 : at + 4 + length]
        at += 4 + length + -length % 4
