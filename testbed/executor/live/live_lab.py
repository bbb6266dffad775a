"""A lab that lives: built, then served until it is taken down."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed import faults
from testbed.cni.runtime.pod_networks import PodNetworks
from testbed.errors import InputError
from testbed.executor import Context, topologies
from testbed.executor.live.server import Server
from testbed.kernel.syscalls import at_once
from testbed.lab import Host, Lab, beginning, processes
from testbed.protocol import Event, Made
from testbed.protocol.live import LiveRequest
from testbed.protocol.requests import Live
from testbed.scenario import loading
from testbed.scenario.event_log import EventLog
from testbed.scenario.evidence import Evidence
from testbed.scenario.rows import as_built, plan_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from testbed.switch.profile import Profile
    from testbed.topology import Plan


def run(request: Live, context: Context) -> None:
    """Build the lab and serve it. Report that it is up. The last request of its life is answered when it is down, and
    its files are in the job's directory."""
    if context.wire is None:
        raise InputError("a live lab needs a micro-VM")
    directory = context.files
    listeners: list[Callable[[Event], None]] = [lambda event: context.emit({"event": event})]

    def publish(event: Event) -> None:
        for listener in listeners:
            listener(event)

    log = EventLog(publish)
    plan, profiles, file = planned(request, directory)
    made: Made = {"topology": plan_rows(plan, profiles), "epoch": log.epoch()}
    context.emit({"made": made})
    own = None if request.plugins is None else [(directory / name).resolve() for name in request.plugins]
    networks = PodNetworks(directory, own)
    lab = Lab(plan, context.out, log.emit, profiles=profiles, networks=networks, zero_ns=log.zero_ns, files=file.parent)
    with ExitStack() as unless_whole:
        unless_whole.enter_context(lab)
        containers = [node for node in lab.nodes.values() if isinstance(node, Host) and node.container]
        if context.wire.virtual and containers:
            beginning.settle(containers, lab.scheduler)
        faults.break_from_the_start(lab)
        lab.control_planes.daemons_may_end = True
        files = Evidence(lab, log)
        files.count("the lab came up")
        server = Server(lab, log, context.wire, file.read_text(), directory)
        listeners.append(server.publish)
        server.change_listeners.append(lambda request: files.count(command_of(request)))
        lab.scheduler.catch_up()

        def report_built() -> None:
            context.emit({"made": {**made, "topology": as_built(plan_rows(lab.plan, profiles), lab)}})

        report_built()
        server.rebuilt_listeners.append(report_built)
        context.emit({"up": True})
        down = server.serve()
        with at_once():  # programs of users may leave it little of the CPU
            files.save("the end")
        unless_whole.pop_all()
    leave(lab)
    trace = log.write(context.out / "events.jsonl")
    context.emit({"trace": trace, "virtual_s": log.now / 1e9})
    if down:
        down.respond(None)


def leave(lab: Lab) -> None:
    """End the programs of the nodes. The machine ends now with all else; taking it apart would only make the user
    wait."""
    lab.scheduler.close()
    for node in lab.nodes.values():
        if isinstance(node, Host) and node.container:
            node.container.keep_output()
        processes.end_all(node.namespace)


def command_of(request: LiveRequest[Any]) -> str:
    """Return the words of the command behind a request: ``fault inject`` of a FaultInject."""
    return re.sub(r"\B[A-Z]", r" \g<0>", type(request).__name__).lower()


def planned(request: Live, directory: Path) -> tuple[Plan, Mapping[str, Profile], Path]:
    """Return the plan of the lab, its switches' profiles, and its topology file."""
    if not request.scenario:
        plan, _ = topologies.planned_file(directory, request.topology)
        return plan, {}, directory / request.topology
    file = directory / request.scenario
    scenario = loading.load(file)
    with loading.blaming(file):
        parameters = scenario.settle(scenario.variant(request.variant), request.settings)
    _, lab = topologies.lab_of(scenario, parameters, file, request.topology)
    return lab.plan, lab.profiles, directory / lab.topology
