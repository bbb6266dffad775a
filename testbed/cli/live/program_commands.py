"""`testbed exec`, `shell` and `capture`: programs on nodes of a running lab."""

from __future__ import annotations

import base64
import contextlib
import functools
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from testbed.cli import completion_values
from testbed.cli.completion_values import DASHES
from testbed.cli.interrupts import stoppable
from testbed.cli.live.live_options import LineWriter, connect, lab_option, nobody_reads, put, then
from testbed.errors import InputError
from testbed.machine.live.connection import Connection, Streams
from testbed.protocol.live import WINDOW, Capture, Exec
from testbed.records.pcap import Pcap

if TYPE_CHECKING:
    from testbed.protocol.live import Terminal

INPUT = 1 << 16
MOST_INPUT = 16 << 20
"""Bytes of input at most on the virtual clock, where input goes with the request."""
PROMPTS = ("ash", "bash", "gdb", "ipython3", "python3", "sh", "top", "vtysh", "zsh")
"""Programs that without arguments read commands from a terminal."""
HUNG_UP = 128 + signal.SIGHUP


class AfterDashes(click.Command):
    """A command that keeps the words behind `--` apart from its arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index(DASHES) if DASHES in args else len(args)
        if at < len(args):
            ctx.meta[DASHES] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])


@click.command(
    "exec",
    cls=AfterDashes,
    help="""Run a command on nodes of a lab: `testbed exec h1 h2 -- ip neigh`.

    With several nodes each line of output begins with the node's name. Exit status: that of the command, the highest of
    several nodes; 128 plus the signal's number if a signal ended it.""",
)
@click.option("--interactive", "-i", is_flag=True, help="Forward standard input to the command.")
@click.option("--tty", "-t", "terminal", is_flag=True, help="Give the command a terminal.")
@click.option("--detach", "-d", is_flag=True, help="Run it in the background; `testbed logs` shows its output.")
@lab_option
@click.argument("nodes", metavar="NODE... -- COMMAND", nargs=-1, shell_complete=completion_values.nodes())
@click.pass_context
def exec_(
    context: click.Context, interactive: bool, terminal: bool, detach: bool, name: str, nodes: tuple[str, ...]
) -> int:

    command: list[str] = context.meta.get(DASHES, [])
    if not nodes or not command:
        raise click.UsageError("name a node and a command: testbed exec NODE -- COMMAND")
    if terminal:
        if len(nodes) > 1:
            raise InputError("--tty is for one node: name one only")
        return attach(name, nodes[0], command)
    if len(command) == 1 and command[0] in PROMPTS and sys.stdin.isatty() and not (interactive or detach):
        hint = f"testbed exec -t {nodes[0]} -- {command[0]}"
        raise InputError(f"{command[0]} has a prompt, for which it needs a terminal", hint=f"Type: {hint}")
    with connect(name) as connection:
        virtual = connection.lab.clock == "virtual"
        given = whole_input() if interactive and virtual else None
        writers = {(node, stream): named(stream, node) for node in nodes for stream in ("out", "err")}

        def write(node: str, stream: str, data: bytes) -> None:
            if len(nodes) > 1:
                writers[node, stream].write(data)
            else:
                put(stream, data)

        programs = [Streams(connection, functools.partial(write, node)) for node in nodes]
        later = interactive and not virtual
        requests = [Exec(node=node, command=command, given=given, input=later, detach=detach) for node in nodes]
        numbers = connection.ask_at_once(
            [(request, streams.receive) for request, streams in zip(requests, programs, strict=True)]
        )
        for streams, number in zip(programs, numbers, strict=True):
            streams.number = number
        try:
            if later:
                feed(connection, programs)
            statuses = [int(connection.end(streams.number)) for streams in programs]
            for writer in writers.values():
                writer.finish()
        except BrokenPipeError:
            nobody_reads()
            return 128 + signal.SIGPIPE
        if detach:
            then("testbed logs --follow")
        return max(statuses)


def named(stream: str, node: str) -> LineWriter:
    """Make a writer to a stream with the node's name before each line."""
    return LineWriter(lambda line: put(stream, f"{node} | ".encode() + line + b"\n"))


