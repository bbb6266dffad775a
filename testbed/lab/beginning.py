"""The begin of a lab's nodes: their containers start, and the commands of the file run, in the order of their stages.

Without stages in the file all containers start, then the commands run, both in the order of the file. A stage that
waits for one of another node begins when that is over (containerlab's manual, Nodes: stages).
"""

import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from testbed.errors import DeadlineError
from testbed.lab import processes
from testbed.lab.node import Node
from testbed.lab.nodes.host_node import Host
from testbed.lab.scheduler import Scheduler
from testbed.topology import STAGES, Stage

PLAIN = tuple(Stage(name) for name in STAGES)
ALWAYS = "create", "configure"
"""The stages that each node has; others come if somebody waits for them, or if they have commands."""
LIMIT_S = 600.0
"""Seconds without progress after which a lab does not come up."""
REST_S, SETTLED_S = 10.0, 120.0
"""Seconds without a program that starts or ends, after which containers have begun; they are given so many at most."""
LOOK_S = 1.0


def begin(nodes: Iterable[Node[Any]], scheduler: Scheduler, there: Iterable[Node[Any]] = ()) -> None:
    """Start what the nodes run by themselves; those that are `there` have begun before. DeadlineError for a stage that
    does not come."""
    beginning = _Beginning(list(nodes), there)
    while not beginning.over():
        if not scheduler.wait_quietly(beginning.go_on, LIMIT_S):
            raise DeadlineError(f"the lab does not begin within {LIMIT_S:g} s: {beginning.awaited()}")


def settle(hosts: Iterable[Host], scheduler: Scheduler) -> None:
    """Let time pass until the containers of the hosts have begun: the scripts that start their daemons have ended. A
    live lab on the virtual clock has no time for that later, unless somebody advances it."""
    namespaces = [host.container.namespace for host in hosts if host.container]
    deadline = time.monotonic() + SETTLED_S
    running, since = processes.running(namespaces), time.monotonic()
    while time.monotonic() < min(deadline, since + REST_S):
        scheduler.sleep(LOOK_S)
        if (found := processes.running(namespaces)) != running:
            running, since = found, time.monotonic()


class _Beginning:
    def __init__(self, nodes: list[Node[Any]], there: Iterable[Node[Any]]) -> None:
        stages = {node: node.plan.start.stages if node.plan and node.plan.start else PLAIN for node in nodes}
        awaited = {wait for own in stages.values() for stage in own for wait in stage.waits}
        self._left = {
            node: deque(
                stage
                for stage in own
                if stage.name in ALWAYS or (node.name, stage.name) in awaited or stage.on_enter or stage.on_exit
            )
            for node, own in stages.items()
        }
        self._began = time.monotonic()
        self._entered: set[Node[Any]] = set()
        """The nodes whose next stage has begun."""
        self._over: set[tuple[str, str]] = {(node.name, stage) for node in there for stage in STAGES}
        self._tested: dict[Node[Any], float] = {}

    def over(self) -> bool:
        return not any(self._left.values())

    def go_on(self) -> bool:
        """Carry out a stage of a node: the earliest stage comes first, then the order of the file. Return whether there
        was one."""
        for name in STAGES:
            for node, left in self._left.items():
                if left and left[0].name == name and self._go_on(node, left[0]):
                    return True
        return False

    def _go_on(self, node: Node[Any], stage: Stage) -> bool:
        if node not in self._entered:
            delay = node.plan.start.delay_s if stage.name == "create" and node.plan and node.plan.start else 0.0
            if time.monotonic() < self._began + delay or not self._over.issuperset(stage.waits):
                return False
            self._entered.add(node)
            if stage.name == "create":
                node.begin()
            node.execute(stage.on_enter)
            if stage.name == "configure" and node.plan:
                node.execute(node.plan.exec)
        if not self._is_over(node, stage):
            return False
        node.execute(stage.on_exit)
        self._entered.remove(node)
        self._left[node].popleft()
        self._over.add((node.name, stage.name))
        return True

    def _is_over(self, node: Node[Any], stage: Stage) -> bool:
        container = node.container if isinstance(node, Host) else None
        if container is None or stage.name not in ("healthy", "exit"):
            return True
        if stage.name == "exit":
            return container.ended()
        if (health := container.plan.health) is None:
            return True
        if time.monotonic() < self._tested.setdefault(node, time.monotonic()) + health.interval_s:
            return False
        self._tested[node] = time.monotonic()
        return container.healthy()

    def awaited(self) -> str:
        """Return in words what the nodes wait for."""
        found = []
        for node, left in self._left.items():
            if left:
                stage = left[0]
                waits = [f"stage {name} of {other}" for other, name in stage.waits if (other, name) not in self._over]
                found.append(f"stage {stage.name} of {node.name} waits for {', '.join(waits) or 'its end'}")
        return "; ".join(found)
