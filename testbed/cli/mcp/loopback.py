"""The loopback address as a place for one user: other users of the machine can connect there, and are refused.

The owner of a client's socket is in /proc/net/tcp, as `ss -e` shows it. Only a socket that is connected and that a
process still has counts: the kernel gives those that are closed to root.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.machine.live.endpoint import LOOPBACK

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

ESTABLISHED = "01"
TABLE = Path("/proc/net/tcp")


def owner(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Return the user ID of the process at the client's end of a connection over IPv4; None if it is not known."""
    ends = [_in_table(client), _in_table(server)]
    for line in TABLE.read_text().splitlines()[1:]:
        words = line.split()
        if words[1:3] == ends and words[3] == ESTABLISHED and words[9] != "0":
            return int(words[7])
    return None


def _in_table(end: tuple[str, int]) -> str:
    """Return an address and port as the table has them: the address in the byte order of this machine."""
    packed = ipaddress.IPv4Address(end[0]).packed
    return f"{int.from_bytes(packed, sys.byteorder):08X}:{end[1]:04X}"


def of_user(app: ASGIApp, listening: socket.socket) -> ASGIApp:
    """Return an application that refuses requests of other users than this one and root."""
    from starlette.responses import PlainTextResponse

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            client = scope["client"]
            if owner((client[0], client[1]), listening.getsockname()) not in (os.geteuid(), 0):
                await PlainTextResponse("this server is another user's\n", 403)(scope, receive, send)
                return
        await app(scope, receive, send)

    return serve


def hosts(port: int) -> list[str]:
    """Return the values of Host that a browser cannot be brought to send elsewhere."""
    return [f"{name}:{port}" for name in (LOOPBACK, "localhost")]
