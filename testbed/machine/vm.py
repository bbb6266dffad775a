"""One errand in one micro-VM: restore, run, read what it left, gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from testbed.machine import snapshot
from testbed.machine.image import Image
from testbed.machine.local import Listener
from testbed.machine.parcel import Errand, Outcome
from testbed.machine.qemu import Flavour
from testbed.machine.snapshot import Snapshot
from testbed.machine.watch import Watch
from testbed.protocol import ENTRY, FILES, Job

POLL_S = 0.03


class VirtualMachine:
    """Micro-VMs of one image and flavour, one for each errand, all with the code as it is at the first."""

    def __init__(self, image: Image, flavour: Flavour, say: Callable[[str], None]) -> None:
        """`say` gets what takes long: a snapshot that has to be made, a host that is busy, a guest that is silent."""
        self.image = image
        self.flavour = flavour
        self.say = say
        self._snapshots: dict[bool, Snapshot] = {}
        self._making = asyncio.Lock()

    async def _source(self, training: bool) -> Snapshot:
        async with self._making:
            if training not in self._snapshots:
                made = await snapshot.ensure(self.image, self.flavour, self.say, training=training)
                self._snapshots[training] = made
            return self._snapshots[training]

    async def run(self, job: Job, files: Mapping[str, bytes], out: Path, listen: Listener, *, limit_s: float) -> float:
        """See `Machine.run`. `limit_s` bounds the job in the guest's seconds."""
        source = await self._source(job.get("training", False))
        started = time.monotonic()
        errand, outcome = Errand(), Outcome()
        envelope = {**job, "in": f"/run/testbed/in/{FILES}", "call": ENTRY, "limit_s": limit_s}

        def hear() -> bool:
            """Whether there was progress."""
            records = list(outcome.progress())
            for record in records:
                listen(record)
            return bool(records)

        try:
            errand.write(envelope, {f"{FILES}/{name}": data for name, data in files.items()})
            async with snapshot.restored(self.image, self.flavour, source, errand, outcome) as machine:
                watch = Watch(machine, self.flavour.clock, outcome, self.say)

                async def look() -> None:
                    if hear():
                        watch.heard()
                    await watch.look()

                await machine.command("cont")
                try:
                    await machine.paused(look, POLL_S)
                finally:
                    hear()
            outcome.extract(out)
        finally:
            errand.close()
            outcome.close()
        return time.monotonic() - started
