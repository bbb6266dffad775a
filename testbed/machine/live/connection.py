"""A command's connection to the keeper of a lab. Without asyncio, whose slow import would delay the user."""

import base64
import contextlib
import json
import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import IO, Any, Self, TypeVar

from testbed.errors import MachineError, TestbedError
from testbed.machine.live import labs
from testbed.machine.live.labs import LOOK_S, Lab
from testbed.protocol import messages
from testbed.protocol.live import WINDOW
from testbed.protocol.requests import Request

START_S = 60.0
"""Wall seconds within which the keeper of a new lab listens."""
R = TypeVar("R")
Report = Callable[[dict[str, Any]], None]


class EndedError(TestbedError):
    """The lab ended while a command was connected."""


class Connection:
    """A connection to a lab; a context manager. One request at a time, or several whose ends come in any order."""

    def __init__(self, lab: Lab, order: IO[str] | None = None, typed: str = "") -> None:
        """Connect. `order` is the keeper's order pipe, which reports the command's end to the keeper by its own end.
        `typed` is what the user typed, without the program's name."""
        self.lab = lab
        self._typed = typed
        self._order = order
        self._numbers = 0
        self._rest = bytearray()
        self._ends: dict[int, dict[str, Any]] = {}
        self._listeners: dict[int, Report] = {}
        self._socket = self._connected()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        if self._order:
            with contextlib.suppress(BrokenPipeError):
                self._order.close()

    def abort(self) -> None:
        """Disconnect, from any thread: who waits for a message gets an error, the lab stops what was asked of it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def fileno(self) -> int:
        return self._socket.fileno()

    def _connected(self) -> socket.socket:
        deadline = time.monotonic() + START_S
        while True:
            try:
                return labs.connected(self.lab)
            except OSError:
                if not self._begins() or time.monotonic() > deadline:
                    gone = self._gone()
                    raise self.never_up() if self._order and isinstance(gone, EndedError) else gone from None
            time.sleep(LOOK_S)

    def _begins(self) -> bool:
        """Return True if a lab that another command is starting may not listen yet."""
        now = labs.read(self.lab.name)
        return now is not None and now.state == "starting" and self._order is None

    def never_up(self) -> EndedError:
        """Return the error of the command that starts the lab, if another one ended it."""
        return EndedError(f"lab {self.lab.name} was ended before it was up")

    def _gone(self) -> TestbedError:
        if self._begins():
            log = self.lab.directory / labs.LOG
            return TestbedError(f"lab {self.lab.name} does not answer", where=str(log))
        now = labs.read(self.lab.name)
        if now and now.state == "dead":
            hint = f"`testbed down {now.name}` removes its remains."
            return MachineError(f"lab {now.name} is dead: {now.why}", hint=hint)
        if now and not labs.reachable(now):
            hint = f"`testbed down {now.name}` ends the lab."
            return TestbedError(f"lab {now.name} cannot be reached: its socket was removed", hint=hint)
        if now and now.state == "up":
            return TestbedError(f"lab {now.name} disconnected this command", hint="It did not read the lab's output.")
        return EndedError(f"lab {self.lab.name} has ended")

    def begin(self, message: dict[str, Any], listen: Report) -> int:
        """Send a message to the keeper itself. Return its number."""
        self._numbers += 1
        self._listeners[self._numbers] = listen
        self.send({**message, "id": self._numbers})
        return self._numbers

    def ask(self, request: Request[R], listen: Report = lambda _: None) -> int:
        """Send a request. Return its number."""
        return self.ask_at_once([(request, listen)])[0]

    def ask_at_once(self, requests: Sequence[tuple[Request[Any], Report]]) -> list[int]:
        """Send requests that come to the lab at the same moment. Return their numbers."""
        asked = []
        for request, listen in requests:
            self._numbers += 1
            self._listeners[self._numbers] = listen
            asked.append({**messages.ask(self._numbers, request), "typed": self._typed})
        self.send(asked if len(asked) > 1 else asked[0])
        return [message["id"] for message in asked]

    def answer(self, request: Request[R], listen: Report = lambda _: None) -> R:
        """Return the response to a request. Raise its error."""
        number = self.ask(request, listen)
        response: R = messages.checked(request.response(), self.end(number), "response")
        return response

    def send(self, message: dict[str, Any] | list[dict[str, Any]]) -> None:
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            raise self._gone() from None

    def end(self, number: int, stop: int | None = None) -> Any:
        """Return the raw response of a request. Raise its error. Stop the request when `stop` is readable."""
        stops: list[Any] = [] if stop is None else [stop]
        while number not in self._ends:
            ready, _, _ = select.select([self, *stops], [], [])
            if stop in ready:
                self.send({"id": number, "stop": True})
                stops.clear()
            if self in ready:
                self.receive()
        return self.ended(number)

    def ended(self, number: int) -> Any:
        found = self._ends.pop(number)
        if "error" in found:
            raise messages.error_of(found["error"], str)
        if "crash" in found:
            raise MachineError(f"testbed failed inside the lab:\n{found['crash'].strip()}")
        return found["response"]

    def done(self, number: int) -> bool:
        return number in self._ends

    def receive(self, within: float | None = None) -> None:
        """Wait for messages, up to `within` seconds if given, and pass them on."""
        if not select.select([self._socket], [], [], within)[0]:
            return
        try:
            data = self._socket.recv(1 << 18)
        except ConnectionError:
            data = b""
        if not data:
            raise self._gone()
        self._rest += data
        if b"\n" in data:
            *lines, rest = bytes(self._rest).split(b"\n")
            self._rest = bytearray(rest)
            for line in lines:
                self._dispatch(messages.load(line))

    def _dispatch(self, message: dict[str, Any]) -> None:
        number = message["id"]
        if "report" in message:
            self._listeners[number](message["report"])
        elif "log" in message:
            self._listeners[number](message)
        else:
            self._ends[number] = message


class Streams:
    """The byte streams of a program: output in reports goes to `write`, and is acknowledged when written; `send` sends
    input, of which the program has not read `ahead` bytes yet."""

    def __init__(self, connection: Connection, write: Callable[[str, bytes], None]) -> None:
        self._connection = connection
        self._acknowledges = connection.lab.clock == "real"
        """On the virtual clock an acknowledgement would wake the lab at a moment that depends on the host."""
        self._write = write
        self._written: dict[str, int] = {}
        self.number = 0
        self.ahead = 0

    def receive(self, report: dict[str, Any]) -> None:
        self.ahead -= report.get("took", 0)
        for name in ("out", "err"):
            if name in report:
                data = base64.b64decode(report[name])
                self._write(name, data)
                written = self._written.get(name, 0) + len(data)
                if written >= WINDOW // 4 and self._acknowledges and not self._connection.done(self.number):
                    self._connection.send({"id": self.number, "ack": [name, written]})
                    written = 0
                self._written[name] = written

    def send(self, data: bytes) -> None:
        """Send input; empty bytes mean its end."""
        if not self._connection.done(self.number):
            self.ahead += len(data)
            self._connection.send({"id": self.number, "input": base64.b64encode(data).decode()})
