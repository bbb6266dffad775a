"""
The kernel's half of a switch: one VLAN-aware bridge `br0` and an SVI per VLAN, a VLAN device on it.

The kernel forwards; it does not speak ARP, nor the neighbour discovery of IPv6 where an SVI has an IPv6 address:

- nftables chains drop what comes in. Packet sockets get it before, and what they send passes no chain;
- mcast_solicit is 0: the kernel sends no requests (and unicast ones only for entries that are not permanent);
- app_solicit is 1: for a packet without a neighbour entry it multicasts RTM_GETNEIGH once, and queues the packet for
  retrans_time, which is a day: the control plane decides long before.

All SVIs of a switch have one MAC, as a router has, and it is the bridge's. The kernel makes a bridge promiscuous when a
VLAN device on it has another MAC, and then every forwarded frame is copied to the switch's own stack as well.

A routed port is in no bridge. It has a link-local address only, and there the kernel does speak neighbour discovery.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Literal

from pyroute2 import IPRoute
from pyroute2.nftables.main import NFTables

from testbed.errors import TestbedError
from testbed.kernel import ipv6, netlink, nftables
from testbed.kernel import rtnetlink as rt
from testbed.switch import ecmp, frames, nd
from testbed.switch.frr import HOST_ROUTES_TABLE
from testbed.switch.packets import Packet, pack
from testbed.switch.profile import Profile
from testbed.topology.addressing import link_local
from testbed.topology.plan import Family, Interface, IPAddress, IPNetwork, Node, Svi

BRIDGE = "br0"
SILENCE = """
table ip6 silence {
    chain input { type filter hook input priority 0; iifname "vlan*" jump discovery; }
    chain output { type filter hook output priority 0; oifname "vlan*" jump discovery; }
    chain discovery {
        icmpv6 type {
            nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, nd-redirect
        } drop;
    }
}
"""
BRIDGE_MTU, USUAL_MTU = 65535, 1500
LOSSLESS_TABLE = 100
"""Routing table, and priority of the rules that lead to it, where next hops are blackholes for lossless packets."""

_FAMILIES: dict[Family, int] = {4: socket.AF_INET, 6: socket.AF_INET6}
_NFPROTO_ARP = 3
_NUD_NOARP, _NUD_PERMANENT = 0x40, 0x80
_IFF_UP = 0x1
_NTF_MASTER = 0x4
_MAIN, _BGP, _STATIC, _UNICAST = 254, 186, 4, 1
"""Routing table, protocols and type of a route (rt_table, rt_protos, RTN_UNICAST)."""
_LINK, _NOWHERE = 253, 255
"""Scopes: of a route without a gateway; of any that is to be deleted."""
_RTA_DST, _RTA_OIF, _RTA_MULTIPATH = 1, 4, 9
_RTNH_F_DEAD = 1
_FORWARDING = (rt.RTM_NEWLINK, rt.RTM_DELLINK, rt.RTM_NEWROUTE, rt.RTM_DELROUTE, rt.RTM_NEWNEXTHOP, rt.RTM_DELNEXTHOP)
_NDA_DST, _NDA_LLADDR, _NDA_CACHEINFO, _NDA_VLAN = 1, 2, 3, 5
_NDMSG = struct.Struct("=B3xiHBB")  # family, interface, state, flags, type
_IFINFOMSG = struct.Struct("=BxHiII")  # family, type, index, flags, change
_RTMSG = struct.Struct("=8BI")  # family, dst_len, src_len, tos, table, protocol, scope, type; flags
_NEXT_HOP = struct.Struct("=HBBi")  # length, flags, hops, interface
_RULE = struct.Struct("=8BI")  # family, dst_len, src_len, tos, table, -, -, action; flags
_USER_HZ = 100
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_SO_ATTACH_FILTER = 26
_LOAD_BYTE, _JUMP_IF_EQUAL, _RETURN = 0x30, 0x15, 0x06
_DISCOVERY = [
    (_LOAD_BYTE, 0, 0, nd.NEXT_HEADER_AT),
    (_JUMP_IF_EQUAL, 0, 4, nd.ICMPV6),
    (_LOAD_BYTE, 0, 0, nd.TYPE_AT),
    (_JUMP_IF_EQUAL, 1, 0, nd.SOLICITATION),
    (_JUMP_IF_EQUAL, 0, 1, nd.ADVERTISEMENT),
    (_RETURN, 0, 0, 0xFFFF),
    (_RETURN, 0, 0, 0),
]
"""What of IPv6 is for the control plane: (code, steps to skip if true, if false, operand)."""
_BUFFER = 32 << 20
"""Bytes for packets and messages that wait for the agent: storms of some 40 000."""
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Miss:
    vlan: int
    ip: IPAddress


@dataclass(frozen=True, slots=True)
class FdbChange:
    """The bridge learned a MAC on `port`, or lost it (None)."""

    vlan: int
    mac: str
    port: str | None
    lost: Literal["aged", "flushed"] = "aged"


@dataclass(frozen=True, slots=True)
class RouteChange:
    """The way to a subnet that BGP found, by these ports; none of them: it is lost."""

    to: IPNetwork
    ports: tuple[str, ...]


Change = Miss | FdbChange | RouteChange


class DataPlane:
    """The sockets through which a control plane works on one switch; they stay in the switch's namespace."""

    def __init__(self, node: Node, bridge: int) -> None:
        self.node = node
        self._bridge = bridge
        self._ports: dict[int, str] = {}
        self._routed: dict[int, str] = {}
        self._routes: dict[IPNetwork, tuple[str, ...]] = {}
        """What BGP found, as the kernel has it."""
        self._svis: dict[int, int] = {}  # index to VLAN
        self._index: dict[int, int] = {}  # VLAN to index
        self._vlans = {svi.name: svi.vlan for svi in node.svis}
        self._macs = {svi.vlan: (svi.name, svi.mac) for svi in node.svis}
        self._static: set[tuple[int, str]] = set()
        """VLAN and MAC of what an administrator entered in the FDB."""
        self._mac_age = 0.0
        self._netlink = rt.Rtnetlink()
        self._monitor = rt.Rtnetlink(rt.RTMGRP_NEIGH | (rt.RTMGRP_FORWARDING if node.bgp else 0))
        self._monitor.listen(_BUFFER)
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        self._arp = socket.socket(socket.AF_PACKET, kind, socket.htons(frames.ETH_P_ARP))
        self._packets = [self._arp]
        self._groups = {svi.vlan: _groups(svi) for svi in node.svis if svi.address6 is not None}
        """Where IPv6 packets go that an SVI takes, by VLAN."""
        self._proxies = {svi.vlan for svi in node.svis if svi.proxy_arp}
        if self._groups:
            self._packets.append(socket.socket(socket.AF_PACKET, kind, socket.htons(nd.ETH_P_IPV6)))
            _attach(self._packets[-1], _DISCOVERY)
        for packets in self._packets:
            packets.setsockopt(socket.SOL_SOCKET, rt.SO_RCVBUFFORCE, _BUFFER)
        self._arp.setsockopt(socket.SOL_SOCKET, rt.SO_SNDBUFFORCE, _BUFFER)  # what waits at a port for its rate counts

    def attach(self, port: Interface) -> None:
        """Makes an interface of the switch's namespace a port, and sets it up."""
        index = socket.if_nametoindex(port.name)
        self._ports[index] = port.name
        body = _IFINFOMSG.pack(0, 0, index, _IFF_UP, _IFF_UP) + netlink.u32(10, self._bridge)  # IFLA_MASTER
        self._netlink.request(rt.RTM_NEWLINK, body)
        pvid_untagged, tagged = 0x6, 0
        vlans = [(pvid_untagged, port.vlan)] if port.vlan is not None else []
        vlans += [(tagged, vlan) for vlan in port.trunk]
        given = (netlink.attribute(2, struct.pack("=HH", *vlan)) for vlan in vlans)  # IFLA_BRIDGE_VLAN_INFO
        body = _IFINFOMSG.pack(socket.AF_BRIDGE, 0, index, 0, 0) + netlink.nested(26, *given)  # IFLA_AF_SPEC
        self._netlink.request(rt.RTM_SETLINK, body)

    def add_routed(self, port: Interface) -> None:
        """Makes an interface of the switch's namespace, which is up, an interface of the router."""
        self._routed[socket.if_nametoindex(port.name)] = port.name
        ipv6.enable_router_port(port.name)

    def add_svi(self, vlan: int, index: int) -> None:
        self._svis[index], self._index[vlan] = vlan, index

    def close(self) -> None:
        self._netlink.close()
        self._monitor.close()
        for packets in self._packets:
            packets.close()

    def filenos(self) -> list[int]:
        """Readable when there may be something for `changes`, for `packets`."""
        return [self._monitor.fileno(), *(packets.fileno() for packets in self._packets)]

    # What the switch sees

    def changes(self) -> Iterator[Change]:
        forwarding = False
        try:
            for kind, body in self._monitor.messages():
                if kind in _FORWARDING:
                    forwarding = True
                elif change := self._change(kind, body):
                    yield change
        except OSError as error:
            raise TestbedError(f"switch {self.node.name} lost news of its tables: {error.strerror}") from error
        if forwarding:
            yield from self._route_changes()

    def packets(self) -> Iterator[tuple[int, Packet]]:
        """(VLAN, packet) of the ARP and ND packets that reached an SVI. The FDB change a packet made is there before
        it."""
        for packets in self._packets:
            yield from self._read(packets)
            _, dropped = struct.unpack("=II", packets.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
            if dropped:
                what = "ARP" if packets is self._arp else "ND"
                raise TestbedError(
                    f"switch {self.node.name} lost {dropped} {what} packets that its profile would have let in"
                )

    def _read(self, packets: socket.socket) -> Iterator[tuple[int, Packet]]:
        to_all = socket.PACKET_BROADCAST if packets is self._arp else socket.PACKET_MULTICAST
        while True:
            try:
                frame, (name, _, pkttype, *_) = packets.recvfrom(2048)
            except BlockingIOError:
                return
            vlan = self._vlans.get(name)
            if vlan is None or pkttype not in (socket.PACKET_HOST, to_all):
                continue
            if packets is self._arp:
                if (arp := frames.parse(frame)) is not None:
                    yield vlan, arp
            elif (found := nd.parse(frame)) is not None and self._takes(vlan, found[0]):
                yield vlan, found[1]

    def _takes(self, vlan: int, destination: IPv6Address) -> bool:
        """An SVI that answers for others is in the groups of all that may be asked for."""
        asked_for_others = vlan in self._proxies and destination in nd.SOLICITED_NODES
        return vlan in self._groups and (asked_for_others or destination in self._groups[vlan])

    # What the control plane does

    def send(self, vlan: int, dst: str, packet: Packet) -> None:
        name, mac = self._macs[vlan]
        try:
            self._arp.sendto(pack(dst, mac, packet), (name, 0))
        except OSError as error:
            if error.errno not in (errno.ENETDOWN, errno.ENOBUFS):  # nothing leaves an SVI that is down
                raise

    def set_neighbour(self, vlan: int, ip: IPAddress, mac: str) -> None:
        """Permanent: the kernel neither ages nor changes it (neigh_update refuses without the admin flag)."""
        body = _NDMSG.pack(_FAMILIES[ip.version], self._index[vlan], _NUD_PERMANENT, 0, 0)
        body += netlink.attribute(_NDA_DST, ip.packed) + netlink.attribute(_NDA_LLADDR, _packed(mac))
        self._netlink.request(rt.RTM_NEWNEIGH, body, netlink.CREATE | netlink.REPLACE)
        if self._announced(ip):
            route = self._host_route(vlan, ip, scope=_LINK)
            self._netlink.request(rt.RTM_NEWROUTE, route, netlink.CREATE | netlink.REPLACE)

    def delete_neighbour(self, vlan: int, ip: IPAddress) -> None:
        body = _NDMSG.pack(_FAMILIES[ip.version], self._index[vlan], 0, 0, 0) + netlink.attribute(_NDA_DST, ip.packed)
        self._delete(rt.RTM_DELNEIGH, body)
        if self._announced(ip):
            self._delete(rt.RTM_DELROUTE, self._host_route(vlan, ip, scope=_NOWHERE))

    def _announced(self, ip: IPAddress) -> bool:
        return self.node.host_routes and not ip.is_link_local

    def _host_route(self, vlan: int, ip: IPAddress, scope: int) -> bytes:
        body = _RTMSG.pack(
            _FAMILIES[ip.version], ip.max_prefixlen, 0, 0, HOST_ROUTES_TABLE, _STATIC, scope, _UNICAST, 0
        )
        return body + netlink.attribute(_RTA_DST, ip.packed) + netlink.u32(_RTA_OIF, self._index[vlan])

    def delete_fdb(self, vlan: int, mac: str, port: str) -> None:
        """Of what was learned: a static entry stays."""
        if (vlan, mac) in self._static:
            return
        body = _NDMSG.pack(socket.AF_BRIDGE, self._port(port), 0, _NTF_MASTER, 0)
        body += netlink.attribute(_NDA_LLADDR, _packed(mac)) + netlink.attribute(_NDA_VLAN, struct.pack("=H", vlan))
        self._delete(rt.RTM_DELNEIGH, body)

    def set_port(self, port: str, up: bool) -> None:
        """The bridge forgets what it learned on a port that goes down."""
        flags = _IFF_UP if up else 0
        self._netlink.request(rt.RTM_NEWLINK, _IFINFOMSG.pack(0, 0, self._port(port), flags, _IFF_UP))

    def block_lossless(self, ip: IPAddress, blocked: bool) -> None:
        """A blackhole for packets to `ip` that the rules by DSCP send to its table."""
        blackhole = 6
        body = _RTMSG.pack(_FAMILIES[ip.version], ip.max_prefixlen, 0, 0, LOSSLESS_TABLE, _STATIC, 0, blackhole, 0)
        body += netlink.attribute(_RTA_DST, ip.packed)
        if blocked:
            self._netlink.request(rt.RTM_NEWROUTE, body, netlink.CREATE | netlink.REPLACE)
        else:
            self._delete(rt.RTM_DELROUTE, body)

    def configure(self, profile: Profile) -> None:
        """The values of a profile that the kernel carries out; may be repeated with another profile."""
        self._mac_age = profile.mac_age
        ageing = netlink.u32(4, round(profile.mac_age * _USER_HZ))  # IFLA_BR_AGEING_TIME
        learned = netlink.u32(49, profile.mac_cap or 0)  # IFLA_BR_FDB_MAX_LEARNED, 0: no bound
        bridge = netlink.string(1, "bridge") + netlink.nested(2, ageing, learned)  # IFLA_INFO_KIND, IFLA_INFO_DATA
        body = _IFINFOMSG.pack(0, 0, self._bridge, 0, 0) + netlink.nested(18, bridge)  # IFLA_LINKINFO
        self._netlink.request(rt.RTM_NEWLINK, body)
        flood = netlink.attribute(9, bytes([profile.unknown_unicast == "flood"]))  # IFLA_BRPORT_UNICAST_FLOOD
        for index in self._ports:
            port = _IFINFOMSG.pack(socket.AF_BRIDGE, 0, index, 0, 0) + netlink.nested(12, flood)  # IFLA_PROTINFO
            self._netlink.request(rt.RTM_SETLINK, port)
        families = [socket.AF_INET, socket.AF_INET6] if self._groups else [socket.AF_INET]
        for family in families:
            self._delete_lossless_rules(family)
            if profile.lossless_unknown_unicast == "drop":
                for dscp in profile.lossless_dscp:
                    rule = _rule(family, netlink.attribute(25, bytes([dscp])))  # FRA_DSCP
                    self._netlink.request(rt.RTM_NEWRULE, rule, netlink.CREATE)

    def _delete_lossless_rules(self, family: int) -> None:
        while True:
            try:
                self._netlink.request(rt.RTM_DELRULE, _rule(family))
            except OSError as error:
                if not rt.missing(error):
                    raise
                return

    def _port(self, name: str) -> int:
        return next(index for index, port in self._ports.items() if port == name)

    def _delete(self, kind: int, body: bytes) -> None:
        try:
            self._netlink.request(kind, body)
        except OSError as error:
            if not rt.missing(error):
                raise

    def _change(self, kind: int, body: bytes) -> Miss | FdbChange | None:
        family, index, state, _, _ = _NDMSG.unpack_from(body)
        if kind == rt.RTM_GETNEIGH and index in self._svis:
            return Miss(self._svis[index], ip_address(dict(netlink.attributes(body, _NDMSG.size))[_NDA_DST]))
        if family != socket.AF_BRIDGE or index not in self._ports or state & _NUD_PERMANENT:
            return None
        values = dict(netlink.attributes(body, _NDMSG.size))
        (vlan,) = struct.unpack("=H", values[_NDA_VLAN])
        mac = values[_NDA_LLADDR].hex(":")
        if kind == rt.RTM_NEWNEIGH and state & _NUD_NOARP:
            self._static.add((vlan, mac))
        else:
            self._static.discard((vlan, mac))
        if kind == rt.RTM_NEWNEIGH:
            return FdbChange(vlan, mac, self._ports[index])
        _, _, idle, _ = struct.unpack("=IIII", values[_NDA_CACHEINFO])  # confirmed, used, updated, references
        # The bridge does not say why it forgot a MAC, but for how long it had not seen it, in whole ticks.
        return FdbChange(vlan, mac, None, "aged" if idle + 2 >= self._mac_age * _USER_HZ else "flushed")

    def _route_changes(self) -> Iterator[RouteChange]:
        """By what the kernel has now: it takes the next hops of a link that goes down out of all routes and tells
        nobody."""
        before, self._routes = self._routes, dict(self._bgp_routes())
        for to in [*self._routes, *(before.keys() - self._routes.keys())]:
            if before.get(to, ()) != (ports := self._routes.get(to, ())):
                yield RouteChange(to, ports)

    def _bgp_routes(self) -> Iterator[tuple[IPNetwork, tuple[str, ...]]]:
        for family in _FAMILIES.values():
            for _, body in self._netlink.dump(rt.RTM_GETROUTE, _RTMSG.pack(family, *bytes(7), 0)):
                _, length, _, _, table, protocol, *_ = _RTMSG.unpack_from(body)
                if table != _MAIN or protocol != _BGP:
                    continue
                values = dict(netlink.attributes(body, _RTMSG.size))
                anywhere = bytes(4 if family == socket.AF_INET else 16)
                indices = sorted(_interfaces(values))
                ports = tuple(self._routed[index] for index in indices if index in self._routed)
                yield ip_network((values.get(_RTA_DST, anywhere), length)), ports


def _interfaces(route: dict[int, bytes]) -> Iterator[int]:
    if _RTA_OIF in route:
        yield from struct.unpack("=I", route[_RTA_OIF])
    hops = route.get(_RTA_MULTIPATH, b"")
    while hops:
        size, flags, _, index = _NEXT_HOP.unpack_from(hops)
        if not flags & _RTNH_F_DEAD:
            yield index
        hops = hops[size:]


def _no_flooding(node: Node) -> str:
    """Between the ports of a VLAN with proxy ARP nothing goes to all or to a group, as on SONiC, which sets the VLAN's
    flood control to NONE (sonic-swss, orchagent/intfsorch.cpp, setIntfVlanFloodType): or the owner of an address would
    answer too. What the SVI sends and hears passes no such chain, in which a frame is tagged as it leaves."""
    vlans = [svi.vlan for svi in node.svis if svi.proxy_arp]
    to_all = "ether daddr & 01:00:00:00:00:00 != 0 drop\n"
    untagged = [port.name for port in node.interfaces if port.vlan in vlans]
    tagged = [(port.name, vlan) for port in node.interfaces for vlan in port.trunk if vlan in vlans]
    rules = [f'oifname "{port}" ether type != 8021q {to_all}' for port in untagged]
    rules += [f'oifname "{port}" vlan id {vlan} {to_all}' for port, vlan in tagged]
    return f"table bridge proxy {{\nchain forward {{\ntype filter hook forward priority 0;\n{''.join(rules)}}}\n}}"


def build(ip: IPRoute, node: Node, profile: Profile) -> DataPlane:
    """
    Makes the switch `node` of its ports, which are there with their MACs and MTUs.

    The calling thread and `ip` are in the switch's namespace. The data plane has seen every MAC since the first port.
    """
    _silence_arp()
    _sysctls({"ipv4/ip_forward": 1, "ipv4/conf/all/rp_filter": 0, "ipv4/conf/default/rp_filter": 0})
    _sysctls({"ipv4/conf/all/send_redirects": 0, "ipv4/conf/default/send_redirects": 0})
    _sysctls(ecmp.sysctls(node.name))
    mac = (node.svis or node.interfaces)[0].mac
    ip.link("add", ifname=BRIDGE, kind="bridge", address=mac, br_vlan_filtering=1, br_vlan_default_pvid=0,
            br_mcast_snooping=0)  # fmt: skip
    bridge = socket.if_nametoindex(BRIDGE)
    ip.link("set", index=bridge, state="up")
    plane = DataPlane(node, bridge)
    if any(svi.proxy_arp for svi in node.svis):
        nftables.run(_no_flooding(node))
    if node.bgp or any(svi.address6 for svi in node.svis):
        nftables.run(SILENCE)
        _sysctls({"ipv6/conf/all/forwarding": 1})
    for port in node.interfaces:
        if port.routed:
            plane.add_routed(port)
        else:
            plane.attach(port)
    # Left alone, the bridge's MTU follows its ports': one that a fault lowers would take the SVIs along, and below 1280
    # bytes their IPv6.
    ip.link("set", index=bridge, mtu=BRIDGE_MTU)
    mtu = min((port.mtu for port in node.interfaces if not port.routed), default=USUAL_MTU)
    for svi in node.svis:
        if not svi.addresses:
            continue
        ip.vlan_filter("add", index=bridge, vlan_info={"vid": svi.vlan}, vlan_flags="self")
        ip.link("add", ifname=svi.name, kind="vlan", link=bridge, vlan_id=svi.vlan, mtu=mtu)
        index = socket.if_nametoindex(svi.name)
        plane.add_svi(svi.vlan, index)
        solicit = {"mcast_solicit": 0, "app_solicit": 1, "retrans_time_ms": _DAY_MS}
        _sysctls({f"ipv4/neigh/{svi.name}/{name}": value for name, value in solicit.items()})
        ip.link("set", index=index, state="up")
        if svi.address is not None:
            ip.addr("add", index=index, address=str(svi.address.ip), prefixlen=svi.address.network.prefixlen)
        if svi.address6 is not None:
            _sysctls({f"ipv6/neigh/{svi.name}/{name}": value for name, value in solicit.items()})
            ipv6.enable(ip, svi.name, svi.mac)
            ipv6.add_address(ip, index, svi.address6)
    for route in node.routes:
        family = _FAMILIES[route.destination.version]
        ip.route("replace", family=family, dst=str(route.destination), multipath=ecmp.next_hops(route.via))
    plane.configure(profile)
    return plane


def _silence_arp() -> None:
    nft = NFTables(nfgen_family=_NFPROTO_ARP)
    try:
        nft.table("add", name="silence")
        # pyroute2 has the names of the IP families' hooks only; number 0, their prerouting, is ARP's input.
        nft.chain("add", table="silence", name="input", hook="prerouting", type="filter", policy=0)
    finally:
        nft.close()


def _groups(svi: Svi) -> frozenset[IPv6Address]:
    """The SVI's IPv6 addresses and the multicast groups that a router is in for them (RFC 4291 section 2.8)."""
    assert svi.address6 is not None
    own = svi.address6.ip, link_local(svi.mac)
    return frozenset((*own, *map(nd.solicited_node, own), nd.ALL_NODES, nd.ALL_ROUTERS))


def _attach(packets: socket.socket, program: list[tuple[int, int, int, int]]) -> None:
    """A filter of the classic kind (Documentation/networking/filter.rst): all that is forwarded passes by here."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in program))
    packets.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(code)))


def _sysctls(values: dict[str, int]) -> None:
    for path, value in values.items():
        Path("/proc/sys/net", path).write_text(f"{value}\n")


def _rule(family: int, *match: bytes) -> bytes:
    to_table = 1
    header = _RULE.pack(family, 0, 0, 0, LOSSLESS_TABLE, 0, 0, to_table, 0)
    return header + netlink.u32(6, LOSSLESS_TABLE) + b"".join(match)  # FRA_PRIORITY


def _packed(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))
