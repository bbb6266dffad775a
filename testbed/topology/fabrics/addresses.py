"""
Which VLAN and which address is where in a fabric. The address families are known here and nowhere else.

===================  ===================  =============================================================================
VLAN 10, 20, 30, …                        the hosts' VLANs: ten times the rail
VLAN 1001 to 4094                         the links between switches of a routed fabric, each a VLAN of its own
10.A.B.0/24          2001:db8:A:B::/64    the hosts' subnet B in part A: a leaf in a rail, an edge switch in a pod
10.A.0.0/16          2001:db8:A::/64      the one subnet of a rail in a bridged fabric
10.255.0.0/16        2001:db8:ffff::/64   the links between switches, a /31 each (RFC 3021), a /127 each (RFC 6164)
===================  ===================  =============================================================================

A and B are decimal in IPv4, hexadecimal in IPv6, whose prefix is that of documents (RFC 3849). The first address of a
hosts' subnet is the switch's; those of the hosts are left to the planner.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import Literal, get_args

from testbed.topology.plan import Family

Families = Literal[4, 6, "dual"]
"""Of a fabric: IPv4, IPv6, or both."""
FAMILIES: dict[Families, tuple[Family, ...]] = {4: (4,), 6: (6,), "dual": get_args(Family)}

MAX_RAILS = 99
"""Rail 100 would have VLAN 1000, next to those of the links."""
MAX_PARTS = 254
"""Values of A, and of B."""
MAX_LINKS = 4094 - 1000
MAX_HOSTS, MAX_HOSTS_BRIDGED = 253, 65_533
"""Hosts in a /24 and in a /16, besides the switch."""

ANYWHERE = "default"
_FIRST_LINK = {4: IPv4Address("10.255.0.0"), 6: IPv6Address("2001:db8:ffff::2")}
"""Of IPv6 not ::, which YAML would take for a key where it ends a line."""
_LINK_PREFIX = {4: 31, 6: 127}


def vlan(rail: int) -> int:
    return 10 * rail


def subnet(part: int, number: int, family: Family) -> str:
    return f"10.{part}.{number}.0/24" if family == 4 else f"2001:db8:{part:x}:{number:x}::/64"


def subnets(part: int, family: Family) -> str:
    """The destination of a route to all subnets of a part."""
    return f"10.{part}.0.0/16" if family == 4 else f"2001:db8:{part:x}::/48"


def gateway(part: int, number: int, family: Family) -> str:
    return f"10.{part}.{number}.1" if family == 4 else f"2001:db8:{part:x}:{number:x}::1"


def svi(part: int, number: int, family: Family) -> str:
    return f"{gateway(part, number, family)}/{24 if family == 4 else 64}"


def bridged_gateway(rail: int, family: Family) -> str:
    return f"10.{rail}.0.1" if family == 4 else f"2001:db8:{rail:x}::1"


def bridged_svi(rail: int, family: Family) -> str:
    return f"{bridged_gateway(rail, family)}/{16 if family == 4 else 64}"


def link_vlan(number: int) -> int:
    """The VLAN of a link between switches, counted from 1."""
    return 1000 + number


def link(number: int, family: Family) -> tuple[str, str]:
    """The addresses of its lower and its upper end."""
    upper = _FIRST_LINK[family] + 2 * (number - 1)
    return str(upper + 1), str(upper)


def link_svi(address: str, family: Family) -> str:
    return f"{address}/{_LINK_PREFIX[family]}"
