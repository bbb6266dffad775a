"""The scheduler loop of a running lab, or of a run that can be stopped: from the machine's start to the job's end."""

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from testbed.errors import MachineError
from testbed.machine.jobs import THEN_ID, Job
from testbed.machine.live.lifecycle import RUNNING, Lifecycle
from testbed.machine.live.machine_wire import FULL, IDLE, MOMENT, Wire
from testbed.machine.live.stops import Act, Stop
from testbed.machine.moments import FIRST, Moment, Opened, Saved
from testbed.machine.task_group import first_of
from testbed.machine.watch import Watch
from testbed.protocol import Clock, messages
from testbed.protocol.live import Continue, Hold, StopAt
from testbed.protocol.requests import Request

BUSY_S = 0.5
"""Wall seconds that a request waits for the machine to rest. Then it comes at a moment that depends on the host."""
JOB_ID = 0


class LoopListener(Protocol):
    def log(self, text: str) -> None: ...

    def received(self, message: dict[str, Any]) -> None:
        """Receive a report of a request, or its end."""

    def handed_over(self, message: Mapping[str, Any]) -> None:
        """Record a message to the machine: `rest` counts its rests, `meanwhile` means that it did not rest."""

    def held(self, moment: Moment) -> None:
        """Record that the run is stopped at a moment, and serves requests."""

    def drained(self) -> Awaitable[object]:
        """Return when commands have read what they were sent."""


