"""
rtnetlink: addresses, neighbours, routes and rules; `Links` has the interfaces.

Source: include/uapi/linux/rtnetlink.h, if_addr.h, neighbour.h, fib_rules.h.
"""

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network
from typing import NamedTuple

from testbed.kernel import netlink
from testbed.kernel.links import Links
from testbed.kernel.netlink import mac_bytes
from testbed.kernel.syscalls import closing_fd
from testbed.topology import Family, IPAddress, IPInterface, IPNetwork

RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 28, 29, 30
RTM_NEWRULE, RTM_DELRULE, RTM_GETRULE = 32, 33, 34
RTM_SETNEIGHTBL = 67
RTM_NEWNSID, RTM_GETNSID = 88, 90
RTM_NEWNEXTHOP, RTM_DELNEXTHOP, RTM_GETNEXTHOP = 104, 105, 106
LINK, NEIGH, IPV4_IFADDR, IPV4_ROUTE, IPV6_IFADDR, IPV6_ROUTE, NEXTHOP = 1, 3, 5, 7, 9, 11, 32
"""Multicast groups, RTNLGRP_…."""
FAMILIES: dict[Family, int] = {4: socket.AF_INET, 6: socket.AF_INET6}
_NUD_REACHABLE, NUD_NOARP, NUD_PERMANENT = 0x02, 0x40, 0x80
NOTIFY, IDLE = 1, 2
"""Bits of `FdbEntry.activity` (FDB_NOTIFY_BIT, FDB_NOTIFY_INACTIVE_BIT)."""
NUD_STATES = {
    **{0x00: "NONE", 0x01: "INCOMPLETE", 0x02: "REACHABLE", 0x04: "STALE", 0x08: "DELAY", 0x10: "PROBE"},
    **{0x20: "FAILED", NUD_NOARP: "NOARP", NUD_PERMANENT: "PERMANENT"},
}
STATIC, ZEBRA, BGP = 4, 11, 186
"""Route protocols (rt_protos)."""
BY_HAND = 3, STATIC
"""RTPROT_BOOT is what ``ip route`` sets without another one."""
_RTM_F_CLONED = 0x200
MAIN = 254
"""The main routing table."""
UNICAST, BLACKHOLE = 1, 6
"""Route types."""
LINK_SCOPE, NOWHERE = 253, 255
"""Scopes: of a route without a gateway; of any route to be deleted."""
POINT_TO_POINT = 31
"""From this prefix length on, an IPv4 subnet has no broadcast address (RFC 3021)."""

_IFA_ADDRESS, _IFA_LOCAL, _IFA_BROADCAST, _IFA_FLAGS, _IFA_F_NODAD = 1, 2, 4, 8, 0x02
_IFA_F_OPTIMISTIC, _IFA_F_DADFAILED, _IFA_F_TENTATIVE, _IFA_F_NOPREFIXROUTE = 0x04, 0x08, 0x40, 0x200
_RTA_PRIORITY, _RTA_PREFSRC, _RTA_METRICS, _RTAX_MTU = 6, 7, 8, 2
RTA_DST, RTA_OIF, RTA_GATEWAY, _RTA_MULTIPATH, _RTNH_F_DEAD = 1, 4, 5, 9, 1
_NDA_DST, _NDA_LLADDR, _NDA_CACHEINFO, _NDA_VLAN, _NDA_MASTER, _NTF_MASTER = 1, 2, 3, 5, 9, 0x4
_NDA_PROTOCOL, _NDA_NH_ID, _NDA_FLAGS_EXT, _NTF_SELF, _NTF_EXT_LEARNED = 12, 13, 15, 0x2, 0x10
_NDA_FDB_EXT_ATTRS, _NFEA_ACTIVITY_NOTIFY = 14, 1
_PEER_SYNC = 0x2  # NTF_E_MH_PEER_SYNC of FRR's include/linux/neighbour.h; the kernel has another flag for it
_NHA_ID, _NHA_GROUP, _NHA_GATEWAY = 1, 2, 6
_NDTA_NAME, _NDTA_PARMS, _NDTPA_IFINDEX, _NDTPA_RETRANS_TIME = 1, 6, 1, 5
_NDTPA_APP_PROBES, _NDTPA_MCAST_PROBES = 9, 11
FRA_PRIORITY, _FRA_DSCP, FR_ACT_TO_TBL = 6, 25, 1
_NETNSA_NSID, _NETNSA_FD, _ANY_NUMBER = 1, 3, struct.pack("=i", -1)
_IFADDRMSG = struct.Struct("=BBBBi")  # family, prefix length, flags, scope, interface
_NDMSG = struct.Struct("=B3xiHBB")  # family, interface, state, flags, type
RTMSG = struct.Struct("=8BI")  # family, dst_len, src_len, tos, table, protocol, scope, type; flags
RULE = struct.Struct("=8BI")  # family, dst_len, src_len, tos, table, -, -, action; flags
_NEXT_HOP = struct.Struct("=HBBi")  # length, flags, hops, interface
_NHMSG = struct.Struct("=BBBxI")  # family, scope, protocol, flags
_NEXT_HOP_GROUP = struct.Struct("=IBBH")  # number, weight, -, -
_UPSERT = netlink.CREATE | netlink.REPLACE


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A neighbour entry of the interface with this index; `state` as in ``ip neigh``, no `mac` if unanswered."""

    index: int
    ip: IPAddress
    state: str
    mac: str | None
    protocol: int = 0
    """The routing protocol that set it, such as ZEBRA."""
    sync: bool = False
    """In a request of FRR's: true if another switch of the same Ethernet segment has heard the neighbour."""
    external: bool = False
    """A control plane has learned it elsewhere (``extern_learn``); a change by hand, or a deletion, ends that."""


