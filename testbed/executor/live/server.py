"""The server of requests to a lab that lives, one beside the other."""

from __future__ import annotations

import contextlib
import importlib
import select
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from testbed.errors import InputError, TestbedError
from testbed.executor.live.by_hand import ByHand
from testbed.executor.live.excerpt import Excerpt
from testbed.executor.wire import IDLE, Wire
from testbed.lab import Lab, processes
from testbed.lab.namespace import Namespace
from testbed.protocol import Event, events, live, messages
from testbed.protocol.live import SETTLE_S, LiveRequest
from testbed.protocol.messages import Channel
from testbed.scenario.event_log import EventLog

FIRST_LOOK_S, LONGEST_LOOK_S = 0.01, 60.0
"""Virtual seconds between two looks for input while a command runs; they double while nothing comes."""
LONGEST_IDLE_S = 3600.0
MOST_TYPED = 2000
"""Characters of a command that are recorded."""


class Interrupted(BaseException):
    """The end of a lab while a request still waits for something in it."""


class Task(Protocol):
    """A request that goes on. `drives` is True if it needs virtual time to pass."""

    drives: bool

    def receive(self, message: dict[str, Any]) -> None:
        """Receive a message from the outside about it: input, size, ack, stop."""


class Call:
    """A request that is being served."""

    def __init__(self, server: Server, number: int, typed: str = "") -> None:
        """`typed` is the user's command, to be recorded."""
        self._typed = typed[:MOST_TYPED]
        self._began_ns = time.monotonic_ns()
        self.back = Excerpt()
        """What came back from it, for people."""
        self.node = ""
        self.status: int | None = 0
        self.server = server
        self.lab = server.lab
        self.log = server.log
        self.number = number
        self.channel = Channel(number, server.write)
        self._watched: dict[int, Callable[[], object]] = {}

    def report(self, **record: Any) -> None:
        self.channel.report(record)

    def watch(self, handle: int, act: Callable[[], object], events: int = select.EPOLLIN) -> None:
        """Call `act` whenever the file is readable, at its end, or on other `events`."""
        if handle not in self._watched:
            self._watched[handle] = act
            self.server.watch(handle, lambda: self.guard(act), events)

    def guard(self, act: Callable[[], object]) -> bool:
        """Carry out a part of this request, and return whether that worked. A failure ends the request, not the lab."""
        try:
            act()
        except TestbedError as error:
            self.fail(error)
        except OSError as error:
            self.fail(refused(error))
        except Exception:
            self.crash()
        else:
            return True
        return False

    def unwatch(self, handle: int) -> None:
        if self._watched.pop(handle, None):
            self.server.unwatch(handle)

    def end(self, response: Any) -> None:
        self._leave()
        self.channel.respond(response)

    def fail(self, error: TestbedError) -> None:
        self.back.add(str(error).encode(errors="replace"))
        self.status = error.exit_status
        self._leave()
        self.channel.fail(error)

    def crash(self) -> None:
        self.status = 1
        self._leave()
        self.channel.crash(traceback.format_exc())

    def cut(self) -> None:
        """Record that the lab ended before the request."""
        self.status = None
        self._record()

    def _record(self) -> None:
        if self._typed:
            how = {None: "goes on", 0: "is done"}.get(self.status, f"ends with status {self.status}")
            took_ns = time.monotonic_ns() - self._began_ns
            typed = events.TYPED(command=self._typed, status=self.status, back=self.back.text(), took_ns=took_ns)
            self.lab.emit(typed, self.node, f"{self._typed} {how}", at_ns=self._began_ns)
            self._typed = ""

    def _leave(self) -> None:
        self._record()
        for handle in [*self._watched]:
            self.unwatch(handle)
        self.server.tasks.pop(self.number, None)


class Subscription:
    """A Task that reports whenever something happens, until the outside stops it."""

    drives = False

    def __init__(
        self, call: Call, response: Callable[[], Any], *listeners: tuple[list[Any], Callable[..., None]]
    ) -> None:
        """`listeners` are functions, each with the list of the server's that it is in meanwhile. One that fails ends
        the request."""
        self._call, self._response = call, response
        self._listeners = [(place, partial(self._listen, listener)) for place, listener in listeners]
        for place, listener in self._listeners:
            place.append(listener)

    def _listen(self, listener: Callable[..., None], *happened: Any) -> None:
        if not self._call.guard(lambda: listener(*happened)):
            self._leave()

    def _leave(self) -> None:
        for place, listener in self._listeners:
            with contextlib.suppress(ValueError):  # it has failed before
                place.remove(listener)

    def receive(self, message: dict[str, Any]) -> None:
        if message.get("stop"):
            self._leave()
            self._call.end(self._response())


