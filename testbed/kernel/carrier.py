"""Whether links carry frames, asked of the kernel."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable

from testbed.kernel import netlink

RTM_GETLINK = 18
IFLA_OPERSTATE, IFLA_LINKINFO, IFLA_EXT_MASK = 16, 18, 29
IFLA_INFO_SLAVE_DATA, IFLA_BRPORT_STATE = 5, 1
RTEXT_FILTER_SKIP_STATS = 1 << 3
OPER_UP, FORWARDING = b"\6", b"\3"
"""IF_OPER_UP and BR_STATE_FORWARDING"""
_HEADER = struct.Struct("=BxHiII")  # struct ifinfomsg


def carry(indices: Iterable[int]) -> bool:
    """The kernel sees the carrier of each of these interfaces of the namespace that the calling thread is in, and lets
    a bridge's ports forward, up to a second after both ends of a link are up, or when it is asked for each interface
    (rtnl_getlink, not a dump). All of them are asked."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        return False not in [_carries(_link(kernel, index)) for index in indices]


def _carries(link: dict[int, bytes]) -> bool:
    port = _within(_within(link.get(IFLA_LINKINFO, b"")).get(IFLA_INFO_SLAVE_DATA, b""))
    return link[IFLA_OPERSTATE] == OPER_UP and port.get(IFLA_BRPORT_STATE, FORWARDING) == FORWARDING


def _link(kernel: socket.socket, index: int) -> dict[int, bytes]:
    """The attributes of an interface."""
    wanted = _HEADER.pack(0, 0, index, 0, 0) + netlink.u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS)
    kernel.send(netlink.request(RTM_GETLINK, wanted))
    found: dict[int, bytes] = {}
    while True:
        for kind, body in netlink.messages(kernel.recv(1 << 16)):
            if kind == netlink.ERROR:
                netlink.check(body)
                return found
            found = _within(body, _HEADER.size)


def _within(data: bytes, offset: int = 0) -> dict[int, bytes]:
    return {kind & ~netlink.NESTED: value for kind, value in netlink.attributes(data, offset)}
