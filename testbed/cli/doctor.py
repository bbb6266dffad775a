"""`testbed doctor` and `testbed gc`: the parts of testbed that work on this host, and remains of killed runs on it."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict

import click
from rich.table import Column, Table
from rich.text import Text

from testbed.cli.output import json_option
from testbed.cli.progress import output_console
from testbed.cli.words import plain
from testbed.machine import checkup, questions
from testbed.machine.checkup import Check
from testbed.protocol.requests import Collect

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


@click.command(
    help="""Remove what killed labs left on this kernel (`--machine local`), and nothing else.

    It ends processes and removes RDMA devices and network namespaces with a run's mark, and the run's files below /run.
    It restores the sysctls and the RDMA netns mode that the run changed. It does not touch a run that still lives. Labs
    in micro-VMs leave nothing.

    Exit status: 0 nothing is left, 1 something could not be removed, 3 not root."""
)
@click.option("--dry-run", is_flag=True, help="Only list it.")
@json_option("Print one JSON array of {run, kind, name, problem}.")
def gc(dry_run: bool, as_json: bool) -> int:
    found = questions.ask(Collect(dry_run=dry_run))
    if as_json:
        click.echo(json.dumps(found))
    else:
        for one in found:
            state = one["problem"] or ("would be removed" if dry_run else "removed")
            click.echo(plain(f"{one['kind']} {one['name']}: {state}"))
        if not found:
            click.echo("nothing is left of runs on this kernel")
    return int(any(one["problem"] for one in found))
