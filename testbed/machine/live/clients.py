"""The keeper's ends of the connections of commands, and what each command waits for."""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.machine.live.labs import PEER

HIGH_BYTES = 64 << 10  # asyncio's mark of a writer (FlowControlMixin): a command with more unread bytes does not read
LAG_BYTES = 64 << 20
"""Unread bytes after which a command is disconnected."""


@dataclass(eq=False)
class Client:
    """A connected command. `open` maps the numbers of its unfinished requests to the machine's."""

    writer: asyncio.StreamWriter
    open: dict[int, int] = field(default_factory=dict)

    def send(self, message: Mapping[str, Any]) -> None:
        if self.unread > LAG_BYTES:
            self.writer.transport.abort()
        elif not self.writer.is_closing():
            self.writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    @property
    def unread(self) -> int:
        """Return the bytes that the command has not read."""
        return self.writer.transport.get_write_buffer_size()

    async def drained(self) -> None:
        """Return when the command has read most of what was sent to it, or has ended."""
        with contextlib.suppress(ConnectionError):
            await self.writer.drain()

    def allowed(self) -> bool:
        """Return True if the command runs as this user or root."""
        credentials = self.writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
        return PEER.unpack(credentials)[1] in (os.geteuid(), 0)


def send_all(waiting: Iterable[tuple[Client, int]], message: Mapping[str, Any]) -> None:
    """Send a message to each, under the number that it waits for."""
    for client, number in waiting:
        client.send({**message, "id": number})


class Clients:
    """The connected commands. A request has one number in its command and another one in the machine."""

    def __init__(self) -> None:
        self._connected: set[Client] = set()
        self._asked: dict[int, tuple[Client, int]] = {}
        """Client of each open request and its number there, by the machine's number."""
        self.starters: list[tuple[Client, int]] = []
        """Clients that wait for the lab to be up, with the number that they wait for."""
        self.enders: list[tuple[Client, int]] = []
        """Clients that wait for the lab to be down."""

    def __bool__(self) -> bool:
        return bool(self._connected)

    def join(self, client: Client) -> None:
        self._connected.add(client)

    def leave(self, client: Client) -> list[int]:
        """Remove a client. Return the machine's numbers of requests that nobody waits for any more."""
        self._connected.discard(client)
        self.starters = [one for one in self.starters if one[0] is not client]
        for inner in client.open.values():
            self._asked.pop(inner, None)
        return [*client.open.values()]

    def ask(self, client: Client, number: int, inner: int) -> None:
        self._asked[inner] = client, number
        client.open[number] = inner

    def answer(self, message: Mapping[str, Any]) -> None:
        """Forward a message of the machine about a request."""
        client, number = self._asked.get(message["id"], (None, 0))
        if client is None:
            return
        client.send({**message, "id": number})
        if "report" not in message:
            del self._asked[message["id"]]
            client.open.pop(number, None)

    def fail_requests(self, error: Mapping[str, Any]) -> None:
        """Answer all requests that were sent to the machine with an error."""
        send_all(self._asked.values(), {"error": error})
        for client in self._connected:
            client.open.clear()
        self._asked.clear()

    def fail(self, error: Mapping[str, Any]) -> None:
        """Answer every waiting client with an error."""
        self.fail_requests(error)
        send_all([*self.starters, *self.enders], {"error": error})

    def started(self, message: Mapping[str, Any]) -> None:
        """Answer only those who wait for the lab to be up."""
        send_all(self.starters, message)
        self.starters.clear()

    @property
    def waiting(self) -> bool:
        """Return True while a command that reads waits for the machine, and those that do not read can be sent more."""
        room = all(client.unread < LAG_BYTES // 2 for client in self._connected)
        return room and any(client.unread <= HIGH_BYTES for client, _ in self._asked.values())

    async def drained(self) -> None:
        """Return when all have read most of what was sent to them."""
        await asyncio.gather(*(client.drained() for client in self._connected))

    async def close(self) -> None:
        for client in [*self._connected]:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(client.drained(), 1)
            client.writer.close()
