"""
The kernel's half of a switch: messages from its bridge, SVIs and routes, and changes to them.

The kernel forwards. It does no ARP and, on an SVI with an IPv6 address, no neighbour discovery. For a packet without a
neighbour entry it sends RTM_GETNEIGH once and queues the packet until the control plane decides. `build` sets this up.
"""

import contextlib
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_network
from typing import Literal

from testbed.kernel import ipv6, links
from testbed.kernel import packet_socket as ps
from testbed.kernel import rtnetlink as rt
from testbed.kernel.bfd.offload import Offload
from testbed.kernel.links import USER_HZ, LinkState, link_state
from testbed.kernel.packet_socket import PacketSocket
from testbed.kernel.rtnetlink import Neighbour, Rtnetlink
from testbed.switch import frames, nd
from testbed.switch.frr import HOST_ROUTES_TABLE
from testbed.switch.packets import Packet, pack
from testbed.switch.profile import Profile
from testbed.topology.addressing import link_local
from testbed.topology.plan import Interface, IPAddress, IPInterface, IPNetwork, Node, Svi

DAY_MS = 86_400_000
SOLICIT = {"mcast_solicit": 0, "app_solicit": 1, "retrans_time_ms": DAY_MS}
"""Values of an SVI's neighbour table, by which the kernel leaves all to the control plane (`build`)."""
LOSSLESS_TABLE = 100
"""Routing table, and the priority of its rules, in which next hops are blackholes for lossless packets."""
_FORWARDING = (
    links.RTM_NEWLINK,
    links.RTM_DELLINK,
    rt.RTM_NEWROUTE,
    rt.RTM_DELROUTE,
    rt.RTM_NEWNEXTHOP,
    rt.RTM_DELNEXTHOP,
)
"""Changes of forwarding, and the groups that report them beside links."""
_FORWARDING_GROUPS = (rt.IPV4_ROUTE, rt.IPV6_ROUTE, rt.NEXTHOP)
_DISCOVERY = [
    (ps.LOAD_BYTE, 0, 0, nd.NEXT_HEADER_AT),
    (ps.JUMP_IF_EQUAL, 0, 4, nd.ICMPV6),
    (ps.LOAD_BYTE, 0, 0, nd.TYPE_AT),
    (ps.JUMP_IF_EQUAL, 1, 0, nd.SOLICITATION),
    (ps.JUMP_IF_EQUAL, 0, 1, nd.ADVERTISEMENT),
    (ps.RETURN, 0, 0, 0xFFFF),
    (ps.RETURN, 0, 0, 0),
]
"""Filter for the IPv6 packets that the control plane handles: all forwarded packets pass here."""
_BUFFER = 32 << 20
"""Bytes for packets and messages that wait for the agent: storms of some 40 000."""


@dataclass(frozen=True, slots=True)
class Miss:
    """A packet for an address without a neighbour entry."""

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
class CarrierLost:
    """An SVI has lost its carrier: no port of the bridge has one."""

    vlan: int


@dataclass(frozen=True, slots=True)
class SviChange:
    """An SVI has another MAC or other addresses; none if it is gone."""

    vlan: int
    mac: str
    addresses: tuple[IPInterface, ...]


@dataclass(frozen=True, slots=True)
class Flushed:
    """The kernel has removed a neighbour entry by itself, as it does when an SVI goes down or loses its addresses."""

    vlan: int
    ip: IPAddress


@dataclass(frozen=True, slots=True)
class RouteChange:
    """The ports of BGP's route to a subnet; none if the route is lost."""

    to: IPNetwork
    ports: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """Messages or packets dropped while the control plane was late."""

    what: str
    number: int


Change = Miss | FdbChange | CarrierLost | SviChange | Flushed | RouteChange | Lost


