"""
Interfaces: created, configured, read, and checked for a carrier.

Source: include/uapi/linux/if_link.h, if_bridge.h, veth.h, rtnetlink.h, gen_stats.h, pkt_sched.h.
"""

import os
import socket
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

from testbed.kernel import netlink
from testbed.kernel.netlink import Netlink, mac_bytes
from testbed.kernel.syscalls import closing_fd

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK, RTM_GETSTATS = 16, 17, 18, 19, 94
RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
IFLA_IFNAME, IFLA_LINKINFO = 3, 18
IFLA_INFO_KIND, IFLA_INFO_DATA = 1, 2
STATISTICS = (
    *("rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped"),
    *("multicast", "collisions", "rx_length_errors", "rx_over_errors", "rx_crc_errors", "rx_frame_errors"),
    *("rx_fifo_errors", "rx_missed_errors", "tx_aborted_errors", "tx_carrier_errors", "tx_fifo_errors"),
    *("tx_heartbeat_errors", "tx_window_errors", "rx_compressed", "tx_compressed"),
)
"""The fields of rtnl_link_stats64, in its order."""
BOND_OPTIONS = {
    "miimon": (3, netlink.u32),
    "updelay": (4, netlink.u32),
    "downdelay": (5, netlink.u32),
    "use_carrier": (6, netlink.u8),
    "arp_interval": (7, netlink.u32),
    "arp_validate": (9, netlink.u32),
    "arp_all_targets": (10, netlink.u32),
    "primary_reselect": (12, netlink.u8),
    "fail_over_mac": (13, netlink.u8),
    "xmit_hash_policy": (14, netlink.u8),
    "resend_igmp": (15, netlink.u32),
    "num_grat_arp": (16, netlink.u8),
    "all_slaves_active": (17, netlink.u8),
    "min_links": (18, netlink.u32),
    "lp_interval": (19, netlink.u32),
    "packets_per_slave": (20, netlink.u32),
    "lacp_rate": (21, netlink.u8),
    "ad_select": (22, netlink.u8),
    "ad_actor_sys_prio": (24, netlink.u16),
    "ad_user_port_key": (25, netlink.u16),
    "tlb_dynamic_lb": (27, netlink.u8),
    "broadcast_neighbor": (33, netlink.u8),
    "lacp_strict": (34, netlink.u8),
}
"""Numeric options of Documentation/networking/bonding.rst: attribute and type."""
USER_HZ = 100
"""Ticks per second of times that the kernel shows."""

