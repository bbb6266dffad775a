"""
A fabric while it is put together, and when it is whole: the nodes and links of a topology file, with what the comments
of that file say.

Names are the field's. Ports are counted per node in the order of the cables: e1, e2, … on a switch, hosts first; eth1,
eth2, … on a host, where the number is the rail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.topology.fabrics import addresses
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
    vlans: dict[int, str | None] = field(default_factory=dict)
    notes: dict[int, str] = field(default_factory=dict)
    """What a comment says of a VLAN."""
    routes: list[Route] = field(default_factory=list)
    ports: int = 0

    def add_vlan(self, vlan: int, address: str | None, note: str) -> None:
        self.vlans[vlan], self.notes[vlan] = address, note

    def add_route(self, to: str, via: Iterable[str], note: str = "") -> None:
        self.routes.append(Route(to, tuple(via), note))

    def value(self) -> dict[str, Any]:
        routes = {"routes": [route.value() for route in self.routes]} if self.routes else {}
        return {"kind": "switch", "vlans": self.vlans, **routes}


@dataclass(slots=True)
class Host:
    name: str
    routes: tuple[Route, ...] = ()
    """None: the planner's default route."""
    ports: int = 0

    def value(self) -> dict[str, Any] | None:
        return {"routes": [route.value() for route in self.routes]} if self.routes else None


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
    nodes: list[Switch | Host] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)


class Fabric:
    """`options` are those that made it, `about` are lines for people."""

    def __init__(self, kind: str, options: Mapping[str, int | str], bridged: bool, about: Iterable[str]) -> None:
        self.kind = kind
        self.options = options
        self.bridged = bridged
        self.about = tuple(about)
        self.sections: list[Section] = []
        self._links = 0

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

    def join(self, lower: Switch, uppers: Iterable[Switch], below: str) -> list[str]:
        """Routed cables, on which each upper switch has a route to `below`; the addresses of the upper switches."""
        hops = []
        for upper in uppers:
            self._links += 1
            vlan, low, high = addresses.link(self._links)
            lower.add_vlan(vlan, f"{low}/31", f"to {upper.name}")
            upper.add_vlan(vlan, f"{high}/31", f"to {lower.name}")
            upper.add_route(below, [low], lower.name)
            self._cable(lower, _next_port(upper), {"vlan": vlan})
            hops.append(high)
        return hops

    def trunks(self, lower: Switch, uppers: Iterable[Switch], vlan: int) -> None:
        """Bridged cables."""
        for upper in uppers:
            self._cable(lower, _next_port(upper), {"trunk": [vlan]})

    def _cable(self, switch: Switch, other: str, settings: dict[str, Any]) -> None:
        self.sections[-1].links.append(Link((_next_port(switch), other), settings))

    @property
    def command(self) -> str:
        """What makes the same fabric again."""
        options = (f"--{name} {value}" for name, value in self.options.items())
        return " ".join(["testbed topology new", self.kind, *options, "--bridged" if self.bridged else "--routed"])

    def nodes(self) -> list[Switch | Host]:
        return [node for section in self.sections for node in section.nodes]

    def document(self) -> dict[str, Any]:
        """The file as plain data."""
        links = [link.value() for section in self.sections for link in section.links]
        nodes = {node.name: node.value() for node in self.nodes()}
        return {"name": self.kind, "topology": {"defaults": DEFAULTS, "kinds": KINDS, "nodes": nodes, "links": links}}

    def topology(self) -> Topology:
        return Topology.model_validate(self.document())


def _next_port(switch: Switch) -> str:
    switch.ports += 1
    return f"{switch.name}:e{switch.ports}"