@dataclass(frozen=True, slots=True)
class FdbEntry:
    """An entry of a bridge's forwarding database, on the port with this index; `bridge` is 0 for the entry of a device
    that has such a table of its own, as VXLAN has."""

    index: int
    bridge: int
    state: int
    vlan: int
    mac: str
    idle: int
    """Ticks since the last frame from the MAC."""
    behind: IPAddress | None = None
    """The far end of the tunnel to it."""
    group: int = 0
    """The number of the next-hop group to it, of several far ends."""
    activity: int = 0
    """NOTIFY if the kernel reports when frames from the MAC come and when none have come for the ageing time, and IDLE
    while none come; 0 if it does not."""
    external: bool = False
    """A control plane has learned it elsewhere (``extern_learn``)."""


class Route(NamedTuple):
    """A route of the main table. Hops are interface indices and gateways, None where a destination is attached.
    `kind` is ``unicast``, or that of a route that leads nowhere; `options` is what else `ip route` shows."""

    to: IPNetwork
    hops: list[tuple[int, IPAddress | None]]
    kind: str = "unicast"
    options: tuple[str, ...] = ()


TENTATIVE = "which is still tentative"


class Rtnetlink(Links):
    """An rtnetlink socket. Interfaces are given by their index."""

    # Addresses and namespaces

    def addresses(self) -> Iterator[tuple[int, IPInterface]]:
        """Yield (interface index, address) of all addresses."""
        return map(address_of, self.dump_addresses())

    def dump_addresses(self) -> list[bytes]:
        """Return all addresses, for `address_of`."""
        return [body for _, body in self.request(RTM_GETADDR, _IFADDRMSG.pack(0, 0, 0, 0, 0), netlink.DUMP)]

    def unusable_addresses(self) -> Iterator[tuple[IPInterface, str]]:
        """Yield the IPv6 addresses that the kernel does not use, with the reason: duplicate address detection."""
        for _, body in self.request(RTM_GETADDR, _IFADDRMSG.pack(socket.AF_INET6, 0, 0, 0, 0), netlink.DUMP):
            flags = netlink.number(netlink.attributes(body, _IFADDRMSG.size)[_IFA_FLAGS])
            if flags & _IFA_F_DADFAILED:
                yield address_of(body)[1], "which another node has (dadfailed)"
            elif flags & _IFA_F_TENTATIVE and not flags & _IFA_F_OPTIMISTIC:
                yield address_of(body)[1], TENTATIVE

    def number_namespace(self, namespace: str | os.PathLike[str]) -> int:
        """Give a namespace a number in this one, if it has none, and return it: without one no messages arrive from
        it."""
        with closing_fd(os.open(namespace, os.O_RDONLY)) as handle:
            file = netlink.u32(_NETNSA_FD, handle)
            any_number = bytes(4) + netlink.attribute(_NETNSA_NSID, _ANY_NUMBER) + file
            try:
                ((_, body),) = self.request(RTM_NEWNSID, any_number, netlink.ECHO)
            except FileExistsError:
                ((_, body),) = self.request(RTM_GETNSID, bytes(4) + file)
        return netlink.number(netlink.attributes(body, 4)[_NETNSA_NSID])

    def set_address(self, index: int, address: IPInterface, *, prefix_route: bool = True) -> None:
        """Add an address, or leave an existing one, with a route to its subnet. IPv6 addresses are used without
        duplicate address detection."""
        flags = _IFA_F_NODAD if prefix_route else _IFA_F_NODAD | _IFA_F_NOPREFIXROUTE
        body = _address(index, address) + netlink.u32(_IFA_FLAGS, flags)
        if address.version == 4 and address.network.prefixlen < POINT_TO_POINT:
            body += netlink.attribute(_IFA_BROADCAST, address.network.broadcast_address.packed)
        self.request(RTM_NEWADDR, body, _UPSERT)

    def delete_address(self, index: int, address: IPInterface) -> None:
        self.request(RTM_DELADDR, _address(index, address))

    # Neighbours

    def delete_fdb(self, index: int, vlan: int, mac: str) -> None:
        """Delete a bridge's learned entry for a MAC on a port."""
        self._delete(RTM_DELNEIGH, _fdb(index, _NTF_MASTER, mac, vlan))

    def place_mac(self, index: int, vlan: int, mac: str) -> None:
        """Put a MAC on a port of a bridge, which does not forget it, follows it to another port, and reports whether
        frames from it come."""
        body = _fdb(index, _NTF_MASTER, mac, vlan, NUD_NOARP)
        notify = netlink.u8(_NFEA_ACTIVITY_NOTIFY, NOTIFY | IDLE)
        self.request(RTM_NEWNEIGH, body + netlink.nested(_NDA_FDB_EXT_ATTRS, notify), _UPSERT)

    def learn_mac(self, index: int, vlan: int, mac: str) -> None:
        """Have a bridge's entry for a MAC as if a frame from it had just come in at a port."""
        self.request(RTM_NEWNEIGH, _fdb(index, _NTF_MASTER, mac, vlan, _NUD_REACHABLE), _UPSERT)

    def set_bridge_mac(self, bridge: int, vlan: int, mac: str) -> None:
        """Make a MAC one of a bridge's own in a VLAN: it takes in frames for it, and learns it at no port."""
        self.request(RTM_NEWNEIGH, _fdb(bridge, _NTF_SELF, mac, vlan), _UPSERT)

    def delete_bridge_mac(self, bridge: int, vlan: int, mac: str) -> None:
        self._delete(RTM_DELNEIGH, _fdb(bridge, _NTF_SELF, mac, vlan))

    def delete_own_mac(self, index: int, mac: str) -> None:
        """Delete a MAC from those that an interface receives beside its own."""
        self._delete(RTM_DELNEIGH, _fdb(index, _NTF_SELF, mac))

    def fdb(self) -> Iterator[bytes]:
        """Yield the entries of all bridges, for `fdb_entry`."""
        for _, body in self.request(RTM_GETNEIGH, _NDMSG.pack(socket.AF_BRIDGE, 0, 0, 0, 0), netlink.DUMP):
            yield body

    def neighbours(self, family: Family) -> Iterator[Neighbour]:
        """Yield the neighbour entries of all interfaces."""
        for _, body in self.request(RTM_GETNEIGH, _NDMSG.pack(FAMILIES[family], 0, 0, 0, 0), netlink.DUMP):
            if found := neighbour_of(body):
                yield found

    def set_neighbour(self, index: int, ip: IPAddress, mac: str, protocol: int = 0) -> None:
        """Add a permanent entry, which the kernel neither ages nor changes (neigh_update without the admin flag). One
        that replaces another keeps its protocol, unless it has its own."""
        body = _NDMSG.pack(FAMILIES[ip.version], index, NUD_PERMANENT, 0, 0)
        body += netlink.attribute(_NDA_DST, ip.packed) + netlink.attribute(_NDA_LLADDR, mac_bytes(mac))
        body += netlink.u8(_NDA_PROTOCOL, protocol) if protocol else b""
        self.request(RTM_NEWNEIGH, body, _UPSERT)

    def set_external_neighbour(self, index: int, ip: IPAddress, mac: str) -> None:
        """Add an entry of zebra's, as it adds those of remote neighbours."""
        body = _NDMSG.pack(FAMILIES[ip.version], index, NUD_NOARP, _NTF_EXT_LEARNED, 0)
        body += netlink.attribute(_NDA_DST, ip.packed) + netlink.attribute(_NDA_LLADDR, mac_bytes(mac))
        self.request(RTM_NEWNEIGH, body + netlink.u8(_NDA_PROTOCOL, ZEBRA), _UPSERT)

    def set_far_ends(self, index: int, mac: str, group: int) -> None:
        """Add a VXLAN device's entry for a MAC that is behind all far ends of a next-hop group."""
        body = _NDMSG.pack(socket.AF_BRIDGE, index, NUD_PERMANENT, _NTF_SELF | _NTF_EXT_LEARNED, 0)
        body += netlink.attribute(_NDA_LLADDR, mac_bytes(mac)) + netlink.u32(_NDA_NH_ID, group)
        self.request(RTM_NEWNEIGH, body, _UPSERT)

    def set_solicitations(self, index: int, multicast: int, application: int, retransmit_ms: int) -> None:
        """Set by how many requests an interface resolves an IPv4 address: those that it sends, and those by which it
        asks this program; and the time between them. As sysctls below net/ipv4/neigh do (struct ndtmsg)."""
        values = netlink.u32(_NDTPA_APP_PROBES, application) + netlink.u32(_NDTPA_MCAST_PROBES, multicast)
        values += netlink.attribute(_NDTPA_RETRANS_TIME, struct.pack("=Q", retransmit_ms))
        body = struct.pack("=Bxxx", socket.AF_INET) + netlink.string(_NDTA_NAME, "arp_cache")
        body += netlink.nested(_NDTA_PARMS, netlink.u32(_NDTPA_IFINDEX, index), values)
        self.request(RTM_SETNEIGHTBL, body)

    def delete_neighbour(self, index: int, ip: IPAddress) -> None:
        body = _NDMSG.pack(FAMILIES[ip.version], index, 0, 0, 0) + netlink.attribute(_NDA_DST, ip.packed)
        self._delete(RTM_DELNEIGH, body)

    # Routes and rules

    def next_hops_behind(self, group: int) -> list[IPAddress]:
        """Return the gateways of a next-hop group, in its order; none if it is gone."""
        try:
            ((_, body),) = self.request(RTM_GETNEXTHOP, _NHMSG.pack(0, 0, 0, 0) + netlink.u32(_NHA_ID, group))
        except FileNotFoundError:
            return []
        values = netlink.attributes(body, _NHMSG.size)
        if _NHA_GATEWAY in values:
            return [ip_address(values[_NHA_GATEWAY])]
        members = _NEXT_HOP_GROUP.iter_unpack(values.get(_NHA_GROUP, b""))
        return [hop for number, *_ in members for hop in self.next_hops_behind(number)]

    def add_route(self, to: IPNetwork, via: Iterable[IPAddress], *, replace: bool = False) -> None:
        """Add a static route over gateways of equal cost to the main table. FileExistsError if it exists, unless
        `replace`."""
        hops = [netlink.attribute(RTA_GATEWAY, hop.packed) for hop in via]
        given = b"".join(_NEXT_HOP.pack(_NEXT_HOP.size + len(hop), 0, 0, 0) + hop for hop in hops)
        body = _route(to, MAIN, 0, UNICAST, None)
        body += hops[0] if len(hops) == 1 else netlink.attribute(_RTA_MULTIPATH, given)
        self.request(RTM_NEWROUTE, body, _UPSERT if replace else netlink.CREATE | netlink.EXCLUSIVE)

    def set_route(self, to: IPNetwork, table: int, kind: int = UNICAST, index: int | None = None) -> None:
        """Add a static route: to what is attached to an interface, or of a kind that leads nowhere."""
        scope = 0 if index is None else LINK_SCOPE
        self.request(RTM_NEWROUTE, _route(to, table, scope, kind, index), _UPSERT)

    def delete_route(self, to: IPNetwork, table: int, kind: int = UNICAST, index: int | None = None) -> None:
        self._delete(RTM_DELROUTE, _route(to, table, 0 if index is None else NOWHERE, kind, index))

    def routes(self, protocol: int) -> Iterator[tuple[IPNetwork, list[int]]]:
        """Yield (destination, indices of the live next hops) of the main table's routes of a protocol."""
        for family in FAMILIES.values():
            for _, body in self.request(RTM_GETROUTE, RTMSG.pack(family, *bytes(7), 0), netlink.DUMP):
                _, length, _, _, table, found, *_ = RTMSG.unpack_from(body)
                if table == MAIN and found == protocol:
                    values = netlink.attributes(body, RTMSG.size)
                    anywhere = bytes(4 if family == socket.AF_INET else 16)
                    yield (
                        ip_network((values.get(RTA_DST, anywhere), length)),
                        sorted(index for index, _ in next_hops(values)),
                    )

    def dump_routes(self, family: Family) -> list[bytes]:
        """Return all routes, for `route_by_hand`."""
        body = RTMSG.pack(FAMILIES[family], *bytes(7), 0)
        return [found for _, found in self.request(RTM_GETROUTE, body, netlink.DUMP)]

    def routes_by_hand(self, *families: Family) -> list[Route]:
        """Return the main table's routes that neither a routing daemon nor the kernel made, by default of both
        families."""
        bodies = [body for family in families or FAMILIES for body in self.dump_routes(family)]
        return [route for body in bodies if (route := route_by_hand(body))]

    def add_dscp_rule(self, family: int, dscp: int, table: int) -> None:
        """Make packets with a DSCP use a table first; its number is the rule's priority too."""
        rule = _rule(family, table) + netlink.attribute(_FRA_DSCP, bytes([dscp]))
        self.request(RTM_NEWRULE, rule, netlink.CREATE)

    def delete_rules(self, family: int, table: int) -> None:
        """Delete all rules of the table's priority."""
        while self._delete(RTM_DELRULE, _rule(family, table)):
            pass

    def _delete(self, kind: int, body: bytes) -> bool:
        try:
            self.request(kind, body)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return True


