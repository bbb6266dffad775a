"""Writing of pcapng files: several interfaces with names, nanoseconds, comments on packets.

The format is that of https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/ (sections 3.5, 4.1 to 4.3). It is three
kinds of blocks; libraries that write them have no release since 2022 (python-pcapng) or are far larger (scapy).
"""

import struct
from collections.abc import Sequence
from typing import IO

SECTION, INTERFACE, PACKET = 0x0A0D0D0A, 1, 6
"""Types of blocks."""
COMMENT, APPLICATION = 1, 4
IF_NAME, IF_DESCRIPTION, IF_RESOLUTION = 2, 3, 9
"""Codes of options."""
LITTLE_ENDIAN = struct.pack("<I", 0x1A2B3C4D)
LONGEST_OPTION = 0xFFFF
Option = tuple[int, bytes]


class Writer:
    """Writer of one section; interfaces come before their packets."""

    def __init__(self, file: IO[bytes], application: str, comment: str) -> None:
        self._file = file
        self._interfaces = 0
        unknown_length = -1
        body = LITTLE_ENDIAN + struct.pack("<HHq", 1, 0, unknown_length)
        self._block(SECTION, body, [(COMMENT, comment.encode()), (APPLICATION, application.encode())])

    def interface(self, name: str, description: str, link_type: int, snap_length: int) -> int:
        """Add an interface, whose times are nanoseconds; return its number."""
        nanoseconds = 9
        options = [
            (IF_NAME, name.encode(errors="replace")),
            (IF_DESCRIPTION, description.encode(errors="replace")),
            (IF_RESOLUTION, bytes([nanoseconds])),
        ]
        self._block(INTERFACE, struct.pack("<HHI", link_type, 0, snap_length), options)
        self._interfaces += 1
        return self._interfaces - 1

    def packet(self, interface: int, t_ns: int, data: bytes, length: int, comments: Sequence[str] = ()) -> None:
        """Add a packet. `t_ns` is in nanoseconds and not negative, `length` its bytes on the wire."""
        head = struct.pack("<IIIII", interface, t_ns >> 32, t_ns & 0xFFFFFFFF, len(data), length)
        self._block(PACKET, head + _padded(data), [(COMMENT, one.encode(errors="replace")) for one in comments])

    def _block(self, kind: int, body: bytes, options: Sequence[Option]) -> None:
        texts = [struct.pack("<HH", code, len(value)) + _padded(value) for code, value in _fitting(options)]
        end = struct.pack("<HH", 0, 0) if texts else b""
        content = body + b"".join(texts) + end
        total = struct.pack("<I", len(content) + 12)
        self._file.write(struct.pack("<I", kind) + total + content + total)


def _fitting(options: Sequence[Option]) -> list[Option]:
    return [(code, value[:LONGEST_OPTION].decode(errors="ignore").encode()) for code, value in options]


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