_IFF_UP, _IFF_LOWER_UP = 0x1, 0x10000
IFLA_ADDRESS, _IFLA_MTU, _IFLA_LINK, _IFLA_MASTER, _IFLA_PROTINFO, _IFLA_OPERSTATE = 1, 4, 5, 10, 12, 16
_IFLA_STATS64, _IFLA_AF_SPEC, _IFLA_GROUP, _IFLA_NET_NS_FD, _IFLA_EXT_MASK = 23, 26, 27, 28, 29
_IFLA_IFALIAS, _IFLA_PROTO_DOWN, _IFLA_NEW_IFINDEX = 20, 39, 49
_IFLA_INFO_SLAVE_DATA, _IFLA_BRPORT_STATE, _IFLA_BRPORT_UNICAST_FLOOD = 5, 1, 9
_IFLA_BRPORT_LEARNING, _IFLA_BRPORT_NEIGH_SUPPRESS, _IFLA_VRF_TABLE = 8, 32, 1
_IFLA_BRPORT_BACKUP_PORT, _IFLA_BRPORT_BACKUP_NHID = 34, 44
_IFLA_VXLAN_ID, _IFLA_VXLAN_LOCAL, _IFLA_VXLAN_TOS, _IFLA_VXLAN_LEARNING, _IFLA_VXLAN_PORT = 1, 4, 6, 7, 15
_VXLAN_PORT, _INHERIT = 4789, 1
_IFLA_BR_AGEING_TIME, _IFLA_BR_STP_STATE, _IFLA_BR_VLAN_FILTERING, _IFLA_BR_MCAST_SNOOPING = 4, 5, 7, 23
_IFLA_BR_VLAN_DEFAULT_PVID, _IFLA_BR_FDB_MAX_LEARNED = 39, 49
_IFLA_BRIDGE_FLAGS, _IFLA_BRIDGE_VLAN_INFO, _BRIDGE_FLAGS_SELF, _PVID_UNTAGGED = 0, 2, 2, 0x6
_IFLA_VLAN_FLAGS, _VLAN_FLAG_BRIDGE_BINDING = 2, 0x10
_VETH_INFO_PEER, _IFLA_VLAN_ID, _IFLA_MACVLAN_MODE, _MACVLAN_BRIDGE, _IFLA_BOND_MODE = 1, 1, 1, 4, 1
_BOND_PRIMARY, _BOND_SYSTEM, _BOND_SLAVE_STATE, _BOND_SLAVE_MII, _BOND_SLAVE_ACTOR = 11, 26, 1, 2, 7
_IFLA_INFO_SLAVE_KIND = 4
_DISTRIBUTES = 0x30  # Collecting, Distributing (IEEE 802.1AX, section 6.4.2.3)
_SKIP_STATISTICS = netlink.u32(_IFLA_EXT_MASK, 1 << 3)  # RTEXT_FILTER_SKIP_STATS
_OPER_UP, _FORWARDING, _BLOCKING = b"\6", b"\3", b"\4"  # IF_OPER_UP, BR_STATE_FORWARDING, BR_STATE_BLOCKING
_IFINFOMSG = struct.Struct("=BxHiII")  # family, type, index, flags, change
_IF_STATS_MSG = struct.Struct("=BxxxII")  # family, index, mask
_STATS_LINK_64, _ONLY_LINK_64 = 1, 1
_COUNTERS = struct.Struct(f"={len(STATISTICS)}Q")
_TCMSG = struct.Struct("=B3xiIII")  # family, interface, handle, parent, info
_TCA_KIND, _TCA_OPTIONS, _TCA_STATS2, _STATS_BASIC, _STATS_QUEUE, _STATS_APP = 1, 2, 7, 1, 3, 4
_TCA_FQ_PLIMIT, _TCA_FQ_FLOW_PLIMIT, _TCA_FQ_HORIZON = 1, 2, 14
_TC_H_ROOT = 0xFFFFFFFF
_VLAN_FLAGS = struct.Struct("=II")  # flags, mask
_SENT = struct.Struct("=QI")  # bytes, packets
_QUEUE = struct.Struct("=3I")  # packets and bytes waiting, drops
_RED = struct.Struct("=12xI")  # marked packets, after the dropped ones


class End(NamedTuple):
    """One end of a veth pair at its creation."""

    name: str
    mac: str
    mtu: int


class LinkState(NamedTuple):
    """An interface as the kernel has it. `master` is the index of its bridge or bond, 0 if it has none."""

    name: str
    mac: str
    mtu: int
    up: bool
    """Set up, with or without a carrier."""
    carrier: bool
    master: int
    active: bool | None = None
    """Whether it carries traffic of its bond; None for one that is in no bond."""


class Macvlan(NamedTuple):
    """A macvlan device: the interface below it, and whether a protocol keeps it down (``protodown``)."""

    parent: int
    protocol_down: bool


class Qdisc(NamedTuple):
    """Counters of a queueing discipline in packets: sent, dropped, marked (by RED), and waiting now."""

    root: bool
    sent: int
    dropped: int
    marked: int
    waiting: int


