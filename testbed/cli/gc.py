"""`testbed gc`: remains of killed runs on this kernel."""

import json

import click

from testbed.cli.output import json_option
from testbed.cli.words import plain
from testbed.machine import questions
from testbed.protocol.requests import Collect


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
