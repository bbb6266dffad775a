"""The keeper's end of a command's connection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.machine.live.labs import PEER

LAG_BYTES = 64 << 20
"""That a command has not taken, after which it is cut off."""


@dataclass(eq=False)
class Client:
    """A command that is connected. `open` has its requests that have no end yet: the machine's numbers by its own."""

    writer: asyncio.StreamWriter
    open: dict[int, int] = field(default_factory=dict)

    def tell(self, message: Mapping[str, Any]) -> None:
        if self.writer.transport.get_write_buffer_size() > LAG_BYTES:
            self.writer.transport.abort()
        elif not self.writer.is_closing():
            self.writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    async def taken(self) -> None:
        """Returns when the command has taken most of what it was sent, or has ended."""
        with contextlib.suppress(ConnectionError):
            await self.writer.drain()

    def allowed(self) -> bool:
        """Whether it is the user's own, or root's."""
        credentials = self.writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
        return PEER.unpack(credentials)[1] in (os.geteuid(), 0)


def tell(waiting: Iterable[tuple[Client, int]], message: Mapping[str, Any]) -> None:
    """Sends a message to each, under the number that it waits for."""
    for client, number in waiting:
        client.tell({**message, "id": number})
