"""
The kernel's half of a switch: messages from its bridge, SVIs and routes, and changes to them.

The kernel forwards. It does no ARP and, on an SVI with an IPv6 address, no neighbour discovery. For a packet without a
neighbour entry it sends RTM_GETNEIGH once and queues the packet until the control plane decides. `build` sets this up.
"""

import contextlib
import socket
from collections.abc import Iterator, Mapping
from ipaddress import IPv6Address, ip_network

from testbed.kernel import ipv6, links
from testbed.kernel import packet_socket as ps
from testbed.kernel import rtnetlink as rt
from testbed.kernel.bfd.offload import Offload
from testbed.kernel.links import USER_HZ, LinkState, link_state
from testbed.kernel.netlink_monitor import NetlinkMonitor
from testbed.kernel.packet_socket import PacketSocket
from testbed.kernel.rtnetlink import FdbEntry, Neighbour, Rtnetlink
from testbed.switch import frames, nd
from testbed.switch.changes import (
    CarrierLost,
    Change,
    FabricEntry,
    FdbChange,
    Flushed,
    Lost,
    Miss,
    PortDown,
    RouteChange,
    RouterChange,
    SegmentsChange,
    SviChange,
)
from testbed.switch.frr import HOST_ROUTES_TABLE
from testbed.switch.packets import Packet, pack
from testbed.switch.profile import Profile
from testbed.switch.tunnels import Tunnels
from testbed.switch.virtual_routers import VirtualRouters
from testbed.topology.addressing import link_local
from testbed.topology.plan import Interface, IPAddress, IPInterface, IPNetwork, Node, Svi

DAY_MS = 86_400_000
SOLICIT = {"mcast_solicit": 0, "app_solicit": 1, "retrans_time_ms": DAY_MS}
"""Values of an SVI's neighbour table, by which the kernel leaves all to the control plane (`build`)."""
ALWAYS_UP = "dummy"
"""A port in no VLAN that keeps the bridge up (`Profile.autostate`), as on SONiC (sonic-swss, cfgmgr/vlanmgr.cpp)."""
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


