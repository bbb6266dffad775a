"""The keeper of a running lab: a process that runs its machine, and serves its user's commands over a socket.

It ends with its machine, and the machine with it. Commands send it the messages of protocol/messages.py under their own
numbers; it forwards them to the machine under others. One state decides how it handles them: lifecycle.py.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import DISK_FULL, InputError, MachineError, TestbedError, UnsupportedError
from testbed.machine import cache, containers, image, making, snapshot
from testbed.machine.jobs import Job
from testbed.machine.live import labs, stoppable
from testbed.machine.live.clients import Client, Clients, send_all
from testbed.machine.live.kept import Kept, discard
from testbed.machine.live.lifecycle import (
    DEAD,
    DISCARDED,
    ENDING,
    RUNNING,
    STARTING,
    STOPPED,
    UP,
    Input,
    Lifecycle,
    State,
)
from testbed.machine.live.machine_loop import MachineLoop
from testbed.machine.live.order import Order
from testbed.machine.live.stops import Stop
from testbed.machine.moments import Moment
from testbed.machine.qemu import Flavour
from testbed.machine.task_group import first_of
from testbed.machine.vm import write_bundle
from testbed.protocol import MESSAGE_BYTES, messages
from testbed.protocol.live import Down
from testbed.protocol.requests import KINDS, Request, read

if TYPE_CHECKING:
    from testbed.machine.live.endpoint import Endpoint

LIMIT_S = 1e9
"""The machine's own seconds: a lab has no limit."""
RECORDED: Mapping[State, labs.Recorded] = {UP: "up", RUNNING: "up", STOPPED: "stopped", ENDING: "ending"}
"""The states in lab.json, in the user's words."""


