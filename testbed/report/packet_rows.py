"""The remarkable packets of a run, and the number of each kind over time.

A row stands for consecutive packets of one kind: a message of RDMA, a try of it, a series of ACKs, a repeated ARP
request. Nothing is left out of the count, and a row names its first frame in the capture.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from testbed.errors import InputError
from testbed.records.frame_decoder import Frame, decode
from testbed.records.pcap import ETHERNET, Pcap
from testbed.report.described import Packet, describe
from testbed.report.owners import Owners

MOST_FRAMES = 50_000
"""Maximum of frames read from one capture."""
MOST_ROWS = 250
"""Maximum of rows of one capture."""
ALIKE = attrgetter(*["kind", "src", "dst", "source", "target", "qpn", "claim", "reply", "nak", "is_request"])
"""The fields in which the packets of a row agree."""
HALF = 1 << 23
"""Half of the PSNs: a PSN further ahead is behind."""
SHOWN = {"file", "frames", "complete", "rows", "left_out", "times"}
"""What the page shows of a capture."""
CATEGORIES = ("RDMA requests", "sent again", "responses", "NAKs and CNPs", "ARP and ND", "other")


@dataclass(slots=True)
class Row:
    """Consecutive packets. `t` and `last` are virtual ns, `level` is plain, note or bad; `why` is the remark."""

    t: int
    last: int
    number: int
    last_number: int
    count: int
    text: str
    level: str
    why: str
    layers: list[tuple[str, list[tuple[str, str]]]]


@dataclass(slots=True)
class Captured:
    """A capture: its rows, and of each category the times of its packets, each in microseconds since the one before."""

    file: str
    frames: int
    complete: bool
    rows: list[Row]
    left_out: int
    """Rows that are not shown, because nothing in them is remarkable."""
    times: dict[str, list[int]]
    until: int
    """The time of the last packet that was read."""
    resolutions: list[tuple[int, Frame]]
    """Times and frames of ARP and of neighbour discovery."""

    def json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(replace(self, resolutions=[])).items() if key in SHOWN}


def captured(file: Path, name: str, zero_ns: int, owners: Owners) -> Captured | None:
    """Return a capture in a directory; None for a file without frames. `zero_ns` is CLOCK_REALTIME at t = 0."""
    reader = _Reader(zero_ns, owners)
    complete = True
    try:
        found = Pcap.open(file)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(file)) from None
    if found is None or found.link_type != ETHERNET:
        return None
    for number, frame in enumerate(found.packets(), 1):
        if number > MOST_FRAMES:
            complete = False
            break
        reader.add(number, frame.t_ns, frame.data)
    if not reader.seen:
        return None
    shown = choose(reader.rows)
    left_out, frames = len(reader.rows) - len(shown), len(reader.seen)
    times, until = _times(reader.seen), max(t for t, _ in reader.seen)
    return Captured(name, frames, complete, shown, left_out, times, until, reader.resolutions)


def choose(rows: Sequence[Row]) -> list[Row]:
    """Return at most MOST_ROWS: all if they fit, else the remarkable ones first, each half from the start."""
    if len(rows) <= MOST_ROWS:
        return list(rows)
    wanted = sorted(range(len(rows)), key=lambda number: ({"bad": 0, "note": 1}.get(rows[number].level, 2), number))
    return [rows[number] for number in sorted(wanted[:MOST_ROWS])]


class _Reader:
    def __init__(self, zero_ns: int, owners: Owners) -> None:
        self.rows: list[Row] = []
        self.seen: list[tuple[int, str]] = []
        """Time and category of each frame."""
        self.resolutions: list[tuple[int, Frame]] = []
        self._zero = zero_ns
        self._owners = owners
        self._sequence: set[tuple[str, str, int, int]] = set()
        self._first = Packet("", "")
        """First packet of the last row."""
        self._kind: tuple[object, ...] = ()
        self._psn = 0

    def add(self, number: int, t_ns: int, data: bytes) -> None:
        """Add a frame. `number` is Wireshark's frame.number, `t_ns` CLOCK_REALTIME."""
        t, frame = t_ns - self._zero, decode(data)
        if frame.resolution:
            self.resolutions.append((t, frame))
        packet = describe(frame)
        again = self._sent_again(packet)
        self.seen.append((t, category(packet, again)))
        level, why = self._judge(packet, t, again)
        kind = (*ALIKE(packet), again, level, why)
        follows = not packet.is_request or 0 < (packet.psn - self._psn) % (2 * HALF) < HALF
        row = self.rows[-1] if self.rows else None
        self._psn = packet.psn
        if row and kind == self._kind and follows:
            row.count, row.last, row.last_number = row.count + 1, t, number
            row.text = text(self._first, packet)
        else:
            self.rows.append(Row(t, t, number, number, 1, text(packet, packet), level, why, [*packet.layers.items()]))
            self._first = packet
        self._kind = kind

    def _sent_again(self, packet: Packet) -> bool:
        """Return whether a request with this PSN went by before."""
        if not packet.is_request:
            return False
        known, one = len(self._sequence), (packet.source, packet.target, packet.qpn, packet.psn)
        self._sequence.add(one)
        return len(self._sequence) == known

    def _judge(self, packet: Packet, t: int, again: bool) -> tuple[str, str]:
        found = []
        if packet.kind == "roce" and (wrong := self._wrong_mac(packet, t)):
            found.append(("bad", wrong))
        if packet.claim and (wrong := self._owners.wrong_claim(packet.source, packet.claim, t)):
            found.append(("bad", wrong))
        if packet.nak:
            found.append(("bad", f"NAK: {packet.nak}"))
        if again:
            found.append(("note", "sent again"))
        if packet.kind in ("cnp", "pause"):
            found.append(("note", "congestion"))
        if packet.ecn == 3:
            found.append(("note", "marked CE"))
        if packet.kind in ("arp", "nd") and not packet.reply and packet.source == packet.target:
            found.append(("note", "announcement"))
        level = "bad" if any(one == "bad" for one, _ in found) else "note" if found else "plain"
        return level, "; ".join(text for _, text in found)

    def _wrong_mac(self, packet: Packet, t: int) -> str:
        """Return a remark on a host's MAC that is not the address owner's; a gateway's MAC is on the way."""
        owners = self._owners.owners(packet.target, t)
        if not owners or any(one.mac == packet.dst for one in owners):
            return ""
        if not (named := self._owners.name(packet.dst)) or named in self._owners.gateways:
            return ""
        return f"goes to {named}'s MAC; {packet.target} is {owners[0].node}'s"


