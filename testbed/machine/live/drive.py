"""The machine of a lab that lives, or of a run that can be stopped, from its beginning to the end of its job."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from testbed.errors import MachineError
from testbed.machine.jobs import Job
from testbed.machine.live.stops import Stop
from testbed.machine.live.wire import FULL, IDLE, MOMENT, Wire
from testbed.machine.moments import Moment, Opened, Saved
from testbed.machine.watch import Watch
from testbed.protocol import Clock, messages
from testbed.protocol.live import Continue, Hold, StopAt
from testbed.protocol.requests import Request

BUSY_S = 0.5
"""Wall seconds for which a request waits until the machine rests. Then it comes at a moment that the host chose."""
JOB_ID = 0


class Hearer(Protocol):
    """Who hears of what a machine does."""

    def log(self, text: str) -> None: ...

    def answered(self, message: dict[str, Any]) -> None:
        """A report of a request, or its end."""

    def said(self, message: Mapping[str, Any]) -> None:
        """Something was handed on to the machine: `rest` counts the times at which it rested, `meanwhile` is at another
        moment."""

    def stopped(self, moment: Moment) -> None:
        """A run stands at a moment, and serves requests."""

    def taken(self) -> Awaitable[object]:
        """Returns when commands have taken what they were sent."""


class Drive:
    """On the virtual clock the machine rests whenever it has nothing to do."""

    def __init__(self, opened: Opened, job: Job[Any], clock: Clock, hearer: Hearer, stop: Stop | None = None) -> None:
        """`stop` is where a run is to be stopped."""
        self._opened, self._job, self._clock, self._hearer, self._stop = opened, job, clock, hearer, stop
        self._virtual = clock == "virtual"
        self._wire = Wire(opened.bundle, opened.outcome)
        self._numbers = itertools.count(JOB_ID + 1)
        self._queue: list[tuple[float, Sequence[Mapping[str, Any]]]] = []
        """Requests for a machine that does not rest, those together that came together, and when."""
        self._wake = asyncio.Event()
        self.resting = False
        self._rests = 0
        self.held: Moment | None = None
        """Where a run stands."""
        self._reached: Moment | None = None
        self._anchor: Saved | None = None
        """The moment that a run which nobody touched goes on from."""
        self._sought = False
        self._touched: list[str] = []
        self._going: Stop | bool = False
        """The next stop of a run that is to go on; True is none."""

    def number(self) -> int:
        """For a request."""
        return next(self._numbers)

    async def run(self) -> None:
        """Has the machine run to the end of its job."""
        self._listen()
        try:
            while True:
                if await self._stretch():
                    return
        finally:
            if not self._virtual:
                asyncio.get_running_loop().remove_reader(self._opened.machine.bell.fileno())

    async def _stretch(self) -> bool:
        """Has the machine run to its next pause; whether that was the end of its job."""
        opened, outcome = self._opened, self._opened.outcome
        watch = Watch(opened.machine, self._clock, outcome, self._hearer.log)

        async def look() -> None:
            if self.look():
                watch.heard()
            await watch.look()

        await opened.machine.command("cont")
        await opened.machine.paused(look, watch.pause_s)
        self._hear()
        if outcome.finished:
            return not await self._missed()
        if self._wire.reason == FULL:
            await self._hearer.taken()
        self._wire.acknowledge()
        with self._wire.replaced():
            await opened.settle(self._reached)
        if self._wire.reason == MOMENT:
            await self._at_moment()
        if self._wire.reason == IDLE:
            await self._rest()
        return False

    # Stops of a run

    async def _at_moment(self) -> None:
        reached = self._reached
        assert reached
        if self._stop is None:
            return
        if self._stop.t is not None and reached.kind != "time":
            if reached.t <= self._stop.t or self._anchor is None:
                self._anchor = await self._keep(reached)
            if reached.t > self._stop.t:
                await self._missed()
            return
        if self._stop.here(reached):
            if reached.kind != "time":
                self._anchor = await self._keep(reached)
            self._hold(reached)

    async def _keep(self, moment: Moment) -> Saved:
        with self._wire.replaced():
            return await self._opened.keep(moment)

    def _hold(self, moment: Moment) -> None:
        self.held, self._stop, self._touched = moment, None, []
        self._tell(Hold())
        self._hearer.stopped(moment)

    async def _missed(self) -> bool:
        """Goes back to the last moment before the time at which a run is to be stopped, which it has passed; whether
        there is one."""
        anchor, t = self._anchor, self._stop.t if self._stop else None
        if anchor is None or t is None:
            return False
        if self._sought:  # the run is over before that time
            self._stop = None
            return False
        self._sought = True
        await self._go_back(anchor)
        if anchor.moment.t > t:  # the run had not begun
            self._hold(anchor.moment)
        else:
            self._tell(StopAt(t=t))
        return True

    async def _go_back(self, saved: Saved) -> None:
        self._reached = saved.moment
        with self._wire.replaced():
            await self._opened.resume(saved)

    @property
    def serves(self) -> bool:
        """Whether requests are served: in a lab always, in a run where it stands."""
        return self._job.lives or self.held is not None

    @property
    def touched(self) -> bool:
        """Whether something that may change the run was done where it stands."""
        return bool(self._touched)

    def touch(self, request: str) -> None:
        self._touched.append(request)

    def go_on(self, stop: Stop | None, *, discard: bool) -> None:
        """Has a run that was stopped go on; with `discard` as if nothing had been done there."""
        if discard:
            self._touched = []
        self._going = stop or True
        self._wake.set()

    async def _leave_stop(self) -> None:
        self.held, going, self._going, self._sought = None, self._going, False, False
        self._stop = going if isinstance(going, Stop) else None
        if self._touched or self._anchor is None:
            self._job.touched += self._touched
            self._anchor = None
            self._tell(Continue())
        else:
            await self._go_back(self._anchor)

    def resume_from(self, saved: Saved) -> None:
        """A run begins at a moment of another one, and stands there."""
        self._anchor = saved
        self._hold(saved.moment)

    # To and fro

    def _listen(self) -> None:
        if not self._virtual:
            asyncio.get_running_loop().add_reader(self._opened.machine.bell.fileno(), self._rung)

    def look(self) -> bool:
        """Takes what has come from a machine that runs; whether it was anything. Rings again for what it has not read:
        on a busy host one bell in some thousands does not wake the guest, which would sleep for an hour."""
        heard = self._hear()
        if self._virtual:
            self._release(time.monotonic() - BUSY_S)
        else:
            self._wire.push()
            if self._wire.waiting:
                self._ring()
        return heard

    def _rung(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self._opened.machine.bell.recv(1 << 16)
        self._hear()
        if self._wire.push():
            self._ring()

    def _ring(self) -> None:
        if not self._virtual:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                self._opened.machine.bell.send(b"!")

    def _hear(self) -> bool:
        heard = False
        for message in self._opened.outcome.progress():
            heard = True
            match message:
                case {"report": {"moment": report}}:
                    self._reached = Moment.of(report)
                case _:
                    self._job.take(message)
        for message in self._wire.receive():
            heard = True
            if message.get("id") == JOB_ID or "id" not in message:
                self._job.take(message)
            else:
                self._hearer.answered(message)
        if heard and not self._virtual:
            self._wire.acknowledge()
            self._ring()
        return heard

    async def _rest(self) -> None:
        """Returns when there is something for the paused machine to do."""
        self.resting = True
        self._rests += 1
        process = self._opened.machine.process
        ended = asyncio.ensure_future(process.wait())
        try:
            while True:
                self._wake.clear()
                if self._going:
                    await self._leave_stop()
                    return
                self._release(time.monotonic())
                self._wire.push()
                if self._wire.waiting:
                    return
                woken = asyncio.ensure_future(self._wake.wait())
                await asyncio.wait((woken, ended), return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
                if ended.done():
                    raise MachineError(f"QEMU ended with status {ended.result()}")
        finally:
            ended.cancel()
            self.resting = False

    def _release(self, before: float) -> None:
        """Hands on the requests that came before this time. A machine that rests gets those that came together: the
        next come when it rests again."""
        while self._queue and self._queue[0][0] <= before:
            for message in self._queue.pop(0)[1]:
                self.say(message)
            if self.resting:
                return

    def send(self, requests: Sequence[Mapping[str, Any]]) -> None:
        """Requests that come together: on the virtual clock when the machine rests, if that is soon."""
        if self._virtual:
            self._queue.append((time.monotonic(), requests))
            self._wake.set()
        else:
            for request in requests:
                self.say(request)

    @property
    def asked(self) -> bool:
        """Whether requests wait for the machine."""
        return bool(self._queue)

    def say(self, message: Mapping[str, Any]) -> None:
        """A request, or something about one that is open. On the virtual clock the same messages give the same events,
        but for those that do not find the machine at rest."""
        moment = {"rest": self._rests} if self.resting else {"meanwhile": True}
        self._hearer.said({**message, **(moment if self._virtual else {})})
        self._wire.send(json.dumps(message).encode())
        self._wake.set()
        self._ring()

    def _tell(self, request: Request[Any]) -> None:
        self._wire.send(json.dumps(messages.ask(self.number(), request)).encode())
