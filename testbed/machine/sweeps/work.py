"""The work of a sweep: a point run on a machine, and the run directories that stay."""

import asyncio
import itertools
import shutil
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from testbed.machine import child_processes, runs
from testbed.machine.jobs import Machine
from testbed.machine.record import Identity, RunResult
from testbed.machine.runs import Listener, VariantRun
from testbed.machine.scenarios import TakenSource
from testbed.machine.sweeps.points import Point
from testbed.machine.task_group import TaskGroup
from testbed.protocol import ScenarioInfo, VariantInfo

SCRATCH = ".sweep-"
"""Prefix of the directory, beside the run directories, in which a sweep runs."""
Take = Callable[[Point, RunResult, Path | None], Awaitable[None]]
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
        free = asyncio.Semaphore(1)
        return await runs.run(self.source, self.info, [variant_run], seed, machine, out, Listener(), free)


class Engine(Protocol):
    """The machines that carry out the points of a sweep."""

    async def identity(self) -> Identity:
        """Return the machines and the code that runs are made from."""

    async def run(self, points: Iterable[Point], take: Take, room: Room) -> None:
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

    async def run(self, points: Iterable[Point], take: Take, room: Room) -> None:
        waiting, numbers = iter(points), itertools.count()

        async def worker(scratch: Path) -> None:
            for point in waiting:
                out = scratch / str(next(numbers))
                out.mkdir()
                result = await self.work.carry_out(point.variant, point.seed, self.machine, out)
                await take(point, result, None if result.as_expected or not room() else out)
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