def feed(connection: Connection, every: list[Streams]) -> None:
    """Pass standard input on until its end, or that of the programs, as fast as all of them read it."""
    source = sys.stdin.fileno()
    while not all(connection.done(streams.number) for streams in every):
        room = all(streams.ahead < WINDOW for streams in every if not connection.done(streams.number))
        ready, _, _ = select.select([connection, *([source] if room else [])], [], [])
        if connection in ready:
            connection.receive()
        if source in ready:
            data = os.read(source, INPUT)
            for streams in every:
                streams.send(data)
            if not data:
                return


def whole_input() -> str:
    data = sys.stdin.buffer.read(MOST_INPUT + 1)
    if len(data) > MOST_INPUT:
        raise InputError(f"on the virtual clock a program's input is at most {MOST_INPUT >> 20} MiB")
    return base64.b64encode(data).decode()


@click.command(
    help="""Open a shell on a node of a lab, in its own terminal: job control, Ctrl-C, colours and resizing work. On the
    virtual clock, time stands still while the shell waits for input."""
)
@lab_option
@click.argument("node", shell_complete=completion_values.nodes())
def shell(name: str, node: str) -> int:
    return attach(name, node, [])


def attach(name: str, node: str, command: list[str]) -> int:
    """Run a program whose terminal is this one."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError(
            "this is not a terminal", hint="To pipe input to a command: `testbed exec -i NODE -- COMMAND`."
        )
    with connect(name) as connection:
        return attached(connection, node, command)


def attached(connection: Connection, node: str, command: list[str]) -> int:

    streams = Streams(connection, put)
    request = Exec(node=node, command=command, terminal=this_terminal())
    number = streams.number = connection.ask(request, streams.receive)
    with raw(), resized() as sizes:
        while not connection.done(number):
            ready, _, _ = select.select([sys.stdin, connection, sizes], [], [])
            if sizes in ready:
                os.read(sizes, 100)
                size = os.get_terminal_size(sys.stdin.fileno())
                connection.send({"id": number, "size": [size.lines, size.columns]})
            if sys.stdin in ready:
                data = os.read(sys.stdin.fileno(), INPUT)
                if not data:
                    return HUNG_UP
                streams.send(data)
            if connection in ready:
                connection.receive()
    return int(connection.ended(number))


def this_terminal() -> Terminal:
    size = os.get_terminal_size(sys.stdin.fileno())
    return {"kind": os.environ.get("TERM", ""), "rows": size.lines, "columns": size.columns}


@contextlib.contextmanager
def raw(mode: Callable[[Any], object] = tty.setraw) -> Iterator[None]:
    """Let the terminal pass every key on in the block, or have another `mode`."""
    before = termios.tcgetattr(sys.stdin)
    try:
        mode(sys.stdin)
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal has gone
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


@contextlib.contextmanager
def resized() -> Iterator[int]:
    """Yield a descriptor that is readable when the terminal has another size."""
    readable, writable = os.pipe()
    before = signal.signal(signal.SIGWINCH, lambda *_: os.write(writable, b"!"))
    try:
        yield readable
    finally:
        signal.signal(signal.SIGWINCH, before)
        os.close(readable)
        os.close(writable)


@click.command(
    help="""Capture an interface of a lab, live: `testbed capture leaf:e1 -w - | wireshark -k -i -`.

    FILTER is pcap-filter(7). Without -w, each frame is printed as a line, as tcpdump does. Ctrl-C ends it."""
)
@click.option("--write", "-w", "file", metavar="FILE", default="", help="Write a pcap file; `-` is standard output.")
@click.option("--count", "-c", type=click.IntRange(1), metavar="N", help="End after N frames.")
@lab_option
@click.argument("interface", metavar="NODE:IF", shell_complete=completion_values.ends)
@click.argument("filter_", metavar="[FILTER]", nargs=-1)
def capture(file: str, count: int | None, name: str, interface: str, filter_: tuple[str, ...]) -> int:

    with connect(name) as connection:
        if file:
            return write(connection, interface, " ".join(filter_), file, count)
        return show(connection, interface, " ".join(filter_), count)


if TYPE_CHECKING:
    from testbed.machine.live.connection import Connection


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
    return ended(connection, Capture(end=end, text=True, filter=filter_, count=count), put)


def ended(connection: Connection, request: Capture, put: Callable[[str, bytes], None]) -> int:
    """Return the response to a request that Ctrl-C stops; 0 when the reader of its output has gone."""
    streams = Streams(connection, put)
    with stoppable() as stop:
        try:
            number = streams.number = connection.ask(request, streams.receive)
            return int(connection.end(number, stop))
        except BrokenPipeError:
            nobody_reads()
            return 0
