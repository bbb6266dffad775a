"""
Which VLAN and which address is where in a fabric. It is IPv4; the address family is known here and nowhere else.

===================  ==================================================================================================
VLAN 10, 20, 30, …   the hosts' VLANs: ten times the rail
VLAN 1001 to 4094    the links between switches of a routed fabric, each a VLAN of its own
10.A.B.0/24          the hosts' subnet number B in part A: a leaf in a rail, an edge switch in a pod
10.A.0.0/16          the one subnet of a rail in a bridged fabric
10.255.0.0/16        the links between switches, a /31 each (RFC 3021)
===================  ==================================================================================================

The first address of a hosts' subnet is the switch's; those of the hosts are left to the planner.
"""

from __future__ import annotations

from ipaddress import IPv4Address

MAX_RAILS = 99
"""Rail 100 would have VLAN 1000, next to those of the links."""
MAX_PARTS = 254
"""Values of A, and of B."""
MAX_LINKS = 4094 - 1000
MAX_HOSTS, MAX_HOSTS_BRIDGED = 253, 65_533
"""What a /24 and a /16 have addresses for, besides the switch."""

ANYWHERE = "default"
_FIRST_LINK = IPv4Address("10.255.0.0")


def vlan(rail: int) -> int:
    return 10 * rail


def subnet(part: int, number: int) -> str:
    return f"10.{part}.{number}.0/24"


def subnets(part: int) -> str:
    """What a route to all subnets of a part has as its destination."""
    return f"10.{part}.0.0/16"


def gateway(part: int, number: int) -> str:
    return f"10.{part}.{number}.1"


def svi(part: int, number: int) -> str:
    return f"{gateway(part, number)}/24"


def bridged_gateway(rail: int) -> str:
    return f"10.{rail}.0.1"


def bridged_svi(rail: int) -> str:
    return f"{bridged_gateway(rail)}/16"


def link(number: int) -> tuple[int, str, str]:
    """The VLAN of a link between switches, counted from 1, and the addresses of its lower and its upper end."""
    upper = _FIRST_LINK + 2 * (number - 1)
    return 1000 + number, str(upper + 1), str(upper)