class Keeper:
    def __init__(self, order: Order) -> None:
        self.order = order
        self.lab = replace(order.lab, pid=os.getpid())
        self.life = Lifecycle(self.lab.name)
        self.kept = Kept(Path(self.lab.out))
        self._clients = Clients()
        self.loop: MachineLoop | None = None
        self._endpoint: Endpoint | None = None
        self._awaited = asyncio.Event()
        """The command that starts the lab waits for it, so that errors reach it."""
        self._arrived = asyncio.Event()
        """A request has come."""
        self._result: dict[str, Any] = {}
        self._work: asyncio.Task[None] | None = None
        self._last = time.monotonic()
        self._directory = self.lab.directory.stat()

    @property
    def _virtual(self) -> bool:
        return self.lab.clock == "virtual"

    # The life of the lab

    async def run(self, order: int, ready: int, listening: socket.socket | None) -> None:
        """Serve until the lab is down or dead. `ready` is closed when commands can connect; `order` reaches its end
        when the command that starts the lab has ended; `listening` is the socket for metrics."""
        self._record("starting")
        if listening:
            from testbed.machine.live.endpoint import Endpoint

            self._endpoint = Endpoint(listening, self._ask, follows=self._virtual)
        server = await asyncio.start_unix_server(self._serve, sock=labs.listener(self.lab), limit=2 * MESSAGE_BYTES)
        self._work = asyncio.ensure_future(self._live())
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._end)
        loop.add_reader(order, self._on_starter_ended, order)
        os.close(ready)
        try:
            await self._work
            self._remove()
            send_all(self._clients.starters, {"response": self._result})
            send_all(self._clients.enders, {"response": {"out": self.lab.out}})
        except asyncio.CancelledError:
            self._remove()
            early = " before it was up" if self.life.state is DISCARDED else ""
            error = messages.failure(TestbedError(f"lab {self.lab.name} was ended{early}"))
            send_all(self._clients.starters, {"error": error})
            send_all(self._clients.enders, {"response": {"out": ""}})
        except Exception as error:
            (self.lab.directory / labs.SOCKET).unlink(missing_ok=True)
            self._fail(error)
        finally:
            server.close()
            await self._clients.close()

    def _on_starter_ended(self, order: int) -> None:
        asyncio.get_running_loop().remove_reader(order)
        self._end(Input.DOWN if self.order.attached else Input.ORPHANED)

    def _fail(self, cause: Exception) -> None:
        """Record the reason for later commands, and send it to every waiting one."""
        error = cause if isinstance(cause, TestbedError) else MachineError("".join(traceback.format_exception(cause)))
        if isinstance(cause, OSError) and cause.errno in DISK_FULL:
            error = UnsupportedError("the disk is full", where=str(cause.filename or ""), hint="Free some space.")
        if self._apply(Input.FAILED) is DEAD:
            with contextlib.suppress(OSError):
                if not self.order.run:
                    self.kept.end(asdict(self.lab), None)
            self._record("dead", error.message)
        else:
            self._remove()
        self._clients.fail(messages.failure(error))

    def _remove(self) -> None:
        """Remove the lab's directory, and the run directory of a lab that never came up."""
        if self._has_directory():
            labs.remove(self.lab)
        if self.life.state is DISCARDED:
            discard(Path(self.lab.out))

    def _has_directory(self) -> bool:
        """Return False if somebody removed the lab's directory: no command can find the lab then."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(self.lab.directory.stat(), self._directory)
        return False

    def _apply(self, given: Input, why: str = "") -> State | None:
        """Apply an input of the lifecycle. Return and record the new state; None if it stays the same."""
        entered = self.life.apply(given)
        if entered and (word := RECORDED.get(entered)):
            self._record(word, why)
        return entered

    def _record(self, state: labs.Recorded, why: str = "") -> None:
        if not self._has_directory():
            return
        try:
            self.lab = self.lab.now(state, why)
        except OSError as error:
            self.log(f"the state {state} cannot be written: {error}")

    async def _live(self) -> None:
        flavour = Flavour(self.lab.clock, self.order.accelerator)  # type: ignore[arg-type]
        await self._awaited.wait()
        found = image.find()
        if found is None:
            raise MachineError("the image was removed")
        found = await containers.equip(found, self.order.packages, self.order.images, self.log)
        ticks = asyncio.ensure_future(self._tick())
        try:
            if self.order.run:
                self._result = await stoppable.run(self, found, flavour, self.order)
                self._apply(Input.FINISHED)
            else:
                await self._lab(found, flavour)
        finally:
            ticks.cancel()
            if self._endpoint:
                self._endpoint.close()

    async def _lab(self, found: image.Image, flavour: Flavour) -> None:
        source = snapshot.stack(found, flavour)[-1]
        job: Job[Any] = Job(
            [read(self.order.request)],
            self.order.files,
            self.order.executable,
            limit_s=LIMIT_S,
            seed=self.order.seed,
            lives=True,
            listen=self._report,
        )
        async with making.begun(found, flavour, source, self.log) as opened:
            write_bundle(opened.bundle, job, flavour.clock)
            self.loop = MachineLoop(opened, job, flavour.clock, self, self.life)
            prepared = asyncio.ensure_future(asyncio.to_thread(self.kept.prepare))
            await self.loop.run()
            await prepared
            if self.life.state is STARTING:
                job.answer()  # raise the reason why it did not come up
            if not job.failed:
                self._apply(Input.FINISHED)
            opened.outcome.extract(Path(self.lab.out))
            job.answer()  # raise the reason why it died
        self.kept.end(asdict(self.lab), found.digest)

    # The machine

    async def drained(self) -> None:
        """Return when commands have read what the machine had no space for, or one that reads needs the machine."""
        self._arrived.clear()
        if not (self._clients.waiting or self.life.state is ENDING):
            await first_of(self._clients.drained(), self._arrived.wait())

    def received(self, message: dict[str, Any]) -> None:
        if self._endpoint and self._endpoint.receive(message):
            return
        self._clients.answer(message)

    def handed_over(self, message: Mapping[str, Any]) -> None:
        match message:
            case {"ack": _}:
                return
            case {"request": {"kind": "Metrics"}} if not self._virtual:
                """Scrapes, which change nothing, would be most of the file."""
            case _:
                with contextlib.suppress(OSError):
                    self.kept.note(message)

    def held(self, moment: Moment) -> None:
        self._begin(Input.HELD, f"at {moment.t / 1e9:.3f} s: {moment.text or moment.kind}")

    def _report(self, record: dict[str, Any]) -> None:
        try:
            self.kept.record(record)
        except OSError as error:
            self.log(f"a report of the lab cannot be kept: {error}")
        match record:
            case {"event": {"kind": "exec", "node": str(node), "text": str(text), "data": {"status": int(status)}}} if (
                status
            ):
                self.log(f"{node}: {text}")
        if record.get("up"):
            self._begin(Input.BUILT)

    def _begin(self, given: Input, why: str = "") -> None:
        """Serve requests from now on, and answer those who wait for it."""
        if self._apply(given, why):
            self._clients.started({"response": self._serves()})
            if self._endpoint:
                self._endpoint.begin()

    def _serves(self) -> dict[str, Any] | None:
        """Build the answer for those who wait for a lab or run that serves requests now."""
        if self.life.state is not STOPPED:
            return None
        assert self.loop
        assert self.loop.reached
        return {"stopped": asdict(self.loop.reached)}

    def show(self, record: dict[str, Any]) -> None:
        """Send a record of a running run to those who wait for it."""
        if self._endpoint and "event" in record:
            self._endpoint.event(record["event"])
        send_all(self._clients.starters, {"report": record})

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(1)
            if not self._has_directory():
                self.log(f"{self.lab.directory} was removed")
                self._end()
                return
            if self._clients:
                self._last = time.monotonic()
            if self.order.idle_s is not None and time.monotonic() - self._last > self.order.idle_s:
                self.log(f"no command used the lab for {self.order.idle_s:g} s")
                self._end()
                return

    def _end(self, given: Input = Input.DOWN) -> None:
        """Let the machine take the lab down. Abort a lab that is not up yet, or a run that goes on."""
        match self._apply(given):
            case State.ENDING:
                self._ask_machine(Down())
            case State.OVER | State.DISCARDED:
                assert self._work
                self._work.cancel()

    def log(self, text: str) -> None:
        with contextlib.suppress(OSError):
            print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
        send_all(self._clients.starters, {"log": text})

    # Commands

    def _ask(self, request: Request[Any]) -> int:
        self.life.apply(Input.REQUEST)
        return self._ask_machine(request)

    def _ask_machine(self, request: Request[Any]) -> int:
        assert self.loop
        number = self.loop.next_number()
        self._submit([messages.ask(number, request)])
        return number

    def _submit(self, requests: Sequence[Mapping[str, Any]]) -> None:
        assert self.loop
        self.loop.submit(requests)
        self._arrived.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Client(writer)
        if not client.allowed():
            writer.close()
            return
        self._clients.join(client)
        try:
            while line := await reader.readline():
                found = json.loads(line)
                given = found if isinstance(found, list) else [found]
                if requests := [request for one in given if (request := self._receive(client, one))]:
                    self._submit(requests)
        except (ValueError, KeyError, TypeError, OverflowError, ConnectionError):
            writer.close()
        finally:
            self._leave(client)

    def _receive(self, client: Client, message: dict[str, Any]) -> Mapping[str, Any] | None:
        number = int(message["id"])
        try:
            match message:
                case {"control": "start"}:
                    self._start(client, number)
                case {"control": "continue", "discard": bool(discard), "to": str(to)}:
                    self._continue(client, number, to, discard=discard)
                case {"request": {"kind": "Down"}}:
                    self._clients.enders.append((client, number))
                    self._end()
                case {"request": dict(request)}:
                    inner = self._admit(client, number, str(request.get("kind")))
                    typed: dict[str, Any] = {key: message[key] for key in ("protocol", "typed") if key in message}
                    return {**typed, "id": inner, "request": request}
                case {"ack": _} if self._virtual:
                    """It would reach the machine at a moment of the host's. It waits for commands when the wire is
                    full."""
                case _ if number in client.open:
                    assert self.loop
                    self.loop.post({**message, "id": client.open[number]})
        except TestbedError as error:
            client.send({"id": number, "error": messages.failure(error)})
        return None

    def _admit(self, client: Client, number: int, kind: str) -> int:
        """Let a request go to the machine. Return its number there."""
        self.life.apply(Input.REQUEST)
        assert self.loop
        if self.life.state is STOPPED and getattr(KINDS.get(kind), "touches", True):
            self.loop.touched.append(kind)
        inner = self.loop.next_number()
        self._clients.ask(client, number, inner)
        return inner

    def _start(self, client: Client, number: int) -> None:
        self._awaited.set()
        self.life.apply(Input.START)
        if self.life.state in (UP, STOPPED):
            client.send({"id": number, "response": self._serves()})
        else:
            self._clients.starters.append((client, number))

    def _continue(self, client: Client, number: int, to: str, *, discard: bool) -> None:
        stop = Stop.of(to) if to else None
        touched = self.life.state is STOPPED and self.loop and self.loop.touched
        if touched and not discard and stop and stop.t is not None:
            hint = "Stop at a step, or drop the changes with --discard."
            raise InputError("a run that was changed by hand cannot stop at a time", hint=hint)
        self._apply(Input.CONTINUE)
        if self._endpoint:
            self._endpoint.go_on()
        self._clients.fail_requests(messages.failure(TestbedError(f"{self.lab.name} goes on")))
        self._clients.starters.append((client, number))
        assert self.loop
        self.loop.go_on(stop, discard=discard)

    def _leave(self, client: Client) -> None:
        """Stop the requests of a command that has ended or was killed."""
        for inner in self._clients.leave(client):
            if self.loop:
                self.loop.post({"id": inner, "stop": True})


def main() -> None:
    """Keep a lab. Arguments: the descriptors of the order, of the pipe that is closed when commands can connect, and of
    the metrics socket, if any."""
    order, ready, *sockets = map(int, sys.argv[1:])
    for number in signal.SIGINT, signal.SIGHUP:
        signal.signal(number, signal.SIG_IGN)
    with open(order, closefd=False) as file:
        keeper = Keeper(Order.of(file.readline()))
    cache.WAITING.set(keeper.log)
    asyncio.run(keeper.run(order, ready, socket.socket(fileno=sockets[0]) if sockets else None))
