"""Requests of ARP and neighbour discovery with their replies, as all captures of a run have them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Literal

from testbed.records.frame_decoder import Frame, Resolution
from testbed.report.packet_rows import Captured

BROADCAST_BIT = 1
"""The bit of a MAC's first byte that is set in those of groups."""
Times = dict[str, int]
"""The first time of a packet in each capture, by the capture's file; nanoseconds."""


@dataclass(slots=True)
class Exchange:
    """A request, and its replies by the MAC that they claim. `asked` is empty if no capture has the request."""

    protocol: Literal["arp", "nd"]
    asker: str
    """The MAC that wants to know."""
    ip: str
    asked: Times = field(default_factory=dict)
    replies: dict[str, Times] = field(default_factory=dict)
    probe: bool = False
    """True if the asker wants to have the address: no reply is good."""
    until: int | None = None
    """The time of the next request for the same."""

    @property
    def since(self) -> int:
        return min((*self.asked.values(), *(t for times in self.replies.values() for t in times.values())))


def exchanges(captured: Iterable[Captured]) -> list[Exchange]:
    """Return the exchanges of all captures, in the order of time. A request that a capture has had before begins a new
    one: each capture has a packet once."""
    heard = sorted(
        ((t, one.file, frame) for one in captured for t, frame in one.resolutions), key=lambda packet: packet[:2]
    )
    last: dict[tuple[str, str], Exchange] = {}
    found: list[Exchange] = []
    for t, file, frame in heard:
        if (about := _about(frame)) is None:
            continue
        resolution, key = about
        exchange = last.get(key)
        if exchange is None or (resolution.asks and file in exchange.asked):
            if exchange:
                exchange.until = t
            exchange = last[key] = Exchange(resolution.protocol, *key)
            found.append(exchange)
        if resolution.asks:
            exchange.asked[file] = t
            exchange.probe = not any(resolution.sender)
        else:
            exchange.replies.setdefault((resolution.mac or frame.src).hex(":"), {}).setdefault(file, t)
    return found


def _about(frame: Frame) -> tuple[Resolution, tuple[str, str]] | None:
    """Return a request or a reply, the MAC that asks, and the address; None for an announcement."""
    if (found := frame.resolution) is None or found.gratuitous:
        return None
    if found.asks:
        return found, ((found.mac or frame.src).hex(":"), str(ip_address(found.target)))
    if not any(found.sender) or frame.dst[0] & BROADCAST_BIT:
        return None
    asker = found.target_mac if any(found.target_mac) else frame.dst
    return found, (asker.hex(":"), str(ip_address(found.sender)))
