"""`testbed doctor`: the parts of testbed that work on this host."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict

import click
from rich.table import Column, Table
from rich.text import Text

from testbed.cli.output import json_option
from testbed.cli.progress import output_console
from testbed.machine import checkup
from testbed.machine.checkup import Check

MARKS = {"works": ("✓", "green"), "note": ("·", "yellow"), "missing": ("✗", "bold red")}
UNASKED = ("–", "dim")
"""Mark of a part that is missing for a machine that nobody asked for."""
TITLES = {"vm": "Micro-VM (the default)", "local": "This kernel (--machine local)"}


@click.command(
    help="""Check what works on this machine, and print how to fix what does not. Both kinds of machine are checked; the
    status is for the micro-VM, or for the machine that --machine names. Exit status 3 if it cannot run anything."""
)
@click.option("--machine", type=click.Choice(["vm", "local"]), help="Check this kind of machine only.")
@json_option("Print one JSON object: works, and for vm and local arrays of {subject, state, text, fix}.")
def doctor(machine: str | None, as_json: bool) -> int:
    found: dict[str, Sequence[Check]] = {}
    if machine != "local":
        found["vm"] = [*checkup.vm(), checkup.kvm_answer()]
    if machine != "vm":
        found["local"] = list(checkup.local())
    asked = machine or "vm"
    works = all(check.state != "missing" for check in found[asked])
    if as_json:
        lists = {kind: [asdict(check) for check in checks] for kind, checks in found.items()}
        click.echo(json.dumps({"works": works, **lists}))
    else:
        for kind, checks in found.items():
            _show(TITLES[kind], checks, asked=kind == asked)
    return 0 if works else 3


def _show(title: str, checks: Iterable[Check], *, asked: bool) -> None:
    console = output_console()
    console.print(Text(title if asked else f"{title}, not needed", "bold"))
    table = Table("", "", Column(overflow="fold"), box=None, show_header=False, padding=(0, 1, 0, 0))
    for check in checks:
        mark = MARKS[check.state] if asked or check.state != "missing" else UNASKED
        fix = (f"\nRun: {check.fix}", "cyan") if check.fix else ""
        table.add_row(Text(*mark), check.subject, Text.assemble(check.text, fix))
    console.print(table)
