"""The neighbour entries of a switch's SVIs in the kernel, by whose they are: the control plane's, EVPN's, a command's.

Forwarding is by these. The control plane's are permanent; EVPN's are those of zebra.
"""

import contextlib
from collections.abc import Collection, Iterator
from ipaddress import ip_network

from testbed.kernel import rtnetlink as rt
from testbed.kernel.rtnetlink import Neighbour, Rtnetlink
from testbed.switch.changes import FabricEntry, Flushed
from testbed.switch.frr import HOST_ROUTES_TABLE
from testbed.switch.svi_interfaces import SviInterfaces
from testbed.topology.plan import IPAddress, Node

Key = tuple[int, IPAddress]
"""(VLAN, address)"""
NOTHING = "none"
"""What the kernel has in the place of a MAC, if a command has deleted an entry of the control plane."""


class KernelNeighbours:
    """`by_hand` has the MACs of static entries that a command has made, and NOTHING for those that it has deleted."""

    def __init__(self, node: Node, svis: SviInterfaces, netlink: Rtnetlink) -> None:
        self.by_hand: dict[Key, str] = {}
        self._set: dict[Key, str] = {}
        """MACs that the control plane has set."""
        self._fabric: set[Key] = set()
        """EVPN's."""
        self._svis = svis
        self._netlink = netlink
        self._host_routes = node.host_routes
        self._protocol = rt.STATIC if any(svi.vni for svi in node.svis) else 0

    def __contains__(self, key: Key) -> bool:
        """Return whether the control plane has set an entry."""
        return key in self._set

    def set(self, vlan: int, ip: IPAddress, mac: str) -> None:
        if (index := self._svis.index(vlan)) is None:
            return
        with contextlib.suppress(OSError):  # it is down, or gone: nothing is sent there
            self._set[vlan, ip] = mac
            self._netlink.set_neighbour(index, ip, mac, self._protocol)
            if self._announced(ip):
                self._netlink.set_route(ip_network(ip), HOST_ROUTES_TABLE, index=index)

    def delete(self, vlan: int, ip: IPAddress) -> None:
        self._set.pop((vlan, ip), None)
        if self.by_hand.get((vlan, ip)) == NOTHING:
            del self.by_hand[vlan, ip]
        if (index := self._svis.index(vlan)) is None:
            return
        with contextlib.suppress(OSError):  # it has gone with the SVI
            self._netlink.delete_neighbour(index, ip)
            if self._announced(ip):
                self._netlink.delete_route(ip_network(ip), HOST_ROUTES_TABLE, index=index)

    def follow(self, kind: int, vlan: int, found: Neighbour) -> FabricEntry | Flushed | None:
        """Take in a message about an entry of an SVI."""
        key = vlan, found.ip
        gone = kind == rt.RTM_DELNEIGH or not found.mac
        zebra = found.protocol == rt.ZEBRA  # which an entry keeps that a command changes: it is external no longer
        if (zebra and (found.external or gone)) or (gone and key in self._fabric):
            return self._follow_fabric(kind, key, found.mac)
        if key in self._set:
            self._fabric.discard(key)
        has = kind == rt.RTM_NEWNEIGH and found.state == "PERMANENT"
        if has and found.mac and self._set.get(key) != found.mac:
            self.by_hand[key] = found.mac
        elif gone and key in self._set:
            self.by_hand[key] = NOTHING
        else:
            self.by_hand.pop(key, None)
        flushed = kind == rt.RTM_DELNEIGH and found.state != "FAILED"
        return Flushed(vlan, found.ip) if flushed else None

    def forget_all_but(self, there: Collection[Key]) -> Iterator[FabricEntry | Flushed]:
        """Yield the changes of entries that have gone unheard: those that are not `there`."""
        for key in [key for key in self._set if key not in there]:
            yield Flushed(*key)
        for key in [key for key in self._fabric if key not in there]:
            self._fabric.remove(key)
            yield FabricEntry(*key, None)

    def _follow_fabric(self, kind: int, key: Key, mac: str | None) -> FabricEntry | None:
        self.by_hand.pop(key, None)
        if kind == rt.RTM_NEWNEIGH and mac:
            self._fabric.add(key)
            self._set.pop(key, None)
            return FabricEntry(*key, mac)
        if key not in self._fabric:
            return None
        self._fabric.discard(key)
        return FabricEntry(*key, None)

    def _announced(self, ip: IPAddress) -> bool:
        return self._host_routes and not ip.is_link_local
