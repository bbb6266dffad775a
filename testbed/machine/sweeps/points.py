"""The runs of a sweep, one for each seed, variant and combination of values, and what an engine carries out."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shlex
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from testbed.errors import InputError
from testbed.machine import child_processes, runs
from testbed.machine.jobs import Machine
from testbed.machine.record import Identity, RunResult
from testbed.machine.runs import Listener, VariantRun
from testbed.machine.scenarios import TakenSource
from testbed.machine.slots import Slots
from testbed.machine.task_group import TaskGroup
from testbed.protocol import ScenarioInfo, VariantInfo

MOST = 1_000_000
"""Runs that a sweep may have."""
RANGE = re.compile(r"(\d+)(?:\.\.(\d+))?", re.ASCII)
LARGEST_SEED = 2**63 - 1
"""Largest seed that the result file can hold."""


@dataclass(frozen=True)
class Point:
    """A run of a sweep. `values` has the varied parameters, `given` all user settings for the variant, as texts."""

    seed: int
    variant: VariantInfo
    values: Mapping[str, str]
    given: Mapping[str, str]

    @property
    def key(self) -> Key:
        """Return the key of the run among all of the same scenario."""
        return self.variant["name"], json.dumps(self.variant["settings"], sort_keys=True), self.seed

    @property
    def label(self) -> str:
        return " ".join([self.variant["name"], *self._values()])

    @property
    def values_label(self) -> str:
        return ",".join(self._values())

    def _values(self) -> list[str]:
        return [f"{key}={value}" for key, value in self.values.items()]

    def command(self, scenario: str) -> str:
        """Return the command to repeat it; `scenario` is its name or path."""
        return command(scenario, self.variant["name"], self.given, self.seed)


Key = tuple[str, str, int]


def command(scenario: str, variant: str, given: Mapping[str, str], seed: int, *others: str) -> str:
    """Return the command that runs a variant."""
    settings = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    return shlex.join(["testbed", "run", scenario, "--variant", variant, *settings, *others, "--seed", str(seed)])


def seeds(text: str) -> list[int]:
    """Return the seeds of `0..999`, `1,5,9` or both, each once, in the order in which they are written."""
    found: dict[int, None] = {}
    for part in (part.strip() for part in text.split(",")):
        match = RANGE.fullmatch(part)
        if match is None:
            raise InputError(f"--seeds: {part!r} is not a seed or a range", hint="For example --seeds 0..99,200.")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise InputError(f"--seeds: {part}: the end is before the start", hint=f"Write {last}..{first}.")
        if last > LARGEST_SEED:
            raise InputError(f"--seeds: {last} is too large", hint=f"The largest seed is {LARGEST_SEED}.")
        if last - first >= MOST:
            raise too_many(last - first + 1)
        found |= dict.fromkeys(range(first, last + 1))
    return [*found]


def too_many(count: int) -> InputError:
    return InputError(f"a sweep of {count} runs is too large: at most {MOST}", hint="Name fewer --seeds.")


SCRATCH = ".sweep-"
"""Prefix of the directory, beside the run directories, in which a sweep runs."""
OnResult = Callable[[Point, RunResult, Path | None], Awaitable[None]]
"""Callback for each ended run and its directory if that may stay: it is gone when the callback is done."""
Room = Callable[[], bool]
"""Return True if the directory of one more run, if it is not as expected, may stay."""


@dataclass(frozen=True)
class Work:
    """The scenario of a sweep, with its files as they were when it began."""

    source: TakenSource
    info: ScenarioInfo

    async def carry_out(
        self, variant: VariantInfo, seed: int, machine: Machine, out: Path, without_faults: Sequence[int] = ()
    ) -> RunResult:
        """Run a variant, as `testbed run` would, in the run directory `out`."""
        variant_run = VariantRun(self.info["name"], variant["name"], variant, without_faults)
        return await runs.run(self.source, self.info, [variant_run], seed, machine, out, Listener(), Slots(1))


class Engine(Protocol):
    """The machines that carry out the points of a sweep."""

    async def identity(self) -> Identity:
        """Return the machines and the code that runs are made from."""

    async def run(self, points: Iterable[Point], on_result: OnResult, room: Room) -> None:
        """Run points side by side."""


@dataclass(frozen=True)
class Here:
    """Engine on this machine, with `jobs` runs side by side, in a temporary directory below `parent`."""

    work: Work
    machine: Machine
    jobs: int
    parent: Path

    async def identity(self) -> Identity:
        return await asyncio.to_thread(Identity.of, self.machine)

    async def run(self, points: Iterable[Point], on_result: OnResult, room: Room) -> None:
        waiting, numbers = iter(points), itertools.count()

        async def worker(scratch: Path) -> None:
            for point in waiting:
                out = scratch / str(next(numbers))
                out.mkdir()
                result = await self.work.carry_out(point.variant, point.seed, self.machine, out)
                await on_result(point, result, None if result.as_expected or not room() else out)
                await asyncio.to_thread(shutil.rmtree, out, ignore_errors=True)

        with child_processes.scratch(self.parent, SCRATCH) as scratch:
            async with TaskGroup() as group:
                for _ in range(self.jobs):
                    group.create_task(worker(scratch))


def keep(result: RunResult, directory: Path, base: Path) -> Path:
    """Move a run's directory to where `testbed run --out BASE` would have made it."""
    place = runs.run_directory(base, result.scenario, latest=False)
    directory.replace(place)
    replace(result, out=place).write()
    return place
