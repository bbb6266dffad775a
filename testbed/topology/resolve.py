"""
The file's definitions with inheritance and defaults worked out: nodes as they will be, and every link as two ports.

Inheritance is containerlab's: defaults < kinds.<kind> < groups.<group> < node. Of a map (`vlans`, `env`) each entry is
inherited by itself, a list (`routes`) is replaced as a whole, but the commands of `exec` follow those inherited. What
is left to the planner are VLANs and addresses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from testbed.topology import containerlab
from testbed.topology.document import Path
from testbed.topology.models import (
    Elements,
    LinkDefinition,
    NodeDefinition,
    RouteDefinition,
)
from testbed.topology.plan import Family, IPInterface, NicModel, NodeKind
from testbed.topology.problems import Problems, closest, listing
from testbed.topology.values import KEYS_OF_KIND, FileKind, listed

TOP: Path = ("topology",)


@dataclass(frozen=True, slots=True)
class Given:
    """An address of the file."""

    address: IPInterface
    path: Path


@dataclass(slots=True, eq=False)
class Port:
    """One end of a link."""

    node: ResolvedNode
    name: str
    number: int
    """Position among the interfaces of its node, from 1."""
    path: Path
    mac: str | None
    addresses: dict[Family, Given]

    def __str__(self) -> str:
        return f"{self.node.name}:{self.name}"


@dataclass(slots=True, eq=False)
class ResolvedNode:
    number: int
    """Position in the file, from 1."""
    name: str
    kind: NodeKind
    path: Path
    profile: str = ""
    profile_values: dict[str, Any] = field(default_factory=dict)
    proxy_arp: list[int] = field(default_factory=list)
    nic: NicModel = "rxe"
    rdma: bool = True
    vlans: dict[int, dict[Family, Given]] = field(default_factory=dict)
    routes: list[RouteDefinition] | None = None
    host_routes: bool = False
    exec: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    planned: bool = True
    """Whether its interfaces get addresses that the file does not give."""
    paths: dict[str | int, Path] = field(default_factory=dict)
    """Where each setting was found: keys by name, VLANs by number."""
    value_paths: dict[str, Path] = field(default_factory=dict)
    """The same of `profile_values`."""
    ports: dict[str, Port] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class ResolvedLink:
    definition: LinkDefinition
    path: Path
    ports: tuple[Port, Port]
    routed: bool
    """Whether its ends are interfaces of routers rather than switch ports in VLANs."""


def resolve_nodes(elements: Elements, problems: Problems) -> dict[str, ResolvedNode]:
    for name_of_kind, definition in elements.kinds.items():
        _check_keys(name_of_kind, definition, (*TOP, "kinds", name_of_kind), problems)
        if definition is not None and definition.kind is not None:
            problems.add(
                (*TOP, "kinds", name_of_kind, "kind"),
                "'kind' belongs to a node, a group or the defaults, not to a kind",
                at_key=True,
            )
    nodes = {}
    for number, (name, own) in enumerate(elements.nodes.items(), start=1):
        path = (*TOP, "nodes", name)
        kind = _kind(own, elements)
        resolved: NodeKind = "host" if kind is None or kind == "linux" else kind
        node = nodes[name] = ResolvedNode(number, name, resolved, path, planned=kind != "linux")
        if kind is None:
            kinds = ", ".join(KEYS_OF_KIND)
            problems.add(path, f"node {name!r} has no kind; add one to it, its group or topology.defaults: {kinds}")
            continue
        _check_keys(kind, own, path, problems)
        of_kind = elements.kinds.get(kind)
        group = _group(own) or _group(of_kind) or _group(elements.defaults)
        layers = [
            ((*TOP, "defaults"), elements.defaults),
            ((*TOP, "kinds", kind), of_kind),
            ((*TOP, "groups", group), elements.groups.get(group)),
            (path, own),
        ]
        for layer_path, layer in layers:
            if layer is not None:
                _inherit(node, layer, layer_path, problems)
        if node.kind == "switch" and not node.vlans:
            node.vlans[1] = {}
    return nodes


def _kind(own: NodeDefinition | None, elements: Elements) -> FileKind | None:
    """What says it first: the node, its group, the default group, the defaults."""
    defaults, groups = elements.defaults, elements.groups
    layers = (own, groups.get(_group(own)), groups.get(_group(defaults)), defaults)
    return next((layer.kind for layer in layers if layer is not None and layer.kind is not None), None)


def _group(definition: NodeDefinition | None) -> str:
    return "" if definition is None else definition.group or ""


def _check_keys(kind: FileKind, definition: NodeDefinition | None, path: Path, problems: Problems) -> None:
    """A key that the kind does not have is an error on a node or a kind; in the defaults it is for other kinds."""
    allowed = KEYS_OF_KIND[kind]
    owners: dict[str, FileKind] = {}
    for owner, keys in KEYS_OF_KIND.items():
        for key in keys:
            owners.setdefault(key, owner)
    for key, owner in owners.items():
        if key not in allowed and getattr(definition, key, None) is not None:
            own = ", ".join((*allowed, "labels", "group"))
            problems.add((*path, key), f"{key!r} is a key of a {owner}, not of a {kind}; allowed: {own}", at_key=True)


def _inherit(node: ResolvedNode, layer: NodeDefinition, path: Path, problems: Problems) -> None:
    for key in KEYS_OF_KIND[node.kind]:
        value = getattr(layer, key)
        if value is None:
            continue
        node.paths[key] = (*path, key)
        if key == "vlans":
            node.vlans |= {vlan: _svi(listed(given), (*path, key, vlan), problems) for vlan, given in value.items()}
            node.paths |= {vlan: (*path, key, vlan) for vlan in value}
        elif key == "exec":
            node.exec += value
        elif key == "profile_values":
            node.profile_values |= value
            node.value_paths |= {name: (*path, key, name) for name in value}
        elif key == "env":
            node.env |= value
        else:
            setattr(node, key, value)


def _svi(addresses: list[IPInterface], path: Path, problems: Problems) -> dict[Family, Given]:
    found: dict[Family, Given] = {}
    for index, address in enumerate(addresses):
        place = (*path, index) if len(addresses) > 1 else path
        first = found.setdefault(address.version, Given(address, place))
        if first.path != place:
            problems.add(place, f"an SVI has one IPv{address.version} address; the first is {first.address}")
    return found


def resolve_links(elements: Elements, nodes: dict[str, ResolvedNode], problems: Problems) -> list[ResolvedLink]:
    """The links whose two ends are there; every other one is a problem."""
    links = []
    for index, definition in enumerate(elements.links):
        path = (*TOP, "links", index)
        ends = [_port(definition, end, path, nodes, problems) for end in range(2)]
        if ends[0] is None or ends[1] is None:
            continue
        if ends[0].node is ends[1].node:
            problems.add(path, f"both ends of the link are on node {ends[0].node.name!r}")
        switches = ends[0].node.kind == ends[1].node.kind == "switch"
        routed = elements.routing == "frr" and switches and definition.vlan is None and definition.trunk is None
        links.append(ResolvedLink(definition, path, (ends[0], ends[1]), routed))
    if elements.routing == "frr" and not any(link.routed for link in links):
        problems.add(
            (*TOP, "routing"),
            "'routing: frr' needs a routed link: one between two switches, without 'vlan' and 'trunk'",
            at_key=True,
        )
    return links


def _port(
    definition: LinkDefinition,
    end: int,
    link: Path,
    nodes: dict[str, ResolvedNode],
    problems: Problems,
) -> Port | None:
    endpoint = definition.endpoints[end]
    path = (*link, "endpoints", end)
    node = nodes.get(endpoint.node)
    if node is None:
        problems.add(path, _unknown_node(endpoint.node, nodes))
        return None
    addresses = _addresses(definition, end, link, problems)
    port = Port(node, endpoint.interface, len(node.ports) + 1, path, endpoint.mac, addresses)
    if other := node.ports.get(port.name):
        problems.add(path, f"interface {port} is used twice; the first is in {problems.place(other.path)}")
    elif node.kind != "host" and (port.name == "br0" or port.name.startswith("vlan")):
        problems.add(path, f"port name {port.name!r} is kept for the {node.kind}'s own interfaces (br0, vlan<N>)")
    node.ports[port.name] = port
    return port


def _addresses(definition: LinkDefinition, end: int, link: Path, problems: Problems) -> dict[Family, Given]:
    """What the file gives an end, in the endpoint or in the link."""
    endpoint, path = definition.endpoints[end], (*link, "endpoints", end)
    found: dict[Family, Given] = {}
    keys: tuple[tuple[Family, str], ...] = ((4, "ipv4"), (6, "ipv6"))
    for family, key in keys:
        if (address := getattr(endpoint, key)) is not None:
            found[family] = Given(address, (*path, key))
        of_link = getattr(definition, key) or []
        if end < len(of_link) and of_link[end] is not None:
            if address is not None:
                problems.add(
                    (*path, key), f"{endpoint.node}:{endpoint.interface} has an address here and in the link's {key!r}"
                )
            found[family] = Given(of_link[end], (*link, key, end))
    return found


def _unknown_node(name: str, nodes: dict[str, ResolvedNode]) -> str:
    if name in containerlab.LINK_TYPES:
        return f"containerlab's special endpoint {name!r} is not supported; both ends must be nodes of this file"
    return f"unknown node {name!r}; nodes: {listing(nodes)}{closest(name, nodes)}"
