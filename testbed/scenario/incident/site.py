"""The cluster in which incidents happen: its hosts, their addresses and ports."""

from dataclasses import dataclass

RANKS = ("gpu1", "gpu2", "gpu3", "gpu4")
OTHERS = ("store1", "store2", "web1", "web2")
"""Hosts that serve others."""
LEAVES = {"leaf1": ("gpu1", "gpu2", "store1", "web1"), "leaf2": ("gpu3", "gpu4", "store2", "web2")}
"""The hosts of each rack, in the order of their ports."""


@dataclass(frozen=True)
class Place:
    """A host of a rack, with what belongs to it."""

    host: str

    @property
    def leaf(self) -> str:
        return next(leaf for leaf, hosts in LEAVES.items() if self.host in hosts)

    @property
    def other_leaf(self) -> str:
        return next(leaf for leaf in LEAVES if leaf != self.leaf)

    @property
    def number(self) -> int:
        return LEAVES[self.leaf].index(self.host) + 1

    @property
    def port(self) -> str:
        return f"{self.leaf}:e{self.number}"

    @property
    def network(self) -> str:
        return f"10.0.{self.leaf[-1]}0"

    @property
    def ip(self) -> str:
        return f"{self.network}.{self.number + 1}"

    @property
    def gateway(self) -> str:
        return f"{self.network}.1"

    @property
    def vlan(self) -> str:
        return f"vlan{self.leaf[-1]}0"

    @property
    def store(self) -> "Place":
        return Place(f"store{self.leaf[-1]}")

    @property
    def mate(self) -> "Place":
        """Return the host of the other rank in its rack."""
        return Place(RANKS[RANKS.index(self.host) ^ 1])

    @property
    def link(self) -> str:
        return f"{self.port} - {self.host}:eth1"

    @property
    def names(self) -> list[str]:
        """Return what an answer may name for it."""
        rank = [f"rank {RANKS.index(self.host)}"] if self.host in RANKS else []
        return [self.host, f"{self.host}:eth1", self.link, self.port, *rank]

    @property
    def part(self) -> frozenset[str]:
        return frozenset({self.host})


def uplink(leaf: str, number: int) -> tuple[str, str]:
    """Return both ends of a leaf's uplink."""
    return f"{leaf}:u{number}", f"spine{number}:d{leaf[-1]}"
