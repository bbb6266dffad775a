"""
FRR on a switch: its configuration, and the expected routes.

Each switch is an AS of its own with unnumbered eBGP on its routed ports: router advertisements give the neighbour's
link-local address, and IPv4 routes have IPv6 next hops (RFC 8950). BFD watches each session.
"""

from collections import deque
from collections.abc import Collection, Mapping
from types import MappingProxyType

from testbed.topology.plan import Interface, IPNetwork, Node, Plan

DAEMONS = ("mgmtd", "zebra", "bfdd", "bgpd")
"""Daemons in their start order. Without mgmtd, zebra polls for it and wakes a hundred times a second."""
PROFILE = "datacenter"
"""`frr defaults`: keepalive 3 s, hold 9 s, reconnect after 10 s, no updates held back for batches."""
BFD_MULTIPLIER, BFD_INTERVAL_MS = 3, 300
"""FRR's defaults. A neighbour that is silent for their product is down."""
DETECTION_S = BFD_MULTIPLIER * BFD_INTERVAL_MS / 1000

HOST_ROUTES_TABLE = 10
"""The kernel table in which a switch with `host_routes` has a route for each neighbour, for BGP alone, like Cumulus
Linux's "redistribute neighbor"."""

Routes = dict[IPNetwork, tuple[str, ...]]
"""The ports that lead to a subnet, in the order of the links."""


def bgpd_conf(node: Node) -> str:
    assert node.bgp
    sources = ["connected", *([f"table-direct {HOST_ROUTES_TABLE}"] if node.host_routes else [])]
    redistribute = "".join(f"  redistribute {source}\n" for source in sources)
    neighbours = "".join(f" neighbor {port.name} interface peer-group fabric\n" for port in node.routed_ports)
    return f"""\
hostname {node.name}
router bgp {node.bgp.asn}
 bgp router-id {node.bgp.router_id}
 no bgp ebgp-requires-policy
 bgp bestpath as-path multipath-relax
 neighbor fabric peer-group
 neighbor fabric remote-as external
 neighbor fabric bfd {BFD_MULTIPLIER} {BFD_INTERVAL_MS} {BFD_INTERVAL_MS}
{neighbours} address-family ipv4 unicast
{redistribute}  maximum-paths 64
 exit-address-family
 address-family ipv6 unicast
  neighbor fabric activate
{redistribute}  maximum-paths 64
 exit-address-family
"""


def shortest_paths(
    plan: Plan,
    dead: Collection[tuple[str, str]] = (),
    hosts: Mapping[str, Collection[IPNetwork]] = MappingProxyType({}),
    autostate: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Routes]:
    """Return for each BGP switch the routes to subnets that others announce: all next hops of the shortest paths.

    `dead` are the ends, (node, interface), of links that carry nothing; `hosts` are the host routes by switch, and
    `autostate` is the value of its profile.
    """
    speakers = [node for node in plan.nodes.values() if node.bgp]
    links: dict[str, list[tuple[str, str]]] = {
        node.name: [(port.name, port.peer[0]) for port in node.routed_ports if carries(node, port, dead)]
        for node in speakers
    }
    origins: dict[IPNetwork, list[str]] = {}
    for node in speakers:
        subnets = _connected(node, dead, autostate.get(node.name, "bridge"))
        there = [host for host in hosts.get(node.name, ()) if any(_within(host, subnet) for subnet in subnets)]
        for network in [*subnets, *there]:
            origins.setdefault(network, []).append(node.name)
    found: dict[str, Routes] = {node.name: {} for node in speakers}
    for network, owners in origins.items():
        distance = _distances(links, owners)
        for name in distance.keys() - set(owners):
            found[name][network] = tuple(port for port, peer in links[name] if distance.get(peer) == distance[name] - 1)
    return found


def _connected(node: Node, dead: Collection[tuple[str, str]], autostate: str) -> list[IPNetwork]:
    """Return the subnets of the SVIs that are up (`Profile.autostate`)."""
    up = [port for port in node.ports if (port.node, port.name) not in dead and carries(node, port, dead)]
    ports = [port for port in up if not port.routed]
    if not ports and autostate != "none":
        return []
    vlans = {vlan for port in ports for vlan in (port.vlan, *port.trunk)}
    svis = [svi for svi in node.svis if autostate != "vlan" or svi.vlan in vlans]
    return [address.network for svi in svis for address in svi.addresses]


def _within(host: IPNetwork, subnet: IPNetwork) -> bool:
    return host.version == subnet.version and host.network_address in subnet


def carries(node: Node, port: Interface, dead: Collection[tuple[str, str]]) -> bool:
    """Return whether a port, or a member of a bond, is not an end of a dead link."""
    ends = [node.interface(name) for name in port.bond.members] if port.bond else [port]
    return any((end.node, end.name) not in dead and end.peer not in dead for end in ends)


def _distances(links: dict[str, list[tuple[str, str]]], owners: list[str]) -> dict[str, int]:
    distance = dict.fromkeys(owners, 0)
    waiting = deque(owners)
    while waiting:
        name = waiting.popleft()
        for _, peer in links[name]:
            if peer not in distance:
                distance[peer] = distance[name] + 1
                waiting.append(peer)
    return distance
