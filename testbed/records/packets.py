"""packets.pcapng: the captures of a variant in one file, in the time of its events, with comments that name them."""

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from testbed.errors import naming
from testbed.protocol import PACKETS, Event, Made
from testbed.protocol.events import CNI
from testbed.records.comments import Conversations, Matching, Place, rows
from testbed.records.frames import Frame, decode
from testbed.records.pcap import ETHERNET, Packet, Pcap
from testbed.records.pcapng import Writer
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
    file: IO[bytes], pcaps: Sequence[Pcap], places: Sequence[Place | None], zero: int,
    comments: dict[tuple[int, int], list[str]],
) -> None:  # fmt: skip
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
