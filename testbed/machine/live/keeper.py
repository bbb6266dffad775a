"""The keeper of a lab that lives: a process that runs its machine, and serves the commands of its user over a socket.

It ends with its machine, and the machine with it. What it takes from commands are the messages of protocol/messages.py,
under numbers of each command's own; it passes them on to the machine under others.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from testbed.errors import DISK_FULL, MachineError, TestbedError, UnsupportedError
from testbed.machine import image, layers, snapshot
from testbed.machine.devices import Bundle, Outcome
from testbed.machine.jobs import Job
from testbed.machine.live import labs
from testbed.machine.live.clients import Client, tell
from testbed.machine.live.kept import Kept, discard
from testbed.machine.live.order import Order
from testbed.machine.live.wire import FULL, Wire
from testbed.machine.qemu import Flavour, Qemu
from testbed.machine.watch import Watch
from testbed.protocol import ENTRY, FILES, MESSAGE_BYTES, messages
from testbed.protocol.requests import read

BUSY_S = 0.5
"""Wall seconds for which a request waits until the machine rests. Then it comes at a moment that the host chose."""
LIMIT_S = 1e9
"""The machine's own seconds: a lab has no limit."""
JOB_ID = 0


class Keeper:
    def __init__(self, order: Order) -> None:
        self.order = order
        self.lab = replace(order.lab, pid=os.getpid())
        self.kept = Kept(Path(self.lab.out))
        self._numbers = itertools.count(JOB_ID + 1)
        self._clients: set[Client] = set()
        self._asked: dict[int, tuple[Client, int]] = {}
        """Of each request that is open, by the machine's number: who asked, and its number there."""
        self._queue: list[tuple[float, list[Mapping[str, Any]]]] = []
        """Requests for a machine that does not rest, those together that came together, and when."""
        self._rests = 0
        self._starters: list[tuple[Client, int]] = []
        """Who waits for the lab to be up."""
        self._enders: list[tuple[Client, int]] = []
        """Who waits for the lab to be down."""
        self._wake = asyncio.Event()
        self._resting = False
        self._up = self._ending = self._over = False
        self._life: asyncio.Task[None] | None = None
        self._last = time.monotonic()
        self._wire: Wire | None = None
        self._machine: Qemu | None = None

    @property
    def _virtual(self) -> bool:
        return self.lab.clock == "virtual"

    # The life of the lab

    async def run(self, order: int, ready: int) -> None:
        """Serves until the lab is down or dead. `ready` is closed when commands can connect; `order` is at its end when
        the command that starts the lab has ended."""
        self._state("starting")
        server = await asyncio.start_unix_server(self._serve, sock=labs.listener(self.lab), limit=2 * MESSAGE_BYTES)
        self._life = asyncio.ensure_future(self._live())
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._end)
        loop.add_reader(order, self._started, order)
        os.close(ready)
        try:
            await self._life
            labs.remove(self.lab)
            tell(self._enders, {"response": {"out": self.lab.out}})
        except asyncio.CancelledError:
            self._discard()
            early = TestbedError(f"lab {self.lab.name} was ended before it was up")
            tell(self._starters, {"error": messages.failure(early)})
            tell(self._enders, {"response": {"out": ""}})
        except Exception as error:
            (self.lab.directory / labs.SOCKET).unlink(missing_ok=True)
            self._die(error)
        finally:
            server.close()
            for client in [*self._clients]:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(client.taken(), 1)
                client.writer.close()

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
                self.kept.end(asdict(self.lab), None)
            self._state("dead", error.message)
        tell([*self._asked.values(), *self._starters, *self._enders], {"error": messages.failure(error)})

    def _discard(self) -> None:
        """A lab that never came up leaves nothing."""
        labs.remove(self.lab)
        discard(Path(self.lab.out))

    def _state(self, state: labs.State, why: str = "") -> None:
        try:
            self.lab = self.lab.now(state, why)
        except OSError as error:
            self._log(f"the state {state} cannot be written: {error}")

    async def _live(self) -> None:
        flavour = Flavour(self.lab.clock, self.order.accelerator)  # type: ignore[arg-type]
        found = image.find()
        if found is None:
            raise MachineError("the image has gone")
        if self.order.packages:
            found = await layers.ensure(found, self.order.packages, self._log)
        source = await snapshot.ensure(found, flavour, self._log)
        job: Job[Any] = Job(
            [read(self.order.request)], self.order.files, self.order.executable,
            limit_s=LIMIT_S, seed=self.order.seed, wire=flavour.clock, listen=self._report,
        )  # fmt: skip
        with Bundle() as bundle, Outcome() as outcome:
            files = {f"{FILES}/{name}": data for name, data in job.files.items()}
            envelope = {**job.envelope(f"/run/testbed/in/{FILES}"), "call": ENTRY}
            bundle.write(envelope, files, {f"{FILES}/{name}" for name in job.executable})
            self._wire = Wire(bundle, outcome)
            async with snapshot.restored(found, flavour, source, bundle, outcome) as machine:
                self._machine = machine
                await self._drive(machine, outcome, job)
            self._over = True
            outcome.extract(Path(self.lab.out))
        job.answer()
        self.kept.end(asdict(self.lab), found.digest)

    async def _drive(self, machine: Qemu, outcome: Outcome, job: Job[Any]) -> None:
        """Has the machine run to the end of its job. On the virtual clock it rests whenever it has nothing to do."""
        loop = asyncio.get_running_loop()
        assert self._wire
        if not self._virtual:
            loop.add_reader(machine.bell.fileno(), self._rung, machine, job)
        ticks = loop.create_task(self._tick())
        try:
            while True:
                watch = Watch(machine, self.lab.clock, outcome, self._log)  # type: ignore[arg-type]

                async def look(watch: Watch = watch) -> None:
                    if self._hear(job):
                        watch.heard()
                    if self._virtual:
                        self._release(time.monotonic() - BUSY_S)
                    await watch.look()

                await machine.command("cont")
                await machine.paused(look, watch.pause_s)
                self._hear(job)
                for message in outcome.progress():
                    job.take(message)
                if outcome.finished:
                    return
                if self._wire.reason == FULL:
                    await self._taken()
                self._wire.acknowledge()
                await self._rest(machine)
        finally:
            ticks.cancel()
            loop.remove_reader(machine.bell.fileno())

    async def _taken(self) -> None:
        """Returns when commands have taken what a paused machine had no room for, or a request comes of which the one
        that does not take it must not stop the lab."""
        self._wake.clear()
        if not self._queue:
            taken = asyncio.gather(*(client.taken() for client in self._clients))
            woken = asyncio.ensure_future(self._wake.wait())
            await asyncio.wait((taken, woken), return_when=asyncio.FIRST_COMPLETED)
            taken.cancel()
            woken.cancel()

    async def _rest(self, machine: Qemu) -> None:
        """Returns when there is something for the paused machine to do."""
        assert self._wire
        if self._wire.reason == FULL:
            return
        self._resting = True
        self._rests += 1
        ended = asyncio.ensure_future(machine.process.wait())
        try:
            while True:
                self._wake.clear()
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
            self._resting = False

    def _release(self, before: float) -> None:
        """Hands on the requests that came before this time. A machine that rests gets those that came together: the
        next come when it rests again."""
        while self._queue and self._queue[0][0] <= before:
            for message in self._queue.pop(0)[1]:
                self._say(message)
            if self._resting:
                return

    async def _tick(self) -> None:
        """Ends a lab that nobody has used for its time."""
        while True:
            await asyncio.sleep(1)
            if self._clients:
                self._last = time.monotonic()
            if self.order.idle_s is not None and time.monotonic() - self._last > self.order.idle_s:
                self._log(f"nobody used the lab for {self.order.idle_s:g} s")
                self._end()
                return

    def _end(self) -> None:
        """Has the machine take the lab down. One that is not up yet is given up."""
        if self._ending:
            return
        self._ending = True
        if not self._up:
            assert self._life
            self._life.cancel()
            return
        self._state("ending")
        self._send([{"protocol": messages.VERSION, "id": next(self._numbers), "request": {"kind": "Down"}}])

    def _log(self, text: str) -> None:
        with contextlib.suppress(OSError):
            print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
        for client, number in self._starters:
            client.tell({"id": number, "log": text})

    # The machine's messages

    def _rung(self, machine: Qemu, job: Job[Any]) -> None:
        assert self._wire
        with contextlib.suppress(BlockingIOError, ConnectionError):
            machine.bell.recv(1 << 16)
        self._hear(job)
        if self._wire.push():
            self._ring()

    def _ring(self) -> None:
        if not self._virtual and self._machine:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                self._machine.bell.send(b"!")

    def _hear(self, job: Job[Any]) -> bool:
        assert self._wire
        heard = False
        for message in self._wire.receive():
            heard = True
            if message.get("id") == JOB_ID or "id" not in message:
                job.take(message)
            else:
                self._pass_on(message)
        if heard and not self._virtual:
            self._wire.acknowledge()
            self._ring()
        return heard

    def _pass_on(self, message: dict[str, Any]) -> None:
        client, number = self._asked.get(message["id"], (None, 0))
        if client is None:
            return
        client.tell({**message, "id": number})
        if "report" not in message:
            del self._asked[message["id"]]
            client.open.pop(number, None)

    def _report(self, record: dict[str, Any]) -> None:
        """What the lab itself reports."""
        try:
            self.kept.take(record)
        except OSError as error:
            self._log(f"what the lab reports cannot be kept: {error}")
        if record.get("up"):
            self._up = True
            self._state("up")
            tell(self._starters, {"response": None})
            self._starters.clear()

    # Commands

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Client(writer)
        if not client.allowed():
            writer.close()
            return
        self._clients.add(client)
        try:
            while line := await reader.readline():
                found = json.loads(line)
                wanted = [self._take(client, message) for message in (found if isinstance(found, list) else [found])]
                self._send([request for request in wanted if request])
        except (ValueError, KeyError, TypeError, ConnectionError):
            writer.close()
        finally:
            self._leave(client)

    def _take(self, client: Client, message: dict[str, Any]) -> Mapping[str, Any] | None:
        """The request for the machine, if it is one."""
        number = int(message["id"])
        match message:
            case {"control": "start"}:
                self._starters.append((client, number))
                if self._up:
                    self._report({"up": True})
            case {"request": {"kind": "Down"}}:
                self._enders.append((client, number))
                self._end()
            case {"request": dict(request)}:
                if not self._up or self._ending:
                    what = "is being taken down" if self._ending else "is still being made"
                    error = TestbedError(f"lab {self.lab.name} {what}")
                    client.tell({"id": number, "error": messages.failure(error)})
                    return None
                inner = next(self._numbers)
                self._asked[inner] = client, number
                client.open[number] = inner
                return {"protocol": message.get("protocol"), "id": inner, "request": request}
            case {"ack": _} if self._virtual:
                """It would reach the machine at a moment of the host's. It waits for commands when the wire is full."""
            case _ if number in client.open:
                self._say({**message, "id": client.open[number]})
        return None

    def _send(self, requests: list[Mapping[str, Any]]) -> None:
        """On the virtual clock they come when the machine rests, if that is soon."""
        if self._virtual:
            if requests:
                self._queue.append((time.monotonic(), requests))
                self._wake.set()
        else:
            for request in requests:
                self._say(request)

    def _say(self, message: Mapping[str, Any]) -> None:
        """Hands a message on, and keeps it. On the virtual clock the same messages give the same events, but for those
        that do not find the machine at rest."""
        if self._wire:
            if "ack" not in message:
                moment = {"rest": self._rests} if self._resting else {"meanwhile": True}
                with contextlib.suppress(OSError):
                    self.kept.note({**message, **(moment if self._virtual else {})})
            self._wire.send(json.dumps(message).encode())
            self._wake.set()
            self._ring()

    def _leave(self, client: Client) -> None:
        """The command has ended, or was killed: what it asked for ends too."""
        self._clients.discard(client)
        self._starters = [one for one in self._starters if one[0] is not client]
        for inner in client.open.values():
            self._asked.pop(inner, None)
            self._say({"id": inner, "stop": True})


def main() -> None:
    """Arguments: the descriptors of the order, and of the pipe that is closed when commands can connect."""
    order, ready = map(int, sys.argv[1:3])
    for number in signal.SIGINT, signal.SIGHUP:
        signal.signal(number, signal.SIG_IGN)
    with open(order, closefd=False) as file:
        keeper = Keeper(Order.of(file.readline()))
    asyncio.run(keeper.run(order, ready))
