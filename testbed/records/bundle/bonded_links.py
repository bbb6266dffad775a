"""The cables of a cluster, and which of them are one link of its lab: bonds of hosts, port channels of switches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from testbed.records.bundle.bundle import Bundle, End
from testbed.records.bundle.model import Interface

Cable = tuple[End, End]
"""The ends of a cable, that of a switch first."""
LACP, STATIC, BACKUP = "802.3ad", "balance-xor", "active-backup"
MODES = {
    STATIC: STATIC, "balance-rr": STATIC, "broadcast": STATIC, BACKUP: BACKUP, "balance-tlb": BACKUP,
    "balance-alb": BACKUP,
}  # fmt: skip
"""Modes of bonds without LACP, and those that labs have in their place."""


@dataclass(frozen=True)
class Bond:
    """Two cables or more that are one link to a host, or between two switches."""

    end: End
    """The bond at the far end: the host's, or a switch's."""
    cables: Sequence[Cable]
    mode: str
    """The mode in the lab."""
    given: str
    """The mode in the cluster, empty where it is not known."""
    guessed: bool
    """Whether the cluster does not say which member ends where."""

    @property
    def switches(self) -> list[str]:
        return sorted({near[0] for near, _ in self.cables})


class Links:
    """The cables of which both ends are known, each once. `bonds` are those of hosts, `trunks` those between switches,
    `alone` the bonds of hosts of which only one cable is known."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._members = {
            (node.name, bond): [(node.name, one.name) for one in members]
            for node in bundle.nodes.values()
            for bond, members in node.bonds().items()
        }
        self._guessed: set[End] = set()
        self.cables = self._cables(bundle.peers)
        grouped = self._grouped()
        self.alone = {own for (own, _), cables in grouped.items() if len(cables) == 1 and not self._of_switch(own)}
        made = [self._bond(own, cables) for (own, _), cables in grouped.items() if len(cables) > 1]
        self.bonds = [one for one in made if not self._of_switch(one.end)]
        self.trunks = [one for one in made if self._of_switch(one.end)]
        self._of_end = {end: one for one in made for cable in one.cables for end in cable}

    def _of_switch(self, end: End) -> bool:
        return self._bundle.nodes[end[0]].switch

    def interface(self, end: End) -> Interface:
        return self._bundle.nodes[end[0]].interfaces.get(end[1]) or Interface(end[1])

    def interfaces(self, end: End) -> Sequence[Interface]:
        """Return the interface of an end, and the bond that it is a member of."""
        return self.interface(end), self.owner(end)

    def routed(self, cable: Cable) -> bool:
        """Return whether a cable joins two switches, and is no peer link of a pair."""
        near, far = cable
        together = self.together(near[0])
        return self._of_switch(far) and not (far[0] in together and cable in self.peer_links(together))

    def owner(self, end: End) -> Interface:
        """Return the interface with the addresses of an end: its bond's, if it is a member."""
        bond = self._bundle.master(end)
        return self.interface((end[0], bond) if bond else end)

    def bond(self, end: End) -> Bond | None:
        """Return the bond that the cable of an end is in."""
        return self._of_end.get(end)

    def cables_of(self, cable: Cable) -> Sequence[Cable]:
        """Return the cables of the same bond, else this one."""
        bond = self.bond(cable[1])
        return bond.cables if bond else [cable]

    def together(self, switch: str) -> Sequence[str]:
        """Return the switches that hosts have bonds to, with this one: they are one gateway."""
        return self._together.get(switch, [switch])

    @cached_property
    def _together(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for one in self.bonds:
            joined = sorted({name for switch in one.switches for name in found.get(switch, [switch])})
            found |= dict.fromkeys(joined, joined)
        return found

    @cached_property
    def largest_mtu(self) -> int | None:
        """The largest MTU of links to hosts, None where none is known."""
        own = (one.mtu for _, far in self.cables if not self._of_switch(far) for one in self.interfaces(far))
        return max(filter(None, own), default=None)

    @cached_property
    def speeds(self) -> frozenset[int]:
        """The speeds of links with RDMA. A bond has the sum of its members'."""
        return frozenset(
            one.speed
            for node in self._bundle.nodes.values()
            for one in node.interfaces.values()
            if one.speed and self.owner((node.name, one.name)).rdma and (node.name, one.name) not in self._members
        )

    def peer_links(self, switches: Sequence[str]) -> Sequence[Cable]:
        """Return the cables between two switches that are a pair (MLAG, vPC) by what both print, none of others."""
        links = {name: self._bundle.nodes[name].peer_link for name in switches}
        return [
            cable
            for cable in self.cables
            if sorted(end[0] for end in cable) == list(switches)
            and all(links[end[0]] in (end[1], self._bundle.master(end)) for end in cable)
        ]

    def channel(self, bond: Bond, switch: str) -> str:
        """Return the port channel of all ports of a bond at a switch, empty where none is known."""
        names = {self._bundle.master(near) for near, _ in bond.cables if near[0] == switch}
        return names.pop() if len(names) == 1 else ""

    def _grouped(self) -> Mapping[tuple[End, End], list[Cable]]:
        """Return the cables of each bond of a host, and those between two port channels of switches."""
        found: dict[tuple[End, End], list[Cable]] = {}
        for near, far in self.cables:
            own, other = (far[0], self._bundle.master(far)), (near[0], self._bundle.master(near))
            if own[1] and not self._of_switch(far):
                found.setdefault((own, own), []).append((near, far))
            elif own[1] and other[1]:
                found.setdefault((own, other), []).append((near, far))
        return found

    def _bond(self, end: End, cables: Sequence[Cable]) -> Bond:
        given = self.interface(end).mode
        mode = MODES.get(given, LACP)
        if mode == STATIC and len({near[0] for near, _ in cables}) > 1:
            mode = LACP
        return Bond(end, cables, mode, given, end in self._guessed)

    def _cables(self, peers: Mapping[End, End]) -> list[Cable]:
        pairs: dict[frozenset[End], Cable] = {}
        for one, other in sorted(peers.items()):
            if other[0] in self._bundle.nodes:
                near, far = sorted((one, other), key=lambda end: (not self._of_switch(end), end))
                pairs[frozenset((one, other))] = near, far
        taken = set(peers)
        found: list[Cable] = []
        for near, far in pairs.values():
            ports, links = self._members.get(near), self._members.get(far)
            if ports is None and links is None:
                found.append((near, far))
            elif ports is None or links is None or peers.keys().isdisjoint((*ports, *links)):
                at_switch, at_host = (
                    [end] if members is None else [one for one in members if one not in taken]
                    for members, end in ((ports, near), (links, far))
                )
                for cable in zip(at_switch, at_host, strict=False):
                    found.append(cable)
                    taken.update(cable)
                self._guessed.add(far)
        return found
