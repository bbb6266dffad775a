"""EVPN in a topology file: what VXLAN networks and Ethernet segments need."""

from collections.abc import Mapping, Sequence

from testbed.documents.problems import Problems
from testbed.documents.text import listing
from testbed.topology.kinds import KINDS
from testbed.topology.kinds.bond_keys import BondDefinition
from testbed.topology.plan import VXLAN_OVERHEAD
from testbed.topology.resolve import ResolvedLink
from testbed.topology.resolved import Port, ResolvedNode


def check(nodes: Mapping[str, ResolvedNode], links: Sequence[ResolvedLink], problems: Problems) -> None:
    """Report VXLAN networks and Ethernet segments that cannot work."""
    routers = {port.node.name for link in links if link.routed for port in link.ports}
    for node in nodes.values():
        if node.vnis or getattr(node.keys, "l3vni", None) is not None:
            _check_networks(node, routers, problems)
    _check_mtus(links, problems)
    first: dict[tuple[str | None, int], Port] = {}
    for node in nodes.values():
        for bond in node.bonds.values():
            definition: BondDefinition = node.keys.bonds[bond.name]
            if definition.es_id is not None:
                _check_segment(
                    bond, definition.system, first.setdefault((definition.system, definition.es_id), bond), problems
                )


def _check_networks(node: ResolvedNode, routers: set[str], problems: Problems) -> None:
    path = node.paths["vnis" if node.vnis else "l3vni"]
    if node.routing != "evpn":
        problems.add(path, "VXLAN networks need 'routing: evpn' in the topology", at_key=True)
    elif node.name not in routers:
        problems.add(path, f"{node.name!r} has no routed link, by which VXLAN reaches other switches", at_key=True)
    if node.host_routes:
        wrong = f"'host_routes' is without EVPN: {node.name!r} announces its neighbours by 'vnis'"
        problems.add(node.paths["host_routes"], wrong, at_key=True)
    owners: dict[int, str] = {}
    if (l3vni := node.keys.l3vni) is not None:
        owners[l3vni] = "'l3vni'"
        if not node.vnis:
            wrong = f"'l3vni' routes between VLANs with a VNI, and {node.name!r} has none: add 'vnis'"
            problems.add(node.paths["l3vni"], wrong, at_key=True)
    for vlan, vni in node.vnis.items():
        place, owner = node.paths["vnis", vlan], f"VLAN {vlan}"
        if vlan not in node.vlans:
            known = listing(sorted(node.vlans))
            wrong = f"VNI {vni} is without a VLAN: {vlan} is not among the VLANs of {node.name!r}: {known}"
            problems.add(place, wrong, at_key=True)
        if (other := owners.setdefault(vni, owner)) != owner:
            problems.add(place, f"VNI {vni} is also that of {other} of {node.name!r}")


def _check_mtus(links: Sequence[ResolvedLink], problems: Problems) -> None:
    """Report routed links that cannot carry the packets of VLANs with a VNI."""
    inner = [
        (link.mtu, port)
        for link in links
        for port in link.ports
        if {port.carrier.access, *port.carrier.trunk} & port.node.vnis.keys()
    ]
    if not inner:
        return
    mtu, port = max(inner, key=lambda one: one[0])
    for link in links:
        if link.routed and link.mtu < mtu + VXLAN_OVERHEAD:
            wrong = f"MTU {link.mtu} is too small for VXLAN: packets of {port} have {mtu} bytes"
            problems.add((*link.path, "mtu"), f"{wrong}, and {VXLAN_OVERHEAD} more in the tunnel")


def _check_segment(bond: Port, system: str | None, first: Port, problems: Problems) -> None:
    node, place = bond.node, (*bond.path, "es_id")
    if not KINDS[node.kind].has_vlans:
        problems.add(place, f"'es_id' is for port channels of switches: {bond} is a host's bond", at_key=True)
        return
    if system is None:
        problems.add(place, "an Ethernet segment has the MAC of its LACP system: add 'system'", at_key=True)
    without = sorted({vlan for vlan in (bond.access, *bond.trunk) if vlan} - node.vnis.keys())
    if without:
        wrong = f"an Ethernet segment is for VLANs with a VNI; of {bond} without one: {listing(without)}"
        problems.add(place, wrong, at_key=True)
    if bond is not first and (bond.node is first.node or bond.peer is not first.peer):
        also = f"{first}, which leads to {first.peer.node.name}, in {problems.place(first.path)}"
        problems.add(place, f"'system' and 'es_id' of {bond}, which leads to {bond.peer.node.name}, are also of {also}")
