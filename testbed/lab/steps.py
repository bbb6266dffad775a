"""Jobs that wait side by side: generators that yield what they wait for, and return what they made.

One thread carries them out, so that what happens at the same virtual moment happens in the same order in every run.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from testbed.errors import TestbedError
from testbed.kernel.syscalls import readable
from testbed.lab.processes import Ready

T = TypeVar("T")


@dataclass(frozen=True)
class Until:
    """A wait until one of `files` is readable, or `deadline` is over, in seconds of `time.monotonic`."""

    deadline: float
    files: Sequence[Any] = ()
    for_jobs: bool = False
    """True if other jobs end the wait."""


Steps = Generator[Until, bool, T]
"""A job. Each wait that it yields is answered with whether one of the files is readable."""


def pause(seconds: float) -> Steps[None]:
    yield Until(time.monotonic() + seconds)


def in_order(jobs: Iterable[Steps[T]]) -> Steps[list[T]]:
    """Return a job of several, one after the other. The first that fails ends it."""
    results: list[T] = []
    for job in jobs:
        results += [(yield from job)]
    return results


class Runner:
    """A runner of jobs. A timer that expires while one waits may begin another one, which is then carried out first; if
    that has to wait for jobs begun before it, they go on meanwhile."""

    def __init__(self, ready: Ready) -> None:
        """`ready` waits. It may return early after a timer, as a lab's scheduler does with `or_timer`."""
        self._ready = ready
        self._begun: list[_Begun[Any]] = []

    def run(self, job: Steps[T]) -> T:
        begun = _Begun(job)
        before = tuple(self._begun)
        self._begun.append(begun)
        try:
            begun.go_on(None)
            while until := begun.until:
                going_on = [*before, begun] if until.for_jobs else [begun]
                first = _first([other.until for other in going_on if other.until])
                self._ready(first.files, max(0.0, first.deadline - time.monotonic()))
                _go_on(going_on)
        finally:
            self._begun.pop()
            job.close()
        return begun.result()


def run(ready: Ready, job: Steps[T]) -> T:
    return Runner(ready).run(job)


class _Begun(Generic[T]):
    """A job that has begun, and its outcome."""

    def __init__(self, job: Steps[T]) -> None:
        self.job = job
        self.until: Until | None = None
        """The job's wait. None while the job does something, and after its end."""
        self.outcome: list[T | TestbedError] = []

    def go_on(self, answer: bool | None) -> None:
        """Begin the job, or answer its wait. Another exception than a TestbedError goes to the caller."""
        self.until = None
        try:
            self.until = next(self.job) if answer is None else self.job.send(answer)
        except StopIteration as end:
            self.outcome = [end.value]
        except TestbedError as error:
            self.outcome = [error]

    def result(self) -> T:
        (outcome,) = self.outcome
        if isinstance(outcome, TestbedError):
            raise outcome
        return outcome


def _first(waits: Sequence[Until]) -> Until:
    """Return a wait that ends when the first of these is over."""
    files = [file for until in waits for file in until.files]
    return Until(min(until.deadline for until in waits), files, any(until.for_jobs for until in waits))


def _go_on(jobs: Iterable[_Begun[Any]]) -> None:
    """Answer the jobs whose waits are over, in their order."""
    for begun in jobs:
        if until := begun.until:
            answer = readable(until.files, 0)
            if answer or until.deadline <= time.monotonic():
                begun.go_on(answer)


def together(jobs: Sequence[Callable[[], Steps[T]]], at_once: int) -> Steps[list[T | TestbedError]]:
    """Return a job of several, of which `at_once` are under way; its results are what each returned or raised, in their
    order. Another exception than a TestbedError ends all."""
    begun: list[_Begun[T]] = []
    under_way: list[_Begun[T]] = []
    try:
        while True:
            while len(begun) < len(jobs) and len(under_way) < at_once:
                begun.append(_Begun(jobs[len(begun)]()))
                begun[-1].go_on(None)
                under_way += [begun[-1]] if begun[-1].until else []
            if not under_way:
                return [outcome for one in begun for outcome in one.outcome]
            yield _first([one.until for one in under_way if one.until])
            _go_on(under_way)
            under_way = [one for one in under_way if one.until]
    finally:
        for one in under_way:
            one.job.close()


class Gate:
    """A gate that lets in any number of jobs side by side, or one alone, in the order in which they come."""

    def __init__(self) -> None:
        self._turns: list[_Turn] = []

    def passing(self, job: Steps[T], *, alone: bool = False) -> Steps[T]:
        """Run the job when no other is in the gate, or none that has to be alone."""
        turn = _Turn(alone)
        self._turns.append(turn)
        try:
            while not self._is_due(turn):
                yield Until(math.inf, [turn], for_jobs=True)
            return (yield from job)
        finally:
            self._turns.remove(turn)
            turn.close()
            for other in filter(self._is_due, self._turns):
                other.wake()

    def _is_due(self, turn: _Turn) -> bool:
        before = self._turns[: self._turns.index(turn)]
        return not before if turn.alone else not any(other.alone for other in before)


class _Turn:
    """A job that is in a gate or before it."""

    def __init__(self, alone: bool) -> None:
        self.alone = alone
        self._event = os.eventfd(0)

    def fileno(self) -> int:
        return self._event

    def wake(self) -> None:
        os.eventfd_write(self._event, 1)

    def close(self) -> None:
        os.close(self._event)


def raise_first(outcomes: Sequence[Any]) -> None:
    """Raise the first error of several jobs, with the others as notes."""
    errors = [outcome for outcome in outcomes if isinstance(outcome, TestbedError)]
    for other in errors[1:]:
        errors[0].add_note(str(other))
    if errors:
        raise errors[0]
