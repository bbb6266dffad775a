"""
A switch built from its ports: one VLAN-aware bridge `br0`, and an SVI per VLAN, a VLAN device on it.

The kernel does no ARP and, on an SVI with an IPv6 address, no neighbour discovery:

- nftables chains drop incoming packets. Packet sockets receive them before; packets they send pass no chain;
- mcast_solicit is 0: the kernel sends no requests (and unicast ones only for entries that are not permanent);
- app_solicit is 1: for a packet without a neighbour entry it multicasts RTM_GETNEIGH once, and queues the packet for
  retrans_time, which is a day: the control plane decides long before.

All SVIs of a switch have one MAC, as a router has: the bridge's. If a VLAN device on a bridge had another MAC, the
kernel would make the bridge promiscuous and copy every forwarded frame to the switch's own stack as well. The MACs of
virtual routers are in the bridge's table instead (`virtual_routers`).

The subnet of an SVI that is down is reached by other routes, or not at all: ignore_routes_with_linkdown, as on SONiC
(sonic-buildimage, files/image_config/sysctl/sysctl-net.conf). Other switches withdraw the connected route.

A routed port is in no bridge. It has only a link-local address, where the kernel does neighbour discovery.
"""

from testbed.kernel import ipv6, nftables, sysctl
from testbed.kernel.bfd.offload import Offload
from testbed.kernel.rtnetlink import Rtnetlink
from testbed.switch import ecmp, vxlan
from testbed.switch.dataplane import DataPlane
from testbed.switch.profile import Profile
from testbed.switch.svi_interfaces import SOLICIT
from testbed.topology.plan import Node, Svi

BRIDGE = "br0"
SILENT_ARP = """
table arp silence {
    chain input { type filter hook input priority 0; policy drop; }
}
"""
SILENT_ND = """
table ip6 silence {
    chain input {
        type filter hook input priority 0;
        iifname "vlan*" jump discovery;
        iifname "vrrp*" jump discovery;
    }
    chain output {
        type filter hook output priority 0;
        oifname "vlan*" jump discovery;
        oifname "vrrp*" jump discovery;
    }
    chain discovery {
        icmpv6 type {
            nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, nd-redirect
        } drop;
    }
}
"""
WAITING = 1 << 24
"""Bytes that wait for a neighbour on a switch with lossless classes: its buffer bounds them (kernel/lossless)."""
BRIDGE_MTU = 65535


def build(kernel: Rtnetlink, node: Node, profile: Profile, number: int = 0) -> DataPlane:
    """Make the switch `node` of its existing ports, which have their MACs and MTUs.

    The calling thread and `kernel` are in the switch's namespace. The data plane knows every MAC since the first port.
    `number` is the switch's own among those with BGP.
    """
    nftables.run(SILENT_ARP)
    sysctl.write_all("net", {**ecmp.sysctls(node.name, node.ecmp_seed), "ipv4/ip_forward": 1})
    for scope in "all", "default":
        sysctl.write_all(f"net/ipv4/conf/{scope}", {"rp_filter": 0, "send_redirects": 0})
    mac = (node.svis or node.interfaces)[0].mac
    bridge = kernel.add_bridge(BRIDGE, mac, vlan_aware=True, stp=node.stp)
    plane = DataPlane(node, bridge, Offload(kernel, number) if node.bgp else None)
    if any(svi.proxy_arp for svi in node.svis):
        nftables.run(no_flooding(node))
    if node.bgp or any(svi.address6 for svi in node.svis):
        nftables.run(SILENT_ND)
        sysctl.write("net/ipv6/conf/all/forwarding", 1)
    for port in node.ports:
        (plane.add_routed if port.routed else plane.attach)(port)
    # By default the bridge's MTU follows its ports: a fault that lowers one would lower the SVIs' too, and below 1280
    # bytes they lose IPv6.
    kernel.set_link(bridge, mtu=BRIDGE_MTU)
    vrf = vxlan.make_vrf(kernel, node)
    for svi in node.svis:
        if svi.vni:
            plane.add_network(vxlan.add_network(kernel, node, svi, bridge), svi)
        if svi.addresses or svi.vni:
            plane.add_svi(svi.vlan, make_svi(kernel, svi, bridge, node.mtu_in(svi.vlan), vrf if svi.vni else None))
    if any(port.lossless for port in node.interfaces):
        _keep_waiting(node)
    for route in node.routes:
        kernel.add_route(route.destination, route.via, replace=True)
    plane.configure(profile)
    if plane.pair:
        plane.pair.prepare()
    return plane


def _keep_waiting(node: Node) -> None:
    for name in [svi.name for svi in node.svis if svi.addresses] + [port.name for port in node.ports if port.routed]:
        for family in "ipv4", "ipv6":
            sysctl.write(f"net/{family}/neigh/{name}/unres_qlen_bytes", WAITING)


def make_svi(kernel: Rtnetlink, svi: Svi, bridge: int, mtu: int, vrf: int | None = None) -> int:
    """Make an SVI in the calling thread's namespace, in a VRF or in none, and return its index."""
    index = kernel.add_svi(svi.name, bridge, svi.vlan, mtu)
    sysctl.write_all(f"net/ipv4/neigh/{svi.name}", SOLICIT)
    sysctl.write(f"net/ipv4/conf/{svi.name}/ignore_routes_with_linkdown", 1)
    if vrf is None:
        kernel.set_link(index, up=True)
    else:
        kernel.enslave(index, vrf)
    if svi.address is not None:
        kernel.set_address(index, svi.address)
    if svi.address6 is not None:
        sysctl.write_all(f"net/ipv6/neigh/{svi.name}", SOLICIT)
        sysctl.write(f"net/ipv6/conf/{svi.name}/ignore_routes_with_linkdown", 1)
        ipv6.enable(kernel, svi.name, svi.mac)
        kernel.set_address(index, svi.address6)
    return index


def no_flooding(node: Node) -> str:
    """Return the nftables table for VLANs with proxy ARP: no broadcast or multicast between their ports, or the owner
    of an address would answer too.

    SONiC does the same: it sets the VLAN's flood control to NONE (sonic-swss, orchagent/intfsorch.cpp,
    setIntfVlanFloodType). The SVI's own traffic passes no such chain, in which a frame is tagged as it leaves.
    """
    vlans = [svi.vlan for svi in node.svis if svi.proxy_arp]
    to_all = "ether daddr & 01:00:00:00:00:00 != 0 drop\n"
    untagged = [port.name for port in node.ports if port.vlan in vlans]
    tagged = [(port.name, vlan) for port in node.ports for vlan in port.trunk if vlan in vlans]
    rules = [f'oifname "{port}" ether type != 8021q {to_all}' for port in untagged]
    rules += [f'oifname "{port}" vlan id {vlan} {to_all}' for port, vlan in tagged]
    return f"table bridge proxy {{\nchain forward {{\ntype filter hook forward priority 0;\n{''.join(rules)}}}\n}}"