class Links(Netlink):
    """An rtnetlink socket. Interfaces are given by their index."""

    def __init__(self) -> None:
        super().__init__(socket.NETLINK_ROUTE)

    # Create and delete

    def add_veth(self, index: int, near: End, far: End, namespace: Path, far_index: int = 0) -> None:
        """Create a veth pair: an end here with this index, and one in another network namespace, given by its file. By
        default the kernel chooses the index there."""
        with closing_fd(os.open(namespace, os.O_RDONLY)) as handle:
            there = header(far_index) + _fields(*far) + netlink.u32(_IFLA_NET_NS_FD, handle)
            here = header(index) + _fields(*near)
            self._add("veth", here, netlink.attribute(_VETH_INFO_PEER, there))

    def add_bridge(self, name: str, mac: str = "", *, vlan_aware: bool = False, stp: bool = False) -> int:
        """Create a bridge without multicast snooping, set up, and return its index. With VLANs, ports start in none.
        With `stp` it runs the kernel's spanning tree (802.1D) with the default timers."""
        data = [netlink.u8(_IFLA_BR_MCAST_SNOOPING, 0)]
        if stp:
            data.append(netlink.u32(_IFLA_BR_STP_STATE, 1))
        if vlan_aware:
            data += [netlink.u8(_IFLA_BR_VLAN_FILTERING, 1), netlink.u16(_IFLA_BR_VLAN_DEFAULT_PVID, 0)]
        self._add("bridge", header(0, flags=_IFF_UP, change=_IFF_UP) + _fields(name, mac), *data)
        return self.index(name)

    def add_svi(self, name: str, bridge: int, vlan: int, mtu: int) -> int:
        """Create a VLAN device on a bridge, and put the bridge itself into the VLAN. Return the device's index."""
        flags = netlink.u16(_IFLA_BRIDGE_FLAGS, _BRIDGE_FLAGS_SELF)
        given = netlink.nested(_IFLA_AF_SPEC, flags, _vlan(0, vlan))
        self.request(RTM_SETLINK, header(bridge, socket.AF_BRIDGE) + given)
        return self.add_vlan(name, bridge, vlan, mtu)

    def add_vlan(self, name: str, parent: int, vlan: int, mtu: int = 0) -> int:
        """Create a VLAN device on an interface and return its index. Without `mtu` it has the interface's."""
        on = netlink.u32(_IFLA_LINK, parent)
        self._add("vlan", header(0) + _fields(name, mtu=mtu) + on, netlink.u16(_IFLA_VLAN_ID, vlan))
        return self.index(name)

    def bind_vlan(self, index: int, bound: bool) -> None:
        """Have a VLAN device on a bridge follow the links of the ports in its VLAN, or of all ports."""
        flag = _VLAN_FLAG_BRIDGE_BINDING
        flags = netlink.attribute(_IFLA_VLAN_FLAGS, _VLAN_FLAGS.pack(bound * flag, flag))
        information = netlink.string(IFLA_INFO_KIND, "vlan") + netlink.nested(IFLA_INFO_DATA, flags)
        self.request(RTM_NEWLINK, header(index) + netlink.nested(IFLA_LINKINFO, information))

    def add_macvlan(self, name: str, parent: int, mac: str) -> None:
        """Create a macvlan device in bridge mode."""
        on = netlink.u32(_IFLA_LINK, parent)
        self._add("macvlan", header(0) + _fields(name, mac) + on, netlink.u32(_IFLA_MACVLAN_MODE, _MACVLAN_BRIDGE))

    def add_vrf(self, name: str, table: int) -> int:
        """Create a VRF with a routing table, set up, and return its index."""
        up = header(0, flags=_IFF_UP, change=_IFF_UP)
        self._add("vrf", up + _fields(name), netlink.u32(_IFLA_VRF_TABLE, table))
        return self.index(name)

    def add_vxlan(self, name: str, vni: int, local: IPv4Address, mac: str) -> int:
        """Create the end of a VXLAN network (RFC 7348) at a local address and return its index. It learns no MACs from
        packets, and gives the outer header the inner one's DSCP."""
        data = [
            netlink.u32(_IFLA_VXLAN_ID, vni),
            netlink.attribute(_IFLA_VXLAN_LOCAL, local.packed),
            netlink.u8(_IFLA_VXLAN_TOS, _INHERIT),
            netlink.u8(_IFLA_VXLAN_LEARNING, 0),
            netlink.attribute(_IFLA_VXLAN_PORT, struct.pack(">H", _VXLAN_PORT)),
        ]
        self._add("vxlan", header(0) + _fields(name, mac), *data)
        return self.index(name)

    def add_bond(self, name: str, mode: int, options: Mapping[str, int], system: str = "") -> int:
        """Create a bond without interfaces and return its index; `options` are some of BOND_OPTIONS, `system` is the
        MAC in its LACPDUs."""
        data = [netlink.u8(_IFLA_BOND_MODE, mode), *map(_bond_option, options.items())]
        if system:
            data.append(netlink.attribute(_BOND_SYSTEM, mac_bytes(system)))
        self._add("bond", header(0) + _fields(name), *data)
        return self.index(name)

    def set_bond(self, index: int, **options: int) -> None:
        """Change options of a bond, some of BOND_OPTIONS."""
        self._change_bond(index, *map(_bond_option, options.items()))

    def set_primary(self, index: int, member: int) -> None:
        """Set the member that carries the traffic of a bond in mode active-backup whenever it is up."""
        self._change_bond(index, netlink.u32(_BOND_PRIMARY, member))

    def set_system(self, index: int, system: str) -> None:
        """Set the MAC in the LACPDUs of a bond, which must be down."""
        self._change_bond(index, netlink.attribute(_BOND_SYSTEM, mac_bytes(system)))

    def _change_bond(self, index: int, *data: bytes) -> None:
        information = netlink.string(IFLA_INFO_KIND, "bond") + netlink.nested(IFLA_INFO_DATA, *data)
        self.request(RTM_NEWLINK, header(index) + netlink.nested(IFLA_LINKINFO, information))

    def bond_number(self, index: int, option: str) -> int:
        """Return a numeric option of a bond, one of BOND_OPTIONS."""
        return netlink.number(kind_of(self.read(index)[2])[1][BOND_OPTIONS[option][0]])

    def add_dummy(self, name: str, mac: str) -> int:
        """Create a dummy device, set up, and return its index."""
        self._add("dummy", header(0, flags=_IFF_UP, change=_IFF_UP) + _fields(name, mac))
        return self.index(name)

    def add_monitor(self, name: str) -> None:
        """Create a device that sees the netlink messages of the namespace (nlmon), and set it up."""
        self._add("nlmon", header(0, flags=_IFF_UP, change=_IFF_UP) + _fields(name))

    def add_ifb(self, name: str) -> None:
        """Create an intermediate functional block device and set it up."""
        self._add("ifb", header(0, flags=_IFF_UP, change=_IFF_UP) + _fields(name))

    def _add(self, kind: str, body: bytes, *data: bytes) -> None:
        information = netlink.string(IFLA_INFO_KIND, kind) + netlink.nested(IFLA_INFO_DATA, *data)
        body += netlink.nested(IFLA_LINKINFO, information)
        self.request(RTM_NEWLINK, body, netlink.CREATE | netlink.EXCLUSIVE)

    def delete_link(self, index: int) -> None:
        self.request(RTM_DELLINK, header(index))

    # Configure

    def set_link(self, index: int, *, up: bool | None = None, name: str = "", mac: str = "", mtu: int = 0) -> None:
        """Set an interface up or down, its name, its MAC, its MTU in bytes; omitted values stay."""
        state = header(index) if up is None else header(index, flags=up * _IFF_UP, change=_IFF_UP)
        self.request(RTM_NEWLINK, state + _fields(name, mac, mtu))

    def move(self, index: int, namespace: int, name: str, number: int = 0) -> None:
        """Move an interface, which is down, to another network namespace, given by an open file, with this name and the
        index `number`. Without one it keeps its index; the kernel chooses another if that is taken."""
        body = header(index) + _fields(name) + netlink.u32(_IFLA_NET_NS_FD, namespace)
        self.request(RTM_NEWLINK, body + (netlink.u32(_IFLA_NEW_IFINDEX, number) if number else b""))

    def set_alias(self, index: int, alias: str) -> None:
        """Set an interface's alias, a text of up to 255 bytes that ``ip link`` shows."""
        self.request(RTM_NEWLINK, header(index) + netlink.attribute(_IFLA_IFALIAS, alias.encode()))

    def set_group(self, index: int, group: int) -> None:
        """Set an interface's group number."""
        self.request(RTM_NEWLINK, header(index) + netlink.u32(_IFLA_GROUP, group))

    def set_qdisc(self, index: int, kind: str, major: int) -> None:
        """Replace an interface's root qdisc by one of this kind, with the handle ``major:``."""
        body = _TCMSG.pack(socket.AF_UNSPEC, index, major << 16, _TC_H_ROOT, 0) + netlink.string(_TCA_KIND, kind)
        self.request(RTM_NEWQDISC, body, netlink.CREATE | netlink.REPLACE)

    def set_fair_queue(self, index: int, packets: int) -> None:
        """Replace an interface's root qdisc by fq, with room for so many packets that wait for their time."""
        longest = 0xFFFFFFFF  # microseconds
        limits = netlink.u32(_TCA_FQ_PLIMIT, packets) + netlink.u32(_TCA_FQ_FLOW_PLIMIT, packets)
        options = netlink.nested(_TCA_OPTIONS, limits, netlink.u32(_TCA_FQ_HORIZON, longest))
        body = _TCMSG.pack(socket.AF_UNSPEC, index, 0, _TC_H_ROOT, 0) + netlink.string(_TCA_KIND, "fq")
        self.request(RTM_NEWQDISC, body + options, netlink.CREATE | netlink.REPLACE)

    def delete_qdisc(self, index: int) -> None:
        """Delete an interface's root qdisc and the packets in it."""
        self.request(RTM_DELQDISC, _TCMSG.pack(socket.AF_UNSPEC, index, 0, _TC_H_ROOT, 0))

    def enslave(self, index: int, bridge: int) -> None:
        """Make an interface a port of a bridge, or put it into a VRF, and set it up."""
        body = header(index, flags=_IFF_UP, change=_IFF_UP) + netlink.u32(_IFLA_MASTER, bridge)
        self.request(RTM_NEWLINK, body)

    def join_bond(self, index: int, bond: int) -> None:
        """Put an interface, which must be down, into a bond; the bond sets it up."""
        self.set_link(index, up=False)
        self.request(RTM_NEWLINK, header(index) + netlink.u32(_IFLA_MASTER, bond))

    def set_vlans(self, index: int, untagged: int | None, tagged: Iterable[int]) -> None:
        """Add VLANs to a port of a bridge."""
        vlans = [_vlan(_PVID_UNTAGGED, untagged)] if untagged is not None else []
        given = netlink.nested(_IFLA_AF_SPEC, *vlans, *(_vlan(0, vlan) for vlan in tagged))
        self.request(RTM_SETLINK, header(index, socket.AF_BRIDGE) + given)

    def set_fdb(self, bridge: int, age: float, bound: int | None) -> None:
        """Set the seconds after which a bridge forgets a MAC, and the maximum of learned MACs; None: no bound."""
        ageing = netlink.u32(_IFLA_BR_AGEING_TIME, round(age * USER_HZ))
        learned = netlink.u32(_IFLA_BR_FDB_MAX_LEARNED, bound or 0)
        data = netlink.string(IFLA_INFO_KIND, "bridge") + netlink.nested(IFLA_INFO_DATA, ageing, learned)
        self.request(RTM_NEWLINK, header(bridge) + netlink.nested(IFLA_LINKINFO, data))

    def set_tunnel(self, index: int) -> None:
        """Have a bridge learn no MACs from a port, and not flood requests for known neighbours there but answer them
        (neigh_suppress)."""
        flags = netlink.u8(_IFLA_BRPORT_LEARNING, 0) + netlink.u8(_IFLA_BRPORT_NEIGH_SUPPRESS, 1)
        self.request(RTM_SETLINK, header(index, socket.AF_BRIDGE) + netlink.nested(_IFLA_PROTINFO, flags))

    def set_backup(self, index: int, tunnel: int, group: int) -> None:
        """Have a bridge send what is for a port without a carrier by a VXLAN network's port instead, to the far ends of
        a next-hop group; with 0 for both: drop it."""
        given = netlink.u32(_IFLA_BRPORT_BACKUP_PORT, tunnel) + netlink.u32(_IFLA_BRPORT_BACKUP_NHID, group)
        self.request(RTM_SETLINK, header(index, socket.AF_BRIDGE) + netlink.nested(_IFLA_PROTINFO, given))

    def set_learning(self, index: int, learn: bool) -> None:
        """Set whether a bridge learns MACs from a port."""
        given = netlink.nested(_IFLA_PROTINFO, netlink.u8(_IFLA_BRPORT_LEARNING, learn))
        self.request(RTM_SETLINK, header(index, socket.AF_BRIDGE) + given)

    def set_flooding(self, index: int, flood: bool) -> None:
        """Set whether a bridge floods frames to unknown MACs out of a port."""
        given = netlink.nested(_IFLA_PROTINFO, netlink.u8(_IFLA_BRPORT_UNICAST_FLOOD, flood))
        self.request(RTM_SETLINK, header(index, socket.AF_BRIDGE) + given)

    # Read

    def read(self, interface: int | str, mask: bytes = _SKIP_STATISTICS) -> tuple[int, int, dict[int, bytes]]:
        """Return index, flags and attributes of an interface, given by index or name."""
        body = header(interface) if isinstance(interface, int) else header(0) + _fields(interface)
        ((_, found),) = self.request(RTM_GETLINK, body + mask)
        _, _, index, flags, _ = _IFINFOMSG.unpack_from(found)
        return index, flags, netlink.attributes(found, _IFINFOMSG.size)

    def index(self, name: str) -> int:
        return self.read(name)[0]

    def is_protocol_down(self, index: int) -> bool:
        """Return whether a protocol keeps an interface down (``protodown``)."""
        return bool(netlink.number(self.read(index)[2].get(_IFLA_PROTO_DOWN, b"")))

    def is_up(self, index: int) -> bool:
        """Return whether an interface is set up, with or without a carrier."""
        return bool(self.read(index)[1] & _IFF_UP)

    def macvlans(self) -> dict[int, tuple[str, str]]:
        """Return names and MACs of all macvlan devices by index."""
        return {
            index: (netlink.text(link[IFLA_IFNAME]), link[IFLA_ADDRESS].hex(":"))
            for index, link in self._all()
            if kind_of(link)[0] == "macvlan"
        }

    def vlans_on(self, parent: int) -> dict[str, int]:
        """Return the VLAN devices on an interface: VLANs by name."""
        found = {}
        for _, link in self._all():
            kind, data = kind_of(link)
            if kind == "vlan" and netlink.number(link[_IFLA_LINK]) == parent:
                found[netlink.text(link[IFLA_IFNAME])] = netlink.number(data[_IFLA_VLAN_ID])
        return found

    def user(self, index: int) -> str:
        """Return an interface that uses this one: its bridge or bond, or one on it (VLAN, …); empty if none does."""
        links = dict(self._all())
        above = netlink.number(links[index].get(_IFLA_MASTER, bytes(4)))
        lower = {number: netlink.number(link.get(_IFLA_LINK, bytes(4))) for number, link in links.items()}
        on = [number for number, link in links.items() if kind_of(link)[0] != "veth" and lower[number] == index]
        return next((netlink.text(links[number][IFLA_IFNAME]) for number in (above, *on) if number in links), "")

    def _all(self) -> Iterator[tuple[int, dict[int, bytes]]]:
        for body in self.dump_links():
            yield _IFINFOMSG.unpack_from(body)[2], netlink.attributes(body, _IFINFOMSG.size)

    def dump_links(self) -> list[bytes]:
        """Return all interfaces, for `link_states`."""
        return [body for _, body in self.request(RTM_GETLINK, header(0) + _SKIP_STATISTICS, netlink.DUMP)]

    def aliases(self) -> dict[int, str]:
        """Return the aliases of all interfaces by index."""
        return {index: _alias(link) for index, link in self._all()}

    def alias(self, index: int) -> str:
        """Return the alias of an interface, whoever set it; empty if there is none."""
        return _alias(self.read(index)[2])

    def mac(self, index: int) -> str:
        return self.read(index)[2][IFLA_ADDRESS].hex(":")

    def mtu(self, index: int) -> int:
        """Return the MTU of an interface in bytes."""
        return netlink.number(self.read(index)[2][_IFLA_MTU])

    def statistics(self, index: int) -> dict[str, int]:
        """Return the counters of an interface, named as in STATISTICS."""
        return _statistics(self.read(index, b"")[2][_IFLA_STATS64])

    def all_statistics(self) -> dict[int, dict[str, int]]:
        """Return the counters of all interfaces by index, from one dump."""
        found = self.request(RTM_GETSTATS, _IF_STATS_MSG.pack(socket.AF_UNSPEC, 0, _ONLY_LINK_64), netlink.DUMP)
        bodies = {_IF_STATS_MSG.unpack_from(body)[1]: body for _, body in found}
        return {
            index: _statistics(netlink.attributes(body, _IF_STATS_MSG.size)[_STATS_LINK_64])
            for index, body in bodies.items()
        }

    def qdiscs(self, index: int) -> list[Qdisc]:
        """Return the counters of an interface's queueing disciplines."""
        found = []
        for _, body in self.request(RTM_GETQDISC, _TCMSG.pack(socket.AF_UNSPEC, index, 0, 0, 0), netlink.DUMP):
            _, owner, _, parent, _ = _TCMSG.unpack_from(body)
            shown = netlink.attributes(body, _TCMSG.size)
            kind = netlink.text(shown[_TCA_KIND])
            if owner == index and kind not in ("clsact", "noqueue"):  # the dump has all interfaces
                counted = netlink.attributes(shown[_TCA_STATS2])
                waiting, _, drops = _QUEUE.unpack_from(counted[_STATS_QUEUE])
                marks = counted[_STATS_APP] if kind == "red" else bytes(_RED.size)
                sent = _SENT.unpack_from(counted[_STATS_BASIC])[1]
                found.append(Qdisc(parent == _TC_H_ROOT, sent, drops, _RED.unpack_from(marks)[0], waiting))
        return found

    def aggregates(self, index: int) -> bool:
        """Return whether a member of a bond with LACP collects and distributes."""
        return _slave_number(self.read(index)[2], _BOND_SLAVE_ACTOR) & _DISTRIBUTES == _DISTRIBUTES

    def carry(self, indices: Iterable[int], *, stp: bool = False) -> bool:
        """Return whether each interface has its carrier and, if it is a bridge's port, forwards. With `stp` a port may
        also be the one that spanning tree blocks.

        The kernel notices a carrier up to a second after both ends of a link are up, or when it is asked for that
        interface (rtnl_getlink, not a dump). So each one is asked for.
        """
        states = (_FORWARDING, _BLOCKING) if stp else (_FORWARDING,)
        return False not in [_carries(self.read(index)[2], states) for index in indices]


