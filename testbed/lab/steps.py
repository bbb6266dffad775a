"""Jobs that wait side by side: generators that yield what they wait for, and return what they made.

One thread carries them out, so that what happens at the same virtual moment happens in the same order in every run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from testbed.errors import TestbedError
from testbed.kernel.readiness import readable
from testbed.lab.processes import Ready

T = TypeVar("T")


@dataclass(frozen=True)
class Until:
    """One of `files` is readable, or `deadline` is over, in seconds of `time.monotonic`."""

    deadline: float
    files: Sequence[Any] = ()


Steps = Generator[Until, bool, T]
"""A job. What it yields is answered with whether one of the files is readable."""


def pause(seconds: float) -> Steps[None]:
    yield Until(time.monotonic() + seconds)


def in_order(jobs: Iterable[Steps[T]]) -> Steps[list[T]]:
    """A job of several, one after the other. The first that fails ends it."""
    results: list[T] = []
    for job in jobs:
        results += [(yield from job)]
    return results


def run(ready: Ready, job: Steps[T]) -> T:
    """Carry out a job. `ready` waits, as that of a lab's scheduler does."""
    try:
        until = next(job)
        while True:
            until = job.send(ready(until.files, max(0.0, until.deadline - time.monotonic())))
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        job.close()


def together(jobs: Sequence[Callable[[], Steps[T]]], at_once: int) -> Steps[list[T | TestbedError]]:
    """A job of several, of which `at_once` are under way; what each returned or raised, in their order. Another
    exception than a TestbedError ends all."""
    outcomes: dict[int, T | TestbedError] = {}
    under_way: dict[int, tuple[Steps[T], Until]] = {}
    ahead = list(enumerate(jobs))

    def go_on(number: int, job: Steps[T], answer: bool | None) -> None:
        try:
            under_way[number] = job, next(job) if answer is None else job.send(answer)
        except StopIteration as end:
            outcomes[number] = end.value
        except TestbedError as error:
            outcomes[number] = error

    try:
        while ahead or under_way:
            while ahead and len(under_way) < at_once:
                number, make = ahead.pop(0)
                go_on(number, make(), None)
            if not under_way:
                continue
            waits = [until for _, until in under_way.values()]
            yield Until(min(until.deadline for until in waits), [file for until in waits for file in until.files])
            for number, (job, until) in sorted(under_way.items()):
                answer = readable(until.files, 0)
                if answer or until.deadline <= time.monotonic():
                    del under_way[number]
                    go_on(number, job, answer)
    finally:
        for job, _ in under_way.values():
            job.close()
    return [outcomes[number] for number in range(len(jobs))]