def address_of(body: bytes) -> tuple[int, IPInterface]:
    """Read RTM_NEWADDR or RTM_DELADDR: (interface index, address)."""
    _, length, _, _, index = _IFADDRMSG.unpack_from(body)
    known = netlink.attributes(body, _IFADDRMSG.size)
    return index, ip_interface((known.get(_IFA_LOCAL) or known[_IFA_ADDRESS], length))


def neighbour_of(body: bytes) -> Neighbour | None:
    """Read RTM_NEWNEIGH or RTM_DELNEIGH; None if it is not about an address. An entry that was deleted has FAILED
    first, one that the kernel removed by itself, as with its interface, has not (neigh_delete and neigh_flush_dev in
    net/core/neighbour.c)."""
    family, index, state, flags, _ = _NDMSG.unpack_from(body)
    values = netlink.attributes(body, _NDMSG.size)
    if family not in FAMILIES.values() or _NDA_DST not in values:
        return None
    mac = values[_NDA_LLADDR].hex(":") if _NDA_LLADDR in values else None
    protocol = netlink.number(values.get(_NDA_PROTOCOL, b""))
    sync = bool(netlink.number(values.get(_NDA_FLAGS_EXT, b"")) & _PEER_SYNC)
    external = bool(flags & _NTF_EXT_LEARNED)
    ip, name = ip_address(values[_NDA_DST]), NUD_STATES.get(state, str(state))
    return Neighbour(index, ip, name, mac, protocol, sync, external)


