"""
FRR on a switch: its configuration, and the expected routes.

Each switch is an AS of its own with unnumbered eBGP on its routed ports: router advertisements give the neighbour's
link-local address, and IPv4 routes have IPv6 next hops (RFC 8950). BFD watches each session.
"""

from collections import deque
from collections.abc import Collection, Mapping
from ipaddress import ip_network
from types import MappingProxyType

from testbed.switch import vrrp, vxlan
from testbed.switch.profile import Profile
from testbed.topology.plan import Bgp, Interface, IPNetwork, Node, Plan

DAEMONS = ("mgmtd", "zebra", "bfdd", "bgpd", "vrrpd")
"""Daemons in their start order. Without mgmtd, zebra polls for it and wakes a hundred times a second."""
PROFILE = "datacenter"
"""`frr defaults`: keepalive 3 s, hold 9 s, reconnect after 10 s, no updates held back for batches."""
BFD_MULTIPLIER, BFD_INTERVAL_MS = 3, 300
"""FRR's defaults. A neighbour that is silent for their product is down."""
DETECTION_S = BFD_MULTIPLIER * BFD_INTERVAL_MS / 1000

UNDERLAY = "underlay"
STARTUP_DELAY_S = 1
HOST_ROUTES_TABLE = 10
"""The kernel table in which a switch with `host_routes` has a route for each neighbour, for BGP alone, like Cumulus
Linux's "redistribute neighbor"."""

Routes = dict[IPNetwork, tuple[str, ...]]
"""The ports that lead to a subnet, in the order of the links."""


def daemons(node: Node) -> list[str]:
    """Return the daemons that a switch needs, in their start order; none without routed ports and virtual routers."""
    needed = {"bfdd": node.bgp is not None, "bgpd": node.bgp is not None, "vrrpd": bool(node.virtual_routers)}
    return [daemon for daemon in DAEMONS if needed.get(daemon, True)] if any(needed.values()) else []


def configurations(node: Node, profile: Profile) -> dict[str, str]:
    """Return the configurations of a switch's daemons, by daemon."""
    found = {"zebra": zebra_conf(node), "bgpd": bgpd_conf(node, profile)} if node.bgp else {}
    if node.virtual_routers:
        found["vrrpd"] = vrrp.conf(node)
    head = f"hostname {node.name}\nno service cputime-stats\n"  # statistics that cost two system calls for each event
    return {daemon: head + text for daemon, text in found.items()}


def bgpd_conf(node: Node, profile: Profile) -> str:
    assert node.bgp
    hidden = [svi.name for svi in node.svis if svi.vni and not node.l3vni]
    connected = f"connected route-map {UNDERLAY}" if hidden else "connected"
    sources = [connected, *([f"table-direct {HOST_ROUTES_TABLE}"] if node.host_routes else [])]
    redistribute = "".join(f"  redistribute {source}\n" for source in sources)
    neighbours = "".join(f" neighbor {port.name} interface peer-group fabric\n" for port in node.routed_ports)
    return f"""\
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
{_evpn(node, profile) if node.bgp.evpn else ""}{_underlay(hidden) if hidden else ""}"""


def zebra_conf(node: Node) -> str:
    """Return zebra's configuration. By default port channels of Ethernet segments are down for the first 180 s, until
    a real fabric has learned its routes."""
    segments = any(bond.bond and bond.bond.es_id for bond in node.bonds)
    return f"evpn mh startup-delay {STARTUP_DELAY_S}\n" if segments else ""


def mgmtd_commands(node: Node) -> list[str]:
    """Return what mgmtd has to be told for zebra: it reads no file, and zebra does not read this from its own."""
    found = [f"vrf {vxlan.VRF}", f"vni {node.l3vni}", "exit"] if node.l3vni else []
    segments = [(port.name, port.bond) for port in node.bonds if port.bond and port.bond.es_id]
    for name, bond in segments:
        found += [f"interface {name}", f"evpn mh es-id {bond.es_id}", f"evpn mh es-sys-mac {bond.system}", "exit"]
    for port in node.routed_ports if segments else ():
        found += [f"interface {port.name}", "evpn mh uplink", "exit"]
    return found


def detection(profile: Profile) -> list[str]:
    """Return the commands of bgpd's EVPN for duplicate address detection (RFC 7432, section 15.1)."""
    commands = ["no dup-addr-detection"]  # which forgets earlier values
    if profile.evpn_dup_moves is not None:
        limits = f"max-moves {profile.evpn_dup_moves} time {profile.evpn_dup_window}"
        commands.append(f"dup-addr-detection {limits}")
        if profile.evpn_dup_freeze is not None:
            commands.append(f"dup-addr-detection freeze {profile.evpn_dup_freeze or 'permanent'}")
    return commands


def _evpn(node: Node, profile: Profile) -> str:
    """Return the part of EVPN: the VTEPs' next hops go through the fabric unchanged (RFC 8365, section 5.1.3)."""
    assert node.bgp
    svis = [] if node.anycast else ["advertise-svi-ip"]
    own = ["advertise-all-vni", *svis, *detection(profile)] if node.vtep else []
    lines = "".join(f"  {line}\n" for line in own)
    text = f"""\
 address-family l2vpn evpn
  neighbor fabric activate
  neighbor fabric attribute-unchanged next-hop
{lines} exit-address-family
"""
    return text + (_tenant(node.bgp) if node.l3vni else "")


def _tenant(bgp: Bgp) -> str:
    """Return the VRF's part: it announces its subnets as type-5 routes (RFC 9136)."""
    redistribute = "  redistribute connected\n exit-address-family\n"
    return f"""\
router bgp {bgp.asn} vrf {vxlan.VRF}
 bgp router-id {bgp.router_id}
 address-family ipv4 unicast
{redistribute} address-family ipv6 unicast
{redistribute} address-family l2vpn evpn
  advertise ipv4 unicast
  advertise ipv6 unicast
 exit-address-family
"""


def _underlay(hidden: Collection[str]) -> str:
    """Return the filter that keeps the subnets of VXLAN networks out of the fabric's own routes."""
    rules = [f"deny {number}\n match interface {name}" for number, name in enumerate(hidden, start=1)]
    return "".join(f"route-map {UNDERLAY} {rule}\n" for rule in [*rules, f"permit {len(hidden) + 1}"])


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
        if node.vtep:
            origins[ip_network(node.vtep)] = [node.name]
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
    if not (ports or node.vtep or autostate == "none"):  # the ports of VXLAN networks are always up
        return []
    vlans = {vlan for port in ports for vlan in (port.vlan, *port.trunk)}
    svis = [svi for svi in node.svis if not svi.vni and (autostate != "vlan" or svi.vlan in vlans)]
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
