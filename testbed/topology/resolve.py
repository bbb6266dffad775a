"""The file's definitions with inheritance and defaults applied: complete nodes, and every link as two ports.

Inheritance is containerlab's: defaults < kinds.<kind> < groups.<group> < node. Of a map (`vlans`, `env`, `sysctls`)
each entry is inherited by itself, a list (`routes`) is replaced as a whole, but the commands of `exec` follow those
inherited. VLANs and addresses are left to the planner.

In a file for containerlab the machine that runs the containers is a node too: the one of `kind: host`, else `host`,
where a link ends there; so is the bridge of the management network, `mgmt-net`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from testbed.documents.problems import Problems
from testbed.documents.text import Path, choices
from testbed.topology import containerlab
from testbed.topology.addressing import interface_mac
from testbed.topology.kept import Kept
from testbed.topology.kinds import KINDS
from testbed.topology.kinds.host_kind import HostKeys
from testbed.topology.kinds.linux_kind import LinuxKeys
from testbed.topology.models import Elements, LinkDefinition, NodeDefinition
from testbed.topology.plan import FAMILIES, Dummy, Family, by_family
from testbed.topology.resolved import Given, Port, ResolvedNode

TOP: Path = ("topology",)
FABRIC_MTU = 9100
"""The MTU of routed links that carry VXLAN, unless the file has another one: SONiC's default for ports."""
_TESTBEDS = HostKeys.model_fields.keys() - {"exec", "env", "sysctls"}
CONTAINERLABS = {"kind", "group", "labels", *LinuxKeys.model_fields} - _TESTBEDS
"""The keys of a node that containerlab has too."""


@dataclass(slots=True, eq=False)
class ResolvedLink:
    definition: LinkDefinition
    path: Path
    ports: tuple[Port, Port]
    routed: bool
    """True if its ends are interfaces of routers, not switch ports in VLANs."""
    mtu: int


def resolve_nodes(elements: Elements, kept: Kept, problems: Problems) -> dict[str, ResolvedNode]:
    for name_of_kind, definition in elements.kinds.items():
        _check_keys(name_of_kind, definition, (*TOP, "kinds", name_of_kind), problems)
        if definition is not None and definition.kind is not None:
            wrong = "'kind' belongs to a node, a group or the defaults, not to a kind"
            problems.add((*TOP, "kinds", name_of_kind, "kind"), wrong, at_key=True)
    nodes: dict[str, ResolvedNode] = {}
    outside = container_hosts(elements)
    for name in outside[1:]:
        path = (*TOP, "nodes", name)
        wrong = f"{name!r} and {outside[0]!r} are the same machine, the one that runs the containers: name one only"
        problems.add(path, wrong, at_key=True)
    for name, own in elements.nodes.items():
        path = (*TOP, "nodes", name)
        kind = _kind(own, elements)
        planned = KINDS[kind or "host"].plans_addresses and name not in outside
        keys, known = KINDS[kind or "host"].keys, kind or "host"
        node = nodes[name] = ResolvedNode(
            kept.number(name, known),
            name,
            known,
            path,
            keys(),
            elements.routing,
            planned=planned,
            kept=kept.node(name, known),
        )
        if kind is None:
            kinds = ", ".join(KINDS)
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
        merged: dict[str, Any] = {}
        for layer_path, layer in layers:
            if layer is not None:
                _inherit(node, layer, layer_path, merged)
        node.keys = keys.model_construct(**merged)
        KINDS[kind].complete(node, problems)
        if name in outside:
            node.rdma = False
    return nodes


def container_hosts(elements: Elements) -> list[str]:
    """Return the nodes of `kind: host` in containerlab's meaning: the machine that runs the containers, whose network
    they share. They have containers beside them, or an image, and no key of testbed's own."""
    definitions = [elements.defaults, *elements.kinds.values(), *elements.groups.values(), *elements.nodes.values()]
    ends = [end for link in elements.links for end in link.endpoints]
    kinds = {name: kind for name, own in elements.nodes.items() if (kind := _kind(own, elements))}
    roles = {name: KINDS[kind].containerlab for name, kind in kinds.items()}
    foreign = (
        "container" in roles.values()
        and None not in roles.values()
        and any(definition is not None and definition.image is not None for definition in definitions)
        and _given(elements) <= {"nodes", "links", "kinds", "groups", "defaults"}
        and all(_given(node) <= CONTAINERLABS for node in definitions)
        and all(_given(link) <= {"endpoints", "type", "mtu", "ipv4", "ipv6", "labels"} for link in elements.links)
        and all(_given(end) <= {"node", "interface", "mac", "ipv4", "ipv6"} for end in ends)
    )
    return [name for name, role in roles.items() if role == "machine"] if foreign else []