def miss(body: bytes) -> tuple[int, IPAddress]:
    """Read RTM_GETNEIGH, by which the kernel requests an address: (interface index, address)."""
    _, index, _, _, _ = _NDMSG.unpack_from(body)
    return index, ip_address(netlink.attributes(body, _NDMSG.size)[_NDA_DST])


def fdb_entry(body: bytes) -> FdbEntry | None:
    """Read RTM_NEWNEIGH or RTM_DELNEIGH; None if it is not about a bridge."""
    family, index, state, flags, _ = _NDMSG.unpack_from(body)
    if family != socket.AF_BRIDGE:
        return None
    values = netlink.attributes(body, _NDMSG.size)
    (vlan,) = struct.unpack("=H", values.get(_NDA_VLAN, bytes(2)))
    _, _, idle, _ = struct.unpack("=IIII", values.get(_NDA_CACHEINFO, bytes(16)))  # confirmed, used, updated, users
    bridge = netlink.number(values.get(_NDA_MASTER, b""))
    extended = netlink.attributes(values.get(_NDA_FDB_EXT_ATTRS, b""))
    return FdbEntry(
        index,
        bridge,
        state,
        vlan,
        values[_NDA_LLADDR].hex(":"),
        idle,
        behind=ip_address(values[_NDA_DST]) if _NDA_DST in values else None,
        group=netlink.number(values.get(_NDA_NH_ID, b"")),
        activity=netlink.number(extended.get(_NFEA_ACTIVITY_NOTIFY, b"")),
        external=bool(flags & _NTF_EXT_LEARNED),
    )


