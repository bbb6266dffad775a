"""A reader of pcapng for tests, from the draft alone: it shares nothing with the writer."""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Read:
    names: list[str] = field(default_factory=list)
    resolutions: list[int] = field(default_factory=list)
    packets: list[tuple[str, int, bytes, int, list[str]]] = field(default_factory=list)
    """Interface, time in its units, contents, length on the wire, comments."""

    @property
    def comments(self) -> list[tuple[str, list[str]]]:
        return [(name, comments) for name, _, _, _, comments in self.packets]


def options(data: bytes) -> list[tuple[int, bytes]]:
    found = []
    while data:
        code, length = struct.unpack_from("<HH", data)
        if code == 0:
            assert length == 0
            break
        found.append((code, data[4 : 4 + length]))
        data = data[4 + -(-length // 4) * 4 :]
    return found


def read(file: Path) -> Read:
    data, found, position = file.read_bytes(), Read(), 0
    while position < len(data):
        kind, total = struct.unpack_from("<II", data, position)
        assert total % 4 == 0
        assert struct.unpack_from("<I", data, position + total - 4) == (total,)
        body = data[position + 8 : position + total - 4]
        position += total
        if kind == 0x0A0D0D0A:
            assert body[:8] == struct.pack("<IHH", 0x1A2B3C4D, 1, 0)
        elif kind == 1:
            by_code = dict(options(body[8:]))
            found.names.append(by_code[2].decode())
            found.resolutions.append(by_code[9][0])
        elif kind == 6:
            interface, high, low, kept, length = struct.unpack_from("<IIIII", body)
            end = 20 + -(-kept // 4) * 4
            texts = [value.decode() for code, value in options(body[end:]) if code == 1]
            found.packets.append((found.names[interface], high << 32 | low, body[20 : 20 + kept], length, texts))
    return found


Written = Callable[..., Read]
"""Writes captures of a lab, has them merged, and reads the file."""


def comments(found: Read) -> list[list[str]]:
    return [texts for _, _, _, _, texts in found.packets]
