"""`testbed logs`: the output of programs of a lab that lives."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from testbed.cli import completing
from testbed.cli.live.live_options import connect, lab_options, print_json, put, then

LINE_BYTES = 1 << 20
"""A line that is longer is shown in parts."""


class LogWriter:
    """Writes the lines of a program, as JSON or behind the program's node and name."""

    def __init__(self, node: str, program: str, form: str) -> None:
        self._node, self._program, self._form = node, program, form
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

    def _show(self, line: bytes) -> None:
        if self._form == "json":
            print_json({"node": self._node, "program": self._program, "line": line.decode(errors="replace")})
        else:
            put("out", f"{self._node} {self._program} | ".encode() + line + b"\n")


@click.command(
    help="""Show what programs on a NODE of a lab have written, or on all: those of `testbed exec -d` and of a topology
    file's `exec`, daemons of FRR, CNI plugins.

    Each line is behind the node and the program, which has a number: `h1 ping-1 | 64 bytes from …`."""
)
@click.option("--follow", is_flag=True, help="Go on with what they write, until Ctrl-C.")
@lab_options
@click.argument("node", required=False, default="", shell_complete=completing.nodes())
def logs(follow: bool, name: str, form: str, node: str) -> int:
    from testbed.machine.live.connection import Streams
    from testbed.protocol.live import Logs

    programs: dict[tuple[str, str], LogWriter] = {}
    source = "", ""

    def write(_: str, data: bytes) -> None:
        programs.setdefault(source, LogWriter(*source, form)).write(data)

    def receive(report: dict[str, Any]) -> None:
        nonlocal source
        source = report["node"], report["program"]
        streams.receive(report)

    with connect(name) as connection:
        streams = Streams(connection, write)
        streams.number = connection.ask(Logs(node=node, follow=follow), receive)
        with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
            connection.end(streams.number)
            for writer in programs.values():
                writer.finish()
    if not programs and not follow and form == "table":
        click.echo("No program has written anything.")
        then(f"testbed exec -d {node or 'NODE'} -- COMMAND")
    return 0
