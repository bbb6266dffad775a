"""Deadlines in integer nanoseconds: exact, and equal in every run."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Generic, TypeVar

SECOND = 1_000_000_000
Key = TypeVar("Key")


def nanoseconds(seconds: float) -> int:
    return round(seconds * SECOND)


class Deadlines(Generic[Key]):
    """The next deadline of many keys. `deadline` returns a key's true deadline; None if it has none any more.

    A deadline that moves later costs nothing until its old time, so an entry can be confirmed a million times without
    growing the heap; one that moves earlier must be armed. Equal deadlines occur in the order of arming.
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
        """Rearm all keys after every deadline may have changed."""
        self._heap.clear()
        self._armed.clear()
        for key in keys:
            self.arm(key)

    def next(self) -> tuple[int, Key] | None:
        """Return the earliest true deadline and its key; it stays until it moves."""
        while self._heap:
            at, _, key = self._heap[0]
            if self._armed.get(key) == at and self._deadline(key) == at:
                return at, key
            heappop(self._heap)
            if self._armed.get(key) == at:
                del self._armed[key]
                self.arm(key)
        return None
