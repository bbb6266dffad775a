"""Measurements of a lab that lives, from which its metrics are made."""

from testbed.executor.live import inspecting
from testbed.executor.live.server import Call, Subscription
from testbed.protocol import live
from testbed.protocol.live import Measured
from testbed.scenario.evidence import counters


def metrics(request: live.Metrics, call: Call) -> Measured | Subscription:
    if not request.follow:
        return measured(call)
    listener = call.server.rest_listeners, lambda: call.report(measured=measured(call))
    return Subscription(call, lambda: measured(call), listener)


def measured(call: Call) -> Measured:
    call.lab.scheduler.catch_up()
    missing: list[str] = []
    return {
        **inspecting.inspect(live.Inspect(), call),
        "counters": counters(call.lab, missing),
        "tables": {switch.name: inspecting.table_rows(switch) for switch in call.lab.switches()},
        "missing": missing,
    }
