"""Deadlines and rates in integer nanoseconds: exact, and the same on every run."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Generic, TypeVar

SECOND = 1_000_000_000
Key = TypeVar("Key")


def nanoseconds(seconds: float) -> int:
    return round(seconds * SECOND)


class Deadlines(Generic[Key]):
    """
    The next deadline of many keys. A key's true deadline is asked from `deadline` (None: it has none any more).

    A deadline that moves later costs nothing until its old time comes, so an entry can be confirmed a million times
    without growing the heap; one that moves earlier must be told with `arm`. Equal deadlines come in order of arming.
    """

    def __init__(self, deadline: Callable[[Key], int | None]) -> None:
        self._deadline = deadline
        self._heap: list[tuple[int, int, Key]] = []
        self._armed: dict[Key, int] = {}
        self._sequence = 0

    def arm(self, key: Key) -> None:
        at = self._deadline(key)
        if at is not None and at < self._armed.get(key, at + 1):
            self._armed[key] = at
            self._sequence += 1
            heappush(self._heap, (at, self._sequence, key))

    def rearm_all(self, keys: list[Key]) -> None:
        """After every deadline may have changed."""
        self._heap.clear()
        self._armed.clear()
        for key in keys:
            self.arm(key)

    def next(self) -> tuple[int, Key] | None:
        """The earliest true deadline and its key; it stays until it moves."""
        while self._heap:
            at, _, key = self._heap[0]
            if self._armed.get(key) == at and self._deadline(key) == at:
                return at, key
            heappop(self._heap)
            if self._armed.get(key) == at:
                del self._armed[key]
                self.arm(key)
        return None


class TokenBucket:
    """`per_second` packets a second and a burst of as many; None never refuses."""

    def __init__(self, per_second: int | None) -> None:
        self.per_second = per_second
        self._level = (per_second or 0) * SECOND  # one packet is SECOND units, so a nanosecond adds per_second of them
        self._at: int | None = None

    def take(self, now: int) -> bool:
        if self.per_second is None:
            return True
        if self._at is not None:
            self._level = min(self.per_second * SECOND, self._level + (now - self._at) * self.per_second)
        self._at = now
        if self._level < SECOND:
            return False
        self._level -= SECOND
        return True
