"""A capture of a lab that lives, as a file or as lines."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import IO, TYPE_CHECKING

import click

from testbed.cli.interrupts import stoppable
from testbed.cli.live.words import nobody_reads, put
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

        def write_on(_: str, data: bytes) -> None:
            target.write(data)
            target.flush()

        lost = ended(connection, Capture(end=end, filter=filter_, count=count), write_on)
    if lost:
        click.echo(f"{lost} frames were lost: narrow the capture with a filter", err=True)
    return 1 if lost else 0


def show(connection: Connection, end: str, filter_: str, count: int | None) -> int:
    """Prints a line a frame, as tcpdump does."""
    node, _, interface = end.partition(":")
    limit = ["-c", str(count)] if count else []
    command = [*SHOW, *limit, "-i", interface, *filter_.split()]

    return ended(connection, Exec(node=node, command=command), put)


def ended(connection: Connection, request: Capture | Exec, put: Callable[[str, bytes], None]) -> int:
    """The response to a request that Ctrl-C stops; 0 when the reader of its output has gone."""
    streams = Streams(connection, put)
    with stoppable() as stop:
        try:
            number = streams.number = connection.ask(request, streams.take)
            return int(connection.end(number, stop))
        except BrokenPipeError:
            nobody_reads()
            return 0
