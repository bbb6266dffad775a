"""Counters of RoCE and TCP on an interface, of bytes on links, and the size of a message on the wire."""

import itertools
from collections.abc import Iterable

from testbed.kernel import nftables
from testbed.kernel.lossless.layout import constants
from testbed.lab import HostInterface, Interface

COUNTED = {
    "roce_out": ("egress", "udp dport 4791"),
    "roce_in": ("ingress", "udp dport 4791"),
    "tcp_out": ("egress", "meta l4proto tcp"),
    "tcp_in": ("ingress", "meta l4proto tcp"),
}
ETHERNET = 14
"""Bytes of a header that nftables does not count at ingress, where the kernel has removed it."""
HEADERS = ETHERNET + 20 + 8 + 12 + 4
"""Bytes of a RoCE packet over IPv4 beside its payload: Ethernet, IPv4, UDP, BTH and ICRC."""
LINK_OVERHEAD = constants()["LINK_OVERHEAD"]
_NUMBERS = itertools.count(1)


def wire_bytes(payload: int, *, path_mtu: int = 1024) -> int:
    """Return the bytes on layer 2 (without the FCS) of a SEND or a WRITE over IPv4 in packets of `path_mtu` bytes,
    without the WRITE's RETH and without acknowledgements."""
    return payload + HEADERS * max(1, -(-payload // path_mtu))


def link_bytes(payload: int, *, path_mtu: int = 1024) -> int:
    """Return the bytes' time that such a message takes on an Ethernet link: those of `wire_bytes`, and of each packet
    the preamble, FCS and gap (IEEE 802.3), 24 bytes."""
    return wire_bytes(payload, path_mtu=path_mtu) + LINK_OVERHEAD * max(1, -(-payload // path_mtu))


class LinkTraffic:
    """A counter of the bytes on layer 2 that interfaces, such as a leaf's uplinks, send from now on."""

    def __init__(self, interfaces: Iterable[Interface]) -> None:
        self._interfaces = list(interfaces)
        self._before = self._counters()

    def sent(self) -> dict[str, int]:
        """Return bytes since the start, by interface: ``leaf1:e3``. Packets that a queue dropped were not sent."""
        return {name: count - self._before[name] for name, count in self._counters().items()}

    def _counters(self) -> dict[str, int]:
        return {str(interface): interface.counters()["tx_bytes"] for interface in self._interfaces}


class Traffic:
    """A counter, from now on, of what an interface sends and receives."""

    def __init__(self, interface: HostInterface) -> None:
        self._host = interface.node
        self._table = f"traffic-{interface.name}-{next(_NUMBERS)}"
        with self._host.entered():
            nftables.run(nftables.counting(self._table, interface.name, COUNTED))

    def bytes(self) -> dict[str, int]:
        """Return bytes on layer 2 (without the FCS) since the start: roce_out, roce_in, tcp_out, tcp_in."""
        return {
            name: counter["bytes"] + ETHERNET * counter["packets"] * (COUNTED[name][0] == "ingress")
            for name, counter in self._counters().items()
        }

    def packets(self) -> dict[str, int]:
        """Return packets since the start, by the same names."""
        return {name: counter["packets"] for name, counter in self._counters().items()}

    def _counters(self) -> dict[str, dict[str, int]]:
        with self._host.entered():
            return nftables.counters(self._table)
