"""packets.pcapng: the captures of a variant in one file, in the time of its events, with comments that name them."""

import heapq
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from testbed.errors import naming
from testbed.protocol import PACKETS, Event, Made
from testbed.protocol.events import CNI
from testbed.records.comments import Conversations, Matching, Place, rows
from testbed.records.frame_decoder import Frame, decode
from testbed.records.pcap import ETHERNET, Packet, Pcap
from testbed.version import version

NUMBERED = re.compile(r"-[0-9]+")
"""Suffix of the name of an interface's second capture and later ones."""


def write(directory: Path, made: Made, events: Sequence[Event]) -> None:
    """Merge the pcap files of a variant's directory; do nothing if there are none. Packets pass one at a time: memory
    grows with the events only. OSError, and then no file."""
    pcaps = [pcap for path in sorted(directory.glob("*.pcap")) if path.is_file() and (pcap := Pcap.open(path))]
    if not pcaps:
        return
    places = [place_of(pcap.path.stem, interfaces(made, events)) for pcap in pcaps]
    zero = made["epoch"]["realtime_ns"]
    matching = Matching(events, places, made["topology"])
    for number, pcap in enumerate(pcaps):
        matching.look(number, ((packet.t_ns - zero, contents(pcap, packet)) for packet in pcap.packets()))
    path = directory / PACKETS
    try:
        with naming(path), path.open("wb") as file:
            _write(file, pcaps, places, zero, matching.comments())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _write(
    file: IO[bytes],
    pcaps: Sequence[Pcap],
    places: Sequence[Place | None],
    zero: int,
    comments: dict[tuple[int, int], list[str]],
) -> None:
    writer = Writer(
        file,
        f"testbed {version()}",
        "Times are on the clock of events.jsonl: a packet at 1970-01-01 00:00:02.5 came 2.5 virtual seconds after the "
        "variant started. In the .pcap files it has {zero / 1e9:.9f} s more. Filter frame.comment for the events.",
    )
    for pcap, place in zip(pcaps, places, strict=True):
        name = ":".join(place) if place else pcap.path.stem
        writer.interface(name, pcap.path.name, pcap.link_type, pcap.snap_length)
    conversations = [Conversations() for _ in pcaps]
    streams = (_numbered(number, pcap) for number, pcap in enumerate(pcaps))
    for t_ns, capture, number, packet in heapq.merge(*streams, key=lambda one: one[0]):
        t = t_ns - zero
        frame = contents(pcaps[capture], packet)
        of_frame = conversations[capture].comments(frame, t) if frame else ()
        early = ["before the events: the clock was changed during the capture"] if t < 0 else []
        texts = [*early, *comments.get((capture, number), ()), *of_frame]
        writer.packet(capture, max(0, t), packet.data, packet.length, texts)


def _numbered(capture: int, pcap: Pcap) -> Iterator[tuple[int, int, int, Packet]]:
    return ((packet.t_ns, capture, number, packet) for number, packet in enumerate(pcap.packets()))


def contents(pcap: Pcap, packet: Packet) -> Frame | None:
    return decode(packet.data) if pcap.link_type == ETHERNET else None


def interfaces(made: Made, events: Iterable[Event]) -> set[Place]:
    """Return the interfaces of a lab: those of the plan, and those that pods got."""
    planned = {(row["node"], row["interface"]) for row in rows(made["topology"])}
    return planned | {
        (event["node"], one.interface) for event in events if (one := CNI.of(event)) and one.interface is not None
    }


def place_of(stem: str, known: Iterable[Place]) -> Place | None:
    """Return the interface of a capture, by the name of its file; None if it can be none or several."""
    fitting = []
    for node, interface in known:
        name = f"{node}-{interface}"
        if stem == name or (stem.startswith(name) and NUMBERED.fullmatch(stem, len(name))):
            fitting.append((node, interface))
    return fitting[0] if len(fitting) == 1 else None


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
