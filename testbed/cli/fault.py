"""`testbed fault`: what can be broken."""

from __future__ import annotations

import json

import click
from rich.text import Text

from testbed.cli.catalogue import columns, parameters, section
from testbed.cli.progress import output_console
from testbed.errors import InputError, did_you_mean
from testbed.machine import topologies


@click.group(help="List the faults that a lab can have, and describe one.")
def fault() -> None:
    pass


@fault.command("list", help="List the faults.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of {name, title, text, parameters}.")
def list_(as_json: bool) -> None:
    found = topologies.faults()
    if as_json:
        click.echo(json.dumps(found))
        return
    table = columns("name", "what is broken")
    for entry in found:
        table.add_row(Text(entry["name"], "bold"), entry["title"])
    output_console().print(table)


@fault.command(help="Show what a fault does, and its parameters.")
@click.argument("name", metavar="FAULT")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; `parameters` is a JSON Schema.")
def describe(name: str, as_json: bool) -> None:
    found = {entry["name"]: entry for entry in topologies.faults()}
    if name not in found:
        raise InputError(f"there is no fault {name!r}", hint=f"{did_you_mean(name, found)}See `testbed fault list`.")
    entry = found[name]
    if as_json:
        click.echo(json.dumps(entry))
        return
    console = output_console()
    console.print(Text.assemble((entry["name"], "bold"), f": {entry['title']}"))
    console.print()
    for paragraph in filter(None, entry["text"].split("\n\n")):
        console.print(" ".join(paragraph.split()))
        console.print()
    section(console, "Parameters", parameters(entry["parameters"]["properties"]))
