"""The address at which Prometheus scrapes the metrics of a running lab."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, MetricsHandler

from testbed.errors import InputError, MachineError, TestbedError
from testbed.metrics.exposition import LabCollector
from testbed.protocol import Event, live, messages
from testbed.protocol.job_states import JobStates
from testbed.protocol.live import Measured
from testbed.protocol.requests import Request

LOOPBACK = "127.0.0.1"
ANSWER_S = 10.0
"""Wall seconds for a scrape: Prometheus' own default limit."""


def listen(port: int, option: str = "--metrics") -> socket.socket:
    """Return a socket that listens on `port` of an option; 0 is any free port. InputError on failure."""
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as error:
        raise InputError(
            f"{option.lstrip('-')} cannot be served at {LOOPBACK}:{port}: {os.strerror(error.errno or 0)}",
            hint=f"Choose another port; {option} 0 takes a free one.",
        ) from None


def address(listening: socket.socket) -> str:
    host, port = listening.getsockname()
    return f"{host}:{port}"


class Endpoint:
    """HTTP server for metrics, each scrape in a thread of its own; the lab is asked in the event loop's thread.

    On the real clock a scrape asks the lab. On the virtual clock that would let time pass, at a moment that depends on
    the host: the lab is asked once, when it is up, and sends a measurement at each rest. A scrape gets the latest.
    While a run goes on there is none, and a scrape gets what its events tell of jobs.
    """

    def __init__(self, listening: socket.socket, ask: Callable[[Request[Any]], int], *, follows: bool) -> None:
        """Create the endpoint. `ask` sends the lab a request and returns its number, or raises a TestbedError."""
        self._ask, self._follows = ask, follows
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._latest: Any = None
        self._followed = 0
        """Number of the request whose reports have the measurements."""
        self._measuring: asyncio.Future[None] | None = None
        """The first measurement since the lab is up or the run is stopped."""
        self._jobs = JobStates()
        self._now_ns = 0
        registry = CollectorRegistry(auto_describe=False)
        registry.register(LabCollector(self._measure))
        handler = _Handler.factory(registry)
        self._server = ThreadingHTTPServer(listening.getsockname(), handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listening
        listening.setblocking(False)
        self._loop.add_reader(listening, self._server.handle_request)

    def close(self) -> None:
        self._loop.remove_reader(self._server.socket)
        self._server.server_close()

    def begin(self) -> None:
        """Request measurements: the lab is up, or a run is stopped."""
        if self._follows:
            self._measuring = self._loop.create_future()
            self._followed = self._ask(live.Metrics(follow=True))

    def go_on(self) -> None:
        """Forget what was measured: the run goes on, from there. It may have run further, to find where to stop."""
        with contextlib.suppress(MachineError):  # nothing was measured, or it is damaged
            measured: Measured = messages.checked(Measured, self._latest, "measurement")
            self._jobs, self._now_ns = JobStates(measured["jobs"]), round(measured["now_s"] * 1e9)
        self._latest = self._measuring = None

    def event(self, event: Event) -> None:
        """Follow an event of the lab."""
        self._jobs.take(event)
        self._now_ns = max(self._now_ns, event["t"])

    def receive(self, message: dict[str, Any]) -> bool:
        """Receive a message of the lab. Return whether it was for a scrape."""
        number = message["id"]
        if number == self._followed and "report" in message:
            self._latest = message["report"].get("measured")
            if self._measuring and not self._measuring.done():
                self._measuring.set_result(None)
        elif waiting := self._waiting.pop(number, None):
            if not waiting.done():
                waiting.set_result(message)
        else:
            return False
        return True

    def _measure(self) -> Measured:
        asked = asyncio.run_coroutine_threadsafe(self._measured(), self._loop)
        try:
            found = asked.result(ANSWER_S)
        except TimeoutError:
            asked.cancel()
            raise TestbedError(f"the lab did not answer within {ANSWER_S:g} s") from None
        measured: Measured = messages.checked(Measured, found, "measurement")
        return measured

    async def _measured(self) -> Any:
        if self._follows:
            if self._measuring:
                await asyncio.shield(self._measuring)
            if self._latest is None and not self._jobs.rows():
                raise TestbedError("nothing is measured yet: the lab is being made, or the run has no job that began")
            return self._latest or self._of_events()
        number = self._ask(live.Metrics())
        self._waiting[number] = asyncio.get_running_loop().create_future()
        match await self._waiting[number]:
            case {"response": found}:
                return found
            case {"error": failure}:
                raise messages.error_of(failure, str)
            case message:
                raise MachineError(f"testbed failed inside the lab:\n{message.get('crash')}")

    def _of_events(self) -> Measured:
        return {
            "name": "",
            "now_s": self._now_ns / 1e9,
            "nodes": [],
            "faults": [],
            "counters": {},
            "tables": {},
            "jobs": self._jobs.rows(),
            "missing": [],
        }


class _Handler(MetricsHandler):
    timeout = ANSWER_S

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        try:
            super().do_GET()
        except TestbedError as error:
            self.send_error(503, explain=error.message)
