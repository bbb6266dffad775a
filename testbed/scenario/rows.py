"""A plan as JSON: topology.json in the directory of a run, and what `testbed topology check` prints."""

from testbed.protocol import InterfaceRow, PlanRows
from testbed.topology import Family, Interface, Node, Plan, Svi


def plan_rows(plan: Plan) -> PlanRows:
    """Return a plan as JSON: interfaces, and SVIs with an address, without which a switch only bridges there."""
    rows = []
    for node in plan.nodes.values():
        rows += [interface_row(node, end) for end in node.interfaces]
        rows += [interface_row(node, svi) for svi in node.svis if svi.addresses]
    return {"name": plan.name, "interfaces": rows}


def interface_row(node: Node, end: Interface | Svi) -> InterfaceRow:
    port = end if isinstance(end, Interface) else None
    return {
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
        "profile": node.profile,
    }


def next_hop(node: Node, end: Interface, family: Family) -> str:
    """Return the gateway of a host's routes behind an interface, that of its default route first; empty without one."""
    networks = [address.network for address in end.addresses if address.version == family]
    routes = sorted(node.routes, key=lambda route: route.destination.prefixlen)
    hops = (hop for route in routes for hop in route.via if any(hop in network for network in networks))
    return str(next(hops, ""))