class MachineLoop:
    """Loop around a machine, which on the virtual clock rests whenever it has nothing to do."""

    def __init__(
        self,
        opened: Opened,
        job: Job[Any],
        clock: Clock,
        listener: LoopListener,
        life: Lifecycle,
        stop: Stop | None = None,
        keep_lab: Callable[[Saved], None] | None = None,
    ) -> None:
        """Create the loop. `stop` is where a run is to be stopped; `keep_lab` gets the machine at its first moment."""
        self._opened, self._job, self._clock, self._listener, self._life = opened, job, clock, listener, life
        self._stop, self._keep_lab = stop, keep_lab
        self._virtual = clock == "virtual"
        self._wire = Wire(opened.bundle, opened.outcome)
        self._numbers = itertools.count(THEN_ID + 1)
        self._queue: list[tuple[float, Sequence[Mapping[str, Any]]]] = []
        """Requests for a machine that is not at rest, grouped by arrival, with the time."""
        self._wake = asyncio.Event()
        self._rests = 0
        self.resting = False
        self.reached: Moment | None = None
        """Last moment that the run has reached: its position when it is stopped."""
        self._kept: Saved | None = None
        """The moment from which an untouched run continues."""
        self.touched: list[str] = []
        """Kinds of requests that may have changed the stopped run."""

    def next_number(self) -> int:
        return next(self._numbers)

    async def run(self) -> None:
        """Run the machine to the end of its job."""
        if not self._virtual:
            asyncio.get_running_loop().add_reader(self._opened.machine.bell.fileno(), self._on_bell)
        try:
            while not await self._run_to_pause():
                pass
        finally:
            if not self._virtual:
                asyncio.get_running_loop().remove_reader(self._opened.machine.bell.fileno())

    async def _run_to_pause(self) -> bool:
        opened, outcome = self._opened, self._opened.outcome
        watch = Watch(opened.machine, self._clock, outcome, self._listener.log)

        async def look() -> None:
            if self.poll():
                watch.alive()
            await watch.look()

        await opened.machine.command("cont")
        await opened.machine.paused(look, watch.pause_s)
        self._receive()
        if outcome.finished:
            if not (self._stop and self._stop.far and self._kept):
                return True
            await self._approach(self._stop, self._kept)
            return False
        if self._wire.reason == FULL:
            await self._unless_ended(self._listener.drained())
            self._release(time.monotonic())
        self._wire.acknowledge()
        with self._wire.replaced():
            await opened.settle(self.reached)
        if self._wire.reason == MOMENT:
            await self._pass_or_stop()
        if self._wire.reason == IDLE:
            await self._rest()
        return False

    # Stops of a run

    async def _pass_or_stop(self) -> None:
        moment, stop = self.reached, self._stop
        assert moment
        act = stop.at(moment, kept=self._kept is not None) if stop else Act.PASS
        if moment.number == FIRST and self._keep_lab:
            with self._wire.replaced():
                self._keep_lab(await self._opened.keep(moment))
        if act in (Act.KEEP, Act.KEEP_AND_HOLD):
            with self._wire.replaced():
                self._kept = await self._opened.keep(moment)
        self._begin(moment)
        if act in (Act.HOLD, Act.KEEP_AND_HOLD):
            self._hold(moment)
        if act is Act.GO_BACK and stop and self._kept:
            await self._approach(stop, self._kept)

    async def _approach(self, stop: Stop, kept: Saved) -> None:
        """Reach a time that the run has passed, from the moment before it."""
        await self._go_back(kept)
        assert stop.t is not None
        if kept.moment.t > stop.t:  # the run had not begun
            self._hold(kept.moment)
        else:
            self._stop = stop.nearer()
            self._ask(StopAt(t=stop.t))

    def _hold(self, moment: Moment) -> None:
        self._stop = None
        self._ask(Hold())
        self._listener.held(moment)

    def _begin(self, moment: Moment) -> None:
        """Send the job's request for its first moment, if this is the one. What is kept is without it."""
        if moment.number == FIRST and self._job.then:
            self._wire.send(json.dumps(messages.ask(THEN_ID, self._job.then)).encode())

    async def _go_back(self, saved: Saved) -> None:
        self.reached = saved.moment
        with self._wire.replaced():
            await self._opened.resume(saved)
        self._begin(saved.moment)

    def begin_at(self, saved: Saved) -> None:
        """Begin with the first moment of another run."""
        self.reached = saved.moment
        self._begin(saved.moment)

    def hold_at(self, saved: Saved) -> None:
        """Begin with a run that is stopped at a moment of another one."""
        self._kept, self.reached = saved, saved.moment
        self._begin(saved.moment)
        self._hold(saved.moment)

    def go_on(self, stop: Stop | None, *, discard: bool) -> None:
        """Continue a stopped run when its machine rests; with `discard` as if nothing had been done there. Requests
        that have not reached the machine are dropped."""
        if discard:
            self.touched = []
        self._stop = stop
        self._queue.clear()
        self._wake.set()

    async def _leave_stop(self) -> None:
        touched, self.touched = self.touched, []
        if touched or self._kept is None:
            self._job.touched += touched
            self._kept = None
            self._ask(Continue())
        else:
            await self._go_back(self._kept)

    # Messages in both directions

    def poll(self) -> bool:
        """Receive what a running machine has sent. Return whether there was anything. Ring again for what it has not
        read: on a busy host one bell in some thousands does not wake the guest, which would sleep for an hour."""
        received = self._receive()
        if self._virtual:
            self._release(time.monotonic() - BUSY_S)
        else:
            self._wire.push()
            if self._wire.waiting:
                self._ring()
        return received

    def _on_bell(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self._opened.machine.bell.recv(1 << 16)
        self._receive()
        if self._wire.push():
            self._ring()

    def _ring(self) -> None:
        if not self._virtual:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                self._opened.machine.bell.send(b"!")

    def _receive(self) -> bool:
        received = False
        for message in self._opened.outcome.progress():
            received = True
            match message:
                case {"report": {"moment": report}}:
                    self.reached = Moment.of(report)
                case _:
                    self._job.receive(message)
        for message in self._wire.receive():
            received = True
            if message.get("id") == JOB_ID or "id" not in message:
                self._job.receive(message)
            else:
                self._listener.received(message)
        if received and not self._virtual:
            self._wire.acknowledge()
            self._ring()
        return received

    async def _rest(self) -> None:
        """Return when there is something for the paused machine to do."""
        self.resting = True
        self._rests += 1
        try:
            while True:
                self._wake.clear()
                if self._life.state is RUNNING:
                    await self._leave_stop()
                    return
                self._release(time.monotonic())
                self._wire.push()
                if self._wire.waiting:
                    return
                await self._unless_ended(self._wake.wait())
        finally:
            self.resting = False

    async def _unless_ended(self, awaited: Awaitable[object]) -> None:
        await first_of(awaited, self._opened.machine.process.wait())
        if (status := self._opened.machine.process.returncode) is not None:
            raise MachineError(f"QEMU ended with status {status}")

    def _release(self, before: float) -> None:
        """Hand over the requests that came before this time. A resting machine gets one group that came together: the
        next group comes when it rests again."""
        while self._queue and self._queue[0][0] <= before:
            for message in self._queue.pop(0)[1]:
                self.post(message)
            if self.resting:
                return

    def submit(self, requests: Sequence[Mapping[str, Any]]) -> None:
        """Send requests that come together: on the virtual clock when the machine rests, if that is soon."""
        if self._virtual:
            self._queue.append((time.monotonic(), requests))
            self._wake.set()
        else:
            for request in requests:
                self.post(request)

    def post(self, message: Mapping[str, Any]) -> None:
        """Send a request, or a message about an open one, at once. On the virtual clock the same messages give the same
        events, except those that do not find the machine at rest."""
        moment = {"rest": self._rests} if self.resting else {"meanwhile": True}
        self._listener.handed_over({**message, **(moment if self._virtual else {})})
        self._wire.send(json.dumps(message).encode())
        self._wake.set()
        self._ring()

    def _ask(self, request: Request[Any]) -> None:
        self._wire.send(json.dumps(messages.ask(self.next_number(), request)).encode())
