"""
What a lab will be, down to the last address: the pure data that `lab` builds and `switch` runs.

Nothing here is decided at run time. Two labs planned from the same file are equal, so nobody has to read a MAC address
back from a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Literal

NodeKind = Literal["host", "switch", "bridge"]
NicModel = Literal["hardware", "rxe"]


@dataclass(frozen=True, slots=True)
class Interface:
    """One end of a link. On a host it may carry an address and an RDMA device; on a switch or bridge it is a port."""

    node: str
    name: str
    mac: str
    mtu: int
    peer: tuple[str, str]
    """(node, interface) at the other end."""
    address: IPv4Interface | None = None
    rdma: str | None = None
    """Name of the soft-RoCE device to create on it, None for none. Unique per kernel."""
    vlan: int | None = None
    """Switch port: the untagged (access) VLAN."""
    trunk: tuple[int, ...] = ()
    """Switch port: the tagged VLANs."""
    gateway: IPv4Address | None = None
    """Host: the SVI's address in the subnet of `address`, if a switch has one there."""


@dataclass(frozen=True, slots=True)
class Svi:
    """A switch's own interface in a VLAN; without an address the switch only bridges there."""

    vlan: int
    name: str
    mac: str
    address: IPv4Interface | None


@dataclass(frozen=True, slots=True)
class Route:
    destination: IPv4Network
    via: IPv4Address


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    kind: NodeKind
    interfaces: tuple[Interface, ...]
    nic: NicModel = "rxe"
    profile: str = ""
    """Switches: name of the ARP/FDB profile."""
    svis: tuple[Svi, ...] = ()
    routes: tuple[Route, ...] = ()

    def interface(self, name: str) -> Interface:
        return next(i for i in self.interfaces if i.name == name)


@dataclass(frozen=True, slots=True)
class Plan:
    """`nodes` in the order of the file; `links` as pairs of interfaces in the order of the file."""

    name: str
    nodes: dict[str, Node]
    links: tuple[tuple[Interface, Interface], ...]
