"""A stand-in for Mininet's `mininet.topo` and `mininet.topolib` that records a topology instead of building it.

Source: the API of Mininet 2.3. Names are Mininet's.
"""

# ruff: noqa: N802, N803

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from testbed.errors import InputError

Options = dict[str, Any]


class _Edge(NamedTuple):
    nodes: tuple[str, str]
    key: Any
    info: Options


def natural(text: Any) -> list[Any]:
    """Return a sort key that puts h10 after h9."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", str(text))]


def irange(start: int, end: int) -> range:
    """Return a range that includes its end."""
    return range(start, end + 1)


class Topo:
    """Nodes and links by name, with the options they were added with. Subclasses override `build`."""

    def __init__(self, *args: Any, **params: Any) -> None:
        self.hopts: Options = params.pop("hopts", {})
        self.sopts: Options = params.pop("sopts", {})
        self.lopts: Options = params.pop("lopts", {})
        self.ports: dict[str, dict[int, tuple[str, int]]] = {}
        self._nodes: dict[str, Options] = {}
        self._edges: list[_Edge] = []
        self.build(*args, **params)

    def build(self, *args: Any, **params: Any) -> None:
        pass

    def addNode(self, name: str, **opts: Any) -> str:
        if not isinstance(name, str):
            raise InputError(f"a node's name is {name!r}, which is not a string")
        self._nodes[name] = opts
        return name

    def addHost(self, name: str, **opts: Any) -> str:
        return self.addNode(name, **(opts or self.hopts))

    def addSwitch(self, name: str, **opts: Any) -> str:
        return self.addNode(name, isSwitch=True, **(opts or self.sopts))

    def addLink(
        self, node1: str, node2: str, port1: int | None = None, port2: int | None = None, key: Any = None, **opts: Any
    ) -> Any:
        port1, port2 = self.addPort(node1, node2, port1, port2)
        if key is None:
            known = [edge.key for edge in self._between(node1, node2)]
            key = max([0, *(other for other in known if isinstance(other, int))]) + 1
        info = {**(opts or self.lopts), "node1": node1, "node2": node2, "port1": port1, "port2": port2}
        self._edges.append(_Edge((node1, node2), key, info))
        return key

    def addPort(self, src: str, dst: str, sport: int | None = None, dport: int | None = None) -> tuple[int, int]:
        """Record both ports, by default the next ones, and return them: a switch counts from 1, a host from 0."""
        for node, port in (src, sport), (dst, dport):
            if not isinstance(node, str) or node not in self._nodes:
                raise InputError(f"a link ends at {node!r}, but no node of this name was added before")
            if port is not None and type(port) is not int:
                raise InputError(f"a port of {node} is {port!r}; ports must be integers")
        near, far = self.ports.setdefault(src, {}), self.ports.setdefault(dst, {})
        sport = len(near) + self.isSwitch(src) if sport is None else sport
        dport = len(far) + self.isSwitch(dst) if dport is None else dport
        near[sport], far[dport] = (dst, dport), (src, sport)
        return sport, dport

    def port(self, src: str, dst: str) -> Any:
        pairs = [(sport, dport) for sport, (node, dport) in self.ports[src].items() if node == dst]
        return pairs[0] if len(pairs) == 1 else pairs

    def isSwitch(self, n: str) -> bool:
        return bool(self._nodes[n].get("isSwitch", False))

    def nodes(self, sort: bool = True) -> list[str]:
        return self.sorted(self._nodes) if sort else list(self._nodes)

    def switches(self, sort: bool = True) -> list[str]:
        return [node for node in self.nodes(sort) if self.isSwitch(node)]

    def hosts(self, sort: bool = True) -> list[str]:
        return [node for node in self.nodes(sort) if not self.isSwitch(node)]

    def iterLinks(self, withKeys: bool = False, withInfo: bool = False) -> Iterator[tuple[Any, ...]]:
        for edge in self._edges:
            yield (*edge.nodes, *([edge.key] if withKeys else []), *([edge.info] if withInfo else []))

    def links(self, sort: bool = False, withKeys: bool = False, withInfo: bool = False) -> list[tuple[Any, ...]]:
        links = list(self.iterLinks(withKeys, withInfo))
        size = 3 if withKeys else 2
        return sorted(links, key=lambda link: [natural(part) for part in link[:size]]) if sort else links

    def linkInfo(self, src: str, dst: str, key: Any = None) -> Options:
        return self._edge(src, dst, key).info

    def setlinkInfo(self, src: str, dst: str, info: Options, key: Any = None) -> None:
        edge = self._edge(src, dst, key)
        self._edges[self._edges.index(edge)] = edge._replace(info=info)

    def nodeInfo(self, name: str) -> Options:
        return self._nodes[name]

    def setNodeInfo(self, name: str, info: Options) -> None:
        self._nodes[name] = info

    @staticmethod
    def sorted(items: Iterable[str]) -> list[str]:
        return sorted(items, key=natural)

    def _between(self, src: str, dst: str) -> list[_Edge]:
        return [edge for edge in self._edges if edge.nodes in {(src, dst), (dst, src)}]

    def _edge(self, src: str, dst: str, key: Any) -> _Edge:
        found = self._between(src, dst)
        return min(found, key=lambda edge: edge.key) if key is None else next(e for e in found if e.key == key)


class SingleSwitchTopo(Topo):
    """`k` hosts on a switch."""

    def build(self, k: int = 2, **_opts: Any) -> None:
        self.k = k
        switch = self.addSwitch("s1")
        for number in irange(1, k):
            self.addLink(self.addHost(f"h{number}"), switch)


class SingleSwitchReversedTopo(Topo):
    """`k` hosts on a switch, the first one on its last port."""

    def build(self, k: int = 2) -> None:
        self.k = k
        switch = self.addSwitch("s1")
        for number in irange(1, k):
            self.addLink(self.addHost(f"h{number}"), switch, port1=0, port2=k - number + 1)


class MinimalTopo(SingleSwitchTopo):
    """Two hosts on a switch."""

    def build(self) -> None:  # type: ignore[override]
        super().build(k=2)


class LinearTopo(Topo):
    """`k` switches in a row, `n` hosts on each."""

    def build(self, k: int = 2, n: int = 1, **_opts: Any) -> None:
        self.k, self.n = k, n
        last = None
        for row in irange(1, k):
            switch = self.addSwitch(f"s{row}")
            for number in irange(1, n):
                self.addLink(self.addHost(f"h{row}" if n == 1 else f"h{number}s{row}"), switch)
            if last:
                self.addLink(switch, last)
            last = switch


class TreeTopo(Topo):
    """`depth` levels of switches with `fanout` children each; hosts are the leaves."""

    def build(self, depth: int = 1, fanout: int = 2) -> None:
        self.hostNum = self.switchNum = 1
        self.addTree(depth, fanout)

    def addTree(self, depth: int, fanout: int) -> str:
        if depth <= 0:
            self.hostNum += 1
            return self.addHost(f"h{self.hostNum - 1}")
        node = self.addSwitch(f"s{self.switchNum}")
        self.switchNum += 1
        for _ in range(fanout):
            self.addLink(node, self.addTree(depth - 1, fanout))
        return node


class TorusTopo(Topo):
    """`x` times `y` switches, each linked to its neighbours in both directions: there are loops."""

    def build(self, x: int, y: int, n: int = 1) -> None:
        if x < 3 or y < 3:
            raise ValueError("a torus must be at least 3x3")
        for i in range(x):
            for j in range(y):
                place = f"{i + 1}x{j + 1}"
                switch = self.addSwitch(f"s{place}", dpid=f"{(i + 1) * 256 + j + 1:x}")
                for number in irange(1, n):
                    self.addLink(self.addHost(f"h{place}" if n == 1 else f"h{place}x{number}"), switch)
        for i in range(x):
            for j in range(y):
                here = f"s{i + 1}x{j + 1}"
                self.addLink(here, f"s{i + 1}x{(j + 1) % y + 1}")
                self.addLink(here, f"s{(i + 1) % x + 1}x{j + 1}")
