"""`testbed doctor`: what works here."""

from __future__ import annotations

from collections.abc import Iterable

import click
from rich.table import Table
from rich.text import Text

from testbed.cli.progress import output_console
from testbed.machine import checkup
from testbed.machine.checkup import Check

MARKS = {"works": ("✓", "green"), "note": ("·", "yellow"), "missing": ("✗", "bold red")}


@click.command(
    help="Say what works on this machine, and how to mend what does not. Exit status 3 if no run is possible."
)
def doctor() -> int:
    machine, local = list(checkup.vm()), list(checkup.local())
    _show("Micro-VM (the default)", [*machine, checkup.kvm_answer()])
    _show("This kernel (--machine local)", local)
    return 3 if any(check.state == "missing" for check in machine) else 0


def _show(title: str, checks: Iterable[Check]) -> None:
    console = output_console()
    console.print(Text(title, "bold"))
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0))
    for check in checks:
        table.add_row(Text(*MARKS[check.state]), check.subject, _text(check))
    console.print(table)


def _text(check: Check) -> Text:
    return Text.assemble(check.text, (f"\nRun: {check.mend}", "cyan") if check.mend else "")
