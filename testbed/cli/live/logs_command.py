"""`testbed logs`: the output of programs of a running lab."""

import contextlib
import functools
from typing import Any

import click

from testbed.cli import completion_values
from testbed.cli.live.live_options import Following, LineWriter, connect, lab_options, print_json, put, then


@click.command(
    cls=Following,
    help="""Show the output of programs on a NODE of a lab, or on all nodes: programs of `testbed exec -d` and of a
    topology file's `exec`, FRR daemons, CNI plugins. Each line begins with the node and the numbered program: `h1
    ping-1 | 64 bytes from …`.""",
)
@click.option("--follow", is_flag=True, help="Follow new output until Ctrl-C; also -f.")
@lab_options
@click.argument("node", required=False, default="", shell_complete=completion_values.nodes())
def logs(follow: bool, name: str, form: str, node: str) -> int:
    from testbed.machine.live.connection import Streams
    from testbed.protocol.live import Logs

    programs: dict[tuple[str, str], LineWriter] = {}
    source = "", ""

    def show_line(node: str, program: str, line: bytes) -> None:
        if form == "json":
            print_json({"node": node, "program": program, "line": line.decode(errors="replace")})
        else:
            put("out", f"{node} {program} | ".encode() + line + b"\n")

    def write(_: str, data: bytes) -> None:
        programs.setdefault(source, LineWriter(functools.partial(show_line, *source))).write(data)

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
