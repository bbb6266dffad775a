"""The order in which nodes begin: containers, then commands, with the stages and the health that a file gives."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.errors import DeadlineError
from testbed.lab import beginning
from testbed.lab.nodes.host_node import Host
from testbed.topology import Topology


class Clock:
    """A scheduler whose time passes in waits only."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def wait_quietly(self, condition: Callable[[], bool], within: float) -> bool:
        deadline = self.now + within
        while not condition():
            if self.now >= deadline:
                return False
            self.now += 0.5
        return True


class Container:
    def __init__(self, plan: Any, clock: Clock, healthy_at: float, ends_at: float) -> None:
        self.plan, self.clock, self.healthy_at, self.ends_at = plan, clock, healthy_at, ends_at
        self.tests: list[float] = []

    def healthy(self) -> bool:
        self.tests.append(self.clock.now)
        return self.clock.now >= self.healthy_at

    def ended(self) -> bool:
        return self.clock.now >= self.ends_at


def begun(nodes: str, clock: Clock, healthy_at: float = 0.0, ends_at: float = 0.0) -> tuple[list[str], dict[str, Any]]:
    """What happened, each with its second, and the nodes."""
    plan = Topology.parse(f"name: t\ntopology:\n  defaults: {{kind: linux, image: i}}\n  nodes:\n{nodes}").plan()
    done: list[str] = []

    def node(name: str) -> Any:
        made = object.__new__(Host)
        made.name, made.plan = name, plan.nodes[name]
        made.container = Container(made.plan.container, clock, healthy_at, ends_at)  # type: ignore[assignment]
        made.begin = lambda: done.append(f"{clock.now:g} {name}")  # type: ignore[method-assign]
        made.execute = lambda commands: done.extend(f"{clock.now:g} {name}: {' '.join(one)}" for one in commands)  # type: ignore[method-assign]
        return made

    made = {name: node(name) for name in plan.nodes}
    beginning.begin(made.values(), clock)  # type: ignore[arg-type]
    return done, made


def test_without_stages_all_containers_start_before_the_first_command(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = begun("    a: {exec: [one]}\n    b: {exec: [two, three]}\n", Clock(monkeypatch))
    assert done == ["0 a", "0 b", "0 a: one", "0 b: two", "0 b: three"]


def test_a_node_waits_for_the_health_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = """\
    late: {stages: {create: {wait-for: [{node: db, stage: healthy}]}}, exec: [use]}
    db: {healthcheck: {test: [CMD, ready], interval: 4}, exec: [fill]}
    free: {}
"""
    done, made = begun(nodes, Clock(monkeypatch), healthy_at=7)
    assert done == ["0 db", "0 free", "0 db: fill", "8 late", "8 late: use"]
    assert made["db"].container.tests == [4.0, 8.0]


def test_a_delay_and_the_end_of_a_container(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = """\
    a: {startup-delay: 3}
    b: {stages: {configure: {wait-for: [{node: a, stage: exit}]}}, exec: [after]}
"""
    done, _ = begun(nodes, Clock(monkeypatch), ends_at=9)
    assert done == ["0 b", "3 a", "9 b: after"]


def test_commands_of_stages_run_at_their_begin_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = """\
    a:
      exec: [middle]
      stages:
        create-links: {exec: [{command: links}]}
        configure: {exec: [{command: last, phase: on-exit}, {command: first}]}
"""
    done, _ = begun(nodes, Clock(monkeypatch))
    assert done == ["0 a", "0 a: links", "0 a: first", "0 a: middle", "0 a: last"]


def test_the_old_key_wait_for_names_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = begun("    a: {wait-for: [b]}\n    b: {startup-delay: 2}\n", Clock(monkeypatch))
    assert done == ["2 b", "2 a"]


def test_a_stage_that_does_not_come_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = """\
    a: {healthcheck: {test: [CMD, ready]}}
    b: {stages: {create: {wait-for: [{node: a, stage: healthy}]}}}
"""
    with pytest.raises(DeadlineError) as caught:
        begun(nodes, Clock(monkeypatch), healthy_at=1e9)
    assert str(caught.value) == (
        "the lab does not begin within 600 s: stage healthy of a waits for its end; "
        "stage create of b waits for stage healthy of a"
    )


def test_containers_have_begun_when_no_program_starts_or_ends_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    programs = [{1}, {1, 2}, {1, 2}, {1, 3}]
    monkeypatch.setattr(beginning.processes, "running", lambda _: programs[min(int(clock.now), 3)])

    def sleep(seconds: float) -> None:
        clock.now += seconds

    host = SimpleNamespace(container=SimpleNamespace(namespace="t-a"))
    beginning.settle([host], SimpleNamespace(sleep=sleep))  # type: ignore[arg-type,list-item]
    assert clock.now == 3 + beginning.REST_S
    numbers = iter(range(1000))
    monkeypatch.setattr(beginning.processes, "running", lambda _: {next(numbers)})
    clock.now = 0
    beginning.settle([host], SimpleNamespace(sleep=sleep))  # type: ignore[arg-type,list-item]
    assert clock.now == beginning.SETTLED_S
