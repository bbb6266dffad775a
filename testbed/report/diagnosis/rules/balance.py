"""What switches receive and do not send on, between two readings of their counters: where packets end without a
counter for it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from testbed.report.diagnosis.case import Case

End = tuple[str, str]
SMALL = 0.5
"""Packets are small where they have less than this part of the bytes of those that a switch does not send on."""


@dataclass(frozen=True)
class Flow:
    """The packets through an end of a link in one direction."""

    packets: int
    bytes: int

    @property
    def size(self) -> float:
        """Bytes of a packet on average."""
        return self.bytes / self.packets if self.packets else 0.0


@dataclass(frozen=True)
class Missing:
    """The packets that a switch received and did not send on. `came` are its ports by which it received, `went` those
    by which it sent."""

    switch: str
    flow: Flow
    came: Mapping[End, Flow]
    went: Mapping[End, Flow]


def missing(case: Case, growth: Mapping[tuple[str, str, str], int], least: int) -> Iterator[Missing]:
    """Yield the switches that did not send on at least so many packets. A bond counts by its members."""
    bonds = {(row["node"], row["interface"]) for row in case.seen.interfaces if row.get("members")}
    for switch in sorted(case.seen.gateways) if case.seen.whole else ():
        ports = [end for end in case.seen.peers if end[0] == switch and end not in bonds]
        came, went = ({end: _flow(growth, end, way) for end in ports} for way in ("rx", "tx"))
        packets = sum(flow.packets for flow in came.values()) - sum(flow.packets for flow in went.values())
        size = sum(flow.bytes for flow in came.values()) - sum(flow.bytes for flow in went.values())
        if packets >= least:
            yield Missing(switch, Flow(packets, size), came, went)


def _flow(growth: Mapping[tuple[str, str, str], int], end: End, way: str) -> Flow:
    return Flow(growth.get((*end, f"{way}_packets"), 0), growth.get((*end, f"{way}_bytes"), 0))


def large_only(one: Missing) -> list[End]:
    """Return the ports at which the packets that a switch does not send on may be too large; none where small ones end
    there, too: ports by which large ones come in, and those by which small ones go out and no large one does."""
    size = one.flow.size
    sent = sum(flow.packets for flow in one.went.values())
    whole = sum(flow.bytes for flow in one.went.values())
    if not sent or whole / sent > SMALL * size:
        return []
    into = [end for end, flow in one.came.items() if flow.packets and flow.size > SMALL * size]
    out = [end for end, flow in one.went.items() if flow.packets and flow.size <= SMALL * size]
    both = [end for end in into if end in out]
    return both or [*out, *into]
