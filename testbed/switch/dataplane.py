"""
The kernel's half of a switch: messages from its bridge, SVIs and routes, and changes to them.

The kernel forwards. It does no ARP and, on an SVI with an IPv6 address, no neighbour discovery. For a packet without a
neighbour entry it sends RTM_GETNEIGH once and queues the packet until the control plane decides. `build` sets this up.
"""

import contextlib
import socket
from collections.abc import Iterator, Mapping
from ipaddress import ip_network

from testbed.kernel import ipv6, link_readings
from testbed.kernel import rtnetlink as rt
from testbed.kernel.bfd.offload import Offload
from testbed.kernel.link_readings import link_state
from testbed.kernel.links import USER_HZ
from testbed.kernel.packet_socket import PacketSocket
from testbed.kernel.rtnetlink import FdbEntry, Rtnetlink
from testbed.switch import vxlan
from testbed.switch.changes import (
    CarrierLost,
    Change,
    FabricEntry,
    FdbChange,
    Flushed,
    Lost,
    Miss,
    PortDown,
    PortUp,
    RouteChange,
    RouterChange,
    SegmentsChange,
    SviChange,
)
from testbed.switch.cpu_port import CpuPort
from testbed.switch.kernel_neighbours import KernelNeighbours
from testbed.switch.mlag.pair_plane import PairPlane
from testbed.switch.multihoming import Multihoming
from testbed.switch.profile import Profile
from testbed.switch.svi_interfaces import SviInterfaces
from testbed.switch.tunnels import Tunnels
from testbed.switch.virtual_routers import VirtualRouters
from testbed.topology.plan import Interface, IPAddress, IPInterface, IPNetwork, Node, Svi

