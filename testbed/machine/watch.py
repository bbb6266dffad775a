"""Watch of a running machine: it checks that the guest makes progress and that the host gives it a CPU.

Wall time decides nothing. A guest hangs when its clock stands still and its QEMU uses no CPU though it could; and when
its first process has not run for long in the guest's own time. A host that gives no CPU is another matter
(patience.StarvedError).
"""

import time
from collections.abc import Callable

from testbed.errors import MachineError
from testbed.machine.memory_files import Outcome
from testbed.machine.patience import COUNTED_S, SLICE_S, STARVED_S, Starvation, StarvedError, schedule, threads_of
from testbed.machine.qemu import EndedError, Qemu
from testbed.protocol import Clock

SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.03, 0.5
QUIET_S = 5.0
"""Wall seconds without progress after which the guest is checked."""
STILL_S = 0.001
"""CPU seconds that QEMU uses at least between two checks while its guest makes progress, idle or not."""
STILL_LOOKS = 30
"""Checks in a row, SLICE_S apart, in which nothing moved though there was a CPU for it."""
NUDGE_LOOKS = 10
"""Such checks after which the machine is stopped and continued: it wakes a vCPU whose wake-up QEMU lost. Runs do not
show it."""
PULSE_LOST_S = 300
"""Seconds of the guest in which its first process should have run; it does every 30."""
BUSY_SHARE = 0.5
"""Share of a machine's time: when it waits longer for a CPU, the user gets a message."""
BUSY_LOOKS = 3
"""Checks in a row after which a host counts as busy."""
REMIND_S = 60.0
"""Wall seconds between two messages on the same subject."""


_remarked: set[str] = set()
"""The messages about the host that this process has logged, whatever machine noticed it."""


def remark_busy(log: Callable[[str], None]) -> None:
    """Log, once in a process, that the host is busy."""
    text = "this host is busy: a machine mostly waits for a CPU"
    if text not in _remarked:
        _remarked.add(text)
        log(text)


class Watch:
    """Watch of a running machine, called repeatedly. Raise MachineError when it hangs, StarvedError without a CPU."""

    def __init__(self, machine: Qemu, clock: Clock, outcome: Outcome, log: Callable[[str], None]) -> None:
        self._machine = machine
        self._clock = clock
        self._outcome = outcome
        self._log = log
        self._last_sign = self._looked = time.monotonic()
        self._logged: dict[str, float] = {}
        self._starvation = Starvation(threads_of(machine.process.pid))
        self._busy = self._still = 0
        self._starved_s = 0.0
        self._time, self._cpu_s = 0, 0.0
        """The guest's time and the CPU time of QEMU, in seconds, at the last check."""
        self._pulse, self._beat = -1, 0
        """The last value of the guest's pulse, and the guest's time when it was new."""
        self._beatless = 0
        """Checks since then."""
        self._quiet_pulse = 0
        """Pulse value when the quiet began."""

    def alive(self) -> None:
        """Record progress."""
        self._last_sign = time.monotonic()
        self._quiet_pulse = self._outcome.pulse
        self._still = self._beatless = 0
        self._starved_s = 0.0

    def pause_s(self) -> float:
        """Return wall seconds until the next check, more the longer it is quiet: a check takes the machine's CPU."""
        return min(LONGEST_PAUSE_S, max(SHORTEST_PAUSE_S, (time.monotonic() - self._last_sign) / 10))

    async def look(self) -> None:
        now = time.monotonic()
        if now - self._looked < SLICE_S:
            return
        self._looked = now
        elapsed, waited = self._starvation.look()
        self._busy = self._busy + 1 if waited > BUSY_SHARE * elapsed else 0
        if self._busy >= BUSY_LOOKS:
            remark_busy(self._log)
        if now - self._last_sign >= QUIET_S:
            await self._look_at_guest(elapsed, waited)

    async def _look_at_guest(self, elapsed: float, waited: float) -> None:
        try:
            now = await self._machine.clock_s()
        except EndedError:
            raise
        except MachineError as error:
            raise self._hang(error.message) from error
        cpu_s, pulse = self._used_s(), self._outcome.pulse
        beat = pulse != self._pulse
        if beat:
            self._pulse, self._beat, self._beatless = pulse, now, 0
        else:
            self._beatless += 1
            if self._beatless >= STILL_LOOKS and now - self._beat >= PULSE_LOST_S:
                raise self._hang(f"its first process has not run for {now - self._beat} s of its time")
        moved = beat or now != self._time or cpu_s - self._cpu_s >= STILL_S
        self._time, self._cpu_s = now, cpu_s
        if moved:
            self._still, self._starved_s = 0, 0.0
            if self._clock == "virtual":
                wall = round(time.monotonic() - self._last_sign)
                meanwhile = "the guest is busy" if pulse == self._quiet_pulse else "virtual time goes on"
                self._remark("quiet", f"no event for {wall} s of wall time; {meanwhile}", self._last_sign)
        elif waited > BUSY_SHARE * elapsed:
            self._starved_s += min(elapsed, COUNTED_S)
            if self._starved_s >= STARVED_S:
                raise StarvedError(f"the machine got no CPU for {STARVED_S:g} s")
        else:
            self._still += 1
            if self._still == NUDGE_LOOKS:
                await self._machine.nudge()
            if self._still >= STILL_LOOKS:
                states = " ".join(state for _, _, state in self._threads())
                raise self._hang(f"its clock stands still (QEMU's threads: {states})")

    def _threads(self) -> list[tuple[int, int, str]]:
        return [found for path in threads_of(self._machine.process.pid)() if (found := schedule(path))]

    def _used_s(self) -> float:
        return sum(ran for ran, _, _ in self._threads()) / 1e9

    def _hang(self, text: str) -> MachineError:
        return MachineError(f"the guest hangs: {text}. Its last output:\n{self._machine.last_output()}")

    def _remark(self, subject: str, text: str, since: float = 0.0) -> None:
        """Log a message, unless one was logged within REMIND_S, or `since` is not that long ago."""
        now = time.monotonic()
        if now - max(since, self._logged.get(subject, 0.0)) >= REMIND_S:
            self._logged[subject] = now
            self._log(text)
