"""Options of commands for running labs, the words on their command lines, their output."""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from testbed.cli import completion_values
from testbed.errors import InputError
from testbed.machine.live import labs
from testbed.machine.live.connection import Connection
from testbed.protocol.requests import Request

if TYPE_CHECKING:
    from rich.table import Table

Command = TypeVar("Command", bound=Callable[..., Any])
R = TypeVar("R")
LINE_BYTES = 1 << 20
UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def lab_option(command: Command) -> Command:
    return click.option(
        "--lab",
        "-l",
        "name",
        metavar="NAME",
        default="",
        envvar="TESTBED_LAB",
        shell_complete=completion_values.labs,
        help="Name of the lab, if several are up; or set TESTBED_LAB.",
    )(command)


def format_option(command: Command) -> Command:
    return click.option(
        "--format",
        "-f",
        "form",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="Print a table, or JSON.",
    )(command)


class Following(click.Command):
    """A command with --follow, in which `-f` means it, as of tail and kubectl; `-f json` is the format."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [
            "--follow" if word == "-f" and following not in ("json", "table") else word
            for word, following in itertools.zip_longest(args, args[1:])
        ]
        return super().parse_args(ctx, words)


def metrics_option(command: Command) -> Command:
    return click.option(
        "--metrics",
        metavar="PORT",
        type=click.IntRange(0, 65535),
        help="Serve metrics for Prometheus at this port of the loopback address; 0 takes a free port.",
    )(command)


def listening_at(metrics: int | None) -> tuple[socket.socket | None, str]:
    """Return the socket and the address at which metrics are scraped, if they are. InputError if the port is in use."""
    if metrics is None:
        return None, ""
    from testbed.machine.live import endpoint

    listening = endpoint.listen(metrics)
    return listening, endpoint.address(listening)


def lab_options(command: Command) -> Command:
    return lab_option(format_option(command))


def connect(name: str) -> Connection:
    typed = click.get_current_context().find_root().obj
    return Connection(labs.living(name), typed=typed or "")


def ask(name: str, request: Request[R]) -> R:
    """Send a request to a lab. Return its response, or raise its error."""
    with connect(name) as connection:
        return connection.answer(request)


def seconds(text: str) -> float:
    """Read `25m`, `8h`, `1.5s`, `1h30m`; a mere number is seconds."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|min|[smhd])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise InputError(f"{text!r} is not a time", hint="Such as 500ms, 90s, 25m, 8h, 1h30m, 2d.")
    return sum(float(number) * UNITS[unit] for number, unit in parts)


def duration(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """Read an option that is a time, as a callback of click."""
    return None if value is None else seconds(value)


def settings(texts: tuple[str, ...]) -> dict[str, str]:
    """Read ``key=value`` on the command line."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(f"{text!r} is not of the form key=value")
        found[key] = value
    return found


def print_json(found: Any) -> None:
    click.echo(json.dumps(found, ensure_ascii=False))


def show(form: str, found: Any, shown: str | Table, *lines: str) -> int:
    """Print a response: as JSON, or for people, with commands to type next. Return the exit status, 0."""
    if form == "json":
        print_json(found)
        return 0
    if isinstance(shown, str):
        click.echo(shown)
    else:
        from testbed.cli.progress import table_console

        table_console().print(shown)
    then(*lines)
    return 0


def then(*lines: str) -> None:
    """Print commands to type next, on standard error and for people only."""
    if sys.stderr.isatty() and sys.stdout.isatty():
        for line in lines:
            click.echo(click.style(f"  {line}", dim=True), err=True)


def put(stream: str, data: bytes) -> None:
    """Write the output of a program to its `out` or `err`."""
    target = (sys.stdout if stream == "out" else sys.stderr).buffer
    target.write(data)
    target.flush()


class LineWriter:
    """Writer that cuts the output of a program into lines; a line that is too long is shown in parts."""

    def __init__(self, show: Callable[[bytes], None]) -> None:
        self._show = show
        self._rest = b""

    def write(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LINE_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._show(line)

    def finish(self) -> None:
        if self._rest:
            self._show(self._rest)


def nobody_reads() -> None:
    """Drop the rest of standard output, whose reader has gone, as `head` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
