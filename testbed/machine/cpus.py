"""The host CPU of a machine on the virtual clock, whose threads share one: which it is, and when to take another."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testbed.machine.patience import schedule, threads_of

STOPPED_S = 1.0
"""Wall seconds in which the threads of a process must have stopped."""


class Claim:
    """A CPU that a machine has. Who has one shows it by an abstract socket, which the kernel removes with its owner."""

    def __init__(self, number: int, sign: socket.socket) -> None:
        self.number = number
        self._sign = sign

    def close(self) -> None:
        self._sign.close()

    def move(self, process: int, number: int) -> None:
        """Has all threads of a process go on, on another CPU. They stand still meanwhile: two of them must not run on
        two CPUs, not even for a moment."""
        new = _claim([number])
        os.kill(process, signal.SIGSTOP)
        try:
            deadline = time.monotonic() + STOPPED_S
            while any((found := schedule(path)) and found[2] != "T" for path in threads_of(process)()):
                if time.monotonic() > deadline:
                    new.close()
                    return
                time.sleep(0.001)
            for path in threads_of(process)():
                os.sched_setaffinity(int(path.name), {number})
        finally:
            os.kill(process, signal.SIGCONT)
        self.close()
        self.number, self._sign = new.number, new._sign


@contextmanager
def claimed() -> Iterator[Claim]:
    """One of the CPUs that this process may use, for the block: one that nobody else has from here, while there are
    such."""
    claim = _claim(allowed())
    try:
        yield claim
    finally:
        claim.close()


def allowed() -> list[int]:
    """The CPUs that this process may use."""
    return sorted(os.sched_getaffinity(0))


def _claim(numbers: list[int]) -> Claim:
    sign = socket.socket(socket.AF_UNIX)
    try:
        for turn, number in ((turn, number) for turn in itertools.count() for number in numbers):
            try:
                sign.bind(f"\0testbed/cpu/{number}/{turn}")
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return Claim(number, sign)
    except BaseException:
        sign.close()
        raise
    raise AssertionError("turns do not end")


class Idle:
    """The idle time of each CPU of the host, from one look to the next."""

    def __init__(self) -> None:
        self._before = ticks()

    def look(self) -> dict[int, float]:
        """Per CPU the share of time in which nothing ran on it."""
        before, self._before = self._before, ticks()
        shares = {}
        for number, (idle, total) in self._before.items():
            idle_before, total_before = before.get(number, (0, 0))
            shares[number] = (idle - idle_before) / max(1, total - total_before)
        return shares


def ticks() -> dict[int, tuple[int, int]]:
    """Per CPU how long it was idle since the host started, and how long that is ago. Source: /proc/stat in proc(5)."""
    found = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *values = line.split()
        if name.startswith("cpu") and name != "cpu":
            user, nice, system, idle, iowait, irq, softirq, steal = map(int, values[:8])
            found[int(name[3:])] = idle + iowait, user + nice + system + idle + iowait + irq + softirq + steal
    return found
