"""A lab with which several variants of a scenario begin."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.machine.moments import Saved
    from testbed.machine.snapshot import Snapshot


class SharedLab:
    """A lab that several variants of a scenario have: the first of them brings it up, and the others begin with the
    machine as it was at that moment. Each has the same trace as if it had been alone."""

    def __init__(self) -> None:
        self.saved: tuple[Snapshot, Saved] | None = None
        """The machine at that moment, and the snapshot that it stands on."""
        self._known = asyncio.Event()
        self._taken = False

    async def turn(self) -> None:
        """Return at once for the first caller, for another when the lab is up, or cannot be."""
        first, self._taken = not self._taken, True
        if not first:
            await self._known.wait()

    def keep(self, source: Snapshot, saved: Saved) -> None:
        """Let the others begin with the machine at this moment."""
        self.saved = source, saved
        self._known.set()

    def pass_on(self) -> None:
        """At the end of a run, let the others begin: with a lab of their own if there is none."""
        self._known.set()
