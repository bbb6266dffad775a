"""Planning of a checked file: VLANs to segments, segments to subnets, subnets to addresses; names and MACs."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from testbed.documents.problems import Problems
from testbed.documents.text import Path, choices
from testbed.topology import bonds, evpn, management, mlag, starts, subnets
from testbed.topology.addressing import interface_mac
from testbed.topology.kept import Kept
from testbed.topology.kinds import KINDS, bond_keys
from testbed.topology.kinds.switch_kind import SwitchKeys, values_of
from testbed.topology.lossless_classes import plan_lossless, plan_qos
from testbed.topology.models import QUALITY_KEYS, Elements, ManagementDefinition
from testbed.topology.plan import DEFAULT_QUEUE, Interface, Node, Plan, Quality, Svi, by_family
from testbed.topology.resolve import TOP, ResolvedLink, resolve_links, resolve_nodes
from testbed.topology.resolved import Port, ResolvedNode
from testbed.topology.segments import build_segments, set_vlans
from testbed.topology.values import MAX_RDMA_NAME

MIN_MTU_OF_IPV6 = 1280
"""The minimum MTU of IPv6 (RFC 8200 section 5). Below it the kernel switches IPv6 off."""

NAMED_BY = {
    "end": "end",
    "switch": "switch",
    "like": "switch",
    "port": "port",
    "to": "bond of its node",
    **dict.fromkeys(("host", "source", "target", "senders", "pairs", "of"), "host"),
}
"""The objects that parameters of faults name: an end of a link, a node of a kind, a port of the switch, a bond of the
end's node."""

OF_FAULT = {
    ("bond-hash", "end"): "bond",
    ("bond-member-moved", "end"): "member of a bond",
    ("lacp-lost", "end"): "member of a bond with LACP",
    ("mlag-sync-late", "switch"): "switch with 'mlag'",
    ("mlag-sync-lost", "switch"): "switch with 'mlag'",
}
"""The objects that parameters of certain faults name, in place of those of NAMED_BY."""

Check = Callable[[str, Mapping[str, Any]], str]
"""A check of a fault by name and parameters; it returns the error, or an empty string."""
CheckValues = Callable[[str, Mapping[str, Any]], Mapping[str, str]]
"""A check of values that replace those of the named profile; it returns the errors by the value's name."""


def make_plan(
    name: str,
    elements: Elements,
    given: ManagementDefinition | None,
    problems: Problems,
    profiles: Collection[str] | None,
    check_fault: Check | None,
    check_values: CheckValues | None,
    lab: Plan | None = None,
) -> Plan:
    """Return the plan; nodes and interfaces of a `lab` that lives keep their MACs and planned addresses. Raise
    InputError by `problems.stop`, after each stage that the next one relies on."""
    kept = Kept(lab)
    nodes = resolve_nodes(elements, kept, problems)
    beside = management.links(elements, given, nodes, kept, problems)
    links = resolve_links(elements, beside, nodes, kept, problems)
    bonds.resolve(nodes, links, problems)
    starts.check(nodes, problems)
    check_hardware(nodes, links, problems)
    _check_profiles(nodes, profiles, check_values, problems, classes=elements.lossless is not None)
    problems.stop()

    for link in links:
        set_vlans(link, problems)
    bonds.set_vlans(nodes)
    mlag.check(nodes, problems)
    bonds.check_partners(nodes, problems)
    evpn.check(nodes, links, problems)
    problems.stop()
    segments = build_segments(nodes, links, problems)
    problems.stop()

    for node in nodes.values():
        for port in node.ports.values():
            KINDS[node.kind].check_addresses(port, problems)
    subnets.choose(segments, problems)
    classes = elements.lossless is not None
    interfaces = tuple(
        (_interface(link, 0, problems, classes=classes), _interface(link, 1, problems, classes=classes))
        for link in links
    )
    for link, ends in zip(links, interfaces, strict=True):
        _check_qos(link, ends, check_values, problems)
    by_end = {(end.node, end.name): end for pair in interfaces for end in pair}
    link_of = {port: link for link in links for port in link.ports}
    planned = [_node(node, by_end, link_of, problems) for node in nodes.values()]
    plan = Plan(
        name,
        {node.name: node for node in _with_multihoming(planned)},
        interfaces,
        _faults(elements, nodes, check_fault, problems),
        elements.rdma_mode,
        plan_lossless(elements.lossless, (*TOP, "lossless"), problems),
        kept.last,
    )
    if classes and not any(end.lossless for pair in interfaces for end in pair):
        wrong = "no link carries a lossless class: links between switches and RDMA NICs do, without 'lossless: false'"
        problems.add((*TOP, "lossless"), wrong)
    _check_mtus(plan, links, problems)
    _check_macs(plan, nodes, problems)
    _check_rdma_names(plan, nodes, problems)
    problems.stop()
    return plan


