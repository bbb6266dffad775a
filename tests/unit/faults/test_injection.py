"""Injections in a lab of a clock and some names: what is taken back, and what is reported of a fault that was not."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from testbed.faults import DuplicateMac, unfinished
from testbed.faults.fault import Fault, Injection, Verified
from testbed.lab.scheduler import Scheduler

OWN, OTHER = "02:00:00:00:00:0a", "02:00:00:00:00:0b"


class Unplugged(Fault):
    """A cable is out."""

    name: ClassVar[str] = "unplugged"
    cables: ClassVar[set[str]] = set()
    end: str = "leaf:e1"

    def inject(self, lab: Any, undo: ExitStack) -> None:
        self.cables.add(self.end)
        undo.callback(self.cables.discard, self.end)

    def verify(self, lab: Any) -> Verified | None:
        return {"out": self.end} if self.end in self.cables else None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock in seconds that waits move."""
    now = SimpleNamespace(s=0.0)
    for module in "testbed.faults.fault", "testbed.lab.scheduler":
        monkeypatch.setattr(f"{module}.time", SimpleNamespace(monotonic=lambda: now.s))
    return now


@contextmanager
def a_lab(clock: SimpleNamespace) -> Iterator[Any]:
    """Its end carries out what was deferred, the last first."""
    scheduler = Scheduler(None)  # type: ignore[arg-type]
    with ExitStack() as ends:
        lab = SimpleNamespace(scheduler=scheduler, injections=[], nodes={}, events=[], defer=ends.callback)
        lab.emit = lambda data, *_, **__: lab.events.append(data.kind_name)
        yield lab


def pass_time(lab: Any, clock: SimpleNamespace, seconds: float) -> None:
    """Let time pass for the timers of a lab."""
    until = clock.s + seconds
    while (due := min((at for at, _, _ in lab.scheduler._timers), default=until)) < until:
        clock.s = due
        lab.scheduler.ready([], 0, or_timer=True)
    clock.s = until


def test_a_fault_that_a_run_cuts_short_is_reported_with_the_time_that_was_left(clock: SimpleNamespace) -> None:
    with a_lab(clock) as lab:
        Injection(lab, Unplugged()).inject_after(1.0, lasting=10.0)
        pass_time(lab, clock, 7.0)
    assert unfinished(lab) == ["fault unplugged was cut short: the run ended 4.000 s before its 10 s were over"]
    assert lab.events == ["fault.injected", "fault.recovered"]


def test_a_fault_that_lasted_its_time_is_not_reported(clock: SimpleNamespace) -> None:
    with a_lab(clock) as lab:
        Injection(lab, Unplugged()).inject_after(0.0, lasting=2.0)
        pass_time(lab, clock, 3.0)
        assert lab.events == ["fault.injected", "fault.recovered"]
    assert unfinished(lab) == []


def test_a_fault_that_never_came_is_reported(clock: SimpleNamespace) -> None:
    with a_lab(clock) as lab:
        Injection(lab, Unplugged()).inject_after(5.0, lasting=None)
        pass_time(lab, clock, 1.0)
    assert unfinished(lab) == ["fault unplugged was never injected: the run ended before its time"]


def test_what_a_verdict_has_reported_is_not_reported_again(clock: SimpleNamespace) -> None:
    with a_lab(clock) as lab:
        Injection(lab, Unplugged()).inject_after(5.0, lasting=None)
        lab.injections[0].judged = True
    assert unfinished(lab) == []


class Nic:
    """An interface whose frames teach a switch."""

    def __init__(self, fdb: dict[str, str], mac: str, port: str) -> None:
        self.mac, self.peer = mac, SimpleNamespace(name=port, node=SimpleNamespace(name="leaf"))
        self._fdb = fdb

    def teach(self, mac: str = "") -> None:
        self._fdb[mac or self.mac] = self.peer.name


def two_hosts(lab: Any, fdb: dict[str, str]) -> None:
    nics = {"a": {"eth1": Nic(fdb, OWN, "e1")}, "b": {"eth1": Nic(fdb, OTHER, "e2")}}
    lab.host, lab.switch = nics.__getitem__, lambda _: SimpleNamespace(fdb_table=lambda: fdb)

    def wait(condition: Callable[[], bool], within: float) -> bool:
        assert condition()
        return True

    lab.scheduler.wait = wait


@pytest.mark.parametrize("period", [None, 1.0])
def test_a_switch_has_a_mac_at_its_owner_again_when_nobody_else_sends_with_it(
    clock: SimpleNamespace, period: float | None
) -> None:
    fdb = {OWN: "e1", OTHER: "e2"}
    with a_lab(clock) as lab:
        two_hosts(lab, fdb)
        injection = Injection(lab, DuplicateMac(host="b", of="a", switch="leaf", period=period))
        injection.inject()
        assert fdb == {OWN: "e2", OTHER: "e2"}
        injection.recover()
        pass_time(lab, clock, 5.0)
        assert fdb == {OWN: "e1", OTHER: "e2"}
