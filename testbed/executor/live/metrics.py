"""What the metrics of a lab that lives are made of."""

from __future__ import annotations

from typing import Any

from testbed.executor.live import looks
from testbed.executor.live.server import Call
from testbed.protocol import live
from testbed.protocol.live import Measured
from testbed.scenario.evidence import counters


class Measuring:
    """A measurement whenever the lab comes to rest."""

    drives = False

    def __init__(self, call: Call) -> None:
        self._call = call
        call.server.resters.append(self._measure)

    def _measure(self) -> None:
        self._call.report(measured=measured(self._call))

    def hear(self, message: dict[str, Any]) -> None:
        if message.get("stop"):
            self._call.server.resters.remove(self._measure)
            self._call.end(measured(self._call))


def metrics(request: live.Metrics, call: Call) -> Measured | Measuring:
    return Measuring(call) if request.follow else measured(call)


def measured(call: Call) -> Measured:
    call.lab.scheduler.catch_up()
    missing: list[str] = []
    return {
        **looks.inspect(live.Inspect(), call),
        "counters": counters(call.lab, missing),
        "tables": {switch.name: looks.table_rows(switch) for switch in call.lab.switches()},
        "missing": missing,
    }