class DataPlane:
    """The sockets through which a control plane works on one switch; they stay in the switch's namespace."""

    def __init__(self, node: Node, bridge: int, bfd: Offload | None = None) -> None:
        self.node = node
        self.bfd = bfd
        """What the ports do for BFD, on a switch with FRR."""
        self._bridge = bridge
        self._ports: dict[int, str] = {}
        """Ports of the bridge: those of the plan, and others that have come to be known."""
        self._routed: dict[int, str] = {}
        self._routes: dict[IPNetwork, tuple[str, ...]] = {}
        """BGP's routes, as the kernel has them."""
        self._svis: dict[int, int] = {}
        """VLANs by SVI index."""
        self._addresses: dict[int, list[IPInterface]] = {}
        """Addresses by SVI index."""
        self._carriers: set[int] = set()
        """VLANs whose SVI has a carrier."""
        self._vlans = {svi.name: svi.vlan for svi in node.svis}
        self._macs = {svi.vlan: (svi.name, svi.mac) for svi in node.svis}
        self._set: dict[tuple[int, IPAddress], str] = {}
        """MACs that the control plane has set, by VLAN and address."""
        self.by_hand: dict[tuple[int, IPAddress], str] = {}
        """MACs of static entries that a command has made."""
        self._static: set[tuple[int, str]] = set()
        """VLAN and MAC of an administrator's static FDB entries."""
        self._mac_age = 0.0
        self._netlink = Rtnetlink()
        self._monitor = Rtnetlink()
        groups = (rt.LINK, rt.NEIGH, rt.IPV4_IFADDR, rt.IPV6_IFADDR, *(_FORWARDING_GROUPS if node.bgp else ()))
        self._monitor.listen(groups, buffer=_BUFFER)
        self._groups = {svi.vlan: _groups(svi) for svi in node.svis if svi.address6 is not None}
        """Destinations of IPv6 packets that an SVI accepts, by VLAN."""
        self._proxies = {svi.vlan for svi in node.svis if svi.proxy_arp}
        self._arp = PacketSocket(frames.ETH_P_ARP, _BUFFER)
        self._nd = PacketSocket(nd.ETH_P_IPV6, _BUFFER, _DISCOVERY) if self._groups else None

    def attach(self, port: Interface) -> None:
        """Make an interface of the switch's namespace a port, and set it up."""
        index = socket.if_nametoindex(port.name)
        self._ports[index] = port.name
        self._netlink.enslave(index, self._bridge)
        self._netlink.set_vlans(index, port.vlan, port.trunk)

    def add_routed(self, port: Interface) -> None:
        """Make an interface of the switch's namespace, which is up, a router interface."""
        self.know_routed(socket.if_nametoindex(port.name), port.name)
        ipv6.enable_router_port(port.name)

    def know_routed(self, index: int, port: str) -> None:
        """Take in a router interface."""
        self._routed[index] = port

    def add_svi(self, vlan: int, index: int) -> None:
        self._svis[index] = vlan

    def close(self) -> None:
        for file in self._files():
            file.close()
        self._netlink.close()
        if self.bfd:
            self.bfd.close()

    def filenos(self) -> list[int]:
        """Return descriptors that are readable when there may be something for `changes`, for `packets`."""
        return [file.fileno() for file in self._files()]

    def _files(self) -> list[Rtnetlink | PacketSocket]:
        return [self._monitor, self._arp, *([self._nd] if self._nd else [])]

    # Inputs from the switch

    def changes(self, known: Mapping[tuple[int, str], str]) -> Iterator[Change]:
        """Yield changes of the tables. `known` is the port by VLAN and MAC, as far as the caller has followed them: if
        messages about them were dropped, differences are read from the tables."""
        forwarding = False
        for kind, body in self._monitor.news():
            forwarding |= kind in _FORWARDING and self.node.bgp is not None
            yield from self._change(kind, body)
        if lost := self._monitor.lost():
            yield Lost("messages about its tables", lost)
            yield from self._differences(known)
            forwarding = self.node.bgp is not None
        if forwarding:
            yield from self._route_changes()

    def _differences(self, known: Mapping[tuple[int, str], str]) -> Iterator[Change]:
        yield from self._svi_differences()
        self._static.clear()
        entries = [change for body in self._netlink.fdb() for change in self._change(rt.RTM_NEWNEIGH, body)]
        there = {(entry.vlan, entry.mac): entry for entry in entries if isinstance(entry, FdbChange)}
        for vlan, mac in sorted(known.keys() - there.keys()):
            yield FdbChange(vlan, mac, None)
        yield from there.values()
        self.by_hand.clear()
        found = set()
        for family in rt.FAMILIES:
            for entry in self._netlink.neighbours(family):
                if entry.index in self._svis:
                    svi = self._svis[entry.index]
                    if entry.state == "INCOMPLETE":
                        yield Miss(svi, entry.ip)
                    self._entry(rt.RTM_NEWNEIGH, svi, entry)
                    found.add((svi, entry.ip))
        for svi, ip in [key for key in self._set if key not in found]:
            yield Flushed(svi, ip)

    def _svi_differences(self) -> Iterator[Change]:
        there = self._netlink.dump_links()
        for body in there:
            yield from self._link(links.RTM_NEWLINK, body)
        gone = self._svis.keys() - links.link_states(there).keys()
        for index in sorted(gone):
            yield from self._svi_gone(index)
        addresses = list(map(rt.address_of, self._netlink.dump_addresses()))
        for index in self._svis:
            for address in [one for one in self._addresses.get(index, ()) if (index, one) not in addresses]:
                yield from self._address(index, address, has=False)
        for index, address in addresses:
            yield from self._address(index, address, has=True)

    def packets(self) -> Iterator[tuple[int, Packet]]:
        """Yield (VLAN, packet) of ARP and ND packets that reached an SVI, after the FDB change that each makes."""
        for name, to, frame in self._arp.frames():
            if name in self._vlans and to in (ps.HOST, ps.BROADCAST) and (arp := frames.parse(frame)):
                yield self._vlans[name], arp
        if self._nd:
            for name, to, frame in self._nd.frames():
                if name in self._vlans and to in (ps.HOST, ps.MULTICAST) and (found := nd.parse(frame)):
                    destination, packet = found
                    if self._accepts(self._vlans[name], destination):
                        yield self._vlans[name], packet

    def losses(self) -> Iterator[Lost]:
        """Yield the number of packets dropped since the last call: their profile may have admitted them."""
        for what, packets in ("ARP packets", self._arp), ("ND packets", self._nd):
            if packets and (lost := packets.lost()):
                yield Lost(what, lost)

    def _accepts(self, vlan: int, destination: IPv6Address) -> bool:
        """Return whether an SVI accepts packets to an address. A proxy is in the groups of all addresses."""
        asked_for_others = vlan in self._proxies and destination in nd.SOLICITED_NODES
        return vlan in self._groups and (asked_for_others or destination in self._groups[vlan])

    def _change(self, kind: int, body: bytes) -> Iterator[Miss | FdbChange | CarrierLost | SviChange | Flushed]:
        match kind:
            case rt.RTM_GETNEIGH:
                index, ip = rt.miss(body)
                if index in self._svis:
                    yield Miss(self._svis[index], ip)
            case rt.RTM_NEWADDR | rt.RTM_DELADDR:
                yield from self._address(*rt.address_of(body), has=kind == rt.RTM_NEWADDR)
            case rt.RTM_NEWNEIGH | rt.RTM_DELNEIGH:
                if change := self._neighbour(kind, body):
                    yield change
            case links.RTM_NEWLINK | links.RTM_DELLINK:
                yield from self._link(kind, body)

    def _address(self, index: int, address: IPInterface, *, has: bool) -> Iterator[SviChange]:
        if index not in self._svis or (address.version == 6 and address.is_link_local):
            return
        known = self._addresses.setdefault(index, [])
        if has != (address in known):
            (known.append if has else known.remove)(address)
            yield self._svi(index)

    def _svi(self, index: int) -> SviChange:
        vlan = self._svis[index]
        return SviChange(vlan, self._macs[vlan][1], tuple(self._addresses.get(index, ())))

    def _neighbour(self, kind: int, body: bytes) -> FdbChange | Flushed | None:
        if found := rt.neighbour_of(body):
            vlan = self._svis.get(found.index)
            return None if vlan is None else self._entry(kind, vlan, found)
        entry = rt.fdb_entry(body)
        if entry is None or entry.bridge != self._bridge or entry.state & rt.NUD_PERMANENT:
            return None
        if kind == rt.RTM_NEWNEIGH and entry.state & rt.NUD_NOARP:
            self._static.add((entry.vlan, entry.mac))
        else:
            self._static.discard((entry.vlan, entry.mac))
        if kind == rt.RTM_NEWNEIGH:
            return FdbChange(entry.vlan, entry.mac, self._port_name(entry.index))
        # The bridge reports not why it forgot a MAC, but how long the MAC was idle, in whole ticks.
        aged = entry.idle + 2 >= self._mac_age * USER_HZ
        return FdbChange(entry.vlan, entry.mac, None, "aged" if aged else "flushed")

    def _link(self, kind: int, body: bytes) -> Iterator[CarrierLost | SviChange]:
        found = link_state(body)
        if found is None:
            return
        index, link = found
        if kind == links.RTM_DELLINK or link.master != self._bridge:
            self._ports.pop(index, None)
        else:
            self._ports[index] = link.name
        if kind == links.RTM_DELLINK:
            yield from self._svi_gone(index)
            return
        if index not in self._svis:  # made by a command, perhaps
            vlan = links.vlan_on(body, self._bridge)
            if vlan is None:
                return
            self._svis[index] = vlan
            self._vlans[link.name] = vlan
            with contextlib.suppress(OSError):  # it is gone already
                self._netlink.set_solicitations(index, SOLICIT["mcast_solicit"], SOLICIT["app_solicit"], DAY_MS)
        yield from self._svi_link(index, link)

    def _svi_gone(self, index: int) -> Iterator[SviChange]:
        vlan = self._svis.pop(index, None)
        self._addresses.pop(index, None)
        if vlan is not None:
            yield SviChange(vlan, self._macs[vlan][1], ())

    def _entry(self, kind: int, vlan: int, found: Neighbour) -> Flushed | None:
        """Take in a neighbour entry of an SVI."""
        key = vlan, found.ip
        has = kind == rt.RTM_NEWNEIGH and found.state == "PERMANENT"
        if has and found.mac and self._set.get(key) != found.mac:
            self.by_hand[key] = found.mac
        else:
            self.by_hand.pop(key, None)
        flushed = kind == rt.RTM_DELNEIGH and found.state != "FAILED"
        return Flushed(vlan, found.ip) if flushed else None

    def _svi_link(self, index: int, link: LinkState) -> Iterator[CarrierLost | SviChange]:
        vlan = self._svis[index]
        before = self._macs.get(vlan)
        self._macs[vlan] = link.name, link.mac
        if before and before != (link.name, link.mac):
            self._vlans = {name: of for name, of in self._vlans.items() if of != vlan} | {link.name: vlan}
            yield self._svi(index)
        if link.carrier != (vlan in self._carriers):
            self._carriers ^= {vlan}
            if not link.carrier:
                yield CarrierLost(vlan)

    def _port_name(self, index: int) -> str:
        """Return a port's name; its number if it is gone before its name was known."""
        return self._ports.get(index, f"port {index}")

    def _route_changes(self) -> Iterator[RouteChange]:
        """Yield differences from BGP's last routes. The kernel removes next hops of a link that goes down from all
        routes, and does not report it."""
        before, self._routes = self._routes, {}
        for to, indices in self._netlink.routes(rt.BGP):
            self._routes[to] = tuple(self._routed[index] for index in indices if index in self._routed)
        for to in [*self._routes, *(before.keys() - self._routes.keys())]:
            if before.get(to, ()) != (ports := self._routes.get(to, ())):
                yield RouteChange(to, ports)

    # Actions of the control plane

    def send(self, vlan: int, dst: str, packet: Packet) -> None:
        name, mac = self._macs[vlan]
        with contextlib.suppress(OSError):  # it is down, or gone
            self._arp.send(name, pack(dst, mac, packet))

    def address_of(self, index: int, version: int) -> IPAddress | None:
        """Return an address of an interface, its link-local one for IPv6."""
        found = [one.ip for at, one in map(rt.address_of, self._netlink.dump_addresses()) if at == index]
        return next((ip for ip in found if ip.version == version and (version == 4 or ip.is_link_local)), None)

    def set_neighbour(self, vlan: int, ip: IPAddress, mac: str) -> None:
        if (index := self._index(vlan)) is None:
            return
        with contextlib.suppress(OSError):  # it is down, or gone: nothing is sent there
            self._set[vlan, ip] = mac
            self._netlink.set_neighbour(index, ip, mac)
            if self._announced(ip):
                self._netlink.set_route(ip_network(ip), HOST_ROUTES_TABLE, index=index)

    def delete_neighbour(self, vlan: int, ip: IPAddress) -> None:
        self._set.pop((vlan, ip), None)
        if (index := self._index(vlan)) is None:
            return
        with contextlib.suppress(OSError):  # it has gone with the SVI
            self._netlink.delete_neighbour(index, ip)
            if self._announced(ip):
                self._netlink.delete_route(ip_network(ip), HOST_ROUTES_TABLE, index=index)

    def is_static(self, vlan: int, mac: str) -> bool:
        """Return whether the bridge's entry for a MAC is an administrator's."""
        return (vlan, mac) in self._static

    def delete_fdb(self, vlan: int, mac: str, port: str) -> None:
        """Delete the bridge's learned entry for a MAC; a static entry stays."""
        index = self._port(port)
        if index is not None and (vlan, mac) not in self._static:
            self._netlink.delete_fdb(index, vlan, mac)

    def set_port(self, port: str, up: bool) -> None:
        """Set a port up or down. The bridge forgets the MACs of a port that goes down."""
        if (index := self._port(port)) is not None:
            self._netlink.set_link(index, up=up)

    def block_lossless(self, ip: IPAddress, blocked: bool) -> None:
        """Add or delete the blackhole for packets to `ip` that the DSCP rules send to its table."""
        change = self._netlink.set_route if blocked else self._netlink.delete_route
        change(ip_network(ip), LOSSLESS_TABLE, rt.BLACKHOLE)

    def configure(self, profile: Profile) -> None:
        """Set the profile's values that the kernel applies; may be repeated with another profile."""
        self._mac_age = profile.mac_age
        self._netlink.set_fdb(self._bridge, profile.mac_age, profile.mac_cap)
        for index in self._ports:
            self._netlink.set_flooding(index, profile.unknown_unicast == "flood")
        for family in rt.FAMILIES.values() if self._groups else [socket.AF_INET]:
            self._netlink.delete_rules(family, LOSSLESS_TABLE)
            if profile.lossless_unknown_unicast == "drop":
                for dscp in profile.lossless_dscp:
                    self._netlink.add_dscp_rule(family, dscp, LOSSLESS_TABLE)

    def _announced(self, ip: IPAddress) -> bool:
        return self.node.host_routes and not ip.is_link_local

    def _index(self, vlan: int) -> int | None:
        """Return the index of a VLAN's SVI; None if it is gone."""
        return next((index for index, of in self._svis.items() if of == vlan), None)

    def _port(self, name: str) -> int | None:
        """Return the index of a port; None if it is none any more."""
        return next((index for index, port in self._ports.items() if port == name), None)


def _groups(svi: Svi) -> frozenset[IPv6Address]:
    """Return the SVI's IPv6 addresses and a router's multicast groups for them (RFC 4291 section 2.8)."""
    assert svi.address6 is not None
    own = svi.address6.ip, link_local(svi.mac)
    return frozenset((*own, *map(nd.solicited_node, own), nd.ALL_NODES, nd.ALL_ROUTERS))