def refusal() -> InputError:
    """Return the error of what a sealed lab does not do."""
    hint = "What works on a cluster works here: `testbed exec`, `inspect`, `tables`, `capture`, `probe`, `link set`."
    return InputError("this lab hides what is wrong in it, and does not do that before its answer", hint=hint)


def refused(error: OSError) -> TestbedError:
    """Return what the kernel refused, in words: commands of users change what it has of a lab."""
    hint = "A command has changed what the lab made; `testbed events` shows it."
    return TestbedError(f"the kernel refuses it: {error.strerror or error}", hint=hint)


def handler_of(kind: type[LiveRequest[Any]]) -> Callable[[Any, Call], Any]:
    module, _, function = kind.handler.partition(":")
    handler: Callable[[Any, Call], Any] = getattr(importlib.import_module(f"testbed.executor.live.{module}"), function)
    return handler


class Server:
    """The requests to a lab. As a source of its scheduler it serves others while something is waited for."""

    def __init__(
        self,
        lab: Lab,
        log: EventLog,
        wire: Wire,
        source: str,
        files: Path | None = None,
        received: deque[dict[str, Any]] | None = None,
    ) -> None:
        """`source` is the text of the lab's topology file; `files` is the directory of all its files, if the lab can
        change with them. `received` are messages that have come already: it takes them."""
        self.lab = lab
        self.log = log
        self.wire = wire
        self.source = source
        self.files = (files or Path()).absolute()
        self.cannot_apply = "" if files else "a stopped run keeps the topology of its scenario"
        """The reason why the lab takes no edited file."""
        self._received = received or deque()
        self.tasks: dict[int, tuple[Call, Task]] = {}
        self.event_listeners: list[Callable[[Event], None]] = []
        """Called with each event of the lab."""
        self.activity_listeners: list[Callable[[], None]] = []
        """Called when something has happened in the lab."""
        self.rest_listeners: list[Callable[[], None]] = []
        """Called when the lab comes to rest, on the virtual clock."""
        self.change_listeners: list[Callable[[LiveRequest[Any]], object]] = []
        """Called after each request that waited for its turn."""
        self.qualities: dict[str, dict[str, str]] = {}
        """Values set by hand, by ends of links."""
        self.by_hand = ByHand(lab)
        self.rebuilt_listeners: list[Callable[[], None]] = []
        """Called after the lab has got another plan."""
        self.held: dict[str, Callable[[], None]] = {}
        """Functions that set interfaces up which were set down by hand."""
        self._acts: deque[tuple[Call, LiveRequest[Any], Callable[[], Any]]] = deque()
        self._acting = self._interrupted = False
        self._ended = False
        self._down: Channel | None = None
        self._ready = select.epoll()
        self._watched: dict[int, Callable[[], object]] = {}
        self._nodes: dict[Namespace, int] = {}
        """The nodes whose programs end with them, and the reboot since which they do."""
        if not wire.virtual:
            self.watch(wire.fileno(), self._receive)

    def write(self, line: bytes, _: bool) -> None:
        self.wire.send(line)

    def publish(self, event: Event) -> None:
        for listener in [*self.event_listeners]:
            listener(event)

    @contextlib.contextmanager
    def listening(self, listener: Callable[[Event], None]) -> Iterator[None]:
        """Call `listener` with each event of the lab in the block."""
        self.event_listeners.append(listener)
        try:
            yield
        finally:
            self.event_listeners.remove(listener)

    # A source of the scheduler

    def fileno(self) -> int:
        return self._ready.fileno()

    def catch_up(self) -> None: ...

    def drain(self) -> None:
        for handle, _ in self._ready.poll(0):
            if act := self._watched.get(handle):
                act()
        for listener in [*self.activity_listeners]:
            listener()
        if self._ended and self._acting and not self._interrupted:
            self._interrupted = True
            raise Interrupted

    def watch(self, handle: int, act: Callable[[], object], events: int = select.EPOLLIN) -> None:
        self._watched[handle] = act
        self._ready.register(handle, events)

    def unwatch(self, handle: int) -> None:
        del self._watched[handle]
        self._ready.unregister(handle)

    def ends_with(self, node: Namespace) -> None:
        """End the programs that were started on the node when it goes."""
        if not node.shares and self._nodes.get(node) != node.boots:
            self._nodes[node] = node.boots
            node.defer(lambda: processes.end_all(node.namespace))

    def serve(self) -> Channel | None:
        """Serve until the lab is to end, or has to go on with its run. Return the channel of the request that ends it,
        if there is one."""
        self.lab.scheduler.sources.append(self)
        try:
            while not self._ended:
                if self.wire.virtual:
                    self._step()
                else:
                    self.lab.scheduler.idle(LONGEST_IDLE_S)
                self._act()
        finally:
            self.lab.scheduler.sources.remove(self)
            self._end_tasks()
        return self._down

    def _step(self) -> None:
        """Let virtual time pass while a request needs it, then let the machine pause."""
        self._receive()
        self._act()
        pause = FIRST_LOOK_S
        while not self._ended and not self._rests():
            self.lab.scheduler.idle(pause)
            pause = FIRST_LOOK_S if self._receive() else min(2 * pause, LONGEST_LOOK_S)
            self._act()
        if not self._ended:
            for listener in [*self.rest_listeners]:
                listener()
            self.wire.pause(IDLE)

    def _rests(self) -> bool:
        """Return whether no request needs time, after the time that the last one needs to take effect."""
        if any(task.drives for _, task in self.tasks.values()):
            return False
        self.lab.scheduler.sleep(SETTLE_S)
        self.lab.scheduler.catch_up()
        self.drain()
        return not any(task.drives for _, task in self.tasks.values())

    def _receive(self) -> bool:
        """Receive the messages on the wire. Return whether there were any."""
        found = [*self._received, *self.wire.receive()]
        self._received.clear()
        for message in found:
            number = message["id"]
            if number in self.tasks:
                self._pass_on(number, message)
            elif "request" in message:
                self._begin(number, message)
        return bool(found)

    def _pass_on(self, number: int, message: dict[str, Any]) -> None:
        call, task = self.tasks[number]
        call.guard(lambda: task.receive(message))

    def _begin(self, number: int, message: dict[str, Any]) -> None:
        try:
            request = messages.parse(message)
        except TestbedError as error:
            Channel(number, self.write).fail(error)
            return
        typed = str(message.get("typed") or "") if isinstance(request, LiveRequest) and request.touches else ""
        call = Call(self, number, typed)
        if isinstance(request, live.Down):
            self._ended, self._down = True, call.channel
        elif isinstance(request, live.Continue):
            self._ended = True
            call.channel.respond(None)
        elif isinstance(request, LiveRequest):
            serve = partial(handler_of(type(request)), request, call)
            if request.open_only and self.lab.seal:
                call.fail(refusal())
            elif request.waits:
                self.take_turn(call, request, serve)
            else:
                self._handle(call, serve)

    def take_turn(self, call: Call, request: LiveRequest[Any], serve: Callable[[], Any]) -> None:
        """Carry out a part of a request that waits for something in the lab when those before it are done."""
        self._acts.append((call, request, serve))

    def _act(self) -> None:
        """Carry out the requests that wait for something in the lab, one after the other."""
        if self._acting:
            return
        self._acting = True
        try:
            while self._acts and not self._ended:
                call, request, serve = self._acts.popleft()
                self._handle(call, serve)
                for listener in [*self.change_listeners]:
                    listener(request)
        finally:
            self._acting = False

    def _handle(self, call: Call, serve: Callable[[], Any]) -> None:
        try:
            response = serve()
            if hasattr(response, "drives"):
                self.tasks[call.number] = (call, response)
            else:
                call.end(response)
        except Interrupted:
            call.fail(TestbedError("the lab was taken down in the meantime"))
        except TestbedError as error:
            call.fail(error)
        except OSError as error:
            call.fail(refused(error))
        except Exception:
            call.crash()

    def _end_tasks(self) -> None:
        for number in [*self.tasks]:
            call, _ = self.tasks[number]
            self._pass_on(number, {"id": number, "stop": True})
            call.cut()
        self._ready.close()