ALWAYS_UP = "dummy"
"""A port in no VLAN that keeps the bridge up (`Profile.autostate`), as on SONiC (sonic-swss, cfgmgr/vlanmgr.cpp)."""
LOSSLESS_TABLE = 100
"""Routing table, and the priority of its rules, in which next hops are blackholes for lossless packets."""
_NEXT_HOPS = rt.RTM_NEWNEXTHOP, rt.RTM_DELNEXTHOP
_FORWARDING = (link_readings.RTM_NEWLINK, link_readings.RTM_DELLINK, rt.RTM_NEWROUTE, rt.RTM_DELROUTE, *_NEXT_HOPS)
"""Changes of forwarding, and the groups that report them beside links."""
_FORWARDING_GROUPS = (rt.IPV4_ROUTE, rt.IPV6_ROUTE, rt.NEXTHOP)
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
        self._routed_mtus: dict[int, int] = {}
        self._routes: dict[IPNetwork, tuple[str, ...]] = {}
        """BGP's routes, as the kernel has them."""
        self._tunnels = Tunnels()
        self._static: set[tuple[int, str]] = set()
        """VLAN and MAC of static FDB entries."""
        self._mac_age = 0.0
        self._autostate = ""
        self._netlink = Rtnetlink()
        self._monitor = Rtnetlink()
        groups = (rt.LINK, rt.NEIGH, rt.IPV4_IFADDR, rt.IPV6_IFADDR, *(_FORWARDING_GROUPS if node.bgp else ()))
        self._monitor.listen(groups, buffer=_BUFFER)
        self._svis = SviInterfaces(node.svis, self._netlink, bridge)
        self._virtual = VirtualRouters(self._netlink, bridge)
        self.cpu_port = CpuPort(node, self._svis, self._virtual, _BUFFER)
        self.neighbours = KernelNeighbours(node, self._svis, self._netlink)
        several = (node, self._netlink, self._svis, self.neighbours, _BUFFER)
        self._multihoming = Multihoming(*several) if node.multihoming else None
        self.pair = PairPlane(node, self._netlink, _BUFFER) if node.mlag else None
        """What the switch has of a pair that is one to hosts (MLAG)."""

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
        self._fit_networks()

    def _fit_networks(self) -> None:
        if self.node.vtep:
            vxlan.fit(self._netlink, self.node, self._routed)

    def add_network(self, index: int, svi: Svi) -> None:
        """Take in the port of the VXLAN network of a VLAN."""
        self._ports[index] = self._tunnels.add(index, svi)

    def add_svi(self, vlan: int, index: int) -> None:
        self._svis.add(vlan, index)

    def close(self) -> None:
        for file in self._files():
            file.close()
        self._netlink.close()
        if self.bfd:
            self.bfd.close()
        if self.pair:
            self.pair.close()

    def filenos(self) -> list[int]:
        """Return descriptors that are readable when there may be something for `changes`, for `packets`."""
        return [file.fileno() for file in self._files()]

    def _files(self) -> list[Rtnetlink | PacketSocket]:
        several = [self._multihoming.requests] if self._multihoming else []
        pair = [self.pair.socket] if self.pair else []
        return [self._monitor, *self.cpu_port.files(), *several, *pair]

    # Inputs from the switch

    def changes(self, known: Mapping[tuple[int, str], str]) -> Iterator[Change]:
        """Yield changes of the tables. `known` is the port by VLAN and MAC, as far as the caller has followed them: if
        messages about them were dropped, differences are read from the tables."""
        several = self._multihoming
        if several:
            several.complete()
        forwarding = segments = hops = False
        for kind, body in self._monitor.news():
            forwarding |= kind in _FORWARDING and self.node.bgp is not None
            segments |= several is not None and several.concerns_segments(kind, body)
            hops |= kind in _NEXT_HOPS
            yield from self._change(kind, body)
        if lost := self._monitor.lost():
            yield Lost("messages about its tables", lost)
            yield from self._differences(known)
            forwarding = self.node.bgp is not None
            segments = hops = several is not None
        if segments:
            yield SegmentsChange()
        if hops:
            yield from self._tunnels.regrouped(self._netlink)
        yield from self._tunnels.rest()
        if forwarding:
            yield from self._route_changes()

    def losses(self) -> Iterator[Lost]:
        """Yield the number of packets dropped since the last call."""
        yield from self.cpu_port.losses()
        if self._multihoming and (lost := self._multihoming.requests.lost()):
            yield Lost("requests of zebra to the kernel", lost)

    def _differences(self, known: Mapping[tuple[int, str], str]) -> Iterator[Change]:
        yield from self._svi_differences()
        self._static.clear()
        entries = [change for body in self._netlink.fdb() for change in self._change(rt.RTM_NEWNEIGH, body)]
        there = {(entry.vlan, entry.mac): entry for entry in entries if isinstance(entry, FdbChange)}
        there |= {(entry.vlan, entry.mac): entry for entry in self._tunnels.rest()}
        for vlan, mac in sorted(known.keys() - there.keys()):
            yield FdbChange(vlan, mac, None)
        yield from there.values()
        self.neighbours.by_hand.clear()
        found = set()
        for family in rt.FAMILIES:
            for entry in self._netlink.neighbours(family):
                if entry.index in self._svis.vlans:
                    svi = self._svis.vlans[entry.index]
                    if entry.state == "INCOMPLETE":
                        yield Miss(svi, entry.ip)
                    if isinstance(change := self.neighbours.follow(rt.RTM_NEWNEIGH, svi, entry), FabricEntry):
                        yield change
                    found.add((svi, entry.ip))
        yield from self.neighbours.forget_all_but(found)

    def _svi_differences(self) -> Iterator[Change]:
        there = self._netlink.dump_links()
        for body in there:
            yield from self._link(link_readings.RTM_NEWLINK, body)
        present = link_readings.link_states(there).keys()
        for index in sorted((self._svis.vlans.keys() | self._linked) - present):
            if index in self._linked:
                self._linked.discard(index)
                yield PortDown(self._ports.pop(index))
            yield from self._svis.gone(index)
        for index in sorted(self._virtual.indices - present):
            yield from self._virtual.gone(index)
        addresses = list(map(rt.address_of, self._netlink.dump_addresses()))
        for index, address in self._svis.addresses():
            if (index, address) not in addresses:
                yield from self._address(index, address, has=False)
        for index, address in addresses:
            yield from self._address(index, address, has=True)

    def _change(self, kind: int, body: bytes) -> Iterator[Change]:
        match kind:
            case rt.RTM_GETNEIGH:
                index, ip = rt.miss(body)
                if index in self._svis.vlans:
                    yield Miss(self._svis.vlans[index], ip)
            case rt.RTM_NEWADDR | rt.RTM_DELADDR:
                yield from self._address(*rt.address_of(body), has=kind == rt.RTM_NEWADDR)
            case rt.RTM_NEWNEIGH | rt.RTM_DELNEIGH:
                if change := self._neighbour(kind, body):
                    yield change
            case link_readings.RTM_NEWLINK | link_readings.RTM_DELLINK:
                yield from self._link(kind, body)

    def _address(self, index: int, address: IPInterface, *, has: bool) -> Iterator[SviChange | RouterChange]:
        yield from self._virtual.address(index, address, has=has)
        yield from self._svis.address(index, address, has=has)

    def _neighbour(self, kind: int, body: bytes) -> FdbChange | FabricEntry | Flushed | None:
        if found := rt.neighbour_of(body):
            vlan = self._svis.vlans.get(found.index)
            return None if vlan is None else self.neighbours.follow(kind, vlan, found)
        entry = rt.fdb_entry(body)
        return None if entry is None else self._fdb_change(kind, entry)

    def _fdb_change(self, kind: int, entry: FdbEntry) -> FdbChange | None:
        if entry.bridge != self._bridge:
            return self._tunnels.far_end(kind, entry, self._netlink)
        if entry.state & rt.NUD_PERMANENT:
            return None
        synced = self.pair is not None and bool(entry.activity)
        if kind == rt.RTM_NEWNEIGH and entry.state & rt.NUD_NOARP and not synced:
            self._static.add((entry.vlan, entry.mac))
        else:
            self._static.discard((entry.vlan, entry.mac))
        key = entry.vlan, entry.mac
        if self._tunnels.bridged(kind, entry):
            return FdbChange(*key, None, "evpn") if kind == rt.RTM_DELNEIGH else None
        if kind == rt.RTM_NEWNEIGH:
            return FdbChange(*key, self._port_name(entry.index), synced=synced, comes=not entry.activity & rt.IDLE)
        if synced:
            return FdbChange(*key, None, "mlag", synced=True)
        # The bridge reports not why it forgot a MAC, but how long the MAC was idle, in whole ticks.
        aged = entry.idle + 2 >= self._mac_age * USER_HZ
        return FdbChange(*key, None, "aged" if aged else "flushed")

    def _link(self, kind: int, body: bytes) -> Iterator[PortDown | PortUp | CarrierLost | SviChange | RouterChange]:
        found = link_state(body)
        if found is None:
            return
        index, link = found
        is_port = kind == link_readings.RTM_NEWLINK and link.master == self._bridge
        if is_port:
            self._ports[index] = link.name
        else:
            self._ports.pop(index, None)
        if (is_port and link.carrier) != (index in self._linked):
            self._linked ^= {index}
            yield (PortUp if index in self._linked else PortDown)(link.name)
        if kind == link_readings.RTM_DELLINK:
            yield from self._svis.gone(index)
            yield from self._virtual.gone(index)
            return
        if index in self._routed and self._routed_mtus.get(index) != link.mtu:
            self._routed_mtus[index] = link.mtu
            self._fit_networks()
        yield from self._virtual.follow(index, link, body, self._svis.vlans)
        yield from self._svis.follow(index, link, body)

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

    def address_of(self, index: int, version: int) -> IPAddress | None:
        """Return an address of an interface, its link-local one for IPv6."""
        found = [one.ip for at, one in map(rt.address_of, self._netlink.dump_addresses()) if at == index]
        return next((ip for ip in found if ip.version == version and (version == 4 or ip.is_link_local)), None)

    def is_static(self, vlan: int, mac: str) -> bool:
        """Return whether the bridge's entry for a MAC is an administrator's."""
        static = (vlan, mac) in self._static and not self._has_peer(vlan, mac)
        return static or (vlan, mac) in self._tunnels.by_hand

    def is_synced(self, vlan: int, mac: str) -> bool:
        """Return whether another switch of an Ethernet segment has the MAC of a bridge's entry, too."""
        return (vlan, mac) in self._static and self._has_peer(vlan, mac)

    def delete_fdb(self, vlan: int, mac: str, port: str) -> None:
        """Delete the bridge's learned entry for a MAC; a static entry stays."""
        index = self._port(port)
        if index is not None and (vlan, mac) not in self._static:
            self._netlink.delete_fdb(index, vlan, mac)

    def place_mac(self, vlan: int, mac: str, port: str) -> None:
        """Put a MAC on a port that the other switch of a pair sees."""
        if (index := self._port(port)) is not None:
            with contextlib.suppress(OSError):  # the port has left the VLAN, or the bridge
                self._netlink.place_mac(index, vlan, mac)

    def learn_mac(self, vlan: int, mac: str, port: str) -> None:
        """Have an entry as if the bridge had learned a MAC on a port."""
        if (index := self._port(port)) is not None:
            with contextlib.suppress(OSError):  # as above, or the port is down
                self._netlink.learn_mac(index, vlan, mac)

    def remove_mac(self, vlan: int, mac: str, port: str) -> None:
        """Remove a MAC that was put on a port, if it is still there."""
        if (index := self._port(port)) is not None:
            self._netlink.delete_fdb(index, vlan, mac)

    def set_port(self, port: str, up: bool) -> None:
        """Set a port up or down. The bridge forgets the MACs of a port that goes down."""
        if (index := self._port(port)) is not None:
            self._netlink.set_link(index, up=up)

    def set_backup(self, port: str, group: int) -> None:
        """Reach the host behind a port channel by a next-hop group of switches while its own links are down."""
        if self._multihoming and (index := self._port(port)) is not None:
            self._multihoming.set_backup(index, port, group, self._tunnels)

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
        for family in rt.FAMILIES.values() if any(svi.address6 for svi in self.node.svis) else [socket.AF_INET]:
            self._netlink.delete_rules(family, LOSSLESS_TABLE)
            if profile.lossless_unknown_unicast == "drop":
                for dscp in profile.lossless_dscp:
                    self._netlink.add_dscp_rule(family, dscp, LOSSLESS_TABLE)

    def _set_autostate(self, autostate: str) -> None:
        before, self._autostate = self._autostate, autostate
        if autostate == before:
            return
        self._svis.bind(autostate == "vlan")
        if autostate == "none":
            dummy = self._netlink.add_dummy(ALWAYS_UP, self._netlink.mac(self._bridge))
            self._netlink.enslave(dummy, self._bridge)
        elif before == "none" and (there := self._port(ALWAYS_UP)) is not None:
            self._netlink.delete_link(there)

    def _has_peer(self, vlan: int, mac: str) -> bool:
        return self._multihoming is not None and self._multihoming.has_peer((vlan, mac))

    def _port(self, name: str) -> int | None:
        """Return the index of a port; None if it is none any more."""
        return next((index for index, port in self._ports.items() if port == name), None)
