"""The control planes of a lab's switches: the agent that runs them all, and FRR."""

from collections.abc import Mapping
from typing import Any

from testbed.errors import InputError
from testbed.lab.context import Context
from testbed.lab.node import Node
from testbed.lab.nodes.switch_node import Switch
from testbed.lab.routing import Routing
from testbed.protocol import events
from testbed.switch.agent import Agent
from testbed.switch.build import build
from testbed.topology import Plan


class ControlPlanes:
    """The agent and FRR of a lab, from their start to their end. The agent's reports become events of the lab."""

    agent: Agent
    """The agent, once a switch has started."""

    def __init__(self, context: Context, plan: Plan, nodes: Mapping[str, Node[Any]]) -> None:
        self._context = context
        self._plan = plan
        self._nodes = nodes
        self._routing: Routing | None = None

    @property
    def routing(self) -> Routing:
        """Return FRR on the switches."""
        if self._routing is None:
            raise InputError("the lab's routes are static", hint="Set `routing: frr` in the topology for FRR.")
        return self._routing

    def start(self) -> None:
        """Hand the data planes to the agent: the switches work when this returns."""
        switches = [node for node in self._nodes.values() if isinstance(node, Switch)]
        planes = []
        for switch in switches:
            with switch.entered():
                plane = build(switch.kernel, switch.planned, switch.first_profile)
            switch.set_sysctls(switch.planned.sysctls)
            planes.append((plane, switch.first_profile))
        if planes:
            self.agent = Agent.start(planes)
            self._context.scheduler.sources.append(self)
        for switch in switches:
            switch.agent = self.agent

    def links_work(self) -> None:
        """Start FRR, which needs links that carry frames."""
        if any(node.bgp for node in self._plan.nodes.values()):
            self._routing = Routing(self._context, self._plan, self._nodes)
            self._context.scheduler.sources.append(self._routing)
            self._routing.start()

    def complete(self) -> None:
        if self._routing:
            self._routing.converged()

    def stop_routing(self) -> None:
        if self._routing:
            routing, self._routing = self._routing, None
            self._context.scheduler.sources.remove(routing)
            routing.close()

    def stop(self) -> None:
        """End the agent, and emit its last reports."""
        if self in self._context.scheduler.sources:
            self._context.scheduler.sources.remove(self)
            self._emit(self.agent.stop())

    # A source of the scheduler

    def fileno(self) -> int:
        return self.agent.fileno()

    def catch_up(self) -> None:
        self.agent.catch_up()

    def drain(self) -> None:
        self._emit(self.agent.events())

    def _emit(self, reports: list[dict[str, Any]]) -> None:
        for report in reports:
            t, name, switch = (report.pop(key) for key in ("t", "kind", "switch"))
            data = events.named(name, report)
            if self._routing and isinstance(data, events.Route):
                self._routing.on_route(t, switch, data)
            self._context.emit(data, switch, data.sentence(), at_ns=t)
