"""Captures of hosts and of mirror ports: what their packets say of addresses, MACs, losses, marks, pauses."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar

from testbed.records.frame_decoder import CNP, Frame, Resolution, decode
from testbed.records.pcap import ETHERNET, HEADER, RECORD, Packet, Pcap
from testbed.records.pcapng import Pcapng

MOST_PACKETS = 500_000
"""Packets that are read of a capture, from its begin."""
MOST_KEYS = 50_000
"""Different facts of a kind that are kept of a capture."""
MOST_RECENT = 1 << 16
MOST_CLAIMANTS = 16
"""MACs that are kept of an address."""
LATEST_NS = 1 << 63
COPY_NS = 1_000_000
"""A packet that comes again so soon, to the byte, may be a copy that a mirror of both directions made."""
COPIES = 0.5
"""Share of packets with a copy from which on a capture has everything twice."""
CE = 3
NOT_READY = "receiver not ready"

K = TypeVar("K", bound=Hashable)
Key = tuple[int, str]
"""VLAN, 0 without a tag, and IP address."""


@dataclass
class Times:
    """The first and the last time of a fact, and the number of its packets."""

    first: int
    last: int
    packets: int = 0


@dataclass
class Capture:
    """What a capture says. Times are those of the clock of its node, in nanoseconds since 1970. `interface` is where it
    was made, empty if that is not known."""

    name: str
    node: str
    interface: str = ""
    packets: int = 0
    began: int = 0
    ended: int = 0
    claims: dict[tuple[int, str, str], Times] = field(default_factory=dict)
    """Claims by VLAN, IP address and MAC."""
    disputed: dict[Key, set[str]] = field(default_factory=dict)
    """MACs that claim an address in turn, or as answers to one request."""
    flows: dict[tuple[int, str, str, str, str], Times] = field(default_factory=dict)
    """RoCE packets by VLAN, source and destination MAC, source and destination address."""
    again: Counter[str] = field(default_factory=Counter)
    """Times that queue pairs of a source address began to send again."""
    naks: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """NAKs by source and destination address, and reason."""
    marked: Counter[str] = field(default_factory=Counter)
    """RoCE packets marked CE, by destination address."""
    notified: Counter[str] = field(default_factory=Counter)
    """CNPs by source address."""
    pauses: dict[tuple[str, int], list[tuple[int, int]]] = field(default_factory=dict)
    """Times and quanta of PFC frames, by source MAC and priority."""
    refusals: dict[tuple[str, str, str, int | None], Times] = field(default_factory=dict)
    """ICMP messages about RoCE packets by source, destination of the packet, reason and MTU."""
    remarks: list[str] = field(default_factory=list)

    @property
    def senders(self) -> frozenset[str]:
        """The addresses of which it has RoCE packets."""
        return frozenset(source for _, _, _, source, _ in self.flows)


def read(path: Path, name: str, node: str, interface: str) -> Capture:
    """Read a capture as far as it is complete. OSError."""
    found = Capture(name, node, interface)
    reader = _Reader(found)
    try:
        for packet in _packets(path, found):
            if found.packets == MOST_PACKETS:
                found.remarks.append(f"{name} has more than {MOST_PACKETS} packets: the others are not read")
                break
            reader.add(packet)
    finally:
        reader.end()
    return found


def _packets(path: Path, found: Capture) -> Iterator[Packet]:
    links: set[int] = set()
    if pcap := Pcap.open(path):
        links.add(pcap.link_type)
        size = HEADER.size
        for packet in pcap.packets() if pcap.link_type == ETHERNET else ():
            size += RECORD.size + len(packet.data)
            yield packet
        complete = pcap.link_type != ETHERNET or size == path.stat().st_size
    elif pcapng := Pcapng.open(path):
        for interface, packet in pcapng.packets():
            links.add(interface.link_type)
            if interface.link_type == ETHERNET:
                found.interface = found.interface or interface.name
                yield packet
        complete = pcapng.complete
    else:
        found.remarks.append(f"{found.name} is no capture: neither pcap nor pcapng")
        return
    if not complete:
        found.remarks.append(f"{found.name} is cut off or damaged after {found.packets} packets")
    for link in sorted(links - {ETHERNET}):
        found.remarks.append(
            f"{found.name} has packets without an Ethernet header (link type {link}), which are not read: capture on "
            "one interface, not on `any`"
        )


class _Reader:
    def __init__(self, found: Capture) -> None:
        self._found = found
        self._cut = 0
        self._recent: dict[int, int] = {}
        """Times of packets, by their hash."""
        self._copies = 0
        self._sequences: dict[tuple[str, str, int], set[int]] = {}
        self._resending: set[tuple[str, str, int]] = set()
        self._last: dict[Key, list[str]] = {}
        """The MACs that claimed an address, one after the other."""
        self._answers: dict[tuple[int, str, str], set[str]] = {}
        """MACs that answered the last request, by VLAN, who asked, and address."""

    def add(self, packet: Packet) -> None:
        found, t = self._found, packet.t_ns
        if not 0 <= t < LATEST_NS:
            return
        found.packets += 1
        found.began = min(found.began or t, t)
        found.ended = max(found.ended, t)
        frame = decode(packet.data)
        self._cut += frame.cut
        vlan = frame.tags[-1][0] if frame.tags else 0
        if frame.resolution:
            self._claim(frame, frame.resolution, vlan, t)
        if frame.pfc is not None:
            for priority, quanta in frame.pfc.items():
                if (key := _kept(found.pauses, (frame.src.hex(":"), priority))) is not None:
                    found.pauses.setdefault(key, []).append((t, quanta))
        if frame.refusal and frame.ip:
            target = str(ip_address(frame.refusal.target))
            _count(found.refusals, (_text(frame.ip[0]), target, frame.refusal.reason, frame.refusal.mtu), t)
        if frame.roce and frame.ip:
            self._roce(frame, packet.data, vlan, t)

    def end(self) -> None:
        """Add what only all packets tell."""
        found = self._found
        roce = sum(flow.packets for flow in found.flows.values())
        if roce and self._copies >= COPIES * roce / 2:
            found.again.clear()
            found.naks.clear()
            found.remarks.append(f"{found.name} has packets twice: which were sent again is not known")
        if self._cut:
            found.remarks.append(
                f"{found.name}: {self._cut} packets are cut off in their headers: what they say is not known"
            )

    def _claim(self, frame: Frame, resolution: Resolution, vlan: int, t: int) -> None:
        found = self._found
        target, mac = str(ip_address(resolution.target)), (resolution.mac or frame.src).hex(":")
        if resolution.asks and len(self._answers) < MOST_KEYS and not resolution.gratuitous:
            self._answers[vlan, mac, target] = set()
        if not any(resolution.sender):
            return
        ip = str(ip_address(resolution.sender))
        _count(found.claims, (vlan, ip, mac), t)
        if key := _kept(self._last, (vlan, ip)):
            order = self._last.setdefault(key, [])
            if order and order[-1] != mac and mac in order:
                found.disputed.setdefault(key, set()).update({mac, order[-1]})
            if mac not in order[-1:]:
                self._last[key] = [*(one for one in order if one != mac), mac][-MOST_CLAIMANTS:]
        asker = (resolution.target_mac if any(resolution.target_mac) else frame.dst).hex(":")
        answers = self._answers.get((vlan, asker, ip))
        if not resolution.asks and answers is not None:
            answers.add(mac)
            if len(answers) > 1:
                found.disputed.setdefault((vlan, ip), set()).update(answers)

    def _roce(self, frame: Frame, data: bytes, vlan: int, t: int) -> None:
        assert frame.ip
        assert frame.roce
        found, roce = self._found, frame.roce
        source, target = map(_text, frame.ip)
        _count(found.flows, (vlan, frame.src.hex(":"), frame.dst.hex(":"), source, target), t)
        of_data = hash(data)
        self._copies += t - self._recent.get(of_data, t - COPY_NS) < COPY_NS
        if len(self._recent) >= MOST_RECENT:
            self._recent.clear()
        self._recent[of_data] = t
        if roce.opcode == CNP:
            _add(found.notified, source)
        elif frame.ecn == CE:
            _add(found.marked, target)
        if roce.nak:
            _add(found.naks, (source, target, roce.nak))
        if roce.request and (pair := _kept(self._sequences, (source, target, roce.qp))):
            known = self._sequences.setdefault(pair, set())
            if roce.psn not in known:
                known.add(roce.psn)
                self._resending.discard(pair)
            elif pair not in self._resending:
                self._resending.add(pair)
                _add(found.again, source)


def _text(address: bytes) -> str:
    return str(ip_address(address))


def _kept(found: Mapping[K, object], key: K) -> K | None:
    """Return a key that is known, or for which there is room."""
    return key if key in found or len(found) < MOST_KEYS else None


def _count(found: dict[K, Times], key: K, t: int) -> None:
    if _kept(found, key) is not None:
        times = found.setdefault(key, Times(t, t))
        times.last, times.packets = t, times.packets + 1


def _add(found: Counter[K], key: K) -> None:
    if _kept(found, key) is not None:
        found[key] += 1
