"""One job in one micro-VM: restore it, run the job, read its files, remove it."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.errors import MachineError
from testbed.machine import making, snapshot
from testbed.machine.image import Image
from testbed.machine.jobs import THEN_ID, Job
from testbed.machine.live.machine_wire import Wire
from testbed.machine.memory_files import Bundle
from testbed.machine.moments import FIRST, Moment, Opened
from testbed.machine.qemu import Flavour
from testbed.machine.snapshot import Snapshot
from testbed.machine.watch import Watch
from testbed.protocol import ENTRY, FILES, STEPS, Clock, messages


class VirtualMachine:
    """Micro-VMs of one image and flavour, one for each job, all with the code as it is at the first."""

    def __init__(self, image: Image, flavour: Flavour, log: Callable[[str], None], *, keep_steps: bool = False) -> None:
        """Create the machine. `log` gets what takes long: a snapshot to be made, a busy host, a silent guest. With
        `keep_steps` the moments of each job are kept among its files."""
        self.image = image
        self.flavour = flavour
        self.clock = flavour.clock
        self.log = log
        self.keep_steps = keep_steps

    def source(self, training: bool) -> Snapshot:
        """Return the snapshot that jobs begin from."""
        return snapshot.stack(self.image, self.flavour, training=training)[-1]

    async def run(self, job: Job[Any], out: Path) -> float:
        source = self.source(job.training)
        if self.keep_steps:  # they stand on the snapshot
            await making.ensure(self.image, self.flavour, source, self.log)
        if job.lab and job.lab.saved:
            started = time.monotonic()
            source, saved = job.lab.saved
            async with Opened(self.image, self.flavour, source) as opened:
                await opened.resume(saved)
                if self.keep_steps:
                    saved.write(out / STEPS)
                tell(opened, job)
                await self._follow(opened, job, out, FIRST)
            return time.monotonic() - started
        async with making.begun(self.image, self.flavour, source, self.log) as opened:
            started = time.monotonic()
            write_bundle(opened.bundle, job, self.clock)
            await self._follow(opened, job, out)
        return time.monotonic() - started

    async def _follow(self, opened: Opened, job: Job[Any], out: Path, number: int = 0) -> None:
        """Run a machine to its end from a moment of its job, pass its messages to the job meanwhile, read its files."""
        while True:
            reached = await follow(opened, self.clock, job, self.log)
            if opened.outcome.finished:
                opened.outcome.extract(out)
                return
            if reached is None or reached.number == number:
                raise MachineError("the guest paused without returning its results")
            number = reached.number
            await opened.settle(reached)
            shared = job.lab if number == FIRST else None
            if self.keep_steps or shared:
                saved = await opened.keep(reached)
                if self.keep_steps:
                    saved.write(out / STEPS)
                if shared:
                    shared.keep(opened.source, saved)
            if number == FIRST:
                tell(opened, job)


def write_bundle(bundle: Bundle, job: Job[Any], clock: Clock) -> None:
    files = {f"{FILES}/{name}": data for name, data in job.files.items()}
    envelope = {**job.envelope(f"/run/testbed/in/{FILES}", clock), "call": ENTRY}
    bundle.write(envelope, files, {f"{FILES}/{name}" for name in job.executable})


def tell(opened: Opened, job: Job[Any]) -> None:
    """Send the request of the job for the moment at which its machine has just paused, if it has one."""
    if job.then:
        line = json.dumps(messages.ask(THEN_ID, job.then)).encode()
        Wire(opened.bundle, opened.outcome).send(line)


async def follow(opened: Opened, clock: Clock, job: Job[Any], log: Callable[[str], None]) -> Moment | None:
    """Run a machine to its next pause. Return the moment of the run that it reached, if it is one."""
    machine, outcome = opened.machine, opened.outcome
    watch = Watch(machine, clock, outcome, log)
    reached = None

    def receive() -> None:
        nonlocal reached
        for message in outcome.progress():
            match message:
                case {"report": {"moment": report}}:
                    reached = Moment.of(report)
                case _:
                    job.receive(message)
            watch.alive()

    async def look() -> None:
        receive()
        await watch.look()

    await machine.command("cont")
    try:
        await machine.paused(look, watch.pause_s)
    finally:
        receive()
    return reached
