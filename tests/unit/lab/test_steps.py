"""Jobs that wait side by side."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial

import pytest

from testbed.errors import TestbedError
from testbed.kernel.readiness import readable
from testbed.lab import steps
from testbed.lab.steps import Steps, Until


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
