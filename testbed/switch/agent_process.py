"""The agent's process: the switches that it runs, and its end of the channel to the parent."""

import asyncio
import json
import socket
from collections.abc import Sequence
from typing import Any

from testbed.errors import InputError
from testbed.switch.dataplane import DataPlane
from testbed.switch.profile import Profile
from testbed.switch.running import COMMANDS, RunningSwitch


def run(channel: socket.socket, switches: Sequence[tuple[DataPlane, Profile]]) -> None:
    """Serve until the parent closes its end."""
    asyncio.run(_serve(channel, switches))


def report_crash(channel: socket.socket, text: str) -> None:
    """Send a traceback to the parent, which must receive it in any case."""
    channel.setblocking(True)
    channel.sendall(json.dumps({"crash": text}).encode() + b"\n")


async def _serve(channel: socket.socket, switches: Sequence[tuple[DataPlane, Profile]]) -> None:
    agent = _Agent(channel)
    try:
        for plane, profile in switches:
            agent.switches[plane.node.name] = RunningSwitch(plane, profile, agent.emit)
        await agent.done
    finally:
        agent.close()


class _Agent:
    """The agent's end of the channel; `done` when the parent closed its end, or with a callback's exception."""

    def __init__(self, channel: socket.socket) -> None:
        self.switches: dict[str, RunningSwitch] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._fail)  # by default a callback's exception is only logged
        self._channel = channel
        self._channel.setblocking(False)
        self._partial = b""
        self._unsent = bytearray()
        self._loop.add_reader(channel, self._read)

    def emit(self, message: dict[str, Any]) -> None:
        """Send a message to the parent without waiting for it to read."""
        if not self._unsent:
            self._loop.add_writer(self._channel, self._write)
        self._unsent += json.dumps(message).encode() + b"\n"

    def close(self) -> None:
        for switch in self.switches.values():
            switch.close()
        self._loop.remove_reader(self._channel)
        self._loop.remove_writer(self._channel)
        self._channel.setblocking(True)
        self._channel.sendall(self._unsent)

    def _write(self) -> None:
        del self._unsent[: self._channel.send(self._unsent[: 1 << 16])]
        if not self._unsent:
            self._loop.remove_writer(self._channel)

    def _read(self) -> None:
        data = self._channel.recv(1 << 16)
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            try:
                self.emit({"result": self._carry_out(**json.loads(line))})
            except InputError as error:
                self.emit({"wrong": {"message": error.message, "where": error.where, "hint": error.hint}})
        if not data and not self.done.done():
            self.done.set_result(None)

    def _carry_out(self, command: str, switch: str = "", **arguments: Any) -> Any:
        if command == "catch_up":
            for each in self.switches.values():
                each.catch_up()
            return None
        if switch not in self.switches:
            raise InputError(f"there is no switch {switch!r}", hint=f"switches: {', '.join(self.switches)}")
        at_work = self.switches[switch]
        at_work.catch_up()
        if command == "leave":
            self.switches.pop(switch).close()
            at_work.data.close()
            return None
        if command not in COMMANDS:
            raise ValueError(command)
        return getattr(at_work, command)(**arguments)

    def _fail(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self.done.done():
            self.done.set_exception(context.get("exception") or RuntimeError(context["message"]))
