"""
Interfaces: created and configured.

Source: include/uapi/linux/if_link.h, if_bridge.h, veth.h, rtnetlink.h, pkt_sched.h.
"""

import os
import socket
import struct
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

from testbed.kernel import netlink
from testbed.kernel.link_readings import (
    IFF_UP,
    IFLA_ADDRESS,
    IFLA_IFALIAS,
    IFLA_IFNAME,
    IFLA_INFO_DATA,
    IFLA_INFO_KIND,
    IFLA_LINK,
    IFLA_LINKINFO,
    IFLA_MASTER,
    IFLA_MTU,
    IFLA_TXQLEN,
    IFLA_VLAN_ID,
    RTM_DELLINK,
    RTM_NEWLINK,
    TC_H_ROOT,
    TCA_KIND,
    TCMSG,
    LinkReader,
    header,
    kind_of,
)
from testbed.kernel.netlink import mac_bytes
from testbed.kernel.syscalls import closing_fd

RTM_SETLINK, RTM_NEWQDISC, RTM_DELQDISC = 19, 36, 37
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

_IFLA_PROTINFO, _IFLA_AF_SPEC, _IFLA_GROUP, _IFLA_NET_NS_FD, _IFLA_NEW_IFINDEX = 12, 26, 27, 28, 49
_IFLA_BRPORT_LEARNING, _IFLA_BRPORT_UNICAST_FLOOD, _IFLA_BRPORT_NEIGH_SUPPRESS = 8, 9, 32
_IFLA_BRPORT_BACKUP_PORT, _IFLA_BRPORT_BACKUP_NHID, _IFLA_VRF_TABLE = 34, 44, 1
_IFLA_VXLAN_ID, _IFLA_VXLAN_LOCAL, _IFLA_VXLAN_TOS, _IFLA_VXLAN_LEARNING, _IFLA_VXLAN_PORT = 1, 4, 6, 7, 15
_IFLA_VXLAN_DF, _VXLAN_DF_SET = 29, 1
_VXLAN_PORT, _INHERIT = 4789, 1
_IFLA_BR_AGEING_TIME, _IFLA_BR_STP_STATE, _IFLA_BR_VLAN_FILTERING, _IFLA_BR_MCAST_SNOOPING = 4, 5, 7, 23
_IFLA_BR_VLAN_DEFAULT_PVID, _IFLA_BR_FDB_MAX_LEARNED = 39, 49
_IFLA_BRIDGE_FLAGS, _IFLA_BRIDGE_VLAN_INFO, _BRIDGE_FLAGS_SELF, _PVID_UNTAGGED = 0, 2, 2, 0x6
_IFLA_VLAN_FLAGS, _VLAN_FLAG_BRIDGE_BINDING = 2, 0x10
_VETH_INFO_PEER, _IFLA_MACVLAN_MODE, _MACVLAN_BRIDGE, _IFLA_BOND_MODE, _BOND_PRIMARY, _BOND_SYSTEM = 1, 1, 4, 1, 11, 26
_TCA_OPTIONS, _TCA_FQ_PLIMIT, _TCA_FQ_FLOW_PLIMIT, _TCA_FQ_HORIZON = 2, 1, 2, 14
_VLAN_FLAGS = struct.Struct("=II")  # flags, mask


class End(NamedTuple):
    """One end of a veth pair at its creation."""

    name: str
    mac: str
    mtu: int


