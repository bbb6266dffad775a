"""A capture of a running lab, as a file or as lines."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from testbed.cli.interrupts import stoppable
from testbed.cli.live.live_options import nobody_reads, put
from testbed.errors import InputError
from testbed.machine.live.connection import Streams
from testbed.protocol.live import Capture, Exec
from testbed.records.pcap import Pcap

if TYPE_CHECKING:
    from testbed.machine.live.connection import Connection

SHOW = ("tcpdump", "-n", "-e", "-l", "--immediate-mode")


def write(connection: Connection, end: str, filter_: str, file: str, count: int | None) -> int:
    """Write a pcap file, frame by frame."""
    begun = False
    with contextlib.ExitStack() as opened:
        target: IO[bytes] = sys.stdout.buffer
        if file != "-":
            try:
                target = opened.enter_context(open(file, "wb"))
            except OSError as error:
                raise InputError(f"cannot be written: {error.strerror}", where=file) from None

        def write_on(_: str, data: bytes) -> None:
            nonlocal begun
            target.write(data)
            target.flush()
            if not begun and file != "-":
                click.echo(f"capturing {end} into {file}; Ctrl-C ends it", err=True)
            begun = True

        lost = ended(connection, Capture(end=end, filter=filter_, count=count), write_on)
    if Path(file).is_file() and (found := Pcap.open(Path(file))):
        click.echo(f"frames in {file}: {sum(1 for _ in found.packets())}", err=True)
    if lost:
        click.echo(f"{lost} frames were lost: narrow the capture with a filter", err=True)
    return 1 if lost else 0


def show(connection: Connection, end: str, filter_: str, count: int | None) -> int:
    """Print a line a frame, as tcpdump does."""
    node, _, interface = end.partition(":")
    limit = ["-c", str(count)] if count else []
    command = [*SHOW, *limit, "-i", interface, *filter_.split()]

    return ended(connection, Exec(node=node, command=command), put)


def ended(connection: Connection, request: Capture | Exec, put: Callable[[str, bytes], None]) -> int:
    """Return the response to a request that Ctrl-C stops; 0 when the reader of its output has gone."""
    streams = Streams(connection, put)
    with stoppable() as stop:
        try:
            number = streams.number = connection.ask(request, streams.receive)
            return int(connection.end(number, stop))
        except BrokenPipeError:
            nobody_reads()
            return 0
