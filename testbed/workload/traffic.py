"""What an interface of a host carries, RoCE and TCP told apart: counted by nftables where rxe's packets pass it too."""

from __future__ import annotations

import itertools
import json

from testbed.kernel import nftables
from testbed.lab import Host

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
    """Counts from now on what `interface` of `host` sends and receives."""

    def __init__(self, host: Host, interface: str) -> None:
        self._host = host
        self._table = f"traffic-{interface}-{next(_NUMBERS)}"
        with host.entered():
            nftables.run(TABLE.format(table=self._table, interface=interface))

    def bytes(self) -> dict[str, int]:
        """Bytes on layer 2 (without the FCS) since the start: roce_out, roce_in, tcp_out, tcp_in."""
        with self._host.entered():
            found = json.loads(nftables.run(f"list counters table netdev {self._table}"))
        counters = [entry["counter"] for entry in found["nftables"] if "counter" in entry]
        return {counter["name"]: int(counter["bytes"]) for counter in counters}
