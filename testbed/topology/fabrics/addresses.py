"""
Which VLAN and which address is where in a fabric. The address families are known here and nowhere else.

===================  ===================  =============================================================================
VLAN 10, 20, 30, …                        the hosts' VLANs: ten times the rail
VLAN 1001 to 4094                         the links between switches of a routed fabric, each a VLAN of its own
10.A.B.0/24          2001:db8:A:B::/64    the hosts' subnet B in part A: a leaf in a rail, an edge switch in a pod
10.A.0.0/16          2001:db8:A::/64      the one subnet of a rail in a bridged fabric, of a rail or pod with EVPN
10.255.0.0/16        2001:db8:ffff::/64   the links between switches, a /31 each (RFC 3021), a /127 each (RFC 6164)
===================  ===================  =============================================================================

A and B are decimal in IPv4, hexadecimal in IPv6, whose prefix is that of documents (RFC 3849). The first address of a
hosts' subnet is the switch's; those of the hosts are left to the planner.
"""

from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Literal

from testbed.topology import plan
from testbed.topology.plan import Family, IPNetwork

Families = Literal[4, 6, "dual"]
"""The address families of a fabric: IPv4, IPv6, or both."""
FAMILIES: dict[Families, tuple[Family, ...]] = {4: (4,), 6: (6,), "dual": plan.FAMILIES}

MAX_RAILS = 99
"""The limit of rails: rail 100 would have VLAN 1000, next to those of the links."""
MAX_PARTS = 254
"""The number of values of A, and of B."""
MAX_LINKS = 4094 - 1000
MAX_HOSTS, MAX_HOSTS_BRIDGED = 253, 65_533
"""The number of hosts in a /24 and in a /16, without the switch."""

_FIRST_LINK = {4: IPv4Address("10.255.0.0"), 6: IPv6Address("2001:db8:ffff::2")}
"""The first link addresses; the IPv6 one is not ::, which YAML reads as a key at the end of a line."""
LINK_PREFIX = {4: 31, 6: 127}


def vlan(rail: int) -> int:
    return 10 * rail


def vni(part: int) -> int:
    """Return the VXLAN network of the one subnet of a part in an EVPN fabric."""
    return 10_000 + 10 * part


def lacp_system(part: int, number: int) -> str:
    """Return the system's MAC that the leaves of the hosts' subnet `number` have in LACPDUs."""
    return f"02:00:00:fa:{part:02x}:{number:02x}"


def subnet(part: int, number: int | None, family: Family) -> IPNetwork:
    """Return the hosts' subnet `number` of a part, without a number the one subnet of a rail in a bridged fabric."""
    if number is None:
        return ip_network(f"10.{part}.0.0/16" if family == 4 else f"2001:db8:{part:x}::/64")
    return ip_network(f"10.{part}.{number}.0/24" if family == 4 else f"2001:db8:{part:x}:{number:x}::/64")


def subnets(part: int, family: Family) -> IPNetwork:
    """Return the destination of a route to all subnets of a part."""
    return ip_network(f"10.{part}.0.0/16" if family == 4 else f"2001:db8:{part:x}::/48")


def link(number: int, family: Family) -> tuple[str, str]:
    """Return the addresses of a link's lower and upper end."""
    upper = _FIRST_LINK[family] + 2 * (number - 1)
    return str(upper + 1), str(upper)