def header(index: int, family: int = socket.AF_UNSPEC, *, flags: int = 0, change: int = 0) -> bytes:
    """Pack the header of a message about an interface."""
    return _IFINFOMSG.pack(family, 0, index, flags, change)


def link_state(body: bytes) -> tuple[int, LinkState] | None:
    """Read RTM_NEWLINK or RTM_DELLINK: (index, interface); None if it is about a port of a bridge as such."""
    family, _, index, flags, _ = _IFINFOMSG.unpack_from(body)
    if family != socket.AF_UNSPEC:
        return None
    values = netlink.attributes(body, _IFINFOMSG.size)
    return index, LinkState(
        name=netlink.text(values[IFLA_IFNAME]),
        mac=values.get(IFLA_ADDRESS, b"").hex(":"),
        mtu=netlink.number(values.get(_IFLA_MTU, b"")),
        up=bool(flags & _IFF_UP),
        carrier=bool(flags & _IFF_LOWER_UP),
        master=(master := netlink.number(values.get(_IFLA_MASTER, b""))),
        active=_is_active(values) if master else None,
    )


def vlan_on(body: bytes, parent: int) -> int | None:
    """Read RTM_NEWLINK: the VLAN of a VLAN device on `parent`; None if it is something else."""
    link = netlink.attributes(body, _IFINFOMSG.size)
    kind, own = kind_of(link)
    if kind != "vlan" or netlink.number(link.get(_IFLA_LINK, b"")) != parent:
        return None
    return netlink.number(own[_IFLA_VLAN_ID])