def _given(definition: BaseModel | None) -> set[str]:
    fields = set() if definition is None else definition.model_fields_set
    return {key for key in fields if getattr(definition, key) is not None}


def _kind(own: NodeDefinition | None, elements: Elements) -> str | None:
    """Return the first kind that is given: by the node, its group, the default group, the defaults."""
    defaults, groups = elements.defaults, elements.groups
    layers = (own, groups.get(_group(own)), groups.get(_group(defaults)), defaults)
    return next((layer.kind for layer in layers if layer is not None and layer.kind is not None), None)


def _group(definition: NodeDefinition | None) -> str:
    return "" if definition is None else definition.group or ""


def _check_keys(kind: str, definition: NodeDefinition | None, path: Path, problems: Problems) -> None:
    """Report a key that the kind does not have, on a node or a kind; in the defaults it is for other kinds."""
    allowed = KINDS[kind].keys.model_fields
    for name_of_key, field in NodeDefinition.model_fields.items():
        if name_of_key in (*allowed, "kind", "labels", "group") or getattr(definition, name_of_key, None) is None:
            continue
        key = field.alias or name_of_key
        owner = next(name for name, one in KINDS.items() if name_of_key in one.key_names())
        own = ", ".join((*(one.alias or name for name, one in allowed.items()), "labels", "group"))
        problems.add((*path, key), f"{key!r} is a key of a {owner}, not of a {kind}; allowed: {own}", at_key=True)


def _inherit(node: ResolvedNode, layer: NodeDefinition, path: Path, merged: dict[str, Any]) -> None:
    kind = KINDS[node.kind]
    for key in kind.key_names():
        value = getattr(layer, key)
        if value is None:
            continue
        place = node.paths[key] = (*path, kind.keys.model_fields[key].alias or key)
        if isinstance(value, dict):
            node.paths |= {(key, entry): (*place, entry) for entry in value}
            merged[key] = merged.get(key, {}) | value
        else:
            merged[key] = merged.get(key, []) + value if key in kind.added_up else value


def resolve_links(
    elements: Elements,
    management: Sequence[LinkDefinition],
    nodes: dict[str, ResolvedNode],
    kept: Kept,
    problems: Problems,
) -> list[ResolvedLink]:
    """Return the links with two known ends, those of the management network first; report the others. Add the nodes
    that special endpoints stand for, and dummy interfaces to theirs."""
    links = []
    definitions: list[tuple[Path, LinkDefinition]] = [(("mgmt",), link) for link in management]
    definitions += [((*TOP, "links", index), link) for index, link in enumerate(elements.links)]
    special = _special(elements, definitions, nodes, kept)
    for path, definition in definitions:
        if definition.type == containerlab.DUMMY:
            _add_dummy(definition, path, nodes, problems)
            continue
        ends = [_port(definition, end, path, nodes, special, problems) for end in range(2)]
        if ends[0] is None or ends[1] is None:
            continue
        if ends[0].node is ends[1].node:
            problems.add(path, f"both ends of the link are on node {ends[0].node.name!r}")
        switches = all(KINDS[end.node.kind].has_vlans for end in (ends[0], ends[1]))
        routed = elements.routing != "static" and switches and definition.vlan is None and definition.trunk is None
        ends[0].peer, ends[1].peer = ends[1], ends[0]
        given = "mtu" in definition.model_fields_set
        mtu = FABRIC_MTU if routed and elements.routing == "evpn" and not given else definition.mtu
        links.append(ResolvedLink(definition, path, (ends[0], ends[1]), routed, mtu))
    if elements.routing != "static" and not any(link.routed for link in links):
        by = f"'routing: {elements.routing}'"
        wrong = f"{by} needs a routed link: one between two switches, without 'vlan' and 'trunk'"
        problems.add((*TOP, "routing"), wrong, at_key=True)
    return links


def _add_dummy(definition: LinkDefinition, path: Path, nodes: dict[str, ResolvedNode], problems: Problems) -> None:
    """Add an interface without a peer to its node."""
    endpoint, place = definition.endpoints[0], (*path, "endpoint")
    node = nodes.get(endpoint.node)
    if node is None:
        problems.add(place, _unknown_node(endpoint.node, nodes))
        return
    if not KINDS[node.kind].is_host:
        problems.add(place, f"a {node.kind} has no dummy interfaces; containers and hosts have them")
    if endpoint.interface in (*node.ports, *(dummy.name for dummy in node.dummies)):
        problems.add(place, f"interface {node.name}:{endpoint.interface} is used twice")
    number = node.next_number(endpoint.interface)
    given = {family: one.address for family, one in _addresses(definition, 0, path, problems).items()}
    mac = endpoint.mac or interface_mac(node.number, number)
    node.dummies.append(Dummy(endpoint.interface, mac, **by_family(given), number=number))


