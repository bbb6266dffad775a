"""What an interface of a host carries, RoCE and TCP told apart: counted by nftables where rxe's packets pass it too."""

from __future__ import annotations

import json

from testbed import nftables
from testbed.lab import Host

TABLE = """
table netdev traffic-{interface} {{
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


class Traffic:
    """Counts from now on what `interface` of `host` sends and receives."""

    def __init__(self, host: Host, interface: str) -> None:
        self._host = host
        self._interface = interface
        with host.entered():
            nftables.run(TABLE.format(interface=interface))

    def bytes(self) -> dict[str, int]:
        """Bytes on layer 2 (without the FCS) since the start: roce_out, roce_in, tcp_out, tcp_in."""
        with self._host.entered():
            found = json.loads(nftables.run(f"list counters table netdev traffic-{self._interface}"))
        counters = [entry["counter"] for entry in found["nftables"] if "counter" in entry]
        return {counter["name"]: int(counter["bytes"]) for counter in counters}