def macvlan(body: bytes) -> Macvlan | None:
    """Read RTM_NEWLINK; None if it is about something else than a macvlan device."""
    link = netlink.attributes(body, _IFINFOMSG.size)
    if kind_of(link)[0] != "macvlan":
        return None
    return Macvlan(netlink.number(link[_IFLA_LINK]), bool(netlink.number(link.get(_IFLA_PROTO_DOWN, b""))))


def link_states(bodies: Iterable[bytes]) -> dict[int, LinkState]:
    """Read interfaces, by index."""
    return dict(found for found in map(link_state, bodies) if found)


def kind_of(link: Mapping[int, bytes]) -> tuple[str, dict[int, bytes]]:
    """Return an interface's kind, such as macvlan, and the kind's own attributes, from the attributes of `Links.read`.
    A physical interface has none."""
    information = netlink.attributes(link.get(IFLA_LINKINFO, b""))
    kind = netlink.text(information.get(IFLA_INFO_KIND, b""))
    return kind, netlink.attributes(information.get(IFLA_INFO_DATA, b""))


def _is_active(link: Mapping[int, bytes]) -> bool | None:
    """Return whether an interface carries traffic of its bond; None if it is in none."""
    information = netlink.attributes(link.get(IFLA_LINKINFO, b""))
    if netlink.text(information.get(_IFLA_INFO_SLAVE_KIND, b"")) != "bond":
        return None
    slave = netlink.attributes(information.get(_IFLA_INFO_SLAVE_DATA, b""))
    return not any(netlink.number(slave.get(kind, b"")) for kind in (_BOND_SLAVE_STATE, _BOND_SLAVE_MII))


