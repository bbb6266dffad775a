"""From a checked file to the plan: VLANs to segments, segments to subnets, subnets to addresses; names and MACs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, ip_interface
from typing import Any

from testbed.topology.addressing import Pool, bgp, free_addresses, interface_mac, svi_mac, usable
from testbed.topology.document import Path
from testbed.topology.models import QUALITY_KEYS, Elements
from testbed.topology.plan import (
    DEFAULT_QUEUE,
    Family,
    Interface,
    IPInterface,
    IPNetwork,
    Node,
    Plan,
    Quality,
    Route,
    Svi,
)
from testbed.topology.problems import Problems, closest, listing
from testbed.topology.resolve import TOP, ResolvedLink, ResolvedNode, resolve_links, resolve_nodes
from testbed.topology.segments import Membership, Segment, build_segments, memberships
from testbed.topology.values import DEFAULT_ROUTE, DEFAULT_ROUTE6

MAX_RDMA_NAME = 63
"""IB_DEVICE_NAME_MAX (64) of the kernel's rdma/rdma_netlink.h, less the final zero byte."""

MIN_MTU_OF_IPV6 = 1280
"""RFC 8200 section 5. The kernel switches IPv6 off below."""
FAMILIES: tuple[Family, ...] = (4, 6)

NAMED_BY = {
    "end": "end",
    "switch": "switch",
    "port": "port",
    **dict.fromkeys(("host", "source", "target", "senders", "pairs", "of"), "host"),
}
"""What the parameters of faults name: an end of a link, a node of a kind, a port of the switch."""
_End = tuple[str, str]
"""(node, interface)."""
_Owner = tuple[IPNetwork, Segment, Path]
_Chosen = dict[tuple[_End, Family], IPInterface]

Check = Callable[[str, Mapping[str, Any]], str]
"""What is wrong with a fault of this name and these parameters; nothing if it is right."""
CheckValues = Callable[[str, Mapping[str, Any]], Mapping[str, str]]
"""What is wrong with values in the place of those of the profile of this name, by the value's name."""


def make_plan(
    name: str,
    elements: Elements,
    problems: Problems,
    profiles: Collection[str] | None,
    check_fault: Check | None,
    check_values: CheckValues | None,
) -> Plan:
    """Raises InputError by `problems.stop`, after each stage that the next one relies on."""
    nodes = resolve_nodes(elements, problems)
    links = resolve_links(elements, nodes, problems)
    if profiles is not None:
        _check_profiles(nodes, profiles, problems)
    problems.stop()
    if check_values is not None:
        _check_profile_values(nodes, check_values, problems)
    problems.stop()

    members = [(link, memberships(link, problems)) for link in links]
    problems.stop()
    segments = build_segments(nodes, members, problems)
    problems.stop()

    _check_port_addresses(nodes, problems)
    _choose_networks(segments, problems)
    problems.stop()
    addresses = _choose_addresses(segments, problems)
    interfaces = [_interfaces(link, pair, addresses, problems) for link, pair in members]
    by_end = {(end.node, end.name): end for pair in interfaces for end in pair}
    _set_gateways(segments, by_end, interfaces)
    plan = Plan(
        name,
        {node.name: _node(node, by_end, problems) for node in nodes.values()},
        tuple((by_end[a.node, a.name], by_end[b.node, b.name]) for a, b in interfaces),
        _faults(elements, nodes, check_fault, problems),
        elements.rdma_mode,
    )
    _check_mtus(plan, links, problems)
    _check_macs(plan, nodes, problems)
    _check_rdma_names(plan, nodes, problems)
    problems.stop()
    return plan


def _faults(
    elements: Elements, nodes: dict[str, ResolvedNode], check: Check | None, problems: Problems
) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """What a parameter names follows from its own name, whatever the fault."""
    known = {kind: [node.name for node in nodes.values() if node.kind == kind] for kind in ("switch", "host")}
    known["end"] = [str(port) for node in nodes.values() for port in node.ports.values()]
    found = []
    for index, definition in enumerate(elements.faults):
        path = (*TOP, "faults", index)
        parameters = {key: value for key, value in definition.items() if key != "fault"}
        found.append((definition["fault"], parameters))
        switch = parameters.get("switch")
        known["port"] = list(nodes[switch].ports) if isinstance(switch, str) and switch in nodes else []
        for key, what in NAMED_BY.items():
            for place, name in _names((*path, key), parameters.get(key)):
                if name not in known[what]:
                    there = f"{listing(known[what])}{closest(name, known[what])}"
                    problems.add(place, f"unknown {what} {name!r}; there are: {there}")
        if check and (problem := check(definition["fault"], parameters)):
            problems.add(path, problem)
    return tuple(found)


