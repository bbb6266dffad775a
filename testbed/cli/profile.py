"""`testbed profile`: how switches treat ARP and MAC addresses."""

from __future__ import annotations

import json

import click
from rich.table import Table
from rich.text import Text

from testbed.cli.catalogue import columns, section
from testbed.cli.progress import output_console
from testbed.cli.words import setting
from testbed.errors import InputError, did_you_mean
from testbed.machine import topologies
from testbed.protocol import ProfileValue

SOURCES = {
    "D": "documented by the vendor, or read in the system's source code",
    "M": "from memory of such documents: check it before you rest an argument on it",
    "S": "a choice of this model",
    "": "testbed's default",
}


@click.group(help="List the profiles of switches, and describe one.")
def profile() -> None:
    pass


@profile.command("list", help="List the profiles that a topology's `profile` may name.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array of {name, about, values}.")
def list_(as_json: bool) -> None:
    found = topologies.profiles()
    if as_json:
        click.echo(json.dumps(found))
        return
    table = columns("name", "ARP age", "MAC age", "")
    for entry in found:
        ages = [_shown(entry["values"][name]) for name in ("arp_age", "mac_age")]
        table.add_row(
            Text(entry["name"], "bold"), *ages, " ".join(entry["about"].split()).partition(". ")[0].rstrip(".")
        )
    output_console().print(table)


@profile.command(
    help="""Show the values of a profile, each with its unit and its source: D documented, M from memory, S a choice of
    this model, nothing for a default. `profile_values` in a topology file replaces single ones."""
)
@click.argument("name", metavar="PROFILE")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with unit and source of each value.")
def describe(name: str, as_json: bool) -> None:
    found = {entry["name"]: entry for entry in topologies.profiles()}
    if name not in found:
        hint = f"{did_you_mean(name, found)}See `testbed profile list`."
        raise InputError(f"there is no switch profile {name!r}", hint=hint)
    entry = found[name]
    if as_json:
        click.echo(json.dumps(entry))
        return
    console = output_console()
    console.print(Text.assemble((entry["name"], "bold"), f": {' '.join(entry['about'].split())}"))
    console.print()
    section(console, "Values", _values(entry["values"]))
    used = [source for source in SOURCES if any(value["source"] == source for value in entry["values"].values())]
    for source in used:
        console.print(Text(f"{source or '-'}  {SOURCES[source]}", "dim"))


def _values(values: dict[str, ProfileValue]) -> Table:
    table = columns("name", "value", "source", "")
    for name, value in values.items():
        table.add_row(name, _shown(value), value["source"] or "-", value["text"])
    return table


def _shown(value: ProfileValue) -> str:
    if value["value"] is None:
        return "none"
    match value["value"]:
        case list(items):
            shown = ", ".join(map(str, items))
        case float(number):
            shown = f"{number:g}"
        case other:
            shown = setting(other)
    return f"{shown} {value['unit']}".rstrip()
