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
from testbed.protocol import ENTRY, FILES, Job

POLL_S = 0.03
SILENCE_LIMIT_S = 300
"""Wall seconds without a sign of life after which the guest is said to hang. Four idle virtual hours take 13 s."""


class VirtualMachine:
    """Micro-VMs of one image and flavour, one for each errand, all with the code as it is at the first."""

    def __init__(self, image: Image, flavour: Flavour, say: Callable[[str], None]) -> None:
        """`say` is told what takes long, when a snapshot has to be made."""
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

    async def run(
        self,
        job: Job,
        files: Mapping[str, bytes],
        out: Path,
        listen: Listener,
        *,
        limit_s: float,
        silence_s: float = SILENCE_LIMIT_S,
    ) -> float:
        """See `Machine.run`. `limit_s` bounds the job in the guest's seconds; `silence_s` bounds the wall seconds
        without progress.
        """
        source = await self._source(job.get("training", False))
        started = time.monotonic()
        errand, outcome = Errand(), Outcome()
        envelope = {**job, "in": f"/run/testbed/in/{FILES}", "call": ENTRY, "limit_s": limit_s}
        heard = time.monotonic()

        def stalled() -> bool:
            nonlocal heard
            for record in outcome.progress():
                heard = time.monotonic()
                listen(record)
            return time.monotonic() - heard > silence_s

        try:
            errand.write(envelope, {f"{FILES}/{name}": data for name, data in files.items()})
            async with snapshot.restored(self.image, self.flavour, source, errand, outcome) as machine:
                await machine.command("cont")
                await machine.paused(stalled, POLL_S)
            stalled()
            outcome.extract(out)
        finally:
            errand.close()
            outcome.close()
        return time.monotonic() - started
