"""Time in a lab: timers, waits and sleeps, of one thread. All waiting goes through here, so that timers are kept."""

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from testbed.kernel.changes import Changes
from testbed.kernel.syscalls import readable_until
from testbed.lab.programs import Programs
from testbed.lab.steps import Runner, Steps

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.01, 1.0
"""Seconds between two checks of a condition that nothing announces; they double."""
T = TypeVar("T")


class Source(Protocol):
    """A source of events; `fileno` is readable when there are some."""

    def fileno(self) -> int: ...

    def catch_up(self) -> None:
        """Complete what has happened until now."""

    def drain(self) -> None:
        """Emit what was reported since the last call, without waiting."""


class Scheduler:
    """The timers of a lab, and its waits and sleeps, in virtual seconds."""

    def __init__(self, directory: Path) -> None:
        self.programs = Programs()
        self.sources: list[Source] = [self.programs]
        self.namespaces: dict[str, None] = {}
        """Network namespaces of the lab's nodes, in the order of their making."""
        self._directory = directory
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._actions: deque[Callable[[], None]] = deque()
        self._runner = Runner(partial(self.ready, or_timer=True))

    def close(self) -> None:
        self._timers.clear()

    def catch_up(self) -> None:
        """Emit all that the switches did until now."""
        for source in self.sources:
            source.catch_up()
        self._drain()

    def _drain(self) -> None:
        """Emit what was reported since the last call. The latest reports may not have arrived yet."""
        for source in self.sources:
            source.drain()

    def after(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` when `seconds` have passed, in whatever waits then: `sleep`, `wait`, a completion, a program. A
        system call that blocks delays it: the resolution of a MAC in a modify to RTR. The returned function cancels
        it."""
        entry = (time.monotonic() + seconds, next(self._numbers), action)
        heapq.heappush(self._timers, entry)

        def cancel() -> None:
            self._timers = [other for other in self._timers if other is not entry]
            heapq.heapify(self._timers)

        return cancel

    def every(self, seconds: float, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` again and again, with `seconds` before each call. The returned function cancels it."""

        def again() -> None:
            action()
            pending[0] = self.after(seconds, again)

        def cancel() -> None:
            pending[0]()

        pending = [self.after(seconds, again)]
        return cancel

    def one_by_one(self, action: Callable[[], None]) -> None:
        """Carry out `action`; one that begins while another waits for something comes after that."""
        self._actions.append(action)
        if len(self._actions) > 1:
            return
        try:
            while self._actions:
                self._actions[0]()
                self._actions.popleft()
        finally:
            self._actions.clear()

    def run(self, job: Steps[T]) -> T:
        """Carry out a job."""
        return self._runner.run(job)

    def ready(self, watched: Sequence[Any], within: float, *, or_timer: bool = False) -> bool:
        """Return whether one of `watched` is readable, or with `or_timer` a timer of `after` expired, before `within`
        seconds have passed."""
        deadline = time.monotonic() + within
        while True:
            acted = False
            while self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2]()
                acted = True
            if acted and or_timer:
                return True
            until = min(deadline, self._timers[0][0]) if self._timers else deadline
            if readable_until(watched, _exact_moment(until)):
                return True
            if time.monotonic() >= deadline:
                return False

    def sleep(self, seconds: float) -> None:
        """Let time pass, and emit what the switches do meanwhile."""
        deadline = time.monotonic() + seconds
        while True:
            self._drain()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self.ready(self.sources, left)

    def idle(self, within: float) -> None:
        """Let time pass until a source reports something or a timer expires, `within` seconds at most."""
        self.ready(self.sources, within, or_timer=True)
        self._drain()

    def wait(self, condition: Callable[[], bool], within: float, *, pause: float = LONGEST_PAUSE_S) -> bool:
        """
        Evaluate `condition` whenever something has happened, for `within` seconds at most. Return its last result.

        That is: an event of a switch; a timer of `after`, a fault's among them; a change of a link, an address, a route
        or a neighbour entry of any node; something written to a file of the run directory, as a program's output; the
        end of a program that `spawn` started. So a short-lived state is detected. Counters change without notice: it is
        also evaluated after pauses that double up to `pause` seconds. A condition that changes such things itself, as
        one that pings, does not wake itself: what happens during its evaluation counts once.
        """
        self._drain()
        if condition():
            return True
        deadline = time.monotonic() + within
        with Changes(self.namespaces, self._directory) as changes:
            return self._wait(condition, deadline, pause, changes)

    def wait_quietly(self, condition: Callable[[], bool], within: float, *, pause: float = LONGEST_PAUSE_S) -> bool:
        """Wait as `wait` does, checking only at events of switches, timers, pauses: for costly or hidden conditions."""
        return self._wait(condition, time.monotonic() + within, pause, None)

    def _wait(self, condition: Callable[[], bool], deadline: float, pause: float, changes: Changes | None) -> bool:
        next_pause = FIRST_PAUSE_S
        asked_again = False
        while True:
            self._drain()
            if condition():
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if changes:
                asked_again = changes.pending() and not asked_again
                changes.drain()
                if asked_again:
                    continue
            watched = [*self.sources, *(changes.watched if changes else ())]
            self.ready(watched, min(left, next_pause), or_timer=True)
            if changes:
                changes.drain()
            next_pause = min(next_pause * 2, pause)


def _exact_moment(until: float) -> float:
    """Return the moment for a wait that must not be late: the kernel adds a thousandth to it, up to 0.1 s."""
    return until - 0.11 if until - time.monotonic() > 0.2 else until
