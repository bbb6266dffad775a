"""A run of a variant that a keeper stops, serves while stopped, and continues to its verdict."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from testbed.errors import InputError
from testbed.machine import kept_labs, making, runs, scenarios
from testbed.machine.image import Image
from testbed.machine.jobs import Job
from testbed.machine.live.lifecycle import Lifecycle
from testbed.machine.live.machine_loop import LoopListener, MachineLoop
from testbed.machine.live.order import Order
from testbed.machine.live.stops import Stop
from testbed.machine.moments import Opened, Saved
from testbed.machine.qemu import Flavour
from testbed.machine.record import VariantResult
from testbed.machine.runs import Listener, VariantRun
from testbed.machine.scenarios import Source
from testbed.machine.slots import Slots
from testbed.machine.vm import VirtualMachine, write_bundle
from testbed.protocol import Event, VariantInfo


@dataclass(frozen=True)
class RunOrder:
    """Order for a run. `file` is scenario.py, `program` a script of the user's that it runs, `label` the variant's
    directory, `step` a moment's file to begin at. With `shares_lab` the run begins with the lab that an earlier one
    kept in the cache, or keeps its own."""

    name: str
    file: str
    topology: str | None
    label: str
    variant: VariantInfo
    stop: str
    step: str | None = None
    program: str | None = None
    shares_lab: bool = False


class RunKeeper(LoopListener, Protocol):
    life: Lifecycle
    loop: MachineLoop | None

    def show(self, record: dict[str, Any]) -> None: ...


class Relay(Listener):
    """Forwarder of the run's events to commands that wait for it."""

    def __init__(self, keeper: RunKeeper) -> None:
        self._keeper = keeper

    def event(self, _: VariantRun, event: Event) -> None:
        self._keeper.show({"event": event})

    def settled(self, _: VariantRun, until_ns: int) -> None:
        self._keeper.show({"settled": until_ns})

    def finished(self, _: VariantRun, result: VariantResult) -> None: ...


class StoppableMachine(VirtualMachine):
    """A machine whose job is that of the run, and whose loop is the keeper's."""

    def __init__(self, keeper: RunKeeper, image: Image, flavour: Flavour, order: RunOrder) -> None:
        super().__init__(image, flavour, keeper.log)
        self._keeper, self._order = keeper, order

    async def run(self, job: Job[Any], out: Path) -> float:
        source = self.source(job.training)
        saved = Saved.read(Path(self._order.step)) if self._order.step else None
        if saved and saved.snapshot != source.key:
            raise InputError(
                "another version of testbed, its image or QEMU kept the step",
                where=str(self._order.step),
                hint="Run the variant again with --keep-steps: the same seed gives the same run.",
            )
        await making.ensure(self.image, self.flavour, source, self.log)
        started = time.monotonic()
        async with Opened(self.image, self.flavour, source) as opened:
            begun, keep = saved, None
            if saved is None:
                begun, keep = await self._begin(opened, job)
            else:
                await opened.resume(saved)
            stop = Stop.of(self._order.stop) if self._order.stop else None
            loop = MachineLoop(opened, job, self.clock, self._keeper, self._keeper.life, stop, keep)
            self._keeper.loop = loop
            if saved:
                loop.hold_at(saved)
            elif begun:
                loop.begin_at(begun)
            await loop.run()
            opened.outcome.extract(out)
        return time.monotonic() - started

    async def _begin(self, opened: Opened, job: Job[Any]) -> tuple[Saved | None, Callable[[Saved], None] | None]:
        """Begin a run: with a lab that was kept, which is returned, or with what keeps its own."""
        write_bundle(opened.bundle, job, self.clock)
        key = kept_labs.key(opened.source, opened.bundle)
        found = kept_labs.find(key) if self._order.shares_lab else None
        if found is None:
            await opened.begin()
            return None, partial(kept_labs.keep, key) if self._order.shares_lab else None
        await opened.resume(found)
        return found, None


async def run(keeper: RunKeeper, image: Image, flavour: Flavour, whole: Order) -> dict[str, Any]:
    """Run a variant. Write result.json and return its contents."""
    assert whole.run
    order = RunOrder(**whole.run)
    topology, program = (Path(given) if given else None for given in (order.topology, order.program))
    source = Source(order.name, Path(order.file), topology, program)
    named = [order.variant["name"]]
    [info] = await scenarios.describe([(source, order.variant["settings"])], named)
    machine = StoppableMachine(keeper, image, flavour, order)
    [chosen] = runs.choose(info, named)
    variant_run, out = replace(chosen, label=order.label), Path(whole.lab.out)
    result = await runs.run(source, info, [variant_run], whole.seed, machine, out, Relay(keeper), Slots(1))
    return {"result": result.json()}
