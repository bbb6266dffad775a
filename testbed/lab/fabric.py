"""The switches above hosts, as LLDP tells them: what is cabled, and has a carrier."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from testbed.lab.interface import Interface
from testbed.lab.node import Node
from testbed.lab.nodes.host_node import Host, Pod
from testbed.lab.nodes.switch_node import Switch

PREFIX = "network.topology.nvidia.com/"
LEVELS = ("leaf", "spine", "core")
"""The levels of switches, from the hosts up, in the words of topograph's labels."""
LONGEST = 63
"""Characters of a label's value."""
Nodes = Mapping[str, Node[Any]]


class Above(NamedTuple):
    """What is above a host: the ports that face its NICs, and the switches of each level."""

    ports: list[Interface]
    levels: list[list[str]]

    def labels(self) -> dict[str, str]:
        """Return the labels that topograph gives a node: hosts below the same switches have the same value."""
        return {f"{PREFIX}{level}": _value(names) for level, names in zip(LEVELS, self.levels, strict=False) if names}


def above(host: Host, nodes: Nodes) -> Above:
    """Return what is above a host. NICs with RDMA count; if it has none, all do."""
    ports = list(_ports(host, nodes))
    levels: list[list[str]] = [sorted({port.node.name for port in ports})]
    seen = {*levels[0]}
    for _ in LEVELS[1:]:
        ups = {port.node.name for name in levels[-1] for port in _peers(nodes[name], nodes)} - seen
        ups = {name for name in ups if isinstance(nodes[name], Switch) and not _is_leaf(name, nodes)}
        levels.append(sorted(ups))
        seen |= ups
    return Above(ports, levels)


def uplinks(switch: str, nodes: Nodes) -> list[Interface]:
    """Return the ports of a switch whose other ends are switches."""
    found = [end for end in nodes[switch].interfaces.values() if end.plan and not end.plan.bond]
    return [end for end in found if isinstance(nodes.get(end.plan.peer[0] if end.plan else ""), Switch)]


def _is_machine(node: Node[Any]) -> bool:
    return isinstance(node, Host) and not isinstance(node, Pod)


def _is_leaf(switch: str, nodes: Nodes) -> bool:
    """Return whether NICs of a host are cabled to a switch."""
    machines = {end.node.name for end in _peers(nodes[switch], nodes) if _is_machine(nodes[end.node.name])}
    return any(port.node.name == switch for name in machines for port in _ports(nodes[name], nodes))


def _ports(host: Node[Any], nodes: Nodes) -> Iterable[Interface]:
    ends = [end for end in host.interfaces.values() if end.plan and not end.plan.bond]
    with_rdma = [end for end in ends if end.plan.rdma]
    for port in _other_ends(with_rdma or ends, nodes):
        if isinstance(nodes[port.node.name], Switch):
            yield port


def _peers(node: Node[Any], nodes: Nodes) -> Iterable[Interface]:
    return _other_ends([end for end in node.interfaces.values() if end.plan and not end.plan.bond], nodes)


def _other_ends(ends: Iterable[Interface], nodes: Nodes) -> Iterable[Interface]:
    for end in ends:
        name, interface = end.plan.peer if end.plan else ("", "")
        port = nodes[name].interfaces.get(interface) if name in nodes else None
        link = port.node.now().links.get(port.index) if port else None
        if port and link and link.carrier:
            yield port


def _value(names: Iterable[str]) -> str:
    text = ".".join(names)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 9]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
