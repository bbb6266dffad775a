"""A plan as JSON: topology.json in the directory of a run, and what `testbed topology check` prints."""

from collections.abc import Mapping
from typing import Literal

from testbed.lab import Lab
from testbed.lab.namespace import Namespace
from testbed.protocol import InterfaceRow, PlanRows, SwitchRow, VrrpRow
from testbed.switch.profile import Profile, configured
from testbed.topology import Family, Interface, Node, Plan, Svi, VirtualRouter
from testbed.topology.kinds import KINDS

ADDRESSES: tuple[Literal["address", "address6"], ...] = "address", "address6"


def plan_rows(plan: Plan, profiles: Mapping[str, Profile]) -> PlanRows:
    """Return a plan as JSON: interfaces, and SVIs with an address or a VNI, without which a switch only bridges
    there. `profiles` replaces the profiles of switches, as for `Lab`."""
    rows = []
    found = {
        node.name: profiles.get(node.name) or configured(node.profile, node.profile_values)
        for node in plan.nodes.values()
        if KINDS[node.kind].has_vlans
    }
    for node in plan.nodes.values():
        name = found[node.name].name if node.name in found else ""
        rows += [interface_row(node, end, name) for end in (*node.interfaces, *node.bonds)]
        rows += [interface_row(node, svi, name) for svi in node.svis if svi.addresses or svi.vni]
    lossless = plan.lossless is not None
    switches = {name: switch_row(plan.nodes[name], profile, lossless=lossless) for name, profile in found.items()}
    return {"name": plan.name, "interfaces": rows, "switches": switches}


def switch_row(node: Node, profile: Profile, *, lossless: bool) -> SwitchRow:
    row: SwitchRow = {"profile": profile.name, "values": profile.settings(lossless=lossless)}
    if node.vtep:
        row["vtep"] = str(node.vtep)
    if node.l3vni:
        row["l3vni"] = node.l3vni
    return row


def as_built(rows: PlanRows, lab: Lab) -> PlanRows:
    """Return the rows with the MACs and the addresses that the kernel has: commands of the file may have set them."""
    return {**rows, "interfaces": [_as_built(row, lab.nodes[row["node"]]) for row in rows["interfaces"]]}


def _as_built(row: InterfaceRow, node: Namespace) -> InterfaceRow:
    now = node.now()
    found = next(((index, link) for index, link in now.links.items() if link.name == row["interface"]), None)
    if found is None:
        return row
    index, link = found
    there = [str(address) for address in now.addresses.get(index, [])]
    first = {key: next((text for text in there if (":" in text) == (key == "address6")), "") for key in ADDRESSES}
    kept = {key: row[key] if row[key] in there else text for key, text in first.items()}
    return {**row, "mac": link.mac, "address": kept["address"], "address6": kept["address6"]}


def interface_row(node: Node, end: Interface | Svi, profile: str) -> InterfaceRow:
    port = end if isinstance(end, Interface) else None
    row: InterfaceRow = {
        "node": node.name,
        "kind": node.kind,
        "interface": end.name,
        "mac": end.mac,
        "address": str(end.address or ""),
        "address6": str(end.address6 or ""),
        "vlan": end.vlan,
        "peer": ":".join(port.peer) if port else "",
        "gateway": next_hop(node, port, 4) if port else "",
        "gateway6": next_hop(node, port, 6) if port else "",
        "trunk": list(port.trunk) if port else [],
        "routed": bool(port and port.routed),
        "rdma": port.rdma if port else None,
        "profile": profile,
    }
    if port and port.master:
        row["master"] = port.master
    if port and port.bond:
        row |= {"mode": port.bond.mode, "members": list(port.bond.members)}
        row |= {"system": port.bond.system} if port.bond.system else {}
        row |= {"es_id": port.bond.es_id} if port.bond.es_id else {}
        row |= {"mlag": port.bond.mlag} if port.bond.mlag else {}
    if isinstance(end, Svi):
        row |= {"vni": end.vni} if end.vni else {}
        row |= {"vrrp": vrrp_row(end.vrrp)} if end.vrrp else {}
    return row


def vrrp_row(router: VirtualRouter) -> VrrpRow:
    return {"id": router.id, "address": str(router.address or ""), "address6": str(router.address6 or "")}


def next_hop(node: Node, end: Interface, family: Family) -> str:
    """Return the gateway of a host's routes behind an interface, that of its default route first; empty without one."""
    networks = [address.network for address in end.addresses if address.version == family]
    routes = sorted(node.routes, key=lambda route: route.destination.prefixlen)
    hops = (hop for route in routes for hop in route.via if any(hop in network for network in networks))
    return str(next(hops, ""))
