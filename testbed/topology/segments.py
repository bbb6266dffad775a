"""Layer-2 segments: the interfaces that share broadcasts, and so a subnet.

A segment consists of the VLANs of switches, bridges and host interfaces that links join. Two switches share a VLAN by
an access link, a trunk or a VXLAN network. A link that closes a loop is an error, unless spanning tree on a node of the
loop breaks it. Switches that announce host routes share a subnet without a link: then a segment has several broadcast
domains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from testbed.documents.problems import Problems
from testbed.documents.text import Path, listing
from testbed.topology.kinds import KINDS
from testbed.topology.kinds.switch_kind import DEFAULT_VLAN
from testbed.topology.plan import Family, IPNetwork
from testbed.topology.resolve import ResolvedLink
from testbed.topology.resolved import Given, Port, ResolvedNode

_Vertex = tuple[str, str | int]
"""(switch, VLAN), (bridge, "") or (host, interface); ("", VNI) for a VXLAN network."""


@dataclass(frozen=True, slots=True)
class SviAddress:
    switch: ResolvedNode
    vlan: int
    given: Given

    @property
    def vertex(self) -> _Vertex:
        return self.switch.name, self.vlan


@dataclass(slots=True, eq=False)
class Segment:
    name: str
    path: Path
    svis: list[SviAddress] = field(default_factory=list)
    """The addresses of its SVIs, then those of their virtual routers."""
    ports: list[Port] = field(default_factory=list)
    """The host interfaces with an address, in the order of the links."""
    networks: dict[Family, IPNetwork] = field(default_factory=dict)
    """The subnet of each family that has addresses."""
    part: str = ""
    """The part of the lab, which no link joins with others, by one of its nodes."""

    @property
    def free(self) -> bool:
        """Return whether the addresses are those of the file alone: containers may have any."""
        return not self.svis and not any(port.node.planned for port in self.ports)

    def given(self, family: Family) -> list[Given]:
        """Return the addresses of the file in it, those of SVIs first."""
        svis = [svi.given for svi in self.svis if svi.given.address.version == family]
        return svis + [port.given[family] for port in self.ports if family in port.given]


def set_vlans(link: ResolvedLink, problems: Problems) -> None:
    """Put the VLANs of a link's `vlan` and `trunk` on its ends that are switch ports and not routed."""
    if link.routed:
        return
    switches = [port for port in link.ports if KINDS[port.node.kind].has_vlans]
    definition = link.definition
    for key in ("vlan", "trunk"):
        if not switches and getattr(definition, key) is not None:
            problems.add((*link.path, key), f"{key!r} needs a switch at one end of the link", at_key=True)
    if definition.trunk is not None:
        _check_trunk(link, len(switches), problems)
    for port in switches:
        port.access = _access_vlan(port.node, link, problems)
        port.trunk = tuple(sorted(definition.trunk or []))


def _check_trunk(link: ResolvedLink, switches: int, problems: Problems) -> None:
    definition, path = link.definition, (*link.path, "trunk")
    tagged = definition.trunk or []
    for index, vlan in enumerate(tagged):
        if vlan in tagged[:index]:
            problems.add((*path, index), f"VLAN {vlan} is twice in the trunk")
        if vlan == definition.vlan:
            problems.add((*path, index), f"VLAN {vlan} is both the access VLAN and in the trunk of this link")
    other = next((port for port in link.ports if not KINDS[port.node.kind].has_vlans), None)
    if switches == 1 and other is not None:
        wrong = ""
        if not KINDS[other.node.kind].is_host:
            wrong = f"{other.node.kind} {other.node.name!r} has no VLANs: a trunk must end at a switch or a host"
        elif definition.vlan is None:
            wrong = f"host {other.node.name!r} receives untagged frames only: add 'vlan' for them beside the trunk"
        if wrong:
            problems.add(path, wrong, at_key=True)


def _access_vlan(node: ResolvedNode, link: ResolvedLink, problems: Problems) -> int | None:
    definition = link.definition
    known = sorted(node.vlans)
    if definition.vlan is None and definition.trunk is None:
        if DEFAULT_VLAN in node.vlans:
            return DEFAULT_VLAN
        which = f"which VLAN of {node.name!r}? Add 'vlan' or 'trunk'"
        problems.add(link.path, f"{which}; VLANs of {node.name!r}: {listing(known)}")
    steps: list[tuple[int | None, Path]] = [(definition.vlan, (*link.path, "vlan"))]
    steps += [(vlan, (*link.path, "trunk", index)) for index, vlan in enumerate(definition.trunk or [])]
    for vlan, path in steps:
        if vlan is not None and vlan not in node.vlans:
            problems.add(path, f"VLAN {vlan} is not among the VLANs of {node.name!r}: {listing(known)}")
    return definition.vlan


