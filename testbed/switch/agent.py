"""
The parent's end of the agent: one process that runs the control planes of all switches of a lab.

It is forked from the process that built the switches: everything is imported, and its sockets are open in the switches'
namespaces. JSON lines go over a socket pair: commands down, events and responses up. The agent ends with its parent. If
it ends by itself, the parent's next use of it raises.

An event: ``{"t": CLOCK_MONOTONIC in ns, "kind": …, "switch": …, "vlan": …, …}``, see effects.Event.
"""

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

from testbed.errors import DeadlineError, InputError, TestbedError
from testbed.kernel import syscalls
from testbed.kernel.syscalls import readable
from testbed.switch.agent_process import report_crash, run
from testbed.switch.dataplane import DataPlane
from testbed.switch.profile import Profile

ANSWER_S = 60.0
"""More than an emulated processor needs for the longest backlog of packets."""


class Agent:
    """`fileno` is readable when there are events. Not safe for several threads at once."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self._channel = channel
        self._partial = b""
        self._events: list[dict[str, Any]] = []
        self._answers: list[dict[str, Any]] = []
        self._crash = ""
        self._status: int | None = None

    @classmethod
    def start(cls, switches: Sequence[tuple[DataPlane, Profile]]) -> Self:
        """Hand the data planes to a new agent; the switches work when this returns.

        Call it from the main thread: the agent ends with the thread that made it.
        """
        ours, theirs = socket.socketpair()

        def serve() -> None:
            ours.close()
            run(theirs, switches)

        pid = syscalls.fork(serve, partial(report_crash, theirs))
        theirs.close()
        for plane, _ in switches:
            plane.close()
        agent = cls(pid, ours)
        agent.catch_up()
        return agent

    @property
    def running(self) -> bool:
        """Return whether the agent runs, as far as the parent has noticed."""
        return self._status is None

    def fileno(self) -> int:
        return self._channel.fileno()

    def events(self) -> list[dict[str, Any]]:
        """Return the events since the last call, oldest first, without waiting."""
        while self._readable(0):
            if not self._receive():
                raise self._ended()
        events, self._events = self._events, []
        return events

    def catch_up(self) -> None:
        """Make all switches handle and report the input that has reached them; `events` has the reports then."""
        self._request("catch_up")

    def ask(self, switch: str, command: str, **arguments: Any) -> Any:
        """Run a command on a switch and return its response. InputError for a wrong value.

        tables: ``{"arp": […], "nd": […], "fdb": […]}``, see ControlPlane.neighbours and fdb_table.
        clear (family, vlan, ip), clear_fdb (vlan, mac, port): clear all entries, or those of a VLAN, of one address.
        set (values), profile: change and return the profile's values.
        set_cpu (out, delay), cpu: while it is `out` its CPU handles no ARP, no packet without a neighbour entry and no
        timer; with `delay` it handles each ARP packet so many seconds late. The data plane goes on with its tables.
        restart: the CPU returns from a warm reboot, see ControlPlane.restart.
        add_routed (index, port): it has one more router interface.
        serve_bfd (place): it is the data plane of the bfdd that listens there.
        mlag: the state of its pair, see `Pair.state`, with `delay`; set_mlag (delay): it tells the other switch so many
        seconds late.
        leave: the agent runs the switch no longer.
        """
        return self._request(command, switch=switch, **arguments)

    def stop(self) -> list[dict[str, Any]]:
        """End the agent and return the remaining events. The kernel keeps its tables."""
        if self.running:
            self._channel.shutdown(socket.SHUT_WR)
            self._receive_until("stop", lambda: not self.running)
            if self._status:
                raise self._ended()
        events, self._events = self._events, []
        return events

    def _request(self, command: str, **arguments: Any) -> Any:
        if self.running:
            with contextlib.suppress(BrokenPipeError):  # it has ended; its last messages are still to be read
                self._channel.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
        self._receive_until(command, lambda: bool(self._answers))
        if not self._answers:
            raise self._ended()
        answer = self._answers.pop()
        if "wrong" in answer:
            raise InputError(**answer["wrong"])
        return answer["result"]

    def _receive_until(self, command: str, enough: Callable[[], bool]) -> None:
        """Receive until `enough` or the agent's end. A hanging agent is killed: the lab must come down."""
        deadline = time.monotonic() + ANSWER_S
        while not enough() and self.running:
            if not self._readable(max(0.0, deadline - time.monotonic())):
                os.kill(self.pid, signal.SIGKILL)
                while self._receive():
                    pass
                raise DeadlineError(f"the switch agent did not answer {command!r} within {ANSWER_S:g} s")
            self._receive()

    def _readable(self, timeout: float) -> bool:
        return not self.running or readable([self._channel], timeout)

    def _receive(self) -> bool:
        if not self.running:
            return False
        try:
            data = self._channel.recv(1 << 16)
        except ConnectionResetError:  # it was killed before it read a command
            data = b""
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "kind" in message:
                self._events.append(message)
            elif "crash" in message:
                self._crash = message["crash"]
            else:
                self._answers.append(message)
        if not data:
            self._channel.close()
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.running

    def _ended(self) -> TestbedError:
        return TestbedError(f"the switch agent ended with status {self._status}\n{self._crash}".rstrip())