class DataPlane:
    """The sockets through which a control plane works on one switch; they stay in the switch's namespace."""

    def __init__(self, node: Node, bridge: int, bfd: Offload | None = None) -> None:
        self.node = node
        self.bfd = bfd
        """What the ports do for BFD, on a switch with FRR."""
        self._bridge = bridge
        self._ports: dict[int, str] = {}
        """Ports of the bridge: those of the plan, and others that have come to be known."""
        self._linked: set[int] = set()
        """Ports that have a link."""
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
        self._tunnels = Tunnels()
        self._fabric: set[tuple[int, IPAddress]] = set()
        """VLAN and address of EVPN's entries."""
        self._static: set[tuple[int, str]] = set()
        """VLAN and MAC of an administrator's static FDB entries."""
        self._mac_age = 0.0
        self._autostate = ""
        self._netlink = Rtnetlink()
        self._monitor = Rtnetlink()
        groups = (rt.LINK, rt.NEIGH, rt.IPV4_IFADDR, rt.IPV6_IFADDR, *(_FORWARDING_GROUPS if node.bgp else ()))
        self._monitor.listen(groups, buffer=_BUFFER)
        self._zebra = NetlinkMonitor(self._netlink, _BUFFER) if node.multihoming else None
        """What zebra asks of the kernel, which refuses some of it."""
        self._synced: set[tuple[int, IPAddress]] = set()
        """Index and address of the entries that were made in its place."""
        self._segments = {bond.name for bond in node.bonds if bond.bond and bond.bond.es_id}
        self._groups = {svi.vlan: _groups(svi) for svi in node.svis if svi.address6 is not None}
        """Destinations of IPv6 packets that an SVI accepts, by VLAN."""
        self._virtual = VirtualRouters(self._netlink, bridge)
        self._listening = {svi.vlan for svi in node.svis if svi.proxy_arp or svi.vni}
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

    def add_network(self, index: int, svi: Svi) -> None:
        """Take in the port of the VXLAN network of a VLAN."""
        self._ports[index] = self._tunnels.add(index, svi)

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
        return [self._monitor, self._arp, *(file for file in (self._nd, self._zebra) if file)]

    # Inputs from the switch

    def changes(self, known: Mapping[tuple[int, str], str]) -> Iterator[Change]:
        """Yield changes of the tables. `known` is the port by VLAN and MAC, as far as the caller has followed them: if
        messages about them were dropped, differences are read from the tables."""
        self._complete()
        forwarding = segments = hops = False
        for kind, body in self._monitor.news():
            forwarding |= kind in _FORWARDING and self.node.bgp is not None
            segments |= bool(self._segments) and self._concerns_segments(kind, body)
            hops |= self._zebra is not None and kind in (rt.RTM_NEWNEXTHOP, rt.RTM_DELNEXTHOP)
            yield from self._change(kind, body)
        if segments:
            yield SegmentsChange()
        if hops:
            yield from self._tunnels.regrouped(self._netlink)
        yield from self._tunnels.rest()
        if lost := self._monitor.lost():
            yield Lost("messages about its tables", lost)
            yield from self._differences(known)
            forwarding = self.node.bgp is not None
        if forwarding:
            yield from self._route_changes()

    def _complete(self) -> None:
        """Do what zebra has asked of the kernel in vain: the entry of a host that another switch of a segment has heard
        (frr #15253), and that of a MAC behind several switches ("A nexthop fdb cannot be dynamic")."""
        for kind, body in self._zebra.requests() if self._zebra else ():
            if kind not in (rt.RTM_NEWNEIGH, rt.RTM_DELNEIGH):
                continue
            with contextlib.suppress(OSError):  # the interface is gone, or the group
                if found := rt.neighbour_of(body):
                    self._synchronise(kind, found)
                elif kind == rt.RTM_NEWNEIGH and (entry := rt.fdb_entry(body)) and entry.group:
                    self._netlink.set_far_ends(entry.index, entry.mac, entry.group)

    def _synchronise(self, kind: int, found: Neighbour) -> None:
        key = found.index, found.ip
        if (self._svis.get(found.index), found.ip) in self._set:
            return  # this switch has heard it, too
        if kind == rt.RTM_NEWNEIGH and found.sync and found.mac:
            self._synced.add(key)
            self._netlink.set_external_neighbour(*key, found.mac)
        elif key in self._synced:
            self._synced.discard(key)
            if kind == rt.RTM_DELNEIGH:
                self._netlink.delete_neighbour(*key)

    def _concerns_segments(self, kind: int, body: bytes) -> bool:
        if kind in (rt.RTM_NEWNEXTHOP, rt.RTM_DELNEXTHOP):
            return True
        found = link_state(body) if kind in (links.RTM_NEWLINK, links.RTM_DELLINK) else None
        return found is not None and found[1].name in self._segments

    def _differences(self, known: Mapping[tuple[int, str], str]) -> Iterator[Change]:
        yield from self._svi_differences()
        self._static.clear()
        entries = [change for body in self._netlink.fdb() for change in self._change(rt.RTM_NEWNEIGH, body)]
        there = {(entry.vlan, entry.mac): entry for entry in entries if isinstance(entry, FdbChange)}
        self._tunnels.rest()
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
                    if isinstance(change := self._entry(rt.RTM_NEWNEIGH, svi, entry), FabricEntry):
                        yield change
                    found.add((svi, entry.ip))
        for svi, ip in [key for key in self._set if key not in found]:
            yield Flushed(svi, ip)
        for svi, ip in [key for key in self._fabric if key not in found]:
            self._fabric.remove((svi, ip))
            yield FabricEntry(svi, ip, None)

    def _svi_differences(self) -> Iterator[Change]:
        there = self._netlink.dump_links()
        for body in there:
            yield from self._link(links.RTM_NEWLINK, body)
        present = links.link_states(there).keys()
        for index in sorted((self._svis.keys() | self._linked) - present):
            if index in self._linked:
                self._linked.discard(index)
                yield PortDown(self._ports.pop(index))
            yield from self._svi_gone(index)
        for index in sorted(self._virtual.indices - present):
            yield from self._virtual.gone(index)
        addresses = list(map(rt.address_of, self._netlink.dump_addresses()))
        for index in self._svis:
            for address in [one for one in self._addresses.get(index, ()) if (index, one) not in addresses]:
                yield from self._address(index, address, has=False)
        for index, address in addresses:
            yield from self._address(index, address, has=True)

    def packets(self) -> Iterator[tuple[int, Packet]]:
        """Yield (VLAN, packet) of ARP and ND packets that reached an SVI, after the FDB change that each makes."""
        for name, to, frame in self._arp.frames():
            vlan = self._received_in(name, to, ps.BROADCAST)
            if vlan is not None and (arp := frames.parse(frame)):
                yield vlan, arp
        if self._nd:
            for name, to, frame in self._nd.frames():
                vlan = self._received_in(name, to, ps.MULTICAST)
                if vlan is not None and (found := nd.parse(frame)):
                    destination, packet = found
                    if self._accepts(vlan, destination):
                        yield vlan, packet

    def _received_in(self, name: str, to: int, to_all: int) -> int | None:
        """Return the VLAN in which a frame reached an SVI, or the MAC of a virtual router; None for another frame. What
        is sent to all reaches the SVI and each device on it."""
        if name in self._vlans:
            return self._vlans[name] if to in (ps.HOST, to_all) else None
        return self._virtual.vlan_of(name) if to == ps.HOST else None

    def losses(self) -> Iterator[Lost]:
        """Yield the number of packets dropped since the last call: their profile may have admitted them."""
        sources = ("ARP packets", self._arp), ("ND packets", self._nd), ("requests of zebra to the kernel", self._zebra)
        for what, packets in sources:
            if packets and (lost := packets.lost()):
                yield Lost(what, lost)

    def _accepts(self, vlan: int, destination: IPv6Address) -> bool:
        """Return whether an SVI accepts packets to an address. A proxy, and an SVI whose neighbours other switches have
        to know, is in the groups of all addresses."""
        asked_for_others = vlan in self._listening and destination in nd.SOLICITED_NODES
        for_virtual = self._virtual.accepts(vlan, destination)
        return vlan in self._groups and (asked_for_others or for_virtual or destination in self._groups[vlan])

    def _change(self, kind: int, body: bytes) -> Iterator[Change]:
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

    def _address(self, index: int, address: IPInterface, *, has: bool) -> Iterator[SviChange | RouterChange]:
        yield from self._virtual.address(index, address, has=has)
        if index not in self._svis or (address.version == 6 and address.is_link_local):
            return
        known = self._addresses.setdefault(index, [])
        if has != (address in known):
            (known.append if has else known.remove)(address)
            yield self._svi(index)

    def _svi(self, index: int) -> SviChange:
        vlan = self._svis[index]
        return SviChange(vlan, self._macs[vlan][1], tuple(self._addresses.get(index, ())))

    def _neighbour(self, kind: int, body: bytes) -> FdbChange | FabricEntry | Flushed | None:
        if found := rt.neighbour_of(body):
            vlan = self._svis.get(found.index)
            return None if vlan is None else self._entry(kind, vlan, found)
        entry = rt.fdb_entry(body)
        return None if entry is None else self._fdb_change(kind, entry)

    def _fdb_change(self, kind: int, entry: FdbEntry) -> FdbChange | None:
        if entry.bridge != self._bridge:
            return self._tunnels.far_end(kind, entry, self._netlink)
        if entry.state & rt.NUD_PERMANENT:
            return None
        if kind == rt.RTM_NEWNEIGH and entry.state & rt.NUD_NOARP:
            self._static.add((entry.vlan, entry.mac))
        else:
            self._static.discard((entry.vlan, entry.mac))
        key = entry.vlan, entry.mac
        if self._tunnels.bridged(kind, entry):
            return FdbChange(*key, None, "evpn") if kind == rt.RTM_DELNEIGH else None
        if kind == rt.RTM_NEWNEIGH:
            return FdbChange(*key, self._port_name(entry.index))
        # The bridge reports not why it forgot a MAC, but how long the MAC was idle, in whole ticks.
        aged = entry.idle + 2 >= self._mac_age * USER_HZ
        return FdbChange(*key, None, "aged" if aged else "flushed")

    def _link(self, kind: int, body: bytes) -> Iterator[PortDown | CarrierLost | SviChange | RouterChange]:
        found = link_state(body)
        if found is None:
            return
        index, link = found
        is_port = kind == links.RTM_NEWLINK and link.master == self._bridge
        if is_port:
            self._ports[index] = link.name
        else:
            self._ports.pop(index, None)
        if (is_port and link.carrier) != (index in self._linked):
            self._linked ^= {index}
            if index not in self._linked:
                yield PortDown(link.name)
        if kind == links.RTM_DELLINK:
            yield from self._svi_gone(index)
            yield from self._virtual.gone(index)
            return
        yield from self._virtual.follow(index, link, body, self._svis)
        if index not in self._svis:  # made by a command, perhaps
            vlan = links.vlan_on(body, self._bridge)
            if vlan is None:
                return
            self._svis[index] = vlan
            self._vlans[link.name] = vlan
            with contextlib.suppress(OSError):  # it is gone already
                self._netlink.set_solicitations(index, SOLICIT["mcast_solicit"], SOLICIT["app_solicit"], DAY_MS)
                self._netlink.bind_vlan(index, self._autostate == "vlan")
        yield from self._svi_link(index, link)

    def _svi_gone(self, index: int) -> Iterator[SviChange]:
        vlan = self._svis.pop(index, None)
        self._addresses.pop(index, None)
        if vlan is not None:
            yield SviChange(vlan, self._macs[vlan][1], ())

    def _entry(self, kind: int, vlan: int, found: Neighbour) -> FabricEntry | Flushed | None:
        """Take in a neighbour entry of an SVI."""
        key = vlan, found.ip
        if found.protocol == rt.ZEBRA:
            return self._entry_of_fabric(kind, key, found.mac)
        self._fabric.discard(key)
        has = kind == rt.RTM_NEWNEIGH and found.state == "PERMANENT"
        if has and found.mac and self._set.get(key) != found.mac:
            self.by_hand[key] = found.mac
        else:
            self.by_hand.pop(key, None)
        flushed = kind == rt.RTM_DELNEIGH and found.state != "FAILED"
        return Flushed(vlan, found.ip) if flushed else None

    def _entry_of_fabric(self, kind: int, key: tuple[int, IPAddress], mac: str | None) -> FabricEntry | None:
        if kind == rt.RTM_NEWNEIGH and mac:
            self._fabric.add(key)
            self._set.pop(key, None)
            self.by_hand.pop(key, None)
            return FabricEntry(*key, mac)
        if key not in self._fabric:
            return None
        self._fabric.discard(key)
        return FabricEntry(*key, None)

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
            self._netlink.set_neighbour(index, ip, mac, rt.STATIC if self._tunnels else 0)
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

    def set_backup(self, port: str, group: int) -> None:
        """Reach the host behind a port channel by the switches of a next-hop group while its own links are down. The
        kernel can do so for a port with one VXLAN network."""
        plan = self.node.interface(port)
        tunnels = self._tunnels.of_vlans({vlan for vlan in (plan.vlan, *plan.trunk) if vlan})
        index = self._port(port)
        if index is not None and len(tunnels) == 1:
            with contextlib.suppress(OSError):  # the group is gone already: the next change says so
                self._netlink.set_backup(index, tunnels[0] if group else 0, group)

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
        self._set_autostate(profile.autostate)
        for family in rt.FAMILIES.values() if self._groups else [socket.AF_INET]:
            self._netlink.delete_rules(family, LOSSLESS_TABLE)
            if profile.lossless_unknown_unicast == "drop":
                for dscp in profile.lossless_dscp:
                    self._netlink.add_dscp_rule(family, dscp, LOSSLESS_TABLE)

    def _set_autostate(self, autostate: str) -> None:
        before, self._autostate = self._autostate, autostate
        if autostate == before:
            return
        for index in self._svis:
            with contextlib.suppress(OSError):  # it is gone, and the message is still to come
                self._netlink.bind_vlan(index, autostate == "vlan")
        if autostate == "none":
            dummy = self._netlink.add_dummy(ALWAYS_UP, self._netlink.mac(self._bridge))
            self._netlink.enslave(dummy, self._bridge)
        elif before == "none" and (there := self._port(ALWAYS_UP)) is not None:
            self._netlink.delete_link(there)

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