def build_segments(nodes: dict[str, ResolvedNode], links: list[ResolvedLink], problems: Problems) -> list[Segment]:
    """Return the segments in the order of their first SVI, then of their first link."""
    joined, parts = _join(nodes, links, problems)
    vlans = [(node, vlan, addresses.values()) for node in nodes.values() for vlan, addresses in node.vlans.items()]
    vlans += [(node, vlan, addresses.values()) for node in nodes.values() for vlan, addresses in node.virtual.items()]
    svis = [SviAddress(node, vlan, given) for node, vlan, addresses in vlans for given in addresses]
    for svi in svis:
        svi.given.domain = joined.root(svi.vertex)
    first_of: dict[IPNetwork, _Vertex] = {}
    for svi in svis:
        if svi.switch.host_routes:
            joined.join(first_of.setdefault(svi.given.address.network, svi.vertex), svi.vertex)
    segments: dict[_Vertex, Segment] = {}
    for svi in svis:
        part, _ = parts.root((svi.switch.name, ""))
        segment = Segment(_describe(svi.vertex, nodes), svi.switch.paths["vlans", svi.vlan], part=part)
        segments.setdefault(joined.root(svi.vertex), segment).svis.append(svi)
    for link in links:
        for port, peer in _carriers(link):
            if KINDS[port.node.kind].is_host and (port.node.planned or port.given):
                part, _ = parts.root((port.node.name, ""))
                segment = Segment(f"the link {port} – {peer}", link.path, part=part)
                segments.setdefault(joined.root((port.node.name, port.name)), segment).ports.append(port)
    return list(segments.values())


def _carriers(link: ResolvedLink) -> Iterator[tuple[Port, Port]]:
    """Yield both ends of a link, each with its peer; a bond at its first member's link only."""
    for port, peer in zip(link.ports, reversed(link.ports), strict=True):
        if port.bond is None or port.bond.members[0] is port:
            yield port.carrier, peer.carrier


def _untagged(port: Port) -> _Vertex | None:
    part = KINDS[port.node.kind].untagged(port)
    return None if part is None else (port.node.name, part)


def _describe(vertex: _Vertex, nodes: dict[str, ResolvedNode]) -> str:
    name, part = vertex
    return KINDS[nodes[name].kind].describe(nodes[name], part)


def _join(nodes: dict[str, ResolvedNode], links: list[ResolvedLink], problems: Problems) -> tuple[_Joined, _Joined]:
    """Return the broadcast domains, and the parts of the lab that no link joins; report links that close a loop."""
    joined, loops, parts = _Joined(), _Joined(), _Joined()
    bundles: set[tuple[Port, Port]] = set()
    networks = [((node.name, vlan), vni) for node in nodes.values() for vlan, vni in node.vnis.items()]
    for vertex, vni in networks:
        joined.join(("", vni), vertex)
        loops.join(("", vni), vertex)
    for link in links:
        a, b = (port.carrier for port in link.ports)
        parts.join((a.node.name, ""), (b.node.name, ""))
        pairs = [(_untagged(a), _untagged(b))]
        pairs += [((a.node.name, vlan), (b.node.name, vlan)) for vlan in a.trunk if b.trunk]
        # A host passes nothing on; several links between the same two bonds are one.
        loopless = (a, b) in bundles or any(KINDS[end.node.kind].is_host for end in (a, b))
        if a.members and b.members:
            bundles |= {(a, b), (b, a)}
        for one, other in pairs:
            if one is None or other is None:
                continue
            joined.join(one, other)
            # A node with spanning tree breaks each loop that it is in; a bridge without it passes its messages on.
            if not (loopless or a.node.stp or b.node.stp or loops.join(one, other)):
                loop = f"this link closes a layer-2 loop ({_describe(one, nodes)})"
                cure = (
                    "'stp: true' on a switch or bridge in it runs spanning tree, 'routing: frr' routes between switches"
                )
                problems.add(link.path, f"{loop}: {cure}")
    return joined, parts


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
        """Join two sets; return False if they were joined before."""
        one, other = self.root(one), self.root(other)
        self._above[other] = one
        return one != other
