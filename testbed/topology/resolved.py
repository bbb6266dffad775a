"""Nodes and ports with inheritance and defaults applied, as the stages of planning complete them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from testbed.documents.text import Path
from testbed.topology.plan import Dummy, Family, Interface, IPAddress, IPInterface, Node, Routing


@dataclass(slots=True, eq=False)
class Given:
    """An address of the file. `owner` is its owner's name in messages."""

    address: IPInterface
    path: Path
    owner: str
    domain: object = None
    """The broadcast domain of an SVI."""
    anycast: bool = False
    """True for an SVI that may share its address within its domain."""
    virtual: int | None = None
    """The id of the virtual router whose address it is: the routers of one id share it."""

    def clashes(self, other: Given) -> bool:
        """Return whether two addresses conflict. SVIs of several domains may share one, and those of one domain that
        are an anycast gateway or a virtual router."""
        apart = None not in (self.domain, other.domain) and self.domain != other.domain
        shared = (self.anycast and other.anycast) or (self.virtual is not None and self.virtual == other.virtual)
        return self.address.ip == other.address.ip and not apart and not shared


@dataclass(slots=True, eq=False)
class Port:
    """One end of a link, or a bond. The fields after `given` are set once all links are known."""

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
    bond: Port | None = None
    """The bond of which it is a member."""
    members: list[Port] = field(default_factory=list)
    """The members of a bond."""
    addresses: dict[Family, IPInterface] = field(default_factory=dict)
    gateways: dict[Family, IPAddress] = field(default_factory=dict)

    @property
    def kept(self) -> Interface | None:
        """Return the end as the lab has it that the file is for."""
        kept = self.node.kept
        ends = (*kept.interfaces, *kept.bonds) if kept else ()
        return next((end for end in ends if end.name == self.name), None)

    @property
    def carrier(self) -> Port:
        """Return what carries its traffic: its bond, or itself."""
        return self.bond or self

    def __str__(self) -> str:
        return f"{self.node.name}:{self.name}"


@dataclass(slots=True, eq=False)
class ResolvedNode:
    number: int
    """Position in the file, from 1; see `Kept`."""
    name: str
    kind: str
    """A name of `testbed.topology.kinds`."""
    path: Path
    keys: Any
    """The keys of its kind, merged over the levels of the file."""
    routing: Routing = "static"
    rdma: bool = True
    """True if a host's interfaces have RDMA devices."""
    nic: str = ""
    """The RDMA device of this machine that a host has."""
    vlans: dict[int, dict[Family, Given]] = field(default_factory=dict)
    vnis: dict[int, int] = field(default_factory=dict)
    """The VXLAN networks by VLAN."""
    virtual: dict[int, dict[Family, Given]] = field(default_factory=dict)
    """The addresses of its virtual routers, by VLAN."""
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
    bonds: dict[str, Port] = field(default_factory=dict)
    kept: Node | None = None
    """The node as the lab has it that the file is for."""

    def next_number(self, name: str) -> int:
        """Return the number of its next interface: the one that it has in the lab, else the next one."""
        kept = {}
        if self.kept:
            kept = {end.name: end.number for end in (*self.kept.interfaces, *self.kept.bonds)}
            kept |= {dummy.name: dummy.number for dummy in self.kept.dummies}
        ports = [port.number for port in (*self.ports.values(), *self.bonds.values())]
        known = [*kept.values(), *ports, *(one.number for one in self.dummies)]
        return kept.get(name) or max(known, default=0) + 1
