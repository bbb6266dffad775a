"""The control planes of a lab's switches: the agent that runs them all, and FRR."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from testbed.errors import InputError
from testbed.kernel.bfd.offload import SWITCHES
from testbed.lab.context import Context
from testbed.lab.node import Node
from testbed.lab.nodes.switch_node import Switch
from testbed.lab.routing import Routing
from testbed.lab.virtual_routers import VrrpRow
from testbed.protocol import events
from testbed.switch import frr
from testbed.switch.agent import Agent
from testbed.switch.build import build
from testbed.topology import Plan
from testbed.topology.changes import Link


class ControlPlanes:
    """The agents and FRR of a lab, from their start to their end. The agents' reports become events of the lab. The
    switches that a lab begins with have one agent; those that come later have another one."""

    def __init__(self, context: Context, plan: Plan, nodes: Mapping[str, Node[Any]]) -> None:
        self._context = context
        self._plan = plan
        self._nodes = nodes
        self.daemons_may_end = context.seal is not None
        """True if a daemon of FRR that ends is an event, and no error: somebody may have ended it."""
        self._routing: Routing | None = None
        self._agents: dict[_Reports, set[Switch]] = {}
        self._numbers: dict[str, int] = {}

    @property
    def routing(self) -> Routing:
        """Return FRR on the switches."""
        if self._routing is None:
            raise InputError("the lab's routes are static", hint="Set `routing: frr` in the topology for FRR.")
        return self._routing

    def start(self, nodes: Iterable[Node[Any]]) -> None:
        """Hand the data planes of the switches among these nodes to an agent: they work when this returns."""
        switches = [node for node in nodes if isinstance(node, Switch)]
        if not switches:
            return
        planes = []
        for switch in switches:
            with switch.entered():
                plane = build(switch.kernel, switch.planned, switch.first_profile, self._number(switch))
            switch.set_sysctls(switch.planned.sysctls)
            planes.append((plane, switch.first_profile))
        agent = Agent.start(planes)
        reports = _Reports(agent, self._emit)
        self._agents[reports] = set(switches)
        self._context.scheduler.sources.append(reports)
        for switch in switches:
            switch.agent = agent

    def _number(self, switch: Switch) -> int:
        """Return the number that a switch with BGP has for itself while it is there."""
        if not switch.planned.bgp:
            return 0
        number = next((number for number in range(SWITCHES) if number not in self._numbers.values()), None)
        if number is None:
            raise InputError(f"{switch}: at most {SWITCHES} switches can have `routing: frr`")
        self._numbers[switch.name] = number
        return number

    def forget(self, switch: Switch) -> None:
        """End the control plane of a switch that goes."""
        if self._routing:
            self._routing.forget(switch)
        reports = next(reports for reports, switches in self._agents.items() if switch in switches)
        reports.agent.ask(switch.name, "leave")
        self._numbers.pop(switch.name, None)
        self._agents[reports].remove(switch)
        if not self._agents[reports]:
            self._stop(reports)

    def release(self, links: Iterable[Link]) -> None:
        """Prepare for the end of links."""
        if self._routing:
            self._routing.release(links)

    def change(self, plan: Plan) -> None:
        """Run FRR as another plan has it; the links of nodes that have come carry frames."""
        self._plan = plan
        if self._routing:
            self._routing.change(plan)
        else:
            self.links_work()
            self.complete()

    def links_work(self) -> None:
        """Start FRR, which needs links that carry frames."""
        if any(frr.daemons(node) for node in self._plan.nodes.values()):
            self._routing = Routing(self._context, self._plan, self._nodes, lambda: self.daemons_may_end)
            self._context.scheduler.sources.append(self._routing)
            self._routing.start()

    def complete(self) -> None:
        if self._routing:
            self._routing.settle()

    def virtual_routers(self, switch: Switch) -> list[VrrpRow]:
        """Return the virtual routers of a switch as its vrrpd has them."""
        return self._routing.vrrp(switch) if self._routing else []

    def stop_routing(self) -> None:
        if self._routing:
            routing, self._routing = self._routing, None
            self._context.scheduler.sources.remove(routing)
            routing.close()

    def stop(self) -> None:
        """End the agents, and emit their last reports."""
        for reports in [*self._agents]:
            self._stop(reports)

    def _stop(self, reports: _Reports) -> None:
        del self._agents[reports]
        self._context.scheduler.sources.remove(reports)
        self._emit(reports.agent.stop())

    def _emit(self, reports: list[dict[str, Any]]) -> None:
        for report in reports:
            t, name, switch = (report.pop(key) for key in ("t", "kind", "switch"))
            data = events.named(name, report)
            if self._routing and isinstance(data, events.Route):
                self._routing.on_route(t, switch, data)
            self._context.emit(data, switch, data.sentence(), at_ns=t)


class _Reports:
    """The reports of an agent, as a source of the scheduler."""

    def __init__(self, agent: Agent, emit: Callable[[list[dict[str, Any]]], None]) -> None:
        self.agent = agent
        self._emit = emit

    def fileno(self) -> int:
        return self.agent.fileno()

    def catch_up(self) -> None:
        self.agent.catch_up()

    def drain(self) -> None:
        self._emit(self.agent.events())
