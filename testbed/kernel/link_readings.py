"""
Interfaces as the kernel has them: read, and checked for a carrier.

Source: include/uapi/linux/if_link.h, rtnetlink.h, gen_stats.h, pkt_sched.h.
"""

import socket
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from testbed.kernel import netlink
from testbed.kernel.netlink import Netlink

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_GETSTATS, RTM_GETQDISC = 16, 17, 18, 94, 38
IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINK, IFLA_MASTER, IFLA_LINKINFO, IFLA_IFALIAS = 1, 3, 4, 5, 10, 18, 20
IFLA_TXQLEN = 13
IFLA_INFO_KIND, IFLA_INFO_DATA, IFLA_VLAN_ID = 1, 2, 1
STATISTICS = (
    *("rx_packets", "tx_packets", "rx_bytes", "tx_bytes", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped"),
    *("multicast", "collisions", "rx_length_errors", "rx_over_errors", "rx_crc_errors", "rx_frame_errors"),
    *("rx_fifo_errors", "rx_missed_errors", "tx_aborted_errors", "tx_carrier_errors", "tx_fifo_errors"),
    *("tx_heartbeat_errors", "tx_window_errors", "rx_compressed", "tx_compressed"),
)
"""The fields of rtnl_link_stats64, in its order."""

IFF_UP, _IFF_LOWER_UP = 0x1, 0x10000
_IFLA_OPERSTATE, _IFLA_STATS64, _IFLA_EXT_MASK, _IFLA_PROTO_DOWN = 16, 23, 29, 39
_IFLA_INFO_SLAVE_KIND, _IFLA_INFO_SLAVE_DATA, _IFLA_BRPORT_STATE = 4, 5, 1
_BOND_SLAVE_STATE, _BOND_SLAVE_MII, _BOND_SLAVE_ACTOR = 1, 2, 7
_DISTRIBUTES = 0x30  # Collecting, Distributing (IEEE 802.1AX, section 6.4.2.3)
_SKIP_STATISTICS = netlink.u32(_IFLA_EXT_MASK, 1 << 3)  # RTEXT_FILTER_SKIP_STATS
_OPER_UP, _FORWARDING, _BLOCKING = b"\6", b"\3", b"\4"  # IF_OPER_UP, BR_STATE_FORWARDING, BR_STATE_BLOCKING
_IFINFOMSG = struct.Struct("=BxHiII")  # family, type, index, flags, change
_IF_STATS_MSG = struct.Struct("=BxxxII")  # family, index, mask
_STATS_LINK_64, _ONLY_LINK_64 = 1, 1
_COUNTERS = struct.Struct(f"={len(STATISTICS)}Q")
TCMSG = struct.Struct("=B3xiIII")  # family, interface, handle, parent, info
TC_H_ROOT = 0xFFFFFFFF
TCA_KIND, _TCA_STATS2, _STATS_BASIC, _STATS_QUEUE, _STATS_APP = 1, 7, 1, 3, 4
_SENT = struct.Struct("=QI")  # bytes, packets
_QUEUE = struct.Struct("=3I")  # packets and bytes waiting, drops
_RED = struct.Struct("=12xI")  # marked packets, after the dropped ones


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


class LinkReader(Netlink):
    """An rtnetlink socket that reads interfaces. They are given by their index."""

    def __init__(self) -> None:
        super().__init__(socket.NETLINK_ROUTE)

    def read(self, interface: int | str, mask: bytes = _SKIP_STATISTICS) -> tuple[int, int, dict[int, bytes]]:
        """Return index, flags and attributes of an interface, given by index or name."""
        body = header(interface) if isinstance(interface, int) else header(0) + netlink.string(IFLA_IFNAME, interface)
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
        return bool(self.read(index)[1] & IFF_UP)

    def parent(self, index: int) -> int:
        """Return the index of the interface below a VLAN or macvlan device, in that one's namespace."""
        return netlink.number(self.read(index)[2].get(IFLA_LINK, bytes(4)))

    def name(self, index: int) -> str:
        return netlink.text(self.read(index)[2][IFLA_IFNAME])

    def is_vlan(self, index: int) -> bool:
        """Return whether an interface is a VLAN device."""
        return kind_of(self.read(index)[2])[0] == "vlan"

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
            if kind == "vlan" and netlink.number(link[IFLA_LINK]) == parent:
                found[netlink.text(link[IFLA_IFNAME])] = netlink.number(data[IFLA_VLAN_ID])
        return found

    def user(self, index: int) -> str:
        """Return an interface that uses this one: its bridge or bond, or one on it (VLAN, …); empty if none does."""
        links = dict(self._all())
        above = netlink.number(links[index].get(IFLA_MASTER, bytes(4)))
        lower = {number: netlink.number(link.get(IFLA_LINK, bytes(4))) for number, link in links.items()}
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
        return netlink.number(self.read(index)[2][IFLA_MTU])

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
        for _, body in self.request(RTM_GETQDISC, TCMSG.pack(socket.AF_UNSPEC, index, 0, 0, 0), netlink.DUMP):
            _, owner, _, parent, _ = TCMSG.unpack_from(body)
            shown = netlink.attributes(body, TCMSG.size)
            kind = netlink.text(shown[TCA_KIND])
            if owner == index and kind not in ("clsact", "noqueue"):  # the dump has all interfaces
                counted = netlink.attributes(shown[_TCA_STATS2])
                waiting, _, drops = _QUEUE.unpack_from(counted[_STATS_QUEUE])
                marks = counted[_STATS_APP] if kind == "red" else bytes(_RED.size)
                sent = _SENT.unpack_from(counted[_STATS_BASIC])[1]
                found.append(Qdisc(parent == TC_H_ROOT, sent, drops, _RED.unpack_from(marks)[0], waiting))
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
        mtu=netlink.number(values.get(IFLA_MTU, b"")),
        up=bool(flags & IFF_UP),
        carrier=bool(flags & _IFF_LOWER_UP),
        master=(master := netlink.number(values.get(IFLA_MASTER, b""))),
        active=_is_active(values) if master else None,
    )