def _slave_number(link: Mapping[int, bytes], kind: int) -> int:
    information = netlink.attributes(link.get(IFLA_LINKINFO, b""))
    return netlink.number(netlink.attributes(information.get(_IFLA_INFO_SLAVE_DATA, b"")).get(kind, b""))


def _bond_option(option: tuple[str, int]) -> bytes:
    name, value = option
    kind, pack = BOND_OPTIONS[name]
    return pack(kind, value)


def _fields(name: str = "", mac: str = "", mtu: int = 0) -> bytes:
    fields = netlink.string(IFLA_IFNAME, name) if name else b""
    fields += netlink.attribute(IFLA_ADDRESS, mac_bytes(mac)) if mac else b""
    return fields + (netlink.u32(_IFLA_MTU, mtu) if mtu else b"")


def _alias(link: Mapping[int, bytes]) -> str:
    return link.get(_IFLA_IFALIAS, b"").rstrip(b"\0").decode(errors="replace")


def _statistics(counted: bytes) -> dict[str, int]:
    return dict(zip(STATISTICS, _COUNTERS.unpack_from(counted), strict=True))


def _vlan(flags: int, vlan: int) -> bytes:
    return netlink.attribute(_IFLA_BRIDGE_VLAN_INFO, struct.pack("=HH", flags, vlan))


def _carries(link: dict[int, bytes], states: Collection[bytes]) -> bool:
    information = netlink.attributes(link.get(IFLA_LINKINFO, b""))
    of_bridge = netlink.text(information.get(_IFLA_INFO_SLAVE_KIND, b"")) == "bridge"
    port = netlink.attributes(information.get(_IFLA_INFO_SLAVE_DATA, b"")) if of_bridge else {}
    return link[_IFLA_OPERSTATE] == _OPER_UP and port.get(_IFLA_BRPORT_STATE, _FORWARDING) in states