def _address(index: int, address: IPInterface) -> bytes:
    header = _IFADDRMSG.pack(FAMILIES[address.version], address.network.prefixlen, 0, 0, index)
    return header + b"".join(netlink.attribute(kind, address.ip.packed) for kind in (_IFA_LOCAL, _IFA_ADDRESS))


def _fdb(index: int, flags: int, mac: str, vlan: int | None = None, state: int = 0) -> bytes:
    """Pack a message about a MAC: of the interface itself, or of its bridge."""
    state = NUD_PERMANENT if flags == _NTF_SELF else state
    body = _NDMSG.pack(socket.AF_BRIDGE, index, state, flags, 0) + netlink.attribute(_NDA_LLADDR, mac_bytes(mac))
    return body if vlan is None else body + netlink.attribute(_NDA_VLAN, struct.pack("=H", vlan))


def _route(to: IPNetwork, table: int, scope: int, kind: int, index: int | None) -> bytes:
    body = RTMSG.pack(FAMILIES[to.version], to.prefixlen, 0, 0, table, STATIC, scope, kind, 0)
    body += netlink.attribute(RTA_DST, to.network_address.packed)
    return body if index is None else body + netlink.u32(RTA_OIF, index)


def _rule(family: int, table: int) -> bytes:
    return RULE.pack(family, 0, 0, 0, table, 0, 0, FR_ACT_TO_TBL, 0) + netlink.u32(FRA_PRIORITY, table)


