"""Deadlines that count only the time in which a process could have worked.

On a busy host, at a low priority or for a stopped process, wall time passes that says nothing about the process that is
waited for.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

from testbed.errors import UnsupportedError

SLICE_S = 1.0
"""Seconds between two checks."""
COUNTED_S = 2 * SLICE_S
"""Seconds that a check counts, at most: when it comes later, this process was stopped itself."""
STARVED_S = 600.0
"""Wall seconds without a CPU after which this machine is given up."""
BUSY_HINT = "This machine is too busy. Try again later, or give testbed a higher priority."
T = TypeVar("T")
Threads = Callable[[], Iterable[Path]]
"""The directories in /proc of the threads that are waited for."""


class StarvedError(UnsupportedError):
    """Error: this machine gave a process no CPU."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint=BUSY_HINT)


class Starvation:
    """Meter of the time that threads waited for a CPU or a disk, or were stopped, between two checks."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._before = self._now()
        self._at = time.monotonic()

    def look(self) -> tuple[float, float]:
        """Return the wall seconds since the last check, and how many of them the threads spent waiting."""
        before, then = self._before, self._at
        self._before, self._at = self._now(), time.monotonic()
        elapsed = self._at - then
        waited = 0.0
        for thread, (ran, waiting, state) in self._before.items():
            ran_before, waiting_before, _ = before.get(thread, (0, 0, ""))
            # The kernel accounts for a wait when it ends. One that lasts shows as a thread that never ran though it is
            # ready (R), or waits for a disk (D): a page of the snapshot's file.
            if state == "T" or (state in "RD" and ran == ran_before):
                return elapsed, elapsed
            waited += (waiting - waiting_before) / 1e9
        return elapsed, min(elapsed, waited)

    def _now(self) -> dict[Path, tuple[int, int, str]]:
        return {thread: found for thread in self._threads() if (found := schedule(thread))}


def schedule(thread: Path) -> tuple[int, int, str] | None:
    """Return a thread's nanoseconds of running and of waiting for a CPU, and its state; None when it has ended."""
    try:
        ran, waited, _ = (thread / "schedstat").read_text().split()
        state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError):
        return None
    return int(ran), int(waited), state


def threads_of(process: int) -> Threads:

    def list_threads() -> list[Path]:
        directory = Path(f"/proc/{process}/task")
        try:
            return [directory / name for name in os.listdir(directory)]
        except OSError:
            return []

    return list_threads


def processes_of(session: int) -> Threads:
    """Return the first thread of each process in a session."""

    def in_session(directory: Path) -> bool:
        try:
            return int((directory / "stat").read_text().rpartition(")")[2].split()[3]) == session
        except (OSError, ValueError):
            return False

    return lambda: [path for name in os.listdir("/proc") if name.isdigit() and in_session(path := Path("/proc", name))]


async def patiently(awaitable: Awaitable[T], limit_s: float, threads: Threads) -> T:
    """Return the result; TimeoutError after `limit_s` s in which `threads` could work, StarvedError without a CPU."""
    task = asyncio.ensure_future(awaitable)
    starvation = Starvation(threads)
    spent = starved = 0.0
    try:
        while not (await asyncio.wait((task,), timeout=min(SLICE_S, limit_s - spent)))[0]:
            elapsed, waited = starvation.look()
            counted = min(elapsed, COUNTED_S)
            spent += max(0.0, counted - waited)
            starved += min(counted, waited)
            if spent >= limit_s:
                raise TimeoutError
            if starved >= STARVED_S:
                raise StarvedError(f"a process got no CPU for {STARVED_S:g} s")
        return await task
    finally:
        task.cancel()
