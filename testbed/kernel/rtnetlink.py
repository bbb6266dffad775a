"""
rtnetlink without pyroute2, for what happens often: addresses, bridges, neighbours, routes and rules.

Source: include/uapi/linux/rtnetlink.h, neighbour.h, if_link.h, fib_rules.h.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

from testbed.kernel import netlink
from testbed.kernel.links import IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINKINFO, RTM_NEWLINK, header
from testbed.kernel.netlink import Netlink, mac_bytes
from testbed.kernel.syscalls import closing_fd
from testbed.topology import Family, IPAddress, IPInterface, IPNetwork

RTM_DELLINK, RTM_SETLINK = 17, 19
RTM_GETADDR = 22
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 28, 29, 30
RTM_NEWRULE, RTM_DELRULE = 32, 33
RTM_NEWNSID = 88
RTM_NEWNEXTHOP, RTM_DELNEXTHOP = 104, 105
LINK, NEIGH, IPV4_IFADDR, IPV4_ROUTE, IPV6_IFADDR, IPV6_ROUTE, NEXTHOP = 1, 3, 5, 7, 9, 11, 32
"""Multicast groups, RTNLGRP_…."""
FAMILIES: dict[Family, int] = {4: socket.AF_INET, 6: socket.AF_INET6}
NUD_NOARP, NUD_PERMANENT = 0x40, 0x80
STATIC, BGP = 4, 186
"""Protocols of routes (rt_protos)."""
MAIN = 254
"""The main routing table."""
UNICAST, BLACKHOLE = 1, 6
"""Types of routes."""
LINK_SCOPE, NOWHERE = 253, 255
"""Scopes: of a route without a gateway; of any that is to be deleted."""
USER_HZ = 100
"""Ticks a second of the times that the kernel shows."""

_IFF_UP = 0x1
_IFLA_MASTER, _IFLA_PROTINFO, _IFLA_AF_SPEC = 10, 12, 26
_IFLA_BR_AGEING_TIME, _IFLA_BR_FDB_MAX_LEARNED, _IFLA_BRPORT_UNICAST_FLOOD = 4, 49, 9
_IFLA_BRIDGE_VLAN_INFO, _PVID_UNTAGGED = 2, 0x6
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_OIF, _RTA_MULTIPATH, _RTNH_F_DEAD = 1, 4, 9, 1
_NDA_DST, _NDA_LLADDR, _NDA_CACHEINFO, _NDA_VLAN, _NTF_MASTER = 1, 2, 3, 5, 0x4
_FRA_PRIORITY, _FRA_DSCP, _FR_ACT_TO_TBL = 6, 25, 1
_NETNSA_NSID, _NETNSA_FD, _ANY_NUMBER = 1, 3, struct.pack("=i", -1)
_IFADDRMSG = struct.Struct("=BBBBi")  # family, prefix length, flags, scope, interface
_NDMSG = struct.Struct("=B3xiHBB")  # family, interface, state, flags, type
_RTMSG = struct.Struct("=8BI")  # family, dst_len, src_len, tos, table, protocol, scope, type; flags
_RULE = struct.Struct("=8BI")  # family, dst_len, src_len, tos, table, -, -, action; flags
_NEXT_HOP = struct.Struct("=HBBi")  # length, flags, hops, interface
_UPSERT = netlink.CREATE | netlink.REPLACE


@dataclass(frozen=True, slots=True)
class FdbEntry:
    """An entry of a bridge's forwarding database, of the port with this index."""

    index: int
    state: int
    vlan: int
    mac: str
    idle: int
    """Ticks since the bridge saw the MAC."""


