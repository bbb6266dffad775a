"""A control plane's decisions as data: the agent executes them, a test reads them."""

from dataclasses import dataclass

from testbed.switch.packets import Packet
from testbed.topology.plan import IPAddress


@dataclass(frozen=True, slots=True)
class Send:
    """A packet to send out of the SVI of `vlan`, from the SVI's MAC; to BROADCAST: to all that it is for."""

    vlan: int
    dst: str
    packet: Packet


@dataclass(frozen=True, slots=True)
class SetNeighbour:
    """An order to the data plane: send packets for `ip`, including waiting ones, to `mac`."""

    vlan: int
    ip: IPAddress
    mac: str


@dataclass(frozen=True, slots=True)
class DeleteNeighbour:
    """An order to the data plane: forget `ip` and drop packets that wait for it; the next packet is a miss."""

    vlan: int
    ip: IPAddress


@dataclass(frozen=True, slots=True)
class BlockLossless:
    """An order to the data plane: drop routed packets of the lossless classes for `ip`, or forward them again."""

    vlan: int
    ip: IPAddress
    blocked: bool


@dataclass(frozen=True, slots=True)
class SetPort:
    """A port to disable, as by `shutdown`, or to enable again."""

    port: str
    up: bool


@dataclass(frozen=True, slots=True)
class Event:
    """A table change, a reason why there was none, or a loss, with the switch and the fields of its kind."""

    kind: str
    fields: dict[str, str | int | list[str]]


Effect = Send | SetNeighbour | DeleteNeighbour | BlockLossless | SetPort | Event
