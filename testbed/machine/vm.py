"""One job in one micro-VM: restore, run, read what it left, gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.machine import snapshot
from testbed.machine.devices import Bundle, Outcome
from testbed.machine.image import Image
from testbed.machine.jobs import Job
from testbed.machine.qemu import Flavour, Qemu
from testbed.machine.snapshot import Snapshot
from testbed.machine.watch import Watch
from testbed.protocol import ENTRY, FILES


class VirtualMachine:
    """Micro-VMs of one image and flavour, one for each job, all with the code as it is at the first."""

    def __init__(self, image: Image, flavour: Flavour, log: Callable[[str], None]) -> None:
        """`log` gets what takes long: a snapshot that has to be made, a host that is busy, a guest that is silent."""
        self.image = image
        self.flavour = flavour
        self.clock = flavour.clock
        self.log = log
        self._snapshots: dict[bool, Snapshot] = {}
        self._making = asyncio.Lock()

    async def _source(self, training: bool) -> Snapshot:
        async with self._making:
            if training not in self._snapshots:
                made = await snapshot.ensure(self.image, self.flavour, self.log, training=training)
                self._snapshots[training] = made
            return self._snapshots[training]

    async def run(self, job: Job[Any], out: Path) -> float:
        """See `Machine.run`."""
        source = await self._source(job.training)
        started = time.monotonic()
        files = {f"{FILES}/{name}": data for name, data in job.files.items()}
        envelope = {**job.envelope(f"/run/testbed/in/{FILES}"), "call": ENTRY}
        with Bundle() as bundle, Outcome() as outcome:
            bundle.write(envelope, files, {f"{FILES}/{name}" for name in job.executable})
            async with snapshot.restored(self.image, self.flavour, source, bundle, outcome) as machine:
                await self._follow(machine, job, outcome)
            outcome.extract(out)
        return time.monotonic() - started

    async def _follow(self, machine: Qemu, job: Job[Any], outcome: Outcome) -> None:
        """Has a machine run to its pause, and the job take its messages meanwhile."""
        watch = Watch(machine, self.clock, outcome, self.log)

        def hear() -> None:
            for message in outcome.progress():
                job.take(message)
                watch.heard()

        async def look() -> None:
            hear()
            await watch.look()

        await machine.command("cont")
        try:
            await machine.paused(look, watch.pause_s)
        finally:
            hear()
