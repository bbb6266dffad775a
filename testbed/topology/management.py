"""The management network of containerlab's files: `eth0` of each container, where the file speaks of it.

containerlab connects each node to a Docker network with a subnet of each family. In a lab it is a bridge, at which
nothing else ends. Without a word about it in the file the nodes of a lab have only their links.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_interface
from typing import Any

from pydantic import BaseModel

from testbed.documents.problems import Problems
from testbed.topology.kept import Kept
from testbed.topology.kinds.bridge_kind import Bridge
from testbed.topology.kinds.linux_kind import LinuxKeys
from testbed.topology.models import Elements, LinkDefinition, ManagementDefinition
from testbed.topology.plan import FAMILIES, Family, Interface, IPAddress, IPInterface, IPNetwork
from testbed.topology.resolve import outsider
from testbed.topology.resolved import ResolvedNode

ETH0 = "eth0"
SUBNETS: Mapping[Family, IPNetwork] = {4: IPv4Network("172.20.20.0/24"), 6: IPv6Network("3fff:172:20:20::/64")}
"""containerlab's own (its manual, Network)."""
PLACE = ("mgmt",)


def links(
    elements: Elements,
    given: ManagementDefinition | None,
    nodes: dict[str, ResolvedNode],
    kept: Kept,
    problems: Problems,
) -> list[LinkDefinition]:
    """Return the links between the nodes and the management network, which becomes one of `nodes`; none for a file that
    does not speak of it."""
    wired = {end.node for link in elements.links for end in link.endpoints if end.interface == ETH0}
    members = [
        node
        for node in nodes.values()
        if isinstance(node.keys, LinuxKeys)
        and node.keys.network_mode in (None, "", "bridge")
        and node.name not in wired
    ]
    if Bridge.special in nodes or not members or not _is_meant(elements, given, members):
        return []
    subnets = {family: getattr(given, f"ipv{family}_subnet", None) or SUBNETS[family] for family in FAMILIES}
    found = {family: _numbered(family, subnets[family], members, problems) for family in FAMILIES}
    problems.stop()
    nodes[Bridge.special] = outsider(Bridge.special, Bridge.name, PLACE, kept)
    there = {node.name: end for node in members if (end := _in_lab(node))}
    used = {end.peer[1] for end in there.values()}
    names = (name for number in itertools.count(1) if (name := f"veth{number}") not in used)
    made = []
    for node in members:
        addresses = {f"ipv{family}": own[node.name] for family, own in found.items()}
        port = there[node.name].peer[1] if node.name in there else next(names)
        ends = [{"node": node.name, "interface": ETH0, **addresses}, {"node": Bridge.special, "interface": port}]
        made.append(LinkDefinition.model_validate({"endpoints": ends, "rdma": False}))
    return made


def _in_lab(node: ResolvedNode) -> Interface | None:
    """Return its end of the management network, as the lab has it."""
    ends = node.kept.interfaces if node.kept else ()
    return next((end for end in ends if end.name == ETH0 and end.peer[0] == Bridge.special), None)


def _is_meant(elements: Elements, given: ManagementDefinition | None, members: list[ResolvedNode]) -> bool:
    if given and (given.ipv4_subnet or given.ipv6_subnet):
        return True
    if any(_given(node, family) for node in members for family in FAMILIES):
        return True
    definitions = [*elements.nodes.values(), *elements.kinds.values(), *elements.groups.values(), elements.defaults]
    return any(re.search(rf"\b{ETH0}\b", text) for definition in definitions for text in _texts(definition))


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in the commands and variables of a node."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, BaseModel):
        for field in value.model_fields_set:
            yield from _texts(getattr(value, field))
    elif isinstance(value, dict):
        yield from (text for item in value.values() for text in _texts(item))
    elif isinstance(value, list | tuple):
        yield from (text for item in value for text in _texts(item))


def _given(node: ResolvedNode, family: Family) -> Any:
    return getattr(node.keys, f"mgmt_ipv{family}")


def _numbered(
    family: Family, subnet: IPNetwork, members: list[ResolvedNode], problems: Problems
) -> dict[str, IPInterface]:
    """Return the addresses of the nodes: those of the file, then the next free ones. The first is the gateway's in
    Docker, and stays free."""
    taken: dict[IPAddress, str] = {}
    for node in members:
        if (address := _given(node, family)) is None:
            continue
        place = node.paths[f"mgmt_ipv{family}"]
        if address not in subnet:
            wrong = f"{address} is not in {subnet}, the management network: 'ipv{family}-subnet' of 'mgmt' sets it"
            problems.add(place, wrong)
        elif other := taken.get(address):
            problems.add(place, f"{address} is also the address of {other}")
        else:
            taken[address] = node.name
    for node in members:
        if _given(node, family) is None and (end := _in_lab(node)):
            kept = end.address if family == 4 else end.address6
            if kept and kept.network == subnet:
                taken.setdefault(kept.ip, node.name)
    prefix = subnet.prefixlen
    found = {name: ip_interface(f"{address}/{prefix}") for address, name in taken.items()}
    free = (address for address in subnet.hosts() if address not in taken)
    next(free, None)
    for node in members:
        if node.name not in found and _given(node, family) is None:
            if (address := next(free, None)) is None:
                problems.add(PLACE, f"{subnet} has too few addresses for {len(members)} nodes")
                break
            found[node.name] = ip_interface(f"{address}/{prefix}")
    return found
