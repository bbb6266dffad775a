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
    """A change of a table, why there was none, or what was lost: the switch, and the fields of the kind."""

    kind: str
    fields: dict[str, str | int | list[str]]


Effect = Send | SetNeighbour | DeleteNeighbour | BlockLossless | SetPort | Event
