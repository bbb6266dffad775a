"""`testbed inspect`, `tables` and `events`: views of a running lab."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click

from testbed.cli import completion_values
from testbed.cli.interrupts import stoppable
from testbed.cli.live.live_options import Following, connect, lab_options, print_json
from testbed.cli.words import plain

if TYPE_CHECKING:
    from testbed.machine.live.connection import Connection


@click.command(help="""Show the nodes of a lab with their interfaces, and its active faults.""")
@click.option("--all", "-a", "all_", is_flag=True, help="All labs that are up, one after the other.")
@click.option("--topo", "-t", metavar="FILE", default="", help="The lab of this topology file.")
@lab_options
def inspect(all_: bool, topo: str, name: str, form: str) -> int:
    from testbed.cli.live.containerlab_commands import lab_of
    from testbed.machine.live import labs

    if not all_:
        found = inspected(lab_of(topo) if topo else name, form)
        if form == "json":
            print_json(found)
        return 0
    names = [lab.name for lab in labs.every() if lab.alive()]
    if form == "json":
        print_json([inspected(one, form) for one in names])
        return 0
    for one in names:
        click.echo(f"{plain(one)}:")
        inspected(one, form)
    if not names:
        click.echo("No lab is up.")
    return 0


def inspected(name: str, form: str) -> dict[str, Any]:
    """Return the state of a lab; show it, unless it is wanted as JSON."""
    from testbed.cli.live.lab_tables import faults, show_metrics, show_nodes
    from testbed.cli.progress import table_console
    from testbed.protocol.live import Inspect

    with connect(name) as connection:
        state = connection.answer(Inspect())
        lab = connection.lab
    if form != "json":
        show_nodes(state["nodes"])
        show_metrics(lab)
        if state["faults"]:
            table_console().print("", faults(state))
    return {**lab.__dict__, **state}


@click.command(cls=Following, help="""Show the virtual routers and the ARP, ND and FDB tables of a switch.""")
@click.option("--follow", is_flag=True, help="Show them again at each change, until Ctrl-C; also -f.")
@lab_options
@click.argument("switch", shell_complete=completion_values.nodes("switch"))
def tables(follow: bool, name: str, form: str, switch: str) -> int:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from testbed.cli.live.lab_tables import changes, entries
    from testbed.cli.progress import output_console, table_console, terminal
    from testbed.cli.words import clock
    from testbed.protocol.live import Tables

    console = output_console()
    with connect(name) as connection:
        if not follow:
            rows = connection.answer(Tables(switch=switch))
            if form == "json":
                print_json(rows)
            else:
                table_console().print(entries(rows) if rows else "The tables are empty.")
            return 0
        before: list[Any] = []
        live = Live(console=console, auto_refresh=False) if terminal(console) and form == "table" else None

        def receive(report: dict[str, Any]) -> None:
            nonlocal before
            rows, at = report["rows"], clock(int(report["now_s"] * 1e9))
            if form == "json":
                print_json({"now_s": report["now_s"], "rows": rows})
            elif live:
                live.update(Group(Text(f"{switch} at {at}", "dim"), entries(rows)), refresh=True)
            else:
                for line in changes(before, rows):
                    console.print(f"{at} {line}")
            before = rows

        with live or contextlib.nullcontext():
            follow_until_stopped(connection, Tables(switch=switch, follow=True), receive)
    return 0


def follow_until_stopped(connection: Connection, request: Any, receive: Any) -> None:
    """Receive reports until Ctrl-C."""
    with stoppable() as stop:
        connection.end(connection.ask(request, receive), stop)


@click.command(
    cls=Following, help="""Show the events of a lab: ARP, ND and FDB entries, faults, links, completions, pods."""
)
@click.option("--follow", is_flag=True, help="Follow new events until Ctrl-C; also -f.")
@click.option("--last", "-n", type=click.IntRange(0), metavar="N", help="Only the last N events.")
@lab_options
def events(follow: bool, last: int | None, name: str, form: str) -> int:
    from testbed.cli.live.lab_tables import event_line
    from testbed.cli.progress import output_console
    from testbed.protocol.live import Events

    console = output_console()

    def receive(report: dict[str, Any]) -> None:
        for event in report["events"]:
            if form == "json":
                print_json(event)
            else:
                console.print(event_line(event), soft_wrap=True)

    with connect(name) as connection:
        request = Events(last=last, follow=follow)
        if follow:
            follow_until_stopped(connection, request, receive)
        else:
            connection.answer(request, receive)
    return 0
