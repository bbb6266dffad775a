"""
A fabric while it is put together, and when it is whole: the nodes and links of a topology file, with what the comments
of that file say.

Names are the field's. Ports are counted per node in the order of the cables: e1, e2, … on a switch, hosts first; eth1,
eth2, … on a host, where the number is the rail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.topology.fabrics import addresses
from testbed.topology.fabrics.addresses import FAMILIES, Families
from testbed.topology.plan import Family, Routing
from testbed.topology.topology import Topology

DEFAULTS = {"kind": "host"}
KINDS = {"host": {"nic": "hardware"}, "switch": {"profile": "sonic"}}


@dataclass(frozen=True, slots=True)
class Route:
    to: str
    via: tuple[str, ...]
    note: str = ""
    """What a comment says of it."""

    def value(self) -> dict[str, Any]:
        return {"to": self.to, "via": self.via[0] if len(self.via) == 1 else list(self.via)}


@dataclass(slots=True)
class Switch:
    name: str
    vlans: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """With the address of each family."""
    notes: dict[int, str] = field(default_factory=dict)
    """What a comment says of a VLAN."""
    routes: list[Route] = field(default_factory=list)
    ports: int = 0

    def add_vlan(self, vlan: int, svi: Mapping[Family, str], note: str) -> None:
        self.vlans[vlan], self.notes[vlan] = tuple(svi.values()), note

    def add_routes(self, to: Mapping[Family, str], via: Mapping[Family, Iterable[str]], note: str = "") -> None:
        """A family without a next hop gets none."""
        self.routes += [Route(to[family], tuple(hops), note) for family, hops in via.items() if hops]

    def vlan(self, number: int) -> str | list[str] | None:
        """As the file has it."""
        addresses = self.vlans[number]
        return list(addresses) if len(addresses) > 1 else addresses[0] if addresses else None

    def value(self) -> dict[str, Any]:
        routes = {"routes": [route.value() for route in self.routes]} if self.routes else {}
        vlans = {"vlans": {number: self.vlan(number) for number in self.vlans}} if self.vlans else {}
        return {"kind": "switch", **vlans, **routes}


@dataclass(slots=True)
class Host:
    name: str
    routes: tuple[Route, ...] = ()
    """None: the planner's default route."""
    ports: int = 0

    def value(self) -> dict[str, Any] | None:
        return {"routes": [route.value() for route in self.routes]} if self.routes else None


@dataclass(slots=True)
class Bridge:
    name: str
    ports: int = 0

    def value(self) -> dict[str, Any]:
        return {"kind": "bridge"}


Node = Switch | Host | Bridge


@dataclass(frozen=True, slots=True)
class Link:
    ends: tuple[str, str]
    settings: dict[str, Any]

    def value(self) -> dict[str, Any]:
        return {"endpoints": list(self.ends), **self.settings}


@dataclass(slots=True)
class Section:
    """What stands together in the file."""

    heading: str
    nodes: list[Node] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)


class Fabric:
    """`options` are those that made it, `about` are lines for people."""

    def __init__(
        self,
        kind: str,
        options: Mapping[str, int | str],
        bridged: bool,
        family: Families,
        about: Iterable[str],
        routing: Routing = "static",
    ) -> None:
        self.kind = kind
        self.options = options
        self.bridged = bridged
        self.family = family
        self.routing = routing
        self.about = tuple(about)
        self.management = False
        self.sections: list[Section] = []
        self._links = 0

    def each(self, make: Callable[..., str], *where: int) -> dict[Family, str]:
        """What `make` of `addresses` says for `where`, in each family of the fabric."""
        return {family: make(*where, family) for family in FAMILIES[self.family]}

    def anywhere(self) -> dict[Family, str]:
        return dict.fromkeys(FAMILIES[self.family], addresses.ANYWHERE)

    def section(self, heading: str) -> None:
        """What is added from now on stands under `heading`."""
        self.sections.append(Section(heading))

    def switch(self, name: str) -> Switch:
        switch = Switch(name)
        self.sections[-1].nodes.append(switch)
        return switch

    def host(self, name: str, routes: tuple[Route, ...] = ()) -> Host:
        host = Host(name, routes)
        self.sections[-1].nodes.append(host)
        return host

    def attach(self, host: Host, switch: Switch, vlan: int) -> None:
        """A cable from the host's next NIC to the switch's next port."""
        host.ports += 1
        self._cable(switch, f"{host.name}:eth{host.ports}", {"vlan": vlan})

    def join(self, lower: Switch, uppers: Iterable[Switch], below: Mapping[Family, str]) -> dict[Family, list[str]]:
        """Routed cables, on which each upper switch has a route to `below`; the addresses of the upper switches. With
        FRR neither end has an address or a route."""
        hops: dict[Family, list[str]] = {family: [] for family in FAMILIES[self.family]}
        for upper in uppers:
            if self.routing == "frr":
                self._cable(lower, _next_port(upper), {})
                continue
            self._links += 1
            vlan = addresses.link_vlan(self._links)
            ends = {family: addresses.link(self._links, family) for family in hops}
            for switch, other, end in (lower, upper, 0), (upper, lower, 1):
                svis = {family: addresses.link_svi(ends[family][end], family) for family in hops}
                switch.add_vlan(vlan, svis, f"to {other.name}")
            upper.add_routes(below, {family: [low] for family, (low, _) in ends.items()}, lower.name)
            self._cable(lower, _next_port(upper), {"vlan": vlan})
            for family, (_, high) in ends.items():
                hops[family].append(high)
        return hops

    def trunks(self, lower: Switch, uppers: Iterable[Switch], vlan: int) -> None:
        """Bridged cables."""
        for upper in uppers:
            self._cable(lower, _next_port(upper), {"trunk": [vlan]})

    def add_management(self) -> None:
        """What a job needs besides (docs/training.md): a host that launches it, and a network of its own, which every
        host is on with `mgmt0`."""
        self.management = True
        hosts = [node for node in self.nodes() if isinstance(node, Host)]
        self.section("the management network, for what launches jobs")
        bridge, launcher = Bridge("mgmt"), Host("launcher")
        self.sections[-1].nodes += [bridge, launcher]
        for host in [*hosts, launcher]:
            self._cable(bridge, f"{host.name}:mgmt0", {"rdma": False})

    def _cable(self, switch: Switch | Bridge, other: str, settings: dict[str, Any]) -> None:
        self.sections[-1].links.append(Link((_next_port(switch), other), settings))

    @property
    def command(self) -> str:
        """What makes the same fabric again."""
        options = (f"--{name} {value}" for name, value in self.options.items())
        family = [] if self.family == 4 else [f"--family {self.family}"]
        manner = "--bridged" if self.bridged else "--routing frr" if self.routing == "frr" else "--routed"
        management = ["--management"] if self.management else []
        return " ".join(["testbed topology new", self.kind, *options, *family, manner, *management])

    def nodes(self) -> list[Node]:
        return [node for section in self.sections for node in section.nodes]

    def document(self) -> dict[str, Any]:
        """The file as plain data."""
        links = [link.value() for section in self.sections for link in section.links]
        nodes = {node.name: node.value() for node in self.nodes()}
        routing = {"routing": self.routing} if self.routing != "static" else {}
        elements = {**routing, "defaults": DEFAULTS, "kinds": KINDS, "nodes": nodes, "links": links}
        return {"name": self.kind, "topology": elements}

    def topology(self) -> Topology:
        return Topology.model_validate(self.document())


def _next_port(switch: Switch | Bridge) -> str:
    switch.ports += 1
    return f"{switch.name}:e{switch.ports}"