class Rtnetlink(Netlink):
    """An rtnetlink socket. Interfaces are given by their index."""

    def __init__(self) -> None:
        super().__init__(socket.NETLINK_ROUTE)

    # Links and addresses

    def set_up(self, index: int, up: bool) -> None:
        """Set an interface up or down."""
        self.request(RTM_NEWLINK, header(index, flags=up * _IFF_UP, change=_IFF_UP))

    def addresses(self) -> Iterator[tuple[int, IPInterface]]:
        """Yield (index of the interface, address) of all addresses."""
        for _, body in self.request(RTM_GETADDR, _IFADDRMSG.pack(0, 0, 0, 0, 0), netlink.DUMP):
            _, length, _, _, index = _IFADDRMSG.unpack_from(body)
            known = netlink.attributes(body, _IFADDRMSG.size)
            yield index, ip_interface((known.get(_IFA_LOCAL) or known[_IFA_ADDRESS], length))

    def number_namespace(self, namespace: str | os.PathLike[str]) -> None:
        """Give a namespace a number in this one, if it has none: news of one without does not come."""
        with closing_fd(os.open(namespace, os.O_RDONLY)) as handle:
            body = bytes(4) + netlink.attribute(_NETNSA_NSID, _ANY_NUMBER) + netlink.u32(_NETNSA_FD, handle)
            with contextlib.suppress(FileExistsError):
                self.request(RTM_NEWNSID, body)

    # Bridges

    def enslave(self, index: int, bridge: int) -> None:
        """Make an interface a port of a bridge and set it up."""
        body = header(index, flags=_IFF_UP, change=_IFF_UP) + netlink.u32(_IFLA_MASTER, bridge)
        self.request(RTM_NEWLINK, body)

    def set_vlans(self, index: int, untagged: int | None, tagged: Iterable[int]) -> None:
        """Add VLANs to a port of a bridge."""
        vlans = [(_PVID_UNTAGGED, untagged)] if untagged is not None else []
        vlans += [(0, vlan) for vlan in tagged]
        given = (netlink.attribute(_IFLA_BRIDGE_VLAN_INFO, struct.pack("=HH", *vlan)) for vlan in vlans)
        self.request(RTM_SETLINK, header(index, socket.AF_BRIDGE) + netlink.nested(_IFLA_AF_SPEC, *given))

    def set_fdb(self, bridge: int, age: float, bound: int | None) -> None:
        """Set the seconds after which a bridge forgets a MAC, and how many it learns; None: no bound."""
        ageing = netlink.u32(_IFLA_BR_AGEING_TIME, round(age * USER_HZ))
        learned = netlink.u32(_IFLA_BR_FDB_MAX_LEARNED, bound or 0)
        data = netlink.string(IFLA_INFO_KIND, "bridge") + netlink.nested(IFLA_INFO_DATA, ageing, learned)
        self.request(RTM_NEWLINK, header(bridge) + netlink.nested(IFLA_LINKINFO, data))

    def set_flooding(self, index: int, flood: bool) -> None:
        """Let frames to unknown MACs out of a port of a bridge, or not."""
        given = netlink.attribute(_IFLA_BRPORT_UNICAST_FLOOD, bytes([flood]))
        self.request(RTM_SETLINK, header(index, socket.AF_BRIDGE) + netlink.nested(_IFLA_PROTINFO, given))

    def delete_fdb(self, index: int, vlan: int, mac: str) -> None:
        """Delete what a bridge learned of a MAC on a port."""
        body = _NDMSG.pack(socket.AF_BRIDGE, index, 0, _NTF_MASTER, 0)
        body += netlink.attribute(_NDA_LLADDR, mac_bytes(mac)) + netlink.attribute(_NDA_VLAN, struct.pack("=H", vlan))
        self._delete(RTM_DELNEIGH, body)

    # Neighbours

    def set_neighbour(self, index: int, ip: IPAddress, mac: str) -> None:
        """Make a permanent entry, which the kernel neither ages nor changes (neigh_update without the admin flag)."""
        body = _NDMSG.pack(FAMILIES[ip.version], index, NUD_PERMANENT, 0, 0)
        body += netlink.attribute(_NDA_DST, ip.packed) + netlink.attribute(_NDA_LLADDR, mac_bytes(mac))
        self.request(RTM_NEWNEIGH, body, _UPSERT)

    def delete_neighbour(self, index: int, ip: IPAddress) -> None:
        body = _NDMSG.pack(FAMILIES[ip.version], index, 0, 0, 0) + netlink.attribute(_NDA_DST, ip.packed)
        self._delete(RTM_DELNEIGH, body)

    # Routes and rules

    def set_route(self, to: IPNetwork, table: int, kind: int = UNICAST, index: int | None = None) -> None:
        """Make a static route: over an interface to what is attached there, or of a kind that leads nowhere."""
        scope = 0 if index is None else LINK_SCOPE
        self.request(RTM_NEWROUTE, _route(to, table, scope, kind, index), _UPSERT)

    def delete_route(self, to: IPNetwork, table: int, kind: int = UNICAST, index: int | None = None) -> None:
        self._delete(RTM_DELROUTE, _route(to, table, 0 if index is None else NOWHERE, kind, index))

    def routes(self, protocol: int) -> Iterator[tuple[IPNetwork, list[int]]]:
        """Yield (destination, indices of the next hops that are alive) of the main table's routes of a protocol."""
        for family in FAMILIES.values():
            for _, body in self.request(RTM_GETROUTE, _RTMSG.pack(family, *bytes(7), 0), netlink.DUMP):
                _, length, _, _, table, found, *_ = _RTMSG.unpack_from(body)
                if table == MAIN and found == protocol:
                    values = netlink.attributes(body, _RTMSG.size)
                    anywhere = bytes(4 if family == socket.AF_INET else 16)
                    yield ip_network((values.get(_RTA_DST, anywhere), length)), sorted(_next_hops(values))

    def add_dscp_rule(self, family: int, dscp: int, table: int) -> None:
        """Have packets of a DSCP look into a table first; its number is the rule's priority too."""
        rule = _rule(family, table) + netlink.attribute(_FRA_DSCP, bytes([dscp]))
        self.request(RTM_NEWRULE, rule, netlink.CREATE)

    def delete_rules(self, family: int, table: int) -> None:
        """Delete all rules of the table's priority."""
        while self._delete(RTM_DELRULE, _rule(family, table)):
            pass

    def _delete(self, kind: int, body: bytes) -> bool:
        """Delete something; False if it was not there."""
        try:
            self.request(kind, body)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return True


