"""Places for runs side by side."""

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


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
