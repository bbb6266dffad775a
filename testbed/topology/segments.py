"""
Layer-2 segments: who hears whose broadcasts, so who shares a subnet.

A segment is what VLANs of switches, bridges and host interfaces become when the links join them. Two switches share a
VLAN by an access link or a trunk; nothing here runs spanning tree, so a link that closes a loop is an error and not a
broadcast storm. Switches that announce host routes share a subnet without a link: then a segment is several broadcast
domains.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from testbed.topology.document import Path
from testbed.topology.plan import Family, IPInterface, IPNetwork
from testbed.topology.problems import Problems, listing
from testbed.topology.resolve import Port, ResolvedLink, ResolvedNode

DEFAULT_VLAN = 1
"""The VLAN of a port that names none, as on every switch out of the box; only where the switch has it."""

_Vertex = tuple[str, str | int]
"""(switch, VLAN), (bridge, "") or (host, interface)."""


@dataclass(slots=True, eq=False)
class SviAddress:
    switch: ResolvedNode
    vlan: int
    address: IPInterface
    path: Path
    domain: _Vertex
    """Stands for the broadcast domain it is in."""

    def __str__(self) -> str:
        return f"the SVI of VLAN {self.vlan} on {self.switch.name}"


@dataclass(slots=True, eq=False)
class Segment:
    name: str
    path: Path
    svis: list[SviAddress] = field(default_factory=list)
    ports: list[Port] = field(default_factory=list)
    """The host interfaces in it that have an address, in the order of the links."""
    networks: dict[Family, IPNetwork] = field(default_factory=dict)
    """Its subnet of each family that it has addresses of."""


@dataclass(frozen=True, slots=True)
class Membership:
    """The VLANs of a switch port."""

    access: int | None = None
    trunk: tuple[int, ...] = ()


def memberships(link: ResolvedLink, problems: Problems) -> tuple[Membership, Membership]:
    """The VLANs that a link's `vlan` and `trunk` give its ends; nothing for an end that is no switch, or is routed."""
    if link.routed:
        return Membership(), Membership()
    switches = [port.node for port in link.ports if port.node.kind == "switch"]
    definition = link.definition
    for key in ("vlan", "trunk"):
        if not switches and getattr(definition, key) is not None:
            problems.add((*link.path, key), f"{key!r} needs a switch at one end of the link", at_key=True)
    if definition.trunk is not None:
        _check_trunk(link, len(switches), problems)
    first, second = (_membership(port.node, link, problems) for port in link.ports)
    return first, second


def _check_trunk(link: ResolvedLink, switches: int, problems: Problems) -> None:
    definition, path = link.definition, (*link.path, "trunk")
    tagged = definition.trunk or []
    for index, vlan in enumerate(tagged):
        if vlan in tagged[:index]:
            problems.add((*path, index), f"VLAN {vlan} is twice in the trunk")
        if vlan == definition.vlan:
            problems.add((*path, index), f"VLAN {vlan} is both the access VLAN and in the trunk of this link")
    other = next((port for port in link.ports if port.node.kind != "switch"), None)
    if switches == 1 and other is not None and other.node.kind == "bridge":
        problems.add(
            path, f"bridge {other.node.name!r} does not know VLANs: a trunk ends at a switch or a host", at_key=True
        )
    elif switches == 1 and other is not None and definition.vlan is None:
        problems.add(
            path,
            f"host {other.node.name!r} reads untagged frames only: add 'vlan' for them beside the trunk",
            at_key=True,
        )


def _membership(node: ResolvedNode, link: ResolvedLink, problems: Problems) -> Membership:
    if node.kind != "switch":
        return Membership()
    definition = link.definition
    known = sorted(node.vlans)
    if definition.vlan is None and definition.trunk is None:
        if DEFAULT_VLAN in node.vlans:
            return Membership(DEFAULT_VLAN)
        problems.add(
            link.path, f"which VLAN of {node.name!r}? Add 'vlan' or 'trunk'; VLANs of {node.name!r}: {listing(known)}"
        )
        return Membership()
    steps: list[tuple[int | None, Path]] = [(definition.vlan, (*link.path, "vlan"))]
    steps += [(vlan, (*link.path, "trunk", index)) for index, vlan in enumerate(definition.trunk or [])]
    for vlan, path in steps:
        if vlan is not None and vlan not in node.vlans:
            problems.add(path, f"VLAN {vlan} is not among the VLANs of {node.name!r}: {listing(known)}")
    return Membership(definition.vlan, tuple(sorted(definition.trunk or [])))


def build_segments(
    nodes: dict[str, ResolvedNode],
    links: list[tuple[ResolvedLink, tuple[Membership, Membership]]],
    problems: Problems,
) -> list[Segment]:
    """The segments in the order of their first SVI, then of their first link."""
    joined = _Joined()
    for link, (first, second) in links:
        a, b = link.ports
        pairs = [(_untagged(a, first), _untagged(b, second))]
        pairs += [((a.node.name, vlan), (b.node.name, vlan)) for vlan in first.trunk if second.trunk]
        for one, other in pairs:
            if one is not None and other is not None and not joined.join(one, other):
                problems.add(
                    link.path,
                    f"this link closes a layer-2 loop ({_describe(one, nodes)}), and nothing here runs spanning tree",
                )
    svis = [
        SviAddress(node, vlan, given.address, given.path, joined.root((node.name, vlan)))
        for node in nodes.values()
        for vlan, addresses in node.vlans.items()
        for given in addresses.values()
    ]
    first_of: dict[IPNetwork, _Vertex] = {}
    for svi in svis:
        if svi.switch.host_routes:
            joined.join(first_of.setdefault(svi.address.network, svi.domain), svi.domain)
    segments: dict[_Vertex, Segment] = {}
    for svi in svis:
        name = _describe((svi.switch.name, svi.vlan), nodes)
        segment = segments.setdefault(joined.root(svi.domain), Segment(name, svi.switch.paths[svi.vlan]))
        segment.svis.append(svi)
    for link, members in links:
        for port, member, peer in zip(link.ports, members, reversed(link.ports), strict=True):
            vertex_of_port = _untagged(port, member)
            addressed = port.node.kind == "host" and (port.node.planned or bool(port.addresses))
            if addressed and vertex_of_port is not None:
                name = f"the link {port} – {peer}"
                segment = segments.setdefault(joined.root(vertex_of_port), Segment(name, link.path))
                segment.ports.append(port)
    return list(segments.values())


def _untagged(port: Port, member: Membership) -> _Vertex | None:
    if port.node.kind == "host":
        return (port.node.name, port.name)
    if port.node.kind == "bridge":
        return (port.node.name, "")
    return None if member.access is None else (port.node.name, member.access)


def _describe(vertex: _Vertex, nodes: dict[str, ResolvedNode]) -> str:
    name, detail = vertex
    return f"VLAN {detail} of {name}" if nodes[name].kind == "switch" else f"bridge {name}"


class _Joined:
    """Disjoint sets of vertices (union-find with path halving)."""

    def __init__(self) -> None:
        self._above: dict[_Vertex, _Vertex] = {}

    def root(self, vertex: _Vertex) -> _Vertex:
        above = self._above
        while (parent := above.get(vertex, vertex)) != vertex:
            above[vertex] = above.get(parent, parent)
            vertex = parent
        return vertex

    def join(self, one: _Vertex, other: _Vertex) -> bool:
        """False when they were joined before."""
        one, other = self.root(one), self.root(other)
        self._above[other] = one
        return one != other