def address_fields(address: IPInterface) -> dict[str, Any]:
    """Return an interface's address as pyroute2's `addr` takes it."""
    return {"family": FAMILIES[address.version], "address": str(address.ip), "prefixlen": address.network.prefixlen}


def miss(body: bytes) -> tuple[int, IPAddress]:
    """Read RTM_GETNEIGH, by which the kernel asks for an address: (index of the interface, address)."""
    _, index, _, _, _ = _NDMSG.unpack_from(body)
    return index, ip_address(netlink.attributes(body, _NDMSG.size)[_NDA_DST])


def fdb_entry(body: bytes) -> FdbEntry | None:
    """Read RTM_NEWNEIGH or RTM_DELNEIGH; None if it is not about a bridge."""
    family, index, state, _, _ = _NDMSG.unpack_from(body)
    if family != socket.AF_BRIDGE:
        return None
    values = netlink.attributes(body, _NDMSG.size)
    (vlan,) = struct.unpack("=H", values.get(_NDA_VLAN, bytes(2)))
    _, _, idle, _ = struct.unpack("=IIII", values.get(_NDA_CACHEINFO, bytes(16)))  # confirmed, used, updated, users
    return FdbEntry(index, state, vlan, values[_NDA_LLADDR].hex(":"), idle)


def _route(to: IPNetwork, table: int, scope: int, kind: int, index: int | None) -> bytes:
    body = _RTMSG.pack(FAMILIES[to.version], to.prefixlen, 0, 0, table, STATIC, scope, kind, 0)
    body += netlink.attribute(_RTA_DST, to.network_address.packed)
    return body if index is None else body + netlink.u32(_RTA_OIF, index)


def _rule(family: int, table: int) -> bytes:
    return _RULE.pack(family, 0, 0, 0, table, 0, 0, _FR_ACT_TO_TBL, 0) + netlink.u32(_FRA_PRIORITY, table)


def _next_hops(route: dict[int, bytes]) -> Iterator[int]:
    if _RTA_OIF in route:
        yield from struct.unpack("=I", route[_RTA_OIF])
    hops = route.get(_RTA_MULTIPATH, b"")
    while hops:
        size, flags, _, index = _NEXT_HOP.unpack_from(hops)
        if not flags & _RTNH_F_DEAD:
            yield index
        hops = hops[size:]
