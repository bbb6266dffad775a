"""A capture of a lab that lives, as a file or as lines."""

from __future__ import annotations

import contextlib
import sys
from typing import IO, TYPE_CHECKING

import click

from testbed.errors import InputError
from testbed.machine.live.client import Streams
from testbed.protocol.live import Capture, Exec

if TYPE_CHECKING:
    from testbed.machine.live.client import Connection

SHOW = ("tcpdump", "-n", "-e", "-l", "--immediate-mode")


def write(connection: Connection, end: str, filter_: str, file: str, count: int | None) -> int:
    """Writes a pcap file, frame by frame."""
    with contextlib.ExitStack() as opened:
        target: IO[bytes] = sys.stdout.buffer
        if file != "-":
            try:
                target = opened.enter_context(open(file, "wb"))
            except OSError as error:
                raise InputError(f"cannot be written: {error.strerror}", where=file) from None

        def put(_: str, data: bytes) -> None:
            target.write(data)
            target.flush()

        streams = Streams(connection, put)
        number = streams.number = connection.ask(Capture(end=end, filter=filter_, count=count), streams.take)
        lost = end_of(connection, number)
    if lost:
        click.echo(f"{lost} frames were lost: narrow the capture with a filter", err=True)
    return 1 if lost else 0


def show(connection: Connection, end: str, filter_: str, count: int | None) -> int:
    """Prints a line a frame, as tcpdump does."""
    node, _, interface = end.partition(":")
    limit = ["-c", str(count)] if count else []
    command = [*SHOW, *limit, "-i", interface, *filter_.split()]

    def put(stream: str, data: bytes) -> None:
        target: IO[bytes] = (sys.stdout if stream == "out" else sys.stderr).buffer
        target.write(data)
        target.flush()

    streams = Streams(connection, put)
    number = streams.number = connection.ask(Exec(node=node, command=command), streams.take)
    return end_of(connection, number)


def end_of(connection: Connection, number: int) -> int:
    """The response of a request that Ctrl-C, or a reader that went away, stops."""
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        return int(connection.end(number))
    connection.say({"id": number, "stop": True})
    with contextlib.suppress(BrokenPipeError):
        return int(connection.end(number)) and 0
    return 0
