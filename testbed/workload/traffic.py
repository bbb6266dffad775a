"""Counters of RoCE and TCP on an interface, by nftables at hooks that rxe's packets pass too."""

from __future__ import annotations

import itertools

from testbed.kernel import nftables
from testbed.lab import HostInterface

TABLE = """
table netdev {table} {{
    counter roce_out {{}}
    counter roce_in {{}}
    counter tcp_out {{}}
    counter tcp_in {{}}
    chain out {{
        type filter hook egress device "{interface}" priority 10;
        udp dport 4791 counter name roce_out
        meta l4proto tcp counter name tcp_out
    }}
    chain in {{
        type filter hook ingress device "{interface}" priority 10;
        udp dport 4791 counter name roce_in
        meta l4proto tcp counter name tcp_in
    }}
}}
"""
_NUMBERS = itertools.count(1)


class Traffic:
    """Counts from now on what an interface sends and receives."""

    def __init__(self, interface: HostInterface) -> None:
        self._host = interface.node
        self._table = f"traffic-{interface.name}-{next(_NUMBERS)}"
        with self._host.entered():
            nftables.run(TABLE.format(table=self._table, interface=interface.name))

    def bytes(self) -> dict[str, int]:
        """Bytes on layer 2 (without the FCS) since the start: roce_out, roce_in, tcp_out, tcp_in."""
        with self._host.entered():
            counters = nftables.counters(f"netdev {self._table}")
        return {name: counter["bytes"] for name, counter in counters.items()}
