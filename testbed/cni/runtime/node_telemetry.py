"""The load of nodes and of the links above them, measured at the switches' ports, for telemetry policies."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from testbed.lab.fabric import Above

if TYPE_CHECKING:
    from testbed.lab.context import Context
    from testbed.lab.interface import Interface
    from testbed.lab.pods import Maker
EVERY = 15.0
"""Seconds between two readings, as a metrics adapter has them."""
SIGNS = {"transmit": "tx_bytes", "receive": "rx_bytes"}
FACING = {"transmit": "rx_bytes", "receive": "tx_bytes"}
"""The counter of a switch's port for what the NIC on its other end does, wherever that NIC is."""


class NodeTelemetry:
    """The metrics of all nodes, read from the time on when they were first wanted."""

    def __init__(self, context: Context, maker: Maker) -> None:
        self._context, self._maker = context, maker
        self._begun = False
        self._last: dict[str, dict[str, int]] = {}
        self._read_s = 0.0
        self._rates: dict[str, dict[str, float]] = {}

    def begin(self) -> None:
        """Read the counters now and from now on."""
        if not self._begun:
            self._begun = True
            self._read()
            self._context.scheduler.every(EVERY, self._read)

    def of(self, node: str) -> dict[str, float]:
        """Return the metrics of a node by name; those of the last period, and none before the first has passed."""
        return self._rates.get(node, {})

    def _read(self) -> None:
        now = time.monotonic()
        ports = {str(port): port for host in self._maker.hosts() for port in self._ports(self._maker.above(host))}
        counters = {name: dict(port.counters()) for name, port in ports.items()}
        seconds = now - self._read_s
        if self._last and seconds > 0:
            rates = {
                name: {key: (value - self._last[name].get(key, 0)) / seconds for key, value in found.items()}
                for name, found in counters.items()
                if name in self._last
            }
            self._rates = {host.name: self._of_host(self._maker.above(host), rates) for host in self._maker.hosts()}
        self._last, self._read_s = counters, now

    def _ports(self, above: Above) -> list[Interface]:
        return [*above.ports, *(end for leaf in above.levels[0] for end in self._maker.uplinks(leaf))]

    def _of_host(self, above: Above, rates: dict[str, dict[str, float]]) -> dict[str, float]:
        own = [rates[str(port)] for port in above.ports if str(port) in rates]
        up = [rates[str(end)] for leaf in above.levels[0] for end in self._maker.uplinks(leaf) if str(end) in rates]
        found: dict[str, float] = {}
        for way in FACING:
            if own:
                found[f"node_network_{way}_bytes_per_second"] = sum(one[FACING[way]] for one in own)
            if up:
                found[f"leaf_uplink_{way}_bytes_per_second"] = max(one[SIGNS[way]] for one in up)
        return found
