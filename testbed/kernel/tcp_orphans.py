"""
TCP sockets that no process has any more: the kernel retries their last segments for minutes, and each keeps its network
namespace alive.

Source: include/uapi/linux/sock_diag.h, inet_diag.h.
"""

import contextlib
import re
import socket
import struct
from pathlib import Path

from testbed.kernel import netlink

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY, _SOCK_DESTROY = 20, 21
_FIN_WAIT1, _FIN_WAIT2, _LAST_ACK, _CLOSING = 4, 5, 9, 11
_STATES = 1 << _FIN_WAIT1 | 1 << _FIN_WAIT2 | 1 << _LAST_ACK | 1 << _CLOSING
_REQUEST = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
_ANY = bytes(48)
_NONE = re.compile(r"^TCP:.* orphan 0 ", re.MULTILINE)
_ID = slice(4, 4 + len(_ANY))
"""struct inet_diag_sockid in a response."""


def destroy() -> None:
    """Destroy those of the calling thread's namespace, where the kernel can (CONFIG_INET_DIAG_DESTROY). If none exists
    on the machine, no module is loaded for it."""
    if _NONE.search(Path("/proc/thread-self/net/sockstat").read_text()):
        return
    with contextlib.suppress(OSError), netlink.Netlink(_NETLINK_SOCK_DIAG) as sockets:  # the kernel may not list them
        for family in socket.AF_INET, socket.AF_INET6:
            header = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _STATES)
            for _, body in sockets.request(_SOCK_DIAG_BY_FAMILY, header + _ANY, netlink.DUMP):
                with contextlib.suppress(OSError):  # it ended meanwhile, or the kernel cannot
                    sockets.request(_SOCK_DESTROY, header + body[_ID])
