"""Jobs that wait side by side."""

import math
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.kernel.syscalls import readable
from testbed.lab import steps
from testbed.lab.scheduler import Scheduler
from testbed.lab.steps import Gate, Steps, Until


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def napping(name: str, seconds: float, told: list[str]) -> Steps[str]:
    told.append(f"{name} begins")
    yield from steps.pause(seconds)
    told.append(f"{name} ends")
    return name


def failing(error: BaseException) -> Steps[str]:
    yield from steps.pause(0)
    raise error


def test_a_job_returns_what_it_made() -> None:
    assert steps.run(readable, napping("one", 0.01, [])) == "one"


def test_a_job_is_told_whether_its_file_was_readable(pipe: tuple[int, int]) -> None:
    def job() -> Steps[list[bool]]:
        before = yield Until(time.monotonic() + 0.01, [pipe[0]])
        os.write(pipe[1], b"x")
        return [before, (yield Until(time.monotonic() + 60, [pipe[0]]))]

    assert steps.run(readable, job()) == [False, True]


def test_jobs_wait_side_by_side_and_answer_in_their_order() -> None:
    told: list[str] = []
    jobs = [partial(napping, name, seconds, told) for name, seconds in (("long", 0.1), ("short", 0.01))]
    assert steps.run(readable, steps.together(jobs, at_once=2)) == ["long", "short"]
    assert told == ["long begins", "short begins", "short ends", "long ends"]


def test_so_many_at_once() -> None:
    told: list[str] = []
    jobs = [partial(napping, name, 0.01, told) for name in "abc"]
    steps.run(readable, steps.together(jobs, at_once=1))
    assert told == ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]


def test_jobs_without_a_wait_and_no_jobs_at_all() -> None:
    def at_once() -> Steps[int]:
        return 7
        yield

    assert steps.run(readable, steps.together([at_once, at_once], at_once=1)) == [7, 7]
    assert steps.run(readable, steps.together([], at_once=3)) == []


def test_an_error_is_the_outcome_of_its_job_alone() -> None:
    wrong = TestbedError("no")
    jobs = [partial(failing, wrong), partial(napping, "other", 0.01, [])]
    assert steps.run(readable, steps.together(jobs, at_once=2)) == [wrong, "other"]


def test_another_exception_ends_all() -> None:
    ended = []

    def held() -> Steps[str]:
        try:
            yield Until(time.monotonic() + 60)
        finally:
            ended.append("held")
        return ""

    with pytest.raises(ZeroDivisionError):
        steps.run(readable, steps.together([held, partial(failing, ZeroDivisionError())], at_once=2))
    assert ended == ["held"]


def test_jobs_in_order_stop_at_the_first_error() -> None:
    told: list[str] = []
    jobs = [napping("a", 0, told), failing(TestbedError("no")), napping("b", 0, told)]
    with pytest.raises(TestbedError, match="no"):
        steps.run(readable, steps.in_order(jobs))
    assert told == ["a begins", "a ends"]


def test_a_gate_keeps_those_apart_that_have_to_be_alone_in_the_order_in_which_they_came() -> None:
    told: list[str] = []
    gate = Gate()
    wanted = [("a", False), ("b", False), ("c", True), ("d", False), ("e", True)]
    jobs = [partial(gate.passing, napping(name, 0.01, told), alone=alone) for name, alone in wanted]
    assert steps.run(readable, steps.together(jobs, at_once=5)) == list("abcde")
    assert told == [
        "a begins",
        "b begins",
        "a ends",
        "b ends",
        "c begins",
        "c ends",
        "d begins",
        "d ends",
        "e begins",
        "e ends",
    ]


def test_a_gate_lets_the_next_one_in_after_an_error_and_after_one_that_gave_up_before_it() -> None:
    gate = Gate()
    told: list[str] = []
    given_up = gate.passing(napping("given up", 0, told), alone=True)

    def gives_up() -> Steps[str]:
        next(given_up)
        given_up.close()
        return "gave up"
        yield

    first = partial(gate.passing, failing(TestbedError("no")), alone=True)
    last = partial(gate.passing, napping("last", 0, told))
    error, gave_up, ended = steps.run(readable, steps.together([first, gives_up, last], at_once=3))
    assert (str(error), gave_up, ended) == ("no", "gave up", "last")
    assert told == ["last begins", "last ends"]


@pytest.mark.parametrize(("outer_alone", "timer_alone"), [(False, True), (True, False)])
def test_a_job_of_a_timer_waits_for_the_one_that_was_interrupted(
    tmp_path: Path, outer_alone: bool, timer_alone: bool
) -> None:
    """One thread has both: what the timer interrupted goes on while its job is before the gate."""
    told: list[str] = []
    gate, scheduler = Gate(), Scheduler(tmp_path)

    def collect() -> None:
        told.append("due")
        scheduler.run(gate.passing(napping("timer", 0.01, told), alone=timer_alone))

    scheduler.after(0.01, collect)
    assert scheduler.run(gate.passing(napping("outer", 0.1, told), alone=outer_alone)) == "outer"
    assert told == ["outer begins", "due", "outer ends", "timer begins", "timer ends"]


def test_an_error_of_a_job_that_goes_on_below_a_timer_is_its_own(tmp_path: Path) -> None:
    told: list[str] = []
    gate, scheduler = Gate(), Scheduler(tmp_path)

    def outer() -> Steps[None]:
        yield from steps.pause(0.1)
        raise TestbedError("no")

    scheduler.after(0.01, lambda: told.append(scheduler.run(gate.passing(napping("timer", 0, told), alone=True))))
    with pytest.raises(TestbedError, match=r"^no$"):
        scheduler.run(gate.passing(outer()))
    assert told == ["timer begins", "timer ends", "timer"]


def test_jobs_that_a_timer_s_job_does_not_wait_for_stand_still(tmp_path: Path) -> None:
    told: list[str] = []
    scheduler = Scheduler(tmp_path)
    scheduler.after(0.01, lambda: told.append(scheduler.run(napping("timer", 0.1, told))))
    scheduler.run(napping("outer", 0.05, told))
    assert told == ["outer begins", "timer begins", "timer ends", "timer", "outer ends"]


def test_a_wait_may_have_no_deadline(tmp_path: Path, pipe: tuple[int, int]) -> None:
    scheduler = Scheduler(tmp_path)

    def write() -> None:
        os.write(pipe[1], b"x")

    def job() -> Steps[bool]:
        return (yield Until(math.inf, [pipe[0]]))

    scheduler.after(0.01, write)
    assert scheduler.run(job())
    assert readable([pipe[0]], math.inf)