def route_by_hand(body: bytes) -> Route | None:
    """Read RTM_NEWROUTE or RTM_DELROUTE; None if it is of another table, or a program's or the kernel's."""
    family, length, _, _, table, protocol, scope, kind, flags = RTMSG.unpack_from(body)
    if table != MAIN or protocol not in BY_HAND or flags & _RTM_F_CLONED:
        return None
    values = netlink.attributes(body, RTMSG.size)
    to = ip_network((values.get(RTA_DST, bytes(4 if family == socket.AF_INET else 16)), length))
    hops = [(index, ip_address(hop[RTA_GATEWAY]) if RTA_GATEWAY in hop else None) for index, hop in next_hops(values)]
    return Route(to, hops, _KINDS.get(kind, str(kind)), tuple(_options(values, family, scope)))


_KINDS = {UNICAST: "unicast", BLACKHOLE: "blackhole", 7: "unreachable", 8: "prohibit", 9: "throw"}


def _options(values: dict[int, bytes], family: int, scope: int) -> Iterator[str]:
    """Yield what `ip route` would show of a route beside its next hops, with the kernel's defaults left out."""
    if (metric := netlink.number(values.get(_RTA_PRIORITY, b""))) not in (0, 1024 if family == socket.AF_INET6 else 0):
        yield f"metric {metric}"
    if _RTA_PREFSRC in values:
        yield f"src {ip_address(values[_RTA_PREFSRC])}"
    if _RTA_METRICS in values:
        found = netlink.attributes(values[_RTA_METRICS])
        yield from (f"mtu {netlink.number(found[key])}" for key in (_RTAX_MTU,) if key in found)
    if family == socket.AF_INET and scope not in (0, LINK_SCOPE):
        yield f"scope {scope}"


def next_hops(route: dict[int, bytes]) -> Iterator[tuple[int, dict[int, bytes]]]:
    """Yield (interface index, attributes) of the live next hops, from a route's attributes."""
    if RTA_OIF in route:
        yield netlink.number(route[RTA_OIF]), route
    hops = route.get(_RTA_MULTIPATH, b"")
    while hops:
        size, flags, _, index = _NEXT_HOP.unpack_from(hops)
        if not flags & _RTNH_F_DEAD:
            yield index, netlink.attributes(hops[:size], _NEXT_HOP.size)
        hops = hops[size:]