def _node(
    node: ResolvedNode,
    by_end: Mapping[tuple[str, str], Interface],
    link_of: Mapping[Port, ResolvedLink],
    problems: Problems,
) -> Node:
    ends = tuple(by_end[node.name, port] for port in node.ports)
    own = tuple(_bond(bond, by_end, link_of[bond.members[0]], problems) for bond in node.bonds.values())
    return replace(KINDS[node.kind].plan(node, ends, problems), number=node.number, bonds=own)


def _with_multihoming(nodes: Sequence[Node]) -> Iterator[Node]:
    """Yield the nodes; those with a VTEP know whether some of them have Ethernet segments."""
    multihoming = any(bond.bond and bond.bond.es_id for node in nodes for bond in node.bonds)
    return (replace(node, multihoming=multihoming and node.vtep is not None) for node in nodes)


def _bond(port: Port, by_end: Mapping[tuple[str, str], Interface], link: ResolvedLink, problems: Problems) -> Interface:
    definition = port.node.keys.bonds[port.name]
    first = by_end[port.node.name, port.members[0].name]
    return Interface(
        node=port.node.name,
        name=port.name,
        mac=port.mac or first.mac,
        mtu=first.mtu,
        peer=(port.peer.node.name, port.peer.name),
        **by_family(port.addresses),
        rdma=f"{port.node.name}-{port.name}" if has_rdma(link, port) else None,
        vlan=port.access,
        trunk=port.trunk,
        **by_family(port.gateways, "gateway"),
        routed=first.routed,
        number=port.number,
        bond=bond_keys.bond(definition, port, problems),
    )


def _faults(
    elements: Elements, nodes: dict[str, ResolvedNode], check: Check | None, problems: Problems
) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Return the faults with their parameters. Names in parameters are checked: a parameter's name gives their kind."""
    known = {"switch": [node.name for node in nodes.values() if KINDS[node.kind].has_vlans]}
    known["host"] = [node.name for node in nodes.values() if KINDS[node.kind].is_host]
    known["end"] = [str(port) for node in nodes.values() for port in (*node.ports.values(), *node.bonds.values())]
    bonds = [port for node in nodes.values() for port in node.bonds.values()]
    known["bond"] = [str(bond) for bond in bonds]
    known["member of a bond"] = [str(port) for bond in bonds for port in bond.members]
    with_lacp = [bond for bond in bonds if bond.node.keys.bonds[bond.name].mode == "802.3ad"]
    known["member of a bond with LACP"] = [str(port) for bond in with_lacp for port in bond.members]
    known["switch with 'mlag'"] = [node.name for node in nodes.values() if getattr(node.keys, "mlag", None)]
    found = []
    for index, definition in enumerate(elements.faults):
        path = (*TOP, "faults", index)
        parameters = {key: value for key, value in definition.items() if key != "fault"}
        found.append((definition["fault"], parameters))
        switch = parameters.get("switch")
        at = nodes.get(switch) if isinstance(switch, str) else None
        known["port"] = [*at.ports, *at.bonds] if at else []
        of_end = nodes.get(str(parameters.get("end")).partition(":")[0])
        known["bond of its node"] = [*of_end.bonds] if of_end else []
        for key, usual in NAMED_BY.items():
            what = OF_FAULT.get((definition["fault"], key), usual)
            for place, name in _names((*path, key), parameters.get(key)):
                if name not in known[what]:
                    wrong = f"unknown {what} {name!r}" if name not in known[usual] else f"{name!r} is no {what}"
                    problems.add(place, f"{wrong}; there are: {choices(name, known[what])}")
        if check and (problem := check(definition["fault"], parameters)):
            problems.add(path, problem)
    return tuple(found)


