"""The readiness gate of scenarios waits until a client's gateway answers."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.scenario.event_log import EventLog
from testbed.scenario.run import Run, Variant


class Scheduler:
    """A wait asks its condition four times."""

    def wait(self, condition: Callable[[], bool], within: float) -> bool:
        return any(condition() for _ in range(4))

    def catch_up(self) -> None: ...


class Gateway:
    """An interface of a host, and the host; its gateway answers after so many pings."""

    def __init__(self, silent: int) -> None:
        self.node = self
        self.silent = silent
        self.announced = 0
        self.pinged: list[str] = []

    def __str__(self) -> str:
        return "client"

    def gateway(self) -> str:
        return "its own"

    def ping(self, gateway: str, *, within: float) -> bool:
        self.pinged.append(str(gateway))
        self.silent -= 1
        return self.silent < 0

    def announce(self) -> None:
        self.announced += 1


@pytest.fixture
def run() -> Run:
    lab: Any = SimpleNamespace(scheduler=Scheduler())
    return Run(lab, EventLog(lambda _: None), Variant("as-is", "healthy", "it works"))


@pytest.mark.parametrize(("announce", "announced"), [(False, 0), (True, 2)])
def test_the_gate_opens_when_the_ping_gateway(run: Run, announce: bool, announced: int) -> None:
    client: Any = Gateway(silent=2)
    assert run.wait_for_gateway(client, announce=announce)
    assert client.announced == announced
    assert run.failures == []


def test_the_gateway_is_the_planned_one_unless_it_is_given(run: Run) -> None:
    planned: Any = Gateway(silent=0)
    given: Any = Gateway(silent=0)
    run.wait_for_gateway(planned)
    run.wait_for_gateway(given, "10.0.0.1")
    assert (planned.pinged, given.pinged) == (["its own"], ["10.0.0.1"])


def test_a_gate_that_stays_shut_is_a_failure(run: Run) -> None:
    client: Any = Gateway(silent=9)
    assert not run.wait_for_gateway(client)
    assert run.failures == ["client reaches its gateway: it was False, not True"]