def _names(path: Path, value: Any) -> Iterator[tuple[Path, str]]:
    """The names in a parameter's value, which may be a list of them, or of pairs."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _names((*path, index), part)


def _check_profiles(nodes: dict[str, ResolvedNode], profiles: Collection[str], problems: Problems) -> None:
    known = sorted(profiles)
    for node in nodes.values():
        if node.profile and node.profile not in profiles:
            problems.add(
                node.paths["profile"],
                f"unknown profile {node.profile!r}; profiles: {listing(known)}{closest(node.profile, known)}",
            )


def _check_profile_values(nodes: dict[str, ResolvedNode], check: CheckValues, problems: Problems) -> None:
    for node in nodes.values():
        if node.profile_values:
            for name, problem in check(node.profile, node.profile_values).items():
                problems.add(node.value_paths.get(name, node.paths["profile_values"]), problem)


def _check_port_addresses(nodes: dict[str, ResolvedNode], problems: Problems) -> None:
    for node in nodes.values():
        for port in node.ports.values():
            for given in port.addresses.values():
                if node.kind != "host":
                    instead = "; give the address to a VLAN in 'vlans'" if node.kind == "switch" else ""
                    problems.add(given.path, f"{port} is a port of a {node.kind} and has no address{instead}")


@dataclass(frozen=True, slots=True)
class _Owned:
    """An address of the file with its owner; `domain` is the broadcast domain of an SVI."""

    address: IPInterface
    path: Path
    name: str
    domain: object = None

    def clashes(self, other: _Owned) -> bool:
        """The SVIs of several domains that share a subnet may have one address: an anycast gateway."""
        anycast = None not in (self.domain, other.domain) and self.domain != other.domain
        return self.address.ip == other.address.ip and not anycast


def _choose_networks(segments: list[Segment], problems: Problems) -> None:
    """The subnet of a segment is that of its first SVI, else of its first address in the file: one for each family that
    it has addresses of. A segment without any has one of the pool."""
    owners: dict[Family, list[_Owner]] = {family: [] for family in FAMILIES}
    for segment in segments:
        for family in FAMILIES:
            _choose_network(segment, family, owners[family], problems)
    for found in owners.values():
        _check_overlaps(found, problems)
    pool = Pool(network for network, _, _ in owners[4] if isinstance(network, IPv4Network))
    for segment in segments:
        if segment.networks:
            continue
        if (network := pool.take(len(segment.ports))) is not None:
            segment.networks[4] = network
        else:
            problems.add(segment.path, f"no subnet is left in the pool for {segment.name}; give its hosts addresses")


def _choose_network(segment: Segment, family: Family, owners: list[_Owner], problems: Problems) -> None:
    svis = [svi for svi in segment.svis if svi.address.version == family]
    given = [_Owned(svi.address, svi.path, str(svi), svi.domain) for svi in svis]
    of_ports = [(port.addresses[family], port) for port in segment.ports if family in port.addresses]
    given += [_Owned(found.address, found.path, str(port)) for found, port in of_ports]
    if not given:
        return
    network = segment.networks[family] = given[0].address.network
    owners.append((network, segment, given[0].path))
    for number, this in enumerate(given):
        address, path = this.address, this.path
        if address.network != network:
            inside = "has another prefix length than" if address.ip in network else "is outside"
            problems.add(path, f"{address} of {this.name} {inside} {network}, the subnet of {segment.name}")
        if (first := next((other for other in given[:number] if other.clashes(this)), None)) is not None:
            problems.add(
                path, f"{address.ip} of {this.name} is also that of {first.name}, in {problems.place(first.path)}"
            )


def _check_overlaps(owners: list[_Owner], problems: Problems) -> None:
    """Subnets of a family are nested or apart: in ascending order it is enough to look at the widest one before."""
    widest: _Owner | None = None
    for owner in sorted(owners, key=lambda owner: (owner[0].network_address, owner[0].prefixlen)):
        if widest is not None and owner[0].overlaps(widest[0]):
            # The file reads downwards: the later of the two is the one to complain about.
            (network, segment, path), other = (
                (owner, widest) if owners.index(owner) > owners.index(widest) else (widest, owner)
            )
            problems.add(
                path,
                f"{network} of {segment.name} overlaps {other[0]} of {other[1].name}, in {problems.place(other[2])}: "
                "segments that no link joins need subnets of their own",
            )
        else:
            widest = owner


def _choose_addresses(segments: list[Segment], problems: Problems) -> _Chosen:
    """Addresses in the file are taken first; other interfaces get the lowest free ones, in the order of the links."""
    chosen: _Chosen = {}
    for segment in segments:
        for family, network in segment.networks.items():
            svis = [svi for svi in segment.svis if svi.address.version == family]
            given = [port.addresses[family] for port in segment.ports if family in port.addresses]
            gateways = {svi.address.ip for svi in svis}
            taken = [*gateways, *(found.address.ip for found in given)]
            ports = [port for port in segment.ports if port.node.planned or family in port.addresses]
            needed = len(gateways) + len(ports)
            if needed > usable(network):
                path = svis[0].path if svis else segment.path
                problems.add(
                    path, f"{network} of {segment.name} has {usable(network)} usable addresses, {needed} are needed"
                )
                continue
            free = free_addresses(network, taken)
            for port in ports:
                found = port.addresses.get(family)
                address = found.address if found else ip_interface((next(free), network.prefixlen))
                chosen[(port.node.name, port.name), family] = address
    problems.stop()
    return chosen


def _interfaces(
    link: ResolvedLink,
    members: tuple[Membership, Membership],
    addresses: _Chosen,
    problems: Problems,
) -> tuple[Interface, Interface]:
    def interface(end: int, member: Membership) -> Interface:
        port, peer = link.ports[end], link.ports[1 - end]
        rdma = port.node.rdma if link.definition.rdma is None else link.definition.rdma
        address, address6 = _pair(addresses.get(((port.node.name, port.name), family)) for family in FAMILIES)
        return Interface(
            node=port.node.name,
            name=port.name,
            mac=port.mac or interface_mac(port.node.number, port.number),
            mtu=link.definition.mtu,
            peer=(peer.node.name, peer.name),
            address=address,
            address6=address6,
            rdma=f"{port.node.name}-{port.name}" if port.node.kind == "host" and rdma else None,
            vlan=member.access,
            trunk=member.trunk,
            sends=_quality(link, end, problems),
            routed=link.routed,
        )

    return interface(0, members[0]), interface(1, members[1])


def _pair(addresses: Iterable[IPInterface | None]) -> tuple[IPv4Interface | None, IPv6Interface | None]:
    found = list(addresses)
    return (
        next((address for address in found if isinstance(address, IPv4Interface)), None),
        next((address for address in found if isinstance(address, IPv6Interface)), None),
    )


def _quality(link: ResolvedLink, end: int, problems: Problems) -> Quality:
    """What the end says wins over what the link says."""
    given: dict[str, Any] = {}
    paths: dict[str, Path] = {}
    for definition, path in ((link.definition, link.path), (link.definition.endpoints[end], link.ports[end].path)):
        for key in QUALITY_KEYS:
            if (value := getattr(definition, key)) is not None:
                given[key] = value
                paths[key] = (*path, key)
    for key, needed in (("queue", "rate"), ("ecn", "rate"), ("jitter", "delay")):
        if key in given and needed not in given:
            problems.add(paths[key], f"{key!r} needs {needed!r}: without it there is nothing that it applies to")
    if "ecn" in given and given["ecn"] > given.get("queue", DEFAULT_QUEUE):
        problems.add(paths["ecn"], f"'ecn' is above the queue's {given.get('queue', DEFAULT_QUEUE)} packets")
    return Quality(**given)


def _set_gateways(
    segments: list[Segment], by_end: dict[_End, Interface], interfaces: list[tuple[Interface, Interface]]
) -> None:
    """A host's gateway is the SVI on the switch it is attached to, else the segment's first one."""
    for segment in segments:
        own = {(svi.switch.name, svi.vlan, svi.address.version): svi.address.ip for svi in segment.svis}
        first = {svi.address.version: svi.address.ip for svi in reversed(segment.svis)}
        for port in segment.ports:
            end = by_end[port.node.name, port.name]
            peer = by_end[end.peer]
            gateways = [own.get((peer.node, peer.vlan or 0, family), first.get(family)) for family in FAMILIES]
            gateway = next((ip for ip in gateways if isinstance(ip, IPv4Address)), None)
            gateway6 = next((ip for ip in gateways if isinstance(ip, IPv6Address)), None)
            by_end[port.node.name, port.name] = replace(end, gateway=gateway, gateway6=gateway6)


def _node(node: ResolvedNode, by_end: dict[_End, Interface], problems: Problems) -> Node:
    interfaces = tuple(by_end[node.name, port] for port in node.ports)
    svis = tuple(
        Svi(
            vlan,
            f"vlan{vlan}",
            svi_mac(node.number),
            *_pair(given.address for given in addresses.values()),
            proxy_arp=vlan in node.proxy_arp,
        )
        for vlan, addresses in sorted(node.vlans.items())
    )
    for index, vlan in enumerate(node.proxy_arp):
        if not node.vlans.get(vlan):
            problems.add(
                (*node.paths["proxy_arp"], index),
                f"{node.name!r} has no SVI with an address in VLAN {vlan} that could answer for others",
            )
    own = [address for interface in interfaces for address in interface.addresses]
    own += [address for svi in svis for address in svi.addresses]
    if node.routes is not None:
        routes = _static_routes(node, own, problems)
    else:
        gateway = next((i.gateway for i in interfaces if i.gateway is not None), None)
        gateway6 = next((i.gateway6 for i in interfaces if i.gateway6 is not None), None)
        routes = () if gateway is None else (Route(DEFAULT_ROUTE, (gateway,)),)
        routes += () if gateway6 is None else (Route(DEFAULT_ROUTE6, (gateway6,)),)
    commands = tuple(tuple(shlex.split(command)) for command in node.exec)
    env = tuple(node.env.items())
    speaker = bgp(node.number) if any(interface.routed for interface in interfaces) else None
    if node.host_routes and speaker is None:
        problems.add(
            node.paths["host_routes"],
            f"'host_routes' needs a routed link of {node.name!r} ('routing: frr'): BGP announces them",
            at_key=True,
        )
    return Node(
        node.name, node.kind, interfaces, node.nic, node.profile, tuple(node.profile_values.items()), svis, routes,
        commands, env,
        sysctls=tuple(node.sysctls.items()),
        ipv6=node.kind == "host" and not node.planned,
        bgp=speaker,
        host_routes=node.host_routes,
    )  # fmt: skip


def _static_routes(node: ResolvedNode, own: list[IPInterface], problems: Problems) -> tuple[Route, ...]:
    path = node.paths["routes"]
    routes: list[Route] = []
    for index, route in enumerate(node.routes or []):
        to = DEFAULT_ROUTE6 if route.to == DEFAULT_ROUTE and route.via[0].version == 6 else route.to
        if any(to == known.destination for known in routes):
            problems.add((*path, index, "to"), f"{node.name!r} has two routes to {to}")
        routes.append(Route(to, route.via))
        for number, hop in enumerate(route.via):
            place = (*path, index, "via", number)
            if to.version != hop.version:
                problems.add(place, f"{hop} is IPv{hop.version}, and {to} is not")
            if any(hop == address.ip for address in own):
                problems.add(place, f"{hop} is an address of {node.name!r} itself")
            elif not any(hop in address.network for address in own):
                subnets = listing(address.network for address in own)
                problems.add(place, f"{hop} is in no subnet of {node.name!r}; its subnets: {subnets}")
    return tuple(routes)


def _check_mtus(plan: Plan, links: list[ResolvedLink], problems: Problems) -> None:
    """Of a switch all ports count: its SVIs have the smallest of their MTUs."""
    for link in links:
        for port in link.ports:
            node = plan.nodes[port.node.name]
            ends: tuple[Svi | Interface, ...] = node.svis or (node.interface(port.name),)
            speaks_6 = link.routed or any(end.address6 for end in ends)
            if link.definition.mtu < MIN_MTU_OF_IPV6 and speaks_6:
                problems.add(
                    (*link.path, "mtu"),
                    f"MTU {link.definition.mtu} is below {MIN_MTU_OF_IPV6}, which the IPv6 of {node.name!r} needs",
                )


def _check_macs(plan: Plan, nodes: dict[str, ResolvedNode], problems: Problems) -> None:
    """Two equal addresses in one lab would make rxe talk to itself (its loopback shortcut compares MAC addresses)."""
    first: dict[str, str] = {svi.mac: f"{node.name}:{svi.name}" for node in plan.nodes.values() for svi in node.svis}
    ends = [end for node in plan.nodes.values() for end in node.interfaces]
    # Planned addresses first: it is the one in the file that has to change.
    for end in sorted(ends, key=lambda end: nodes[end.node].ports[end.name].mac is not None):
        name = f"{end.node}:{end.name}"
        if (owner := first.setdefault(end.mac, name)) != name:
            problems.add((*nodes[end.node].ports[end.name].path, "mac"), f"{end.mac} of {name} is also that of {owner}")


def _check_rdma_names(plan: Plan, nodes: dict[str, ResolvedNode], problems: Problems) -> None:
    first: dict[str, str] = {}
    for node in plan.nodes.values():
        for end in node.interfaces:
            if end.rdma is None:
                continue
            path, name = nodes[node.name].ports[end.name].path, f"{end.node}:{end.name}"
            if len(end.rdma) > MAX_RDMA_NAME:
                problems.add(path, f"{end.rdma!r} is too long for an RDMA device: at most {MAX_RDMA_NAME} characters")
            elif (owner := first.setdefault(end.rdma, name)) != name:
                problems.add(path, f"{name} and {owner} would both have the RDMA device {end.rdma!r}; rename one")
