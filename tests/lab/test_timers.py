"""Timers of a lab are kept by whatever waits in it, to the moment."""

import socket
import time

import pytest

from testbed.errors import DeadlineError
from testbed.lab import Lab
from testbed.workload.verbs import Endpoint, connect_pair

EXACT_S = 0.001
pytestmark = pytest.mark.topology("""
name: timers
topology:
  nodes:
    leaf: {kind: switch}
    a: {kind: host}
    b: {kind: host}
  links:
    - endpoints: ["leaf:e1", "a:eth1"]
    - endpoints: ["leaf:e2", "b:eth1"]
""")


class Clock:
    """Seconds since it was made; `called` are the moments of `note`."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self.called: list[float] = []

    def note(self) -> None:
        self.called.append(time.monotonic() - self._start)


def sleep(lab: Lab) -> None:
    lab.scheduler.sleep(5)


def wait(lab: Lab) -> None:
    assert not lab.scheduler.wait(lambda: False, 5)


def run_a_command(lab: Lab) -> None:
    lab["a"].run("sleep", "5")


def wait_for_a_program(lab: Lab) -> None:
    assert lab["a"].spawn("sleep", "5").wait(within=10) == 0


def set_timers(lab: Lab) -> Clock:
    clock = Clock()
    for seconds in (3.0, 1.0, 2.5):
        lab.scheduler.after(seconds, clock.note)
    return clock


@pytest.mark.parametrize("waiting", [sleep, wait, run_a_command, wait_for_a_program])
def test_a_timer_is_kept_while_the_story_waits(lab: Lab, waiting) -> None:
    clock = set_timers(lab)
    waiting(lab)
    assert clock.called == pytest.approx([1.0, 2.5, 3.0], abs=EXACT_S)


class Slow:
    """A source that takes ten milliseconds to be asked, as Python does now and then to collect garbage."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()

    def fileno(self) -> int:
        until = time.monotonic() + 0.01
        while time.monotonic() < until:
            pass
        return self._ours.fileno()

    def catch_up(self) -> None: ...

    def drain(self) -> None: ...


@pytest.mark.fresh
def test_a_timer_is_kept_whatever_takes_time_before_the_wait(lab: Lab) -> None:
    lab.scheduler.sources.append(Slow())
    clock = set_timers(lab)
    lab.scheduler.sleep(5)
    assert clock.called == pytest.approx([1.0, 2.5, 3.0], abs=EXACT_S)


def test_a_timer_is_kept_while_a_completion_is_awaited(lab: Lab) -> None:
    hosts = lab.host("a"), lab.host("b")
    near, far = (
        Endpoint(h["eth1"].device, h.namespace, h["eth1"].address().ip, ready=lab.scheduler.ready) for h in hosts
    )
    with near, far:
        connect_pair(near, far)
        clock = set_timers(lab)
        with pytest.raises(DeadlineError):
            near.recv(64, within=5)
    assert clock.called == pytest.approx([1.0, 2.5, 3.0], abs=EXACT_S)


def test_a_timer_may_be_cancelled_and_may_set_the_next(lab: Lab) -> None:
    clock = Clock()
    cancel = lab.scheduler.after(1.0, clock.note)

    def again() -> None:
        clock.note()
        cancel()
        lab.scheduler.after(0.25, clock.note)

    lab.scheduler.after(0.5, again)
    lab.scheduler.sleep(2)
    assert clock.called == pytest.approx([0.5, 0.75], abs=EXACT_S)


def test_a_timer_may_come_again_until_it_is_cancelled(lab: Lab) -> None:
    clock = Clock()
    cancel = lab.scheduler.every(0.5, clock.note)
    lab.scheduler.sleep(1.75)
    cancel()
    lab.scheduler.sleep(1)
    assert clock.called == pytest.approx([0.5, 1.0, 1.5], abs=EXACT_S)


def test_what_a_timer_raises_ends_the_wait(lab: Lab) -> None:
    def fail() -> None:
        raise RuntimeError("in a timer")

    lab.scheduler.after(1.0, fail)
    with pytest.raises(RuntimeError, match="in a timer"):
        lab.scheduler.sleep(2)


@pytest.mark.fresh
def test_a_timer_that_is_left_is_not_kept_when_the_lab_goes(lab: Lab) -> None:
    clock = Clock()
    lab.scheduler.after(0.0, clock.note)
    lab.close()
    assert clock.called == []
