"""Interfaces as the kernel shows them: their attributes, and whether they carry frames."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable

from testbed.kernel import netlink
from testbed.kernel.netlink import Netlink

RTM_NEWLINK, RTM_GETLINK = 16, 18
IFLA_IFNAME, IFLA_OPERSTATE, IFLA_LINKINFO, IFLA_EXT_MASK = 3, 16, 18, 29
IFLA_INFO_KIND, IFLA_INFO_DATA, IFLA_INFO_SLAVE_DATA = 1, 2, 5
IFLA_BRPORT_STATE = 1
RTEXT_FILTER_SKIP_STATS = 1 << 3
OPER_UP, FORWARDING = b"\6", b"\3"
"""IF_OPER_UP and BR_STATE_FORWARDING"""
_IFINFOMSG = struct.Struct("=BxHiII")  # family, type, index, flags, change


def carry(indices: Iterable[int]) -> bool:
    """Return whether each of these interfaces has its carrier, and if it is a bridge's port, forwards.

    The kernel notices a carrier up to a second after both ends of a link are up, or when it is asked for the interface
    (rtnl_getlink, not a dump). So all of them are asked for, in the namespace that the calling thread is in.
    """
    with Netlink(socket.NETLINK_ROUTE) as kernel:
        return False not in [_carries(read(kernel, index)) for index in indices]


def read(kernel: Netlink, interface: int | str) -> dict[int, bytes]:
    """Return the attributes of an interface, given by index or name, without its statistics."""
    body = header(interface if isinstance(interface, int) else 0) + netlink.u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS)
    if isinstance(interface, str):
        body += netlink.string(IFLA_IFNAME, interface)
    ((_, found),) = kernel.request(RTM_GETLINK, body)
    return netlink.attributes(found, _IFINFOMSG.size)


def header(index: int, family: int = socket.AF_UNSPEC, *, flags: int = 0, change: int = 0) -> bytes:
    """Pack the header of a message about an interface."""
    return _IFINFOMSG.pack(family, 0, index, flags, change)


def _carries(link: dict[int, bytes]) -> bool:
    information = netlink.attributes(link.get(IFLA_LINKINFO, b""))
    port = netlink.attributes(information.get(IFLA_INFO_SLAVE_DATA, b""))
    return link[IFLA_OPERSTATE] == OPER_UP and port.get(IFLA_BRPORT_STATE, FORWARDING) == FORWARDING