def _names(path: Path, value: Any) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _names((*path, index), part)


def _check_profiles(
    nodes: dict[str, ResolvedNode],
    profiles: Collection[str] | None,
    check: CheckValues | None,
    problems: Problems,
    *,
    classes: bool,
) -> None:
    for node in nodes.values():
        if not isinstance(keys := node.keys, SwitchKeys):
            continue
        profile, given = keys.profile or "", values_of(keys)
        if keys.load_balancing is not None and not classes:
            wrong = (
                "'load_balancing' is for lossless links, whose ports know their queues: define classes by 'lossless'"
            )
            problems.add(node.paths["load_balancing"], wrong, at_key=True)
        if profiles is not None and profile and profile not in profiles:
            message = f"unknown profile {profile!r}; profiles: {choices(profile, sorted(profiles))}"
            problems.add(node.paths["profile"], message)
        elif check is not None and given:
            for name, problem in check(profile, given).items():
                place = node.paths.get(("profile_values", name)) or node.paths.get((name,)) or node.paths.get(name)
                problems.add(place or node.paths["profile_values"], problem)


def _interface(link: ResolvedLink, end: int, problems: Problems, *, classes: bool) -> Interface:
    lossless = _is_lossless(link, problems, classes=classes)
    port, peer = link.ports[end], link.ports[1 - end]
    nic = port.node.nic if is_nic(link, port) else ""
    return Interface(
        node=port.node.name,
        name=port.name,
        mac=port.mac or interface_mac(port.node.number, port.number),
        mtu=link.mtu,
        peer=(peer.node.name, peer.name),
        **by_family(port.addresses),
        rdma=(nic or f"{port.node.name}-{port.name}") if has_rdma(link, port) and not port.bond else None,
        nic=nic,
        hardware=link.definition.endpoints[end].hardware or "",
        vlan=port.access,
        trunk=port.trunk,
        **by_family(port.gateways, "gateway"),
        sends=_quality(link, end, problems, lossless=lossless),
        routed=link.routed,
        lossless=lossless,
        pfc=_of_lossless(link, end, "pfc", problems, lossless=lossless)[-1],
        qos=plan_qos(*_of_lossless(link, end, "qos", problems, lossless=lossless)),
        number=port.number,
        master=port.bond.name if port.bond else "",
    )


def _is_lossless(link: ResolvedLink, problems: Problems, *, classes: bool) -> bool:
    given = link.definition.lossless
    if given and not classes:
        problems.add((*link.path, "lossless"), "the topology has no lossless classes: define them under 'lossless'")
    rdma = link.definition.rdma
    real = is_hardware(link)
    able = [KINDS[port.node.kind].has_classes(port.node) and rdma is not False and not real for port in link.ports]
    if given and real:
        problems.add((*link.path, "lossless"), f"the cable of {link.ports[0]} is real: the lab cannot give it queues")
    elif given and not all(able):
        wrong = f"{link.ports[able.index(False)]} cannot be lossless: only ports of switches and RDMA NICs of hosts can"
        problems.add((*link.path, "lossless"), wrong)
    return classes and all(able) and given is not False


