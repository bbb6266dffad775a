"""Places for runs side by side, and labs that several of them share."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.machine.moments import Saved
    from testbed.machine.snapshot import Snapshot


class Slots:
    """So many places. Of those that wait for one, the lowest ticket is next: it may have come last."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._tickets = itertools.count()

    def ticket(self) -> int:
        return next(self._tickets)

    @asynccontextmanager
    async def taken(self, ticket: int) -> AsyncIterator[None]:
        """Wait for a place, and have it during the block."""
        await self._take(ticket)
        try:
            yield
        finally:
            self._give()

    async def _take(self, ticket: int) -> None:
        if self._free:
            self._free -= 1
            return
        mine = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (ticket, mine))
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():  # it was given a place at the same moment
                self._give()
            raise

    def _give(self) -> None:
        while self._waiting:
            _, next_one = heapq.heappop(self._waiting)
            if not next_one.done():
                next_one.set_result(None)
                return
        self._free += 1


class SharedLab:
    """A lab that several variants of a scenario have: the first of them brings it up, and the others begin with the
    machine as it was at that moment. Each has the same trace as if it had been alone."""

    def __init__(self) -> None:
        self.saved: tuple[Snapshot, Saved] | None = None
        """The machine at that moment, and the snapshot that it stands on."""
        self._known = asyncio.Event()
        self._taken = False

    async def turn(self) -> bool:
        """Return True at once for the first caller, and False for another when the lab is up, or cannot be."""
        first, self._taken = not self._taken, True
        if not first:
            await self._known.wait()
        return first

    def keep(self, source: Snapshot, saved: Saved) -> None:
        """Let the others begin with the machine at this moment."""
        self.saved = source, saved
        self._known.set()

    def pass_on(self) -> None:
        """Let the others begin, each with a lab of its own if there is none yet."""
        self._known.set()
