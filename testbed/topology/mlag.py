"""MLAG in a topology file: what two switches need to be one LACP system."""

from collections.abc import Mapping

from testbed.documents.problems import Problems
from testbed.documents.text import Path, choices, listing
from testbed.topology.kinds import KINDS
from testbed.topology.kinds.bond_keys import BondDefinition
from testbed.topology.kinds.mlag_keys import MlagDefinition, port_of
from testbed.topology.resolved import Port, ResolvedNode


def check(nodes: Mapping[str, ResolvedNode], problems: Problems) -> None:
    """Report pairs, and port channels of pairs, that cannot work."""
    for node in nodes.values():
        definition: MlagDefinition | None = getattr(node.keys, "mlag", None)
        if definition:
            _check_switch(node, definition, problems)
        first: dict[int, Port] = {}
        for bond in node.bonds.values():
            keys: BondDefinition = node.keys.bonds[bond.name]
            if keys.mlag is not None:
                _check_channel(bond, keys, first.setdefault(keys.mlag, bond), problems)


def _check_switch(node: ResolvedNode, definition: MlagDefinition, problems: Problems) -> None:
    path = node.paths["mlag"]
    peer_link = _port(node, definition.peer_link, (*path, "peer_link"), problems)
    if node.vnis:
        problems.add(path, "MLAG is without EVPN: two leaves share a host by 'es_id' there", at_key=True)
    if node.stp:
        problems.add(path, "MLAG is without spanning tree: the two switches would have to be one bridge", at_key=True)
    if peer_link is None:
        return
    far = peer_link.peer.carrier
    other: MlagDefinition | None = getattr(far.node.keys, "mlag", None)
    place = (*path, "peer_link")
    if other is None:
        problems.add(place, f"the peer link leads to {far}, and {far.node.name!r} has no 'mlag'")
    elif port_of(far.node, other.peer_link) is not far:
        problems.add(place, f"the peer link leads to {far}, but that of {far.node.name!r} is {other.peer_link}")
    elif other.system != definition.system:
        wrong = f"a pair is one system: {far.node.name!r} has {other.system}, not {definition.system}"
        problems.add((*path, "system"), wrong)
    if peer_link.access is None and not peer_link.trunk:
        problems.add(place, f"the peer link {peer_link} is in no VLAN: give its link 'trunk'")
    if definition.keepalive is not None:
        _check_keepalive(node, definition, far, problems)


def _check_keepalive(node: ResolvedNode, definition: MlagDefinition, far: Port, problems: Problems) -> None:
    place = (*node.paths["mlag"], "keepalive")
    assert definition.keepalive is not None
    keepalive = _port(node, definition.keepalive, place, problems)
    if keepalive is None:
        return
    end = keepalive.peer.carrier
    if definition.keepalive == definition.peer_link:
        problems.add(place, f"{keepalive} is the peer link: without 'keepalive' the switches talk over that")
    elif end.node is not far.node:
        problems.add(place, f"the keepalive link leads to {end}, and the peer link to {far.node.name!r}")
    elif (keys := getattr(far.node.keys, "mlag", None)) and keys.keepalive != end.name:
        has = f"that of {far.node.name!r} is {keys.keepalive}" if keys.keepalive else f"{far.node.name!r} has none"
        problems.add(place, f"the keepalive link leads to {end}, but {has}")


def _port(node: ResolvedNode, name: str, place: Path, problems: Problems) -> Port | None:
    port = port_of(node, name)
    if port is None:
        member = node.ports.get(name)
        known = [*node.bonds, *(one.name for one in node.ports.values() if not one.bond)]
        what = f"a member of {member.bond.name}" if member and member.bond else "no port"
        problems.add(place, f"{name!r} is {what} of {node.name!r}; there are: {choices(name, known)}")
    return port


def _check_channel(bond: Port, keys: BondDefinition, first: Port, problems: Problems) -> None:
    node, place = bond.node, (*bond.path, "mlag")
    if not KINDS[node.kind].has_vlans:
        problems.add(place, f"'mlag' is for port channels of switches: {bond} is a host's bond", at_key=True)
        return
    definition: MlagDefinition | None = node.keys.mlag
    if definition is None:
        wrong = f"{bond} is one system with another switch's, and {node.name!r} has no 'mlag' with its 'peer_link'"
        problems.add(place, wrong, at_key=True)
        return
    for key, why in ("es_id", "is EVPN's way to share a host"), ("system", "follows from the switch's 'mlag'"):
        if getattr(keys, key) is not None:
            problems.add((*bond.path, key), f"{bond} has 'mlag': {key!r} {why}", at_key=True)
    if bond is not first:
        problems.add(place, f"{keys.mlag} is also the number of {first}, in {problems.place(first.path)}")
    if bond.name in (definition.peer_link, definition.keepalive):
        problems.add(place, f"{bond} leads to the other switch of the pair, not to a host of both", at_key=True)
    peer_link = port_of(node, definition.peer_link)
    if peer_link is None:
        return
    carried = {peer_link.access, *peer_link.trunk}
    if without := sorted({vlan for vlan in (bond.access, *bond.trunk) if vlan} - carried):
        problems.add(place, f"the peer link {peer_link} does not carry {listing(without)} of {bond}", at_key=True)
    for other in peer_link.peer.carrier.node.bonds.values():
        same = other.node.keys.bonds[other.name].mlag == keys.mlag
        if same and other.peer.node is not bond.peer.node:
            wrong = f"port channels with one number lead to one node: {bond} to {bond.peer.node.name!r}, {other} to "
            problems.add(place, f"{wrong}{other.peer.node.name!r}")
