"""The VXLAN networks of a switch: a port of its bridge for each; its VRF, and the network between the VRFs of switches.

EVPN says what is behind each network; the bridge learns nothing from these ports. The SVI of a VLAN with a network
always exists, also without an address: the kernel answers requests for remote neighbours by the neighbour table of that
interface (br_do_proxy_suppress_arp in net/bridge/br_arp_nd_proxy.c).

The network between VRFs (symmetric IRB) has a bridge of its own, whose MAC is the router's in EVPN: with an anycast
gateway the MAC of the SVIs is not the switch's own.
"""

from collections.abc import Collection, Iterable
from ipaddress import IPv4Interface

from testbed.kernel import ipv6, sysctl
from testbed.kernel.link_readings import link_states
from testbed.kernel.rtnetlink import Rtnetlink
from testbed.topology.addressing import svi_mac
from testbed.topology.plan import VXLAN_OVERHEAD, Node, Svi, vxlan_port

VRF = "tenant"
VRF_TABLE = 1001
LOOPBACK = "lo"
_MIN_MTU = 68
"""ETH_MIN_MTU in the kernel's include/uapi/linux/if_ether.h."""
_IGNORES_SIZES = 2
"""ICMP messages about the size of packets are discarded (Documentation/networking/ip-sysctl.rst): a switch's pipeline
does not hear what spines tell about the outer ones."""


def bridge_of(vni: int) -> str:
    """Return the name of the bridge of a network between VRFs."""
    return f"br-vni{vni}"


def make_vrf(kernel: Rtnetlink, node: Node) -> int | None:
    """Make the switch's end of tunnels, and its VRF, in the calling thread's namespace; return the VRF's index."""
    if node.vtep is None:
        return None
    loopback = kernel.index(LOOPBACK)
    kernel.set_link(loopback, up=True)
    kernel.set_address(loopback, IPv4Interface((node.vtep, 32)))
    sysctl.write("net/ipv4/ip_no_pmtu_disc", _IGNORES_SIZES)
    if not node.l3vni:
        return None
    vrf = kernel.add_vrf(VRF, VRF_TABLE)
    bridge = kernel.add_bridge(bridge_of(node.l3vni), svi_mac(node.number))
    kernel.enslave(bridge, vrf)
    if any(svi.address6 for svi in node.svis):
        ipv6.enable_router_port(bridge_of(node.l3vni))
    _add(kernel, node, node.l3vni, bridge)
    return vrf


def add_network(kernel: Rtnetlink, node: Node, svi: Svi, bridge: int) -> int:
    """Make the VXLAN network of a VLAN a port of the bridge, and return its index."""
    index = _add(kernel, node, svi.vni, bridge)
    kernel.set_vlans(index, svi.vlan, ())
    return index


def _add(kernel: Rtnetlink, node: Node, vni: int, bridge: int) -> int:
    assert node.vtep is not None
    mtu = _largest(port.mtu for port in node.routed_ports)
    index = kernel.add_vxlan(vxlan_port(vni), vni, node.vtep, svi_mac(node.number), mtu)
    kernel.enslave(index, bridge)
    kernel.set_tunnel(index)
    return index


def fit(kernel: Rtnetlink, node: Node, routed: Collection[int]) -> None:
    """Let the packets of its networks be as large as the largest of some router interfaces carries: a smaller one drops
    what it cannot carry, as those of an ASIC do, which has no MTU for a network."""
    links = link_states(kernel.dump_links())
    mtu = _largest(links[index].mtu for index in routed if index in links)
    names = {vxlan_port(vni) for vni in (node.l3vni, *(svi.vni for svi in node.svis)) if vni}
    for index, link in links.items():
        if link.name in names and link.mtu != mtu:
            kernel.set_link(index, mtu=mtu)


def _largest(mtus: Iterable[int]) -> int:
    return max(_MIN_MTU, max(mtus, default=0) - VXLAN_OVERHEAD)
