"""Bonds of hosts and port channels of switches: one port in the place of several links."""

from collections.abc import Iterable, Mapping

from testbed.documents.problems import Problems
from testbed.documents.text import Path, choices, listing
from testbed.topology.kinds import KINDS
from testbed.topology.kinds.bond_keys import BondDefinition, system_of
from testbed.topology.plan import FAMILIES
from testbed.topology.resolve import ResolvedLink
from testbed.topology.resolved import Given, Port, ResolvedNode


def resolve(nodes: Mapping[str, ResolvedNode], links: Iterable[ResolvedLink], problems: Problems) -> None:
    """Add the bonds of all nodes; report members that are none, or cannot be together."""
    link_of = {port: link for link in links for port in link.ports}
    for node in nodes.values():
        for name, definition in _definitions(node).items():
            _add(node, name, definition, link_of, problems)
    problems.stop()
    for node in nodes.values():
        for bond in node.bonds.values():
            bond.peer = bond.members[0].peer.carrier
            far = {str(member.peer.carrier): None for member in bond.members}
            if link_of[bond.members[0]].routed and len(far) > 1:
                wrong = f"the routed links of {bond} are one port at its end, and several at the other: {listing(far)}"
                problems.add((*bond.path, "members"), wrong)


def _definitions(node: ResolvedNode) -> Mapping[str, BondDefinition]:
    return getattr(node.keys, "bonds", None) or {}


def _add(
    node: ResolvedNode, name: str, definition: BondDefinition, link_of: Mapping[Port, ResolvedLink], problems: Problems
) -> None:
    path = node.paths["bonds", name]
    owner = f"{node.name}:{name}"
    addresses = {family: getattr(definition, f"ipv{family}") for family in FAMILIES}
    given = {family: Given(one, (*path, f"ipv{family}"), owner) for family, one in addresses.items() if one}
    bond = node.bonds[name] = Port(node, name, node.next_number(name), path, definition.mac, given)
    KINDS[node.kind].check_port(bond, problems)
    KINDS[node.kind].check_addresses(bond, problems)
    if name in (*node.ports, *(dummy.name for dummy in node.dummies)):
        problems.add(path, f"interface {bond} is used twice", at_key=True)
    for index, member in enumerate(definition.members):
        place = (*path, "members", index)
        port = node.ports.get(member)
        if port is None:
            problems.add(place, f"{node.name!r} has no link {member!r}; there are: {choices(member, list(node.ports))}")
        elif port.bond:
            problems.add(place, f"{port} is already a member of {port.bond.name}")
        else:
            port.bond = bond
            bond.members.append(port)
            _check_member(port, link_of, place, problems)


def _check_member(port: Port, link_of: Mapping[Port, ResolvedLink], place: Path, problems: Problems) -> None:
    bond = port.carrier
    for given in port.given.values():
        problems.add(given.path, f"{port} is a member of {bond.name}: give the address to the bond")
    first, own = link_of[bond.members[0]], link_of[port]
    if port.node.nic or any(end.hardware for end in own.definition.endpoints):
        problems.add(place, f"the cable of {port} is real: bonds are of links that the lab makes")
    for key in "mtu", "vlan", "trunk", "rdma":
        has, other = getattr(own.definition, key), getattr(first.definition, key)
        if has != other:
            wrong = f"links of one bond have one {key!r}: {port} has {has}, {bond.members[0]} has {other}"
            problems.add((*own.path, key) if has is not None else own.path, wrong)
    if first.routed != own.routed:
        problems.add(own.path, f"{port} and {bond.members[0]} are in one bond, and one of them is not routed")


def check_partners(nodes: Mapping[str, ResolvedNode], problems: Problems) -> None:
    """Report bonds whose members end at several nodes that are not one partner."""
    for node in nodes.values():
        for bond in node.bonds.values():
            _check_partners(bond, problems)


def _check_partners(bond: Port, problems: Problems) -> None:
    partners = {port.peer.node.name: port.peer.carrier for port in bond.members}
    definition = _definitions(bond.node)[bond.name]
    if len(partners) == 1 or definition.mode == "active-backup":
        return
    ends = [(_definitions(one.node).get(one.name), one.node) for one in partners.values()]
    systems = {system_of(end, node) if end else None for end, node in ends}
    if definition.mode == "802.3ad" and len(systems) == 1 and None not in systems:
        return
    wrong = f"the members of {bond} end at {listing(partners)}, which are not one system to it"
    cure = "give their port channels the same 'system', or 'mlag', or use mode active-backup"
    problems.add((*bond.path, "members"), f"{wrong}: {cure}")


def set_vlans(nodes: Mapping[str, ResolvedNode]) -> None:
    """Move the VLANs of members, which are equal, to their bonds."""
    for node in nodes.values():
        for bond in node.bonds.values():
            bond.access, bond.trunk = bond.members[0].access, bond.members[0].trunk
            for member in bond.members:
                member.access, member.trunk = None, ()