def vlan_on(body: bytes, parent: int) -> int | None:
    """Read RTM_NEWLINK: the VLAN of a VLAN device on `parent`; None if it is something else."""
    link = netlink.attributes(body, _IFINFOMSG.size)
    kind, own = kind_of(link)
    if kind != "vlan" or netlink.number(link.get(IFLA_LINK, b"")) != parent:
        return None
    return netlink.number(own[IFLA_VLAN_ID])


def macvlan(body: bytes) -> Macvlan | None:
    """Read RTM_NEWLINK; None if it is about something else than a macvlan device."""
    link = netlink.attributes(body, _IFINFOMSG.size)
    if kind_of(link)[0] != "macvlan":
        return None
    return Macvlan(netlink.number(link[IFLA_LINK]), bool(netlink.number(link.get(_IFLA_PROTO_DOWN, b""))))


def link_states(bodies: Iterable[bytes]) -> dict[int, LinkState]:
    """Read interfaces, by index."""
    return dict(found for found in map(link_state, bodies) if found)


def kind_of(link: Mapping[int, bytes]) -> tuple[str, dict[int, bytes]]:
    """Return an interface's kind, such as macvlan, and the kind's own attributes, from the attributes that
    `LinkReader.read` returns. A physical interface has none."""
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


def _alias(link: Mapping[int, bytes]) -> str:
    return link.get(IFLA_IFALIAS, b"").rstrip(b"\0").decode(errors="replace")


def _statistics(counted: bytes) -> dict[str, int]:
    return dict(zip(STATISTICS, _COUNTERS.unpack_from(counted), strict=True))


def _carries(link: dict[int, bytes], states: Collection[bytes]) -> bool:
    information = netlink.attributes(link.get(IFLA_LINKINFO, b""))
    of_bridge = netlink.text(information.get(_IFLA_INFO_SLAVE_KIND, b"")) == "bridge"
    port = netlink.attributes(information.get(_IFLA_INFO_SLAVE_DATA, b"")) if of_bridge else {}
    return link[_IFLA_OPERSTATE] == _OPER_UP and port.get(_IFLA_BRPORT_STATE, _FORWARDING) in states
