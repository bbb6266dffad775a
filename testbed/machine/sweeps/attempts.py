"""Runs of a failed variant with fewer settings and faults, to find the smallest that still fails."""

import asyncio
import itertools
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from testbed.errors import InputError, TestbedError
from testbed.machine import runs, scenarios
from testbed.machine.jobs import Machine
from testbed.machine.layers import Log
from testbed.machine.record import RunResult, VariantResult
from testbed.machine.sweeps.points import Work
from testbed.machine.task_group import TaskGroup
from testbed.protocol import EVENTS, VariantInfo
from testbed.protocol.events import LEFT_OUT
from testbed.records.event_reader import read

MOST_FAULTS = 1000
"""Number of faults that are left out in order to count them."""


@dataclass(frozen=True)
class Setting:
    """A parameter that the user set."""

    key: str
    value: Any

    @property
    def text(self) -> str:
        return self.value if isinstance(self.value, str) else json.dumps(self.value)

    def __str__(self) -> str:
        return f"{self.key}={self.text}"


@dataclass(frozen=True)
class InjectedFault:
    """A fault of the run, by its number in the order in which the run injects them."""

    number: int
    text: str

    def __str__(self) -> str:
        return f"fault {self.number}: {self.text}"


Part = Setting | InjectedFault


@dataclass(frozen=True)
class Attempt:
    """A run with some of the parts, and its result; `result` is None where the scenario refuses the settings."""

    parts: Sequence[Part]
    result: RunResult | None
    same: bool
    """True if it failed as the first one did."""


@dataclass(frozen=True)
class Shrunk:
    """The result: the parts at first and in the end, where numbers may be others."""

    variant: str
    seed: int
    before: Sequence[Part]
    left_out: Sequence[int]
    """Faults that the run had left out at first."""
    after: Sequence[Part]
    failures: Sequence[str]
    smallest: RunResult
    tried: Sequence[Attempt]

    @property
    def without_faults(self) -> list[int]:
        there = [part.number for part in self.before if isinstance(part, InjectedFault)]
        left = [part.number for part in self.after if isinstance(part, InjectedFault)]
        return sorted({*self.left_out, *there} - {*left})


