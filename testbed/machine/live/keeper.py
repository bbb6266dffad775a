"""The keeper of a lab that lives: a process that runs its machine, and serves the commands of its user over a socket.

It ends with its machine, and the machine with it. What it takes from commands are the messages of protocol/messages.py,
under numbers of each command's own; it passes them on to the machine under others.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import DISK_FULL, InputError, MachineError, TestbedError, UnsupportedError
from testbed.machine import containers, image, snapshot
from testbed.machine.jobs import Job
from testbed.machine.live import labs
from testbed.machine.live.clients import Client, Clients, tell
from testbed.machine.live.drive import Drive
from testbed.machine.live.kept import Kept, discard
from testbed.machine.live.order import Order
from testbed.machine.live.stoppable import StoppableRun
from testbed.machine.live.stops import Stop
from testbed.machine.moments import Moment, Opened
from testbed.machine.qemu import Flavour
from testbed.machine.vm import write_bundle
from testbed.protocol import MESSAGE_BYTES, messages
from testbed.protocol.live import Down
from testbed.protocol.requests import KINDS, Request, read

if TYPE_CHECKING:
    from testbed.machine.live.endpoint import Endpoint

LIMIT_S = 1e9
"""The machine's own seconds: a lab has no limit."""


class Keeper:
    def __init__(self, order: Order) -> None:
        self.order = order
        self.lab = replace(order.lab, pid=os.getpid())
        self.kept = Kept(Path(self.lab.out))
        self._clients = Clients()
        self.drive: Drive | None = None
        self._endpoint: Endpoint | None = None
        self._came = asyncio.Event()
        """A request has come."""
        self._result: dict[str, Any] = {}
        self._up = self._ending = self._over = False
        self._life: asyncio.Task[None] | None = None
        self._last = time.monotonic()

    @property
    def _virtual(self) -> bool:
        return self.lab.clock == "virtual"

    # The life of the lab

    async def run(self, order: int, ready: int, listening: socket.socket | None) -> None:
        """Serves until the lab is down or dead. `ready` is closed when commands can connect; `order` is at its end when
        the command that starts the lab has ended; at `listening` metrics are scraped."""
        self._state("starting")
        if listening:
            from testbed.machine.live.endpoint import Endpoint

            self._endpoint = Endpoint(listening, self._ask, follows=self._virtual)
        server = await asyncio.start_unix_server(self._serve, sock=labs.listener(self.lab), limit=2 * MESSAGE_BYTES)
        self._life = asyncio.ensure_future(self._live())
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._end)
        loop.add_reader(order, self._started, order)
        os.close(ready)
        try:
            await self._life
            labs.remove(self.lab)
            tell(self._clients.starters, {"response": self._result})
            tell(self._clients.enders, {"response": {"out": self.lab.out}})
        except asyncio.CancelledError:
            if self._up:
                labs.remove(self.lab)
            else:
                self._discard()
            early = TestbedError(f"lab {self.lab.name} was ended" + ("" if self._up else " before it was up"))
            tell(self._clients.starters, {"error": messages.failure(early)})
            tell(self._clients.enders, {"response": {"out": ""}})
        except Exception as error:
            (self.lab.directory / labs.SOCKET).unlink(missing_ok=True)
            self._die(error)
        finally:
            server.close()
            await self._clients.close()

    def _started(self, order: int) -> None:
        asyncio.get_running_loop().remove_reader(order)
        if self.order.attached or not self._up:
            self._end()

    def _die(self, cause: Exception) -> None:
        """Leaves the reason for those who ask later, and tells everybody who waits."""
        error = cause if isinstance(cause, TestbedError) else MachineError("".join(traceback.format_exception(cause)))
        if isinstance(cause, OSError) and cause.errno in DISK_FULL:
            error = UnsupportedError("the disk is full", where=str(cause.filename or ""), hint="Free some space.")
        if not self._up:
            self._discard()
        elif self._over:
            labs.remove(self.lab)
        else:
            with contextlib.suppress(OSError):
                if not self.order.run:
                    self.kept.end(asdict(self.lab), None)
            self._state("dead", error.message)
        self._clients.fail(messages.failure(error))

    def _discard(self) -> None:
        """A lab that never came up leaves nothing."""
        labs.remove(self.lab)
        discard(Path(self.lab.out))

    def _state(self, state: labs.State, why: str = "") -> None:
        try:
            self.lab = self.lab.now(state, why)
        except OSError as error:
            self.log(f"the state {state} cannot be written: {error}")

    async def _live(self) -> None:
        flavour = Flavour(self.lab.clock, self.order.accelerator)  # type: ignore[arg-type]
        found = image.find()
        if found is None:
            raise MachineError("the image has gone")
        found = await containers.equip(found, self.order.packages, self.order.images, self.log)
        ticks = asyncio.ensure_future(self._tick())
        try:
            if self.order.run:
                self._result = await StoppableRun(self, found, flavour, self.order).run()
                self._over = True
            else:
                await self._lab(found, flavour)
        finally:
            ticks.cancel()
            if self._endpoint:
                self._endpoint.close()

    async def _lab(self, found: image.Image, flavour: Flavour) -> None:
        source = await snapshot.ensure(found, flavour, self.log)
        job: Job[Any] = Job(
            [read(self.order.request)], self.order.files, self.order.executable,
            limit_s=LIMIT_S, seed=self.order.seed, lives=True, listen=self._report,
        )  # fmt: skip
        async with Opened(found, flavour, source) as opened:
            write_bundle(opened.bundle, job, flavour.clock)
            await opened.begin()
            self.drive = Drive(opened, job, flavour.clock, self)
            ends = asyncio.ensure_future(asyncio.to_thread(self.kept.prepare))
            await self.drive.run()
            await ends
            self._over = True
            opened.outcome.extract(Path(self.lab.out))
        job.answer()
        self.kept.end(asdict(self.lab), found.digest)

    # What the machine does

    async def taken(self) -> None:
        """Returns when commands have taken what a paused machine had no room for, or a request comes of which the one
        that does not take it must not stop the lab."""
        self._came.clear()
        if not (self.drive and self.drive.asked):
            taken = asyncio.ensure_future(self._clients.taken())
            woken = asyncio.ensure_future(self._came.wait())
            await asyncio.wait((taken, woken), return_when=asyncio.FIRST_COMPLETED)
            taken.cancel()
            woken.cancel()

    def answered(self, message: dict[str, Any]) -> None:
        if self._endpoint and self._endpoint.take(message):
            return
        self._clients.answer(message)

    def stopped(self, moment: Moment) -> None:
        self._up = True
        self._state("stopped", f"at {moment.t / 1e9:.3f} s: {moment.text or moment.kind}")
        self._tell_stopped(moment)
        if self._endpoint and not self._ending:
            self._endpoint.begin()

    def _tell_stopped(self, moment: Moment) -> None:
        self._clients.started({"response": {"stopped": asdict(moment)}})

    def shown(self, record: dict[str, Any]) -> None:
        """Something of a run that goes on, for whoever waits for it."""
        tell(self._clients.starters, {"report": record})

    async def _tick(self) -> None:
        """Ends a lab that nobody has used for its time."""
        while True:
            await asyncio.sleep(1)
            if self._clients:
                self._last = time.monotonic()
            if self.order.idle_s is not None and time.monotonic() - self._last > self.order.idle_s:
                self.log(f"nobody used the lab for {self.order.idle_s:g} s")
                self._end()
                return

    def _end(self) -> None:
        """Has the machine take the lab down. One that is not up yet is given up."""
        if self._ending:
            return
        self._ending = True
        if not self._up or (self.drive and self.order.run and not self.drive.held):
            assert self._life
            self._life.cancel()
            return
        self._state("ending")
        assert self.drive
        self.drive.send([messages.ask(self.drive.number(), Down())])
        self._came.set()

    def log(self, text: str) -> None:
        with contextlib.suppress(OSError):
            print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
        tell(self._clients.starters, {"log": text})

    def _report(self, record: dict[str, Any]) -> None:
        """What the lab itself reports."""
        try:
            self.kept.take(record)
        except OSError as error:
            self.log(f"what the lab reports cannot be kept: {error}")
        if record.get("up"):
            first, self._up = not self._up, True
            self._state("up")
            self._clients.started({"response": None})
            if first and self._endpoint and not self._ending:
                self._endpoint.begin()

    # Commands

    def _ask(self, request: Request[Any]) -> int:
        """Sends the lab a request that no command made; its number."""
        drive = self._serving()
        number = drive.number()
        drive.send([messages.ask(number, request)])
        self._came.set()
        return number

    def _serving(self) -> Drive:
        """The drive of a lab that takes requests."""
        if not self._up or self._ending or not self.drive or not self.drive.serves:
            raise TestbedError(f"lab {self.lab.name} {self._unavailable()}")
        return self.drive

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Client(writer)
        if not client.allowed():
            writer.close()
            return
        self._clients.join(client)
        try:
            while line := await reader.readline():
                found = json.loads(line)
                wanted = [self._take(client, message) for message in (found if isinstance(found, list) else [found])]
                if (requests := [request for request in wanted if request]) and self.drive:
                    self.drive.send(requests)
                    self._came.set()
        except (ValueError, KeyError, TypeError, ConnectionError):
            writer.close()
        finally:
            self._leave(client)

    def _take(self, client: Client, message: dict[str, Any]) -> Mapping[str, Any] | None:
        """The request for the machine, if it is one."""
        number = int(message["id"])
        match message:
            case {"control": "start"}:
                self._clients.starters.append((client, number))
                if self.drive and self.drive.held:
                    self._tell_stopped(self.drive.held)
                elif self._up:
                    self._report({"up": True})
            case {"control": "continue", "discard": bool(discard), "to": str(to)}:
                self._continue(client, number, to, discard=discard)
            case {"request": {"kind": "Down"}}:
                self._clients.enders.append((client, number))
                self._end()
            case {"request": dict(request)}:
                try:
                    drive = self._serving()
                except TestbedError as error:
                    client.tell({"id": number, "error": messages.failure(error)})
                    return None
                inner = drive.number()
                if drive.held and getattr(KINDS.get(str(request.get("kind"))), "touches", True):
                    drive.touch(str(request.get("kind")))
                self._clients.ask(client, number, inner)
                return {"protocol": message.get("protocol"), "id": inner, "request": request}
            case {"ack": _} if self._virtual:
                """It would reach the machine at a moment of the host's. It waits for commands when the wire is full."""
            case _ if number in client.open:
                assert self.drive
                self.drive.say({**message, "id": client.open[number]})
        return None

    def _continue(self, client: Client, number: int, to: str, *, discard: bool) -> None:
        stop = Stop.of(to) if to else None
        try:
            drive = self._standing(stop, discard=discard)
        except InputError as error:
            client.tell({"id": number, "error": messages.failure(error)})
            return
        self._clients.fail_requests(messages.failure(TestbedError(f"{self.lab.name} goes on")))
        self._clients.starters.append((client, number))
        self._state("up")
        drive.go_on(stop, discard=discard)

    def _standing(self, stop: Stop | None, *, discard: bool) -> Drive:
        """The drive of a run that stands, and can go on to the stop."""
        if self.drive is None or self.drive.held is None:
            raise InputError(f"{self.lab.name} is not stopped", hint="`testbed continue` is for a run that is.")
        if stop and stop.t is not None and self.drive.touched and not discard:
            hint = "Stop at a step, or forget what was done with --discard."
            raise InputError("after something was done by hand a run does not stop at a time", hint=hint)
        return self.drive

    def _unavailable(self) -> str:
        if self._ending:
            return "is being taken down"
        return "runs, and takes requests where it is stopped" if self._up else "is still being made"

    def said(self, message: Mapping[str, Any]) -> None:
        match message:
            case {"ack": _}:
                return
            case {"request": {"kind": "Metrics"}} if not self._virtual:
                """Scrapes, which change nothing, would be most of the file."""
            case _:
                with contextlib.suppress(OSError):
                    self.kept.note(message)

    def _leave(self, client: Client) -> None:
        """The command has ended, or was killed: what it asked for ends too."""
        for inner in self._clients.leave(client):
            if self.drive:
                self.drive.say({"id": inner, "stop": True})


def main() -> None:
    """Arguments: the descriptors of the order, of the pipe that is closed when commands can connect, and of the socket
    at which metrics are scraped, if any."""
    order, ready, *sockets = map(int, sys.argv[1:])
    for number in signal.SIGINT, signal.SIGHUP:
        signal.signal(number, signal.SIG_IGN)
    with open(order, closefd=False) as file:
        keeper = Keeper(Order.of(file.readline()))
    asyncio.run(keeper.run(order, ready, socket.socket(fileno=sockets[0]) if sockets else None))