def _of_lossless(link: ResolvedLink, end: int, key: str, problems: Problems, *, lossless: bool) -> tuple[Any, Any]:
    """Return a link's and its end's value of a key for lossless links; without its own the end has the link's."""
    own, of_link = getattr(link.definition.endpoints[end], key), getattr(link.definition, key)
    if not lossless and (own, of_link) != (None, None):
        path = link.path if own is None else link.ports[end].path
        problems.add((*path, key), f"{key!r} is for links that carry lossless classes")
    return of_link, of_link if own is None else own


def _check_qos(
    link: ResolvedLink, ends: tuple[Interface, Interface], check: CheckValues | None, problems: Problems
) -> None:
    for definition, port, end in zip(link.definition.endpoints, link.ports, ends, strict=True):
        values, path = dict(end.qos.values), (*(port.path if definition.qos else link.path), "qos")
        if isinstance(keys := port.node.keys, SwitchKeys):
            wrong = check(keys.profile or "", {**(keys.profile_values or {}), **values}) if check and values else {}
            for problem in wrong.values():
                problems.add(path, problem)
        elif definition.qos and values:
            problems.add(path, f"{next(iter(values))!r} is for ports of switches; a NIC has 'weights' and 'strict'")


def _quality(link: ResolvedLink, end: int, problems: Problems, *, lossless: bool) -> Quality:
    """Return the quality of one direction. Values of the end override those of the link."""
    given: dict[str, Any] = {}
    paths: dict[str, Path] = {}
    for definition, path in ((link.definition, link.path), (link.definition.endpoints[end], link.ports[end].path)):
        for key in QUALITY_KEYS:
            if (value := getattr(definition, key)) is not None:
                given[key] = value
                paths[key] = (*path, key)
    for key, needed in (("queue", "rate"), ("ecn", "rate"), ("jitter", "delay")):
        if key in given and needed not in given:
            problems.add(paths[key], f"{key!r} needs {needed!r}: it has no effect alone")
    for key in "queue", "ecn":
        if lossless and key in given:
            where = "the profile of its switch, `profile_values`"
            problems.add(paths[key], f"{key!r} is not for a lossless link: its queues are in {where}")
    if "ecn" in given and given["ecn"] > given.get("queue", DEFAULT_QUEUE):
        problems.add(paths["ecn"], f"'ecn' is above the queue's {given.get('queue', DEFAULT_QUEUE)} packets")
    return Quality(**given)


def _check_mtus(plan: Plan, links: list[ResolvedLink], problems: Problems) -> None:
    """Check MTUs. All ports of a switch count: its SVIs have the smallest of their MTUs."""
    for link in links:
        for port in link.ports:
            node = plan.nodes[port.node.name]
            ends: tuple[Svi | Interface, ...] = node.svis or (node.interface(port.carrier.name),)
            speaks_6 = link.routed or any(end.address6 for end in ends)
            if link.mtu < MIN_MTU_OF_IPV6 and speaks_6:
                wrong = f"MTU {link.mtu} is below {MIN_MTU_OF_IPV6}, which the IPv6 of {node.name!r} needs"
                problems.add((*link.path, "mtu"), wrong)


def _check_macs(plan: Plan, nodes: dict[str, ResolvedNode], problems: Problems) -> None:
    """Check MACs: two equal ones in a lab would make rxe talk to itself (its loopback shortcut compares MACs). A bond
    has that of a member."""
    first: dict[str, str] = {svi.mac: f"{node.name}:{svi.name}" for node in plan.nodes.values() for svi in node.svis}
    ends = [end for node in plan.nodes.values() for end in node.interfaces]
    given = [bond for node in plan.nodes.values() for bond in node.bonds if nodes[node.name].bonds[bond.name].mac]
    # Planned addresses first: the one in the file must change.
    for end in [*sorted(ends, key=lambda end: nodes[end.node].ports[end.name].mac is not None), *given]:
        name = f"{end.node}:{end.name}"
        if (owner := first.setdefault(end.mac, name)) != name:
            place = (nodes[end.node].bonds if end.bond else nodes[end.node].ports)[end.name].path
            problems.add((*place, "mac"), f"{end.mac} of {name} is also that of {owner}")


