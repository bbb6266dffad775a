"""Decisions of a control plane, as data: the agent carries them out, a test reads them."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.switch.packets import Packet
from testbed.topology.plan import IPAddress


@dataclass(frozen=True, slots=True)
class Send:
    """Out of the SVI of `vlan`, from the SVI's MAC. To BROADCAST: to all that the packet is for."""

    vlan: int
    dst: str
    packet: Packet


@dataclass(frozen=True, slots=True)
class SetNeighbour:
    """The data plane sends packets for `ip` to `mac`, those that wait for it included."""

    vlan: int
    ip: IPAddress
    mac: str


@dataclass(frozen=True, slots=True)
class DeleteNeighbour:
    """The data plane forgets `ip` and drops what waits for it; the next packet is a miss."""

    vlan: int
    ip: IPAddress


@dataclass(frozen=True, slots=True)
class BlockLossless:
    """The data plane drops routed packets of the lossless classes for `ip`, or forwards them again."""

    vlan: int
    ip: IPAddress
    blocked: bool


@dataclass(frozen=True, slots=True)
class SetPort:
    """A port is disabled, as by `shutdown`, or enabled again."""

    port: str
    up: bool


@dataclass(frozen=True, slots=True)
class Event:
    """
    A change of a table, or the reason why there was none.

    Kinds: arp.miss, arp.learned, arp.updated, arp.refresh, arp.confirmed, arp.aged, arp.failed, arp.ignored,
    arp.refused, arp.evicted, arp.limited, arp.cleared, arp.proxied, arp.restored, and for IPv6 the same as nd.miss …;
    fdb.learned, fdb.moved, fdb.aged, fdb.flushed; lossless.blocked, lossless.unblocked; port.disabled, port.enabled;
    route.installed, route.lost; lost, for what came and could not be handled. Fields: switch, and as far as they apply
    vlan, ip, mac, old_mac, port, old_port, reason, packets, entries, probe, moves, to, ports, what, records.
    """

    kind: str
    fields: dict[str, str | int | list[str]]


Effect = Send | SetNeighbour | DeleteNeighbour | BlockLossless | SetPort | Event
