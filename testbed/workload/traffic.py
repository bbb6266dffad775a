"""Counters of RoCE and TCP on an interface."""

from __future__ import annotations

import itertools

from testbed.kernel import nftables
from testbed.lab import HostInterface

COUNTED = {
    "roce_out": ("egress", "udp dport 4791"),
    "roce_in": ("ingress", "udp dport 4791"),
    "tcp_out": ("egress", "meta l4proto tcp"),
    "tcp_in": ("ingress", "meta l4proto tcp"),
}
ETHERNET = 14
"""Bytes of a header that nftables does not count at ingress, where the kernel has taken it off."""
_NUMBERS = itertools.count(1)


class Traffic:
    """Counts from now on what an interface sends and receives."""

    def __init__(self, interface: HostInterface) -> None:
        self._host = interface.node
        self._table = f"traffic-{interface.name}-{next(_NUMBERS)}"
        with self._host.entered():
            nftables.run(nftables.counting(self._table, interface.name, COUNTED))

    def bytes(self) -> dict[str, int]:
        """Bytes on layer 2 (without the FCS) since the start: roce_out, roce_in, tcp_out, tcp_in."""
        return {
            name: counter["bytes"] + ETHERNET * counter["packets"] * (COUNTED[name][0] == "ingress")
            for name, counter in self._counters().items()
        }

    def packets(self) -> dict[str, int]:
        """Packets since the start, by the same names."""
        return {name: counter["packets"] for name, counter in self._counters().items()}

    def _counters(self) -> dict[str, dict[str, int]]:
        with self._host.entered():
            return nftables.counters(self._table)