def _check_rdma_names(plan: Plan, nodes: dict[str, ResolvedNode], problems: Problems) -> None:
    first: dict[str, str] = {}
    ends = [(end, end.rdma) for node in plan.nodes.values() for end in node.ports if end.rdma is not None]
    for end, device in ends:
        of = nodes[end.node]
        path, name = (of.bonds if end.bond else of.ports)[end.name].path, f"{end.node}:{end.name}"
        if len(device) > MAX_RDMA_NAME:
            problems.add(path, f"{device!r} is too long for an RDMA device: at most {MAX_RDMA_NAME} characters")
        elif (owner := first.setdefault(device, name)) != name:
            problems.add(path, f"{name} and {owner} would both have the RDMA device {device!r}; rename one of them")


def has_rdma(link: ResolvedLink, port: Port) -> bool:
    """Return whether an end has an RDMA device."""
    wanted = port.node.rdma if link.definition.rdma is None else link.definition.rdma
    return KINDS[port.node.kind].is_host and wanted


def is_nic(link: ResolvedLink, port: Port) -> bool:
    return bool(port.node.nic) and has_rdma(link, port)


def is_hardware(link: ResolvedLink) -> bool:
    """Return whether a link is a real cable."""
    return any(_hardware(link))


def _hardware(link: ResolvedLink) -> list[str]:
    given = zip(link.definition.endpoints, link.ports, strict=True)
    return [end.hardware or (port.node.nic if is_nic(link, port) else "") for end, port in given]


def check_hardware(nodes: Mapping[str, ResolvedNode], links: Sequence[ResolvedLink], problems: Problems) -> None:
    """Check the ends on this machine's hardware. A cable has two: both ends of a link are hardware, or neither."""
    _check_nics(nodes, links, problems)
    first: dict[str, Port] = {}
    for link in links:
        for end, port in zip(link.definition.endpoints, link.ports, strict=True):
            if not (name := end.hardware):
                continue
            if is_nic(link, port):
                wrong = f"{port} is the NIC {port.node.nic}, which has its own interface: remove 'hardware'"
                problems.add((*port.path, "hardware"), wrong)
            elif (other := first.setdefault(name, port)) is not port:
                problems.add((*port.path, "hardware"), f"{name} is already {other}")
        _check_cable(link, problems)


def _check_nics(nodes: Mapping[str, ResolvedNode], links: Sequence[ResolvedLink], problems: Problems) -> None:
    for node in nodes.values():
        if node.nic:
            ends = [(link, port) for link in links for port in link.ports if port.node is node and is_nic(link, port)]
            if not ends:
                problems.add(node.paths["rdma"], f"{node.name!r} has the NIC {node.nic} but no link with RDMA for it")
            for link, port in ends[1:]:
                wrong = f"{node.name!r} has one NIC, {node.nic}, which is {ends[0][1]}: give {port} 'rdma: false'"
                problems.add(link.path, wrong)


def _check_cable(link: ResolvedLink, problems: Problems) -> None:
    hardware = _hardware(link)
    if not any(hardware):
        return
    if not all(hardware):
        end = hardware.index("")
        real, made = link.ports[1 - end], link.ports[end]
        where = f"{{node: {made.node.name}, interface: {made.name}, hardware: eth7}}"
        wrong = f"{real} is {hardware[1 - end]} of this machine, but its cable does not end at {made}"
        problems.add(link.path, f"{wrong}: name the interface of this machine where it ends, such as {where}")
    beside = f"no switch of the lab is between {link.ports[0]} and {link.ports[1]}"
    for port, own in zip(link.ports, link.definition.endpoints, strict=True):
        if not (is_nic(link, port.peer) and KINDS[port.node.kind].is_host):
            continue  # the switch queues what it sends, and what it receives from a host
        for path, definition in ((link.path, link.definition), (port.path, own)):
            for key in QUALITY_KEYS:
                if getattr(definition, key) is not None:
                    problems.add((*path, key), f"{key!r}: {beside}")