class Links(LinkReader):
    """An rtnetlink socket that also makes and changes interfaces. They are given by their index."""

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
        self._add("bridge", header(0, flags=IFF_UP, change=IFF_UP) + _fields(name, mac), *data)
        return self.index(name)

    def add_svi(self, name: str, bridge: int, vlan: int, mtu: int) -> int:
        """Create a VLAN device on a bridge, and put the bridge itself into the VLAN. Return the device's index."""
        flags = netlink.u16(_IFLA_BRIDGE_FLAGS, _BRIDGE_FLAGS_SELF)
        given = netlink.nested(_IFLA_AF_SPEC, flags, _vlan(0, vlan))
        self.request(RTM_SETLINK, header(bridge, socket.AF_BRIDGE) + given)
        return self.add_vlan(name, bridge, vlan, mtu)

    def add_vlan(self, name: str, parent: int, vlan: int, mtu: int = 0) -> int:
        """Create a VLAN device on an interface and return its index. Without `mtu` it has the interface's."""
        on = netlink.u32(IFLA_LINK, parent)
        self._add("vlan", header(0) + _fields(name, mtu=mtu) + on, netlink.u16(IFLA_VLAN_ID, vlan))
        return self.index(name)

    def bind_vlan(self, index: int, bound: bool) -> None:
        """Have a VLAN device on a bridge follow the links of the ports in its VLAN, or of all ports."""
        flag = _VLAN_FLAG_BRIDGE_BINDING
        flags = netlink.attribute(_IFLA_VLAN_FLAGS, _VLAN_FLAGS.pack(bound * flag, flag))
        information = netlink.string(IFLA_INFO_KIND, "vlan") + netlink.nested(IFLA_INFO_DATA, flags)
        self.request(RTM_NEWLINK, header(index) + netlink.nested(IFLA_LINKINFO, information))

    def add_macvlan(self, name: str, parent: int, mac: str) -> None:
        """Create a macvlan device in bridge mode."""
        on = netlink.u32(IFLA_LINK, parent)
        self._add("macvlan", header(0) + _fields(name, mac) + on, netlink.u32(_IFLA_MACVLAN_MODE, _MACVLAN_BRIDGE))

    def add_vrf(self, name: str, table: int) -> int:
        """Create a VRF with a routing table, set up, and return its index."""
        up = header(0, flags=IFF_UP, change=IFF_UP)
        self._add("vrf", up + _fields(name), netlink.u32(_IFLA_VRF_TABLE, table))
        return self.index(name)

    def add_vxlan(self, name: str, vni: int, local: IPv4Address, mac: str, mtu: int) -> int:
        """Create the end of a VXLAN network (RFC 7348) at a local address and return its index. It learns no MACs from
        packets, gives the outer header the inner one's DSCP, and has no packet fragmented (section 4.3)."""
        data = [
            netlink.u32(_IFLA_VXLAN_ID, vni),
            netlink.attribute(_IFLA_VXLAN_LOCAL, local.packed),
            netlink.u8(_IFLA_VXLAN_TOS, _INHERIT),
            netlink.u8(_IFLA_VXLAN_LEARNING, 0),
            netlink.u8(_IFLA_VXLAN_DF, _VXLAN_DF_SET),
            netlink.attribute(_IFLA_VXLAN_PORT, struct.pack(">H", _VXLAN_PORT)),
        ]
        self._add("vxlan", header(0) + _fields(name, mac, mtu), *data)
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
        self._add("dummy", header(0, flags=IFF_UP, change=IFF_UP) + _fields(name, mac))
        return self.index(name)

    def add_monitor(self, name: str) -> None:
        """Create a device that sees the netlink messages of the namespace (nlmon), and set it up."""
        self._add("nlmon", header(0, flags=IFF_UP, change=IFF_UP) + _fields(name))

    def add_ifb(self, name: str) -> None:
        """Create an intermediate functional block device and set it up."""
        self._add("ifb", header(0, flags=IFF_UP, change=IFF_UP) + _fields(name))

    def _add(self, kind: str, body: bytes, *data: bytes) -> None:
        information = netlink.string(IFLA_INFO_KIND, kind) + netlink.nested(IFLA_INFO_DATA, *data)
        body += netlink.nested(IFLA_LINKINFO, information)
        self.request(RTM_NEWLINK, body, netlink.CREATE | netlink.EXCLUSIVE)

    def delete_link(self, index: int) -> None:
        self.request(RTM_DELLINK, header(index))

    # Configure

    def set_link(self, index: int, *, up: bool | None = None, name: str = "", mac: str = "", mtu: int = 0) -> None:
        """Set an interface up or down, its name, its MAC, its MTU in bytes; omitted values stay."""
        state = header(index) if up is None else header(index, flags=up * IFF_UP, change=IFF_UP)
        self.request(RTM_NEWLINK, state + _fields(name, mac, mtu))

    def move(self, index: int, namespace: int, name: str, number: int = 0) -> None:
        """Move an interface, which is down, to another network namespace, given by an open file, with this name and the
        index `number`. Without one it keeps its index; the kernel chooses another if that is taken."""
        body = header(index) + _fields(name) + netlink.u32(_IFLA_NET_NS_FD, namespace)
        self.request(RTM_NEWLINK, body + (netlink.u32(_IFLA_NEW_IFINDEX, number) if number else b""))

    def set_queue_length(self, index: int, packets: int) -> None:
        """Set an interface's txqueuelen."""
        self.request(RTM_NEWLINK, header(index) + netlink.u32(IFLA_TXQLEN, packets))

    def set_alias(self, index: int, alias: str) -> None:
        """Set an interface's alias, a text of up to 255 bytes that ``ip link`` shows."""
        self.request(RTM_NEWLINK, header(index) + netlink.attribute(IFLA_IFALIAS, alias.encode()))

    def set_group(self, index: int, group: int) -> None:
        """Set an interface's group number."""
        self.request(RTM_NEWLINK, header(index) + netlink.u32(_IFLA_GROUP, group))

    def set_qdisc(self, index: int, kind: str, major: int) -> None:
        """Replace an interface's root qdisc by one of this kind, with the handle ``major:``."""
        body = TCMSG.pack(socket.AF_UNSPEC, index, major << 16, TC_H_ROOT, 0) + netlink.string(TCA_KIND, kind)
        self.request(RTM_NEWQDISC, body, netlink.CREATE | netlink.REPLACE)

    def set_fair_queue(self, index: int, packets: int) -> None:
        """Replace an interface's root qdisc by fq, with room for so many packets that wait for their time."""
        longest = 0xFFFFFFFF  # microseconds
        limits = netlink.u32(_TCA_FQ_PLIMIT, packets) + netlink.u32(_TCA_FQ_FLOW_PLIMIT, packets)
        options = netlink.nested(_TCA_OPTIONS, limits, netlink.u32(_TCA_FQ_HORIZON, longest))
        body = TCMSG.pack(socket.AF_UNSPEC, index, 0, TC_H_ROOT, 0) + netlink.string(TCA_KIND, "fq")
        self.request(RTM_NEWQDISC, body + options, netlink.CREATE | netlink.REPLACE)

    def delete_qdisc(self, index: int) -> None:
        """Delete an interface's root qdisc and the packets in it."""
        self.request(RTM_DELQDISC, TCMSG.pack(socket.AF_UNSPEC, index, 0, TC_H_ROOT, 0))

    def enslave(self, index: int, bridge: int) -> None:
        """Make an interface a port of a bridge, or put it into a VRF, and set it up."""
        body = header(index, flags=IFF_UP, change=IFF_UP) + netlink.u32(IFLA_MASTER, bridge)
        self.request(RTM_NEWLINK, body)

    def join_bond(self, index: int, bond: int) -> None:
        """Put an interface, which must be down, into a bond; the bond sets it up."""
        self.set_link(index, up=False)
        self.request(RTM_NEWLINK, header(index) + netlink.u32(IFLA_MASTER, bond))

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


def _bond_option(option: tuple[str, int]) -> bytes:
    name, value = option
    kind, pack = BOND_OPTIONS[name]
    return pack(kind, value)


def _fields(name: str = "", mac: str = "", mtu: int = 0) -> bytes:
    fields = netlink.string(IFLA_IFNAME, name) if name else b""
    fields += netlink.attribute(IFLA_ADDRESS, mac_bytes(mac)) if mac else b""
    return fields + (netlink.u32(IFLA_MTU, mtu) if mtu else b"")


def _vlan(flags: int, vlan: int) -> bytes:
    return netlink.attribute(_IFLA_BRIDGE_VLAN_INFO, struct.pack("=HH", flags, vlan))
