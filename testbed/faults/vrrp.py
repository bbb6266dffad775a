"""Faults of virtual routers (VRRP)."""

from typing import ClassVar

from testbed.faults.rule import Rule
from testbed.topology import Family


class VrrpLost(Rule):
    """VRRP advertisements from one end of a link are lost: a backup that hears none becomes master, too."""

    name: ClassVar[str] = "vrrp-lost"
    family: Family = 4
    """4, or 6 for the virtual routers of IPv6."""

    def chosen(self) -> str:
        # Not the Ethernet type, which is that of the VLAN tag where a frame has one.
        return "meta protocol ip ip protocol 112" if self.family == 4 else "meta protocol ip6 ip6 nexthdr 112"

    def act(self) -> str:
        return "drop"
