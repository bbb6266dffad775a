"""Whether a link carries frames, asked of the kernel."""

from __future__ import annotations

from pyroute2 import IPRoute

FORWARDING = 3
"""BR_STATE_FORWARDING"""


def carries(ip: IPRoute, index: int) -> bool:
    """The kernel sees its carrier, and lets a bridge's port forward, up to a second after both its ends are up, or when
    it is asked for this interface (rtnl_getlink, not a dump)."""
    (link,) = ip.get_links(index)
    info = link.get_attr("IFLA_LINKINFO")
    port = info and info.get_attr("IFLA_INFO_SLAVE_DATA")
    forwards = not port or port.get_attr("IFLA_BRPORT_STATE") == FORWARDING
    return bool(link.get_attr("IFLA_OPERSTATE") == "UP" and forwards)