def _special(
    elements: Elements, definitions: Sequence[tuple[Path, LinkDefinition]], nodes: dict[str, ResolvedNode], kept: Kept
) -> dict[str, ResolvedNode]:
    """Return the nodes of special endpoints in a file of containerlab's kinds; add those with links to `nodes`."""
    outside = [node for node in nodes.values() if KINDS[node.kind].containerlab == "machine" and not node.planned]
    roles = {KINDS[node.kind].containerlab for node in nodes.values() if node not in outside}
    found: dict[str, ResolvedNode] = {}
    if "container" not in roles or not roles <= {"container", "bridge"}:
        return found
    for above, link in definitions:
        for end, endpoint in enumerate(link.endpoints):
            name = endpoint.node
            if name not in containerlab.SPECIAL or name in nodes or name in found:
                continue
            kind = containerlab.SPECIAL[name]
            if outside and kind == outside[0].kind:
                found[name] = outside[0]
            else:
                path = (*above, "endpoints", end)
                nodes[name] = found[name] = outsider(name, kind, path, kept)
    return found


def outsider(name: str, kind: str, path: Path, kept: Kept) -> ResolvedNode:
    """Return a node that the file does not name: a special endpoint, or the management network."""
    number, known = kept.number(name, kind), kept.node(name, kind)
    return ResolvedNode(number, name, kind, path, KINDS[kind].keys(), rdma=False, planned=False, kept=known)


def _port(
    definition: LinkDefinition,
    end: int,
    link: Path,
    nodes: dict[str, ResolvedNode],
    special: dict[str, ResolvedNode],
    problems: Problems,
) -> Port | None:
    endpoint = definition.endpoints[end]
    path = (*link, "endpoints", end)
    node = nodes.get(endpoint.node) or special.get(endpoint.node)
    if node is None:
        problems.add(path, _unknown_node(endpoint.node, nodes))
        return None
    addresses = _addresses(definition, end, link, problems)
    for given in addresses.values():
        if node.planned and (length := given.address.network.prefixlen) == given.address.max_prefixlen:
            wrong = (
                f"prefix length {length} of {given.address}: an interface with a peer has a subnet, /{length - 1} or"
            )
            problems.add(given.path, f"{wrong} wider; an address alone is for a link of type dummy")
    number = node.next_number(endpoint.interface)
    port = Port(node, endpoint.interface, number, path, endpoint.mac, addresses)
    if any(port.name == dummy.name for dummy in node.dummies):
        problems.add(path, f"interface {port} is used twice")
    elif other := node.ports.get(port.name):
        problems.add(path, f"interface {port} is used twice; the first is in {problems.place(other.path)}")
    else:
        KINDS[node.kind].check_port(port, problems)
    node.ports[port.name] = port
    return port


def _addresses(definition: LinkDefinition, end: int, link: Path, problems: Problems) -> dict[Family, Given]:
    """Return the addresses that the file gives an end, in the endpoint or in the link."""
    endpoint, path = definition.endpoints[end], (*link, "endpoints", end)
    owner = f"{endpoint.node}:{endpoint.interface}"
    found: dict[Family, Given] = {}
    for family in FAMILIES:
        key = f"ipv{family}"
        if (address := getattr(endpoint, key)) is not None:
            found[family] = Given(address, (*path, key), owner)
        of_link = getattr(definition, key) or []
        if end < len(of_link) and of_link[end] is not None:
            if address is not None:
                problems.add((*path, key), f"{owner} has an address here and in the link's {key!r}: remove one")
            found[family] = Given(of_link[end], (*link, key, end), owner)
    return found


def _unknown_node(name: str, nodes: dict[str, ResolvedNode]) -> str:
    if name in containerlab.LINK_TYPES:
        return f"containerlab's special endpoint {name!r} is not supported: {containerlab.LINK_TYPES[name]}"
    where = ""
    if name in containerlab.SPECIAL:
        where = "; containerlab's special endpoint of this name is for files of `linux` nodes and bridges"
    return f"unknown node {name!r}; nodes: {choices(name, list(nodes))}{where}"
