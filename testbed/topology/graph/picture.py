"""The content of a picture of a plan: boxes in tiers, and the cables between them.

Tiers follow from the graph: hosts are tier 0, a switch is one tier above its lowest neighbour. So a cable joins two
boxes of adjacent tiers, or of the same one.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass

from testbed.topology.kinds import KINDS, Kind
from testbed.topology.plan import Interface, Node, Plan

ALONE, ALONE_LINKS = 8, 32
"""The limits of hosts, and of their links, for one box per host; above them, hosts with the same cables share a box."""

LinkEnds = tuple[Interface, Interface]


@dataclass(frozen=True, slots=True, eq=False)
class Box:
    """A switch, or hosts with the same cables."""

    nodes: tuple[Node, ...]
    tier: int
    number: int
    """The position in the order of the file."""

    @property
    def kind(self) -> Kind:
        return KINDS[self.nodes[0].kind]


@dataclass(frozen=True, slots=True, eq=False)
class Cable:
    """A link, or the links of one rail between the hosts of a box and a switch. `ends[0]` are all in `boxes[0]`."""

    boxes: tuple[Box, Box]
    """The boxes, the lower one first."""
    links: tuple[LinkEnds, ...]
    rail: int | None
    """The number of the host's RDMA interface on this link, from 1; None without an RDMA device."""
    peer: bool = False
    """True for the peer link of two switches that stand in for each other."""

    @property
    def to_host(self) -> bool:
        return any(box.kind.is_host for box in self.boxes)

    @property
    def level(self) -> bool:
        return self.boxes[0].tier == self.boxes[1].tier


class Picture:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._tiers = _tiers(plan)
        self.boxes = self._boxes()
        self._box_of = {node.name: box for box in self.boxes for node in box.nodes}
        self.cables = self._cables()
        self._cables_of: dict[Box, list[Cable]] = {}
        for cable in self.cables:
            for box in cable.boxes:
                self._cables_of.setdefault(box, []).append(cable)

    def tier(self, number: int) -> list[Box]:
        return [box for box in self.boxes if box.tier == number]

    @property
    def tiers(self) -> list[int]:
        """Return the tiers that are not empty, from the bottom."""
        return sorted({box.tier for box in self.boxes})

    @property
    def rails(self) -> list[int]:
        return sorted({cable.rail for cable in self.cables if cable.rail is not None})

    def cables_of(self, box: Box) -> list[Cable]:
        return self._cables_of.get(box, [])

    def rails_of(self, box: Box) -> list[int]:
        """Return the rails of the hosts' links at a box."""
        return sorted({cable.rail for cable in self.cables_of(box) if cable.rail is not None})

    def joined(self, box: Box, others: Container[Box]) -> list[Box]:
        """Return the boxes of `others` with cables to a box, each as often as it has cables."""
        return [end for cable in self.cables_of(box) for end in cable.boxes if end is not box and end in others]

    def peers(self, box: Box) -> list[Box]:
        """Return the boxes at the other ends of a box's peer links."""
        return [end for cable in self.cables_of(box) if cable.peer for end in cable.boxes if end is not box]

    def _boxes(self) -> list[Box]:
        nodes = self.plan.nodes.values()
        hosts = [node for node in nodes if KINDS[node.kind].is_host]
        alone = len(hosts) <= ALONE and sum(len(host.interfaces) for host in hosts) <= ALONE_LINKS
        groups: dict[object, list[Node]] = {}
        for node in nodes:
            key: object = node.name
            if KINDS[node.kind].is_host and not alone and all(self._tiers[end.peer[0]] for end in node.interfaces):
                ends = (*node.interfaces, *node.bonds)
                key = tuple((i.name, i.peer[0], *(given.network for given in i.addresses)) for i in ends)
            groups.setdefault(key, []).append(node)
        return [Box(tuple(group), self._tiers[group[0].name], number) for number, group in enumerate(groups.values())]

    def _cables(self) -> list[Cable]:
        groups: dict[object, list[LinkEnds]] = {}
        for number, ends in enumerate(self.plan.links):
            boxes = sorted((self._box_of[end.node] for end in ends), key=lambda box: (box.tier, box.number))
            lower, upper = sorted(ends, key=lambda end: boxes.index(self._box_of[end.node]))
            shared = any(len(box.nodes) > 1 for box in boxes)
            one: tuple[object, ...] = (lower.name,) if shared else () if _is_peer(self.plan, ends) else (number,)
            groups.setdefault((*boxes, *one), []).append((lower, upper))
        first = [(links, [self._box_of[end.node] for end in links[0]]) for links in groups.values()]
        return [
            Cable((lower, upper), tuple(links), self._rail(links[0]), peer=_is_peer(self.plan, links[0]))
            for links, (lower, upper) in first
        ]

    def _rail(self, ends: LinkEnds) -> int | None:
        for end in ends:
            own = [port.name for port in self.plan.nodes[end.node].ports if port.rdma is not None]
            if (name := end.master or end.name) in own:
                return own.index(name) + 1
        return None


def _is_peer(plan: Plan, ends: LinkEnds) -> bool:
    """Return whether a link joins two switches that are one to the hosts: one gateway, or one LACP system."""
    here, there = (_shared(plan.nodes[end.node]) for end in ends)
    return not here.isdisjoint(there)


def _shared(node: Node) -> set[tuple[object, ...]]:
    """Return the virtual routers of a switch, and the systems of its port channels."""
    routers = {(svi.vlan, router.id) for svi, router in node.virtual_routers}
    return routers | {(bond.bond.system,) for bond in node.bonds if bond.bond and bond.bond.system}


def _tiers(plan: Plan) -> dict[str, int]:
    """Return the distances from the hosts; a node that no host reaches is in tier 1. Peers are in the same tier."""
    tiers = {node.name: 0 for node in plan.nodes.values() if KINDS[node.kind].is_host}
    neighbours: dict[str, list[str]] = {name: [] for name in plan.nodes}
    peers: dict[str, list[str]] = {name: [] for name in plan.nodes}
    for a, b in plan.links:
        joined = peers if _is_peer(plan, (a, b)) else neighbours
        joined[a.node].append(b.node)
        joined[b.node].append(a.node)
    edge: Iterable[str] = list(tiers)
    while edge:
        near = [near for name in edge for near in neighbours[name] if near not in tiers]
        reached = dict.fromkeys((*near, *(peer for name in near for peer in peers[name] if peer not in tiers)))
        tier = tiers[next(iter(edge))] + 1
        tiers |= dict.fromkeys(reached, tier)
        edge = list(reached)
    return {name: tiers.get(name, 1) for name in plan.nodes}