class Attempts:
    """Runner of a variant with some of its settings and faults, `jobs` at a time, in directories below `scratch`."""

    def __init__(
        self, work: Work, variant: str, seed: int, machine: Machine, jobs: int, scratch: Path, log: Log
    ) -> None:
        self._work = work
        self._variant = variant
        self._seed = seed
        self._machine = machine
        self._free = asyncio.Semaphore(jobs)
        self._jobs = jobs
        self._scratch = scratch
        self._log = log
        self._numbers = itertools.count()
        self._faults: list[InjectedFault] = []
        self._left_out: Sequence[int] = ()
        self._failure: Any = None
        self._done: dict[frozenset[Part], Attempt] = {}

    async def shrink(self, given: Sequence[Setting], left_out: Sequence[int]) -> Shrunk:
        """Find the smallest run. InputError if the first one is as expected."""
        self._left_out = left_out
        self._log("run it as it was")
        first = await self._run(given, left_out)
        if first is None or first.as_expected:
            hint = "Give the variant, the settings and the seed with which it fails."
            raise InputError(f"variant {self._variant} is as expected: nothing to shrink", hint=hint)
        self._failure = signature(first.variants[0])
        await self._learn_faults(given)
        before: list[Part] = [*given, *self._faults]
        self._done[frozenset(before)] = Attempt(before, first, True)
        after = await smallest(before, self._first)
        for part in [part for part in after if isinstance(part, Setting)]:
            others = [other for other in after if other != part]
            after = [*others, await self._nearer(part, others)]
        still_fails = self._done[frozenset(after)].result
        assert still_fails is not None, "it failed"
        failures = first.variants[0].failures
        tried = [*self._done.values()]
        return Shrunk(self._variant, self._seed, before, left_out, after, failures, still_fails, tried)

    async def _learn_faults(self, given: Sequence[Setting]) -> None:
        """Run without any fault: the run reports each fault that it leaves out."""
        self._log("run it without faults")
        result = await self._run(given, range(1, MOST_FAULTS + 1))
        if result is None:
            return
        events = read(result.out / self._variant / EVENTS)
        faults = [InjectedFault(there.number, there.fault) for event in events if (there := LEFT_OUT.of(event))]
        self._faults = [fault for fault in faults if fault.number not in self._left_out]
        self._done[frozenset(given)] = Attempt(given, result, self._same(result.variants[0]))

    def _same(self, result: VariantResult) -> bool:
        return not result.as_expected and signature(result) == self._failure

    async def _first(self, selections: list[list[Part]]) -> int | None:
        """Return the number of the first selection that still fails; as many as possible are tried at once."""
        for at in range(0, len(selections), self._jobs):
            batch = selections[at : at + self._jobs]
            async with TaskGroup() as group:
                tasks = [group.create_task(self._fails(parts)) for parts in batch]
            for number, task in enumerate(tasks, at):
                if task.result():
                    return number
        return None

    async def _fails(self, parts: Sequence[Part]) -> bool:
        key = frozenset(parts)
        if key not in self._done:
            kept = {part.number for part in parts if isinstance(part, InjectedFault)}
            without = {*self._left_out, *(fault.number for fault in self._faults if fault.number not in kept)}
            settings = [part for part in parts if isinstance(part, Setting)]
            result = await self._run(settings, sorted(without))
            same = result is not None and self._same(result.variants[0])
            self._done[key] = Attempt(parts, result, same)
            words = ", ".join(map(str, parts)) or "nothing set, no fault"
            self._log(f"{'the same failure' if same else 'another outcome'} with {words}")
        return self._done[key].same

    async def _nearer(self, part: Setting, others: Sequence[Part]) -> Setting:
        """Return the setting with the number that is nearest to the default and fails with the others."""
        schema = self._work.info["parameters"].get("properties", {}).get(part.key, {})
        own = next(one["settings"] for one in self._work.info["variants"] if one["name"] == self._variant)
        default = own.get(part.key, schema.get("default"))
        whole = schema.get("type") == "integer"
        if schema.get("type") not in ("integer", "number") or not isinstance(default, (int, float)):
            return part

        async def fails(number: float) -> bool:
            return await self._fails([*others, Setting(part.key, number)])

        value = int(float(part.text)) if whole else float(part.text)
        number = await nearest(default, value, fails, whole=whole)
        return part if number == value else Setting(part.key, number)

    async def _run(self, given: Sequence[Setting], without: Sequence[int]) -> RunResult | None:
        """Run the variant; None where the scenario refuses the settings."""
        async with self._free:
            try:
                variant = await self._described({one.key: one.value for one in given})
            except TestbedError as error:  # what a description refuses is no InputError here, but has its status
                if error.exit_status != InputError.exit_status:
                    raise
                return None
            out = self._scratch / str(next(self._numbers))
            out.mkdir()
            return await self._work.carry_out(variant, self._seed, self._machine, out, without)

    async def _described(self, settings: dict[str, Any]) -> VariantInfo:
        [info] = await scenarios.describe([(self._work.source, settings)], [self._variant])
        return runs.choose(info, [self._variant])[0].variant


T = TypeVar("T")
HALVINGS = 12
"""Halvings, at most, between a default and a number that is not an integer."""


def signature(result: VariantResult) -> tuple[str | None, frozenset[str]]:
    """Return the marks of a failure: what users observed, and the expectations that failed, whatever was found instead.
    Numbers in texts are left out: they are times, and change with everything."""
    heads = (failure.partition(": it was ")[0] for failure in result.failures)
    return result.observed, frozenset(re.sub(r"\d+(\.\d+)?", "#", head) for head in heads)


async def smallest(parts: Sequence[T], fails: Callable[[list[list[T]]], Awaitable[int | None]]) -> list[T]:
    """Return parts of which none can be left out without losing the failure, by ddmin (Zeller and Hildebrandt, 2002).

    All of them fail. `fails` gets several selections, and returns the number of the first that does.
    """
    left, pieces = [*parts], 2
    if left and await fails([[]]) is not None:
        return []
    while len(left) >= 2:
        size = -(-len(left) // pieces)
        chunks = [left[at : at + size] for at in range(0, len(left), size)]
        others = [[part for part in left if part not in chunk] for chunk in chunks]
        if (one := await fails(chunks)) is not None:
            left, pieces = chunks[one], 2
        elif len(chunks) > 2 and (one := await fails(others)) is not None:
            left, pieces = others[one], max(pieces - 1, 2)
        elif size == 1:
            break
        else:
            pieces = min(len(left), 2 * pieces)
    return left


async def nearest(default: float, value: float, fails: Callable[[float], Awaitable[bool]], *, whole: bool) -> float:
    """Return the number nearest to the default that still fails, by bisection: `value` does and `default` does not.
    `whole` numbers are found exactly, others after some halvings."""
    good, bad = default, value
    for _ in range(64 if whole else HALVINGS):
        middle = (good + bad) // 2 if whole else (good + bad) / 2
        if middle in (good, bad):
            break
        if await fails(middle):
            bad = middle
        else:
            good = middle
    return bad