def text(first: Packet, last: Packet) -> str:
    """Return a row's packets as text: `RC RDMA WRITE First … Last, QP 17, PSN 5 … 8, 4096 bytes to be written`."""
    if first.kind not in ("roce", "cnp"):
        return first.text
    operation, sequence = first.text, f"PSN {first.psn}"
    if last is not first:
        other = last.text.rpartition(" ")[2] if last.text != first.text else ""
        operation += f" … {other}" if other else ""
        sequence += f" … {last.psn}" if last.psn != first.psn else ""
    return ", ".join(filter(None, (operation, f"QP {first.qpn}", sequence, first.detail)))


def category(packet: Packet, again: bool) -> str:
    if packet.nak or packet.kind in ("cnp", "pause"):
        return CATEGORIES[3]
    if packet.kind == "roce":
        return CATEGORIES[1] if again else CATEGORIES[0] if packet.is_request else CATEGORIES[2]
    return CATEGORIES[4] if packet.kind in ("arp", "nd") else CATEGORIES[5]


def _times(seen: Sequence[tuple[int, str]]) -> dict[str, list[int]]:
    times: dict[str, list[int]] = {}
    last: dict[str, int] = {}
    for t, name in seen:
        microseconds = t // 1000
        times.setdefault(name, []).append(microseconds - last.get(name, 0))
        last[name] = microseconds
    return {name: times[name] for name in CATEGORIES if name in times}


def captures(directory: Path, zero_ns: int, owners: Owners) -> Iterator[Captured]:
    """Yield all captures in a directory, by name."""
    for file in sorted(directory.rglob("*.pcap")):
        if found := captured(file, str(file.relative_to(directory)), zero_ns, owners):
            yield found
