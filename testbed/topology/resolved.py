"""Nodes and ports with inheritance and defaults applied, as the stages of planning complete them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from testbed.documents.text import Path
from testbed.topology.plan import Dummy, Family, IPAddress, IPInterface


@dataclass(slots=True, eq=False)
class Given:
    """An address of the file. `owner` is its owner's name in messages."""

    address: IPInterface
    path: Path
    owner: str
    domain: object = None
    """The broadcast domain of an SVI."""

    def clashes(self, other: Given) -> bool:
        """Return whether two addresses conflict. SVIs of several domains may share one: an anycast gateway."""
        anycast = None not in (self.domain, other.domain) and self.domain != other.domain
        return self.address.ip == other.address.ip and not anycast


@dataclass(slots=True, eq=False)
class Port:
    """One end of a link. The fields after `given` are set once all links are known."""

    node: ResolvedNode
    name: str
    number: int
    """Position among the interfaces of its node, from 1."""
    path: Path
    mac: str | None
    given: dict[Family, Given]
    peer: Port = field(init=False)
    access: int | None = None
    """The untagged VLAN of a switch port in VLANs."""
    trunk: tuple[int, ...] = ()
    addresses: dict[Family, IPInterface] = field(default_factory=dict)
    gateways: dict[Family, IPAddress] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.node.name}:{self.name}"


@dataclass(slots=True, eq=False)
class ResolvedNode:
    number: int
    """Position in the file, from 1."""
    name: str
    kind: str
    """A name of `testbed.topology.kinds`."""
    path: Path
    keys: Any
    """The keys of its kind, merged over the levels of the file."""
    rdma: bool = True
    """True if a host's interfaces have RDMA devices."""
    nic: str = ""
    """The RDMA device of this machine that a host has."""
    vlans: dict[int, dict[Family, Given]] = field(default_factory=dict)
    stp: bool = False
    """True if it runs spanning tree."""
    host_routes: bool = False
    """True if other switches may have its subnets too."""
    planned: bool = True
    """True if its interfaces get addresses that the file does not give, and IPv6 only with such an address."""
    paths: dict[str | Path, Path] = field(default_factory=dict)
    """The place of each key that is set, and of each entry of a mapping, such as `("vlans", 10)`."""
    ports: dict[str, Port] = field(default_factory=dict)
    dummies: list[Dummy] = field(default_factory=list)
    """Its interfaces without a peer."""
