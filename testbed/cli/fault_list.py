"""`testbed fault` and `testbed profile`: lists and descriptions of names in topology files."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from testbed.cli import completion_values
from testbed.cli.completion_values import Complete
from testbed.cli.live import change_commands
from testbed.cli.output import json_option
from testbed.cli.progress import output_console
from testbed.cli.scenario_list import columns, paragraphs, parameters, section
from testbed.cli.words import setting
from testbed.errors import InputError, did_you_mean
from testbed.machine.questions import kept
from testbed.protocol import FaultInfo, ProfileInfo, ProfileValue, requests

SOURCES = {
    "D": "documented by the vendor, or read in the system's source code",
    "M": "from memory of such documents: check it before you rely on it",
    "S": "a choice of this model",
    "": "testbed's default",
}


def group(
    name: str,
    kind: str,
    request: requests.Request[Any],
    texts: tuple[str, str, str, str],
    heads: Sequence[str],
    row: Callable[[Any], Sequence[str]],
    show: Callable[[Console, Any], None],
    complete: Complete,
) -> click.Group:
    """Make the commands `list` and `describe` for what `request` returns; `texts` are helps, `describe --json` last."""
    about, list_help, describe_help, json_help = texts
    commands = click.Group(name, help=about)

    @commands.command("list", help=list_help)
    @json_option("Print a JSON array of the objects that `describe --json` prints.")
    def _(as_json: bool) -> None:
        found = kept(request)
        if as_json:
            click.echo(json.dumps(found))
            return
        table = columns("name", *heads)
        for entry in found:
            table.add_row(Text(entry["name"], "bold"), *row(entry))
        output_console().print(table)

    @commands.command(help=describe_help)
    @click.argument("wanted", metavar=name.upper(), shell_complete=complete)
    @json_option(json_help)
    def describe(wanted: str, as_json: bool) -> None:
        found = {entry["name"]: entry for entry in kept(request)}
        if wanted not in found:
            hint = f"{did_you_mean(wanted, found)}See `testbed {name} list`."
            raise InputError(f"there is no {kind} {wanted!r}", hint=hint)
        if as_json:
            click.echo(json.dumps(found[wanted]))
        else:
            show(output_console(), found[wanted])

    return commands


def show_fault(console: Console, entry: FaultInfo) -> None:
    console.print(Text.assemble((entry["name"], "bold"), f": {entry['title']}"))
    console.print()
    paragraphs(console, entry["text"])
    section(console, "Parameters", parameters(entry["parameters"]["properties"]))


def profile_row(entry: ProfileInfo) -> list[str]:
    ages = [_shown(entry["values"][name]) for name in ("arp_age", "mac_age")]
    return [*ages, " ".join(entry["about"].split()).partition(". ")[0].rstrip(".")]


def show_profile(console: Console, entry: ProfileInfo) -> None:
    console.print(Text.assemble((entry["name"], "bold"), f": {' '.join(entry['about'].split())}"))
    console.print()
    values = entry["values"]
    documents = list(dict.fromkeys(value["citation"] for value in values.values() if value["citation"]))
    section(console, "Values", _values(values, documents))
    used = [source for source in SOURCES if any(value["source"] == source for value in values.values())]
    for source in used:
        console.print(Text(f"{source or '-'}  {SOURCES[source]}", "dim"))
        if source == "D":
            for number, document in enumerate(documents, start=1):
                console.print(Text(f"   D{number}  {document}", "dim"))


def _values(values: dict[str, ProfileValue], documents: list[str]) -> Table:
    table = columns("name", "value", "source", "")
    for name, value in values.items():
        number = documents.index(value["citation"]) + 1 if value["citation"] else ""
        table.add_row(name, _shown(value), f"{value['source'] or '-'}{number}", value["text"])
    return table


def _shown(value: ProfileValue) -> str:
    match value["value"]:
        case None:
            return "none"
        case list(items):
            shown = ", ".join(map(str, items))
        case float(number):
            shown = f"{number:g}"
        case other:
            shown = setting(other)
    return f"{shown} {value['unit']}".rstrip()


fault = group(
    "fault",
    "fault",
    requests.Faults(),
    (
        "List faults, inject them into a lab that is up, and recover them.",
        "List the faults.",
        "Show what a fault does, and its parameters.",
        "Print one JSON object; `parameters` is a JSON Schema.",
    ),
    ["what is broken"],
    lambda entry: [entry["title"]],
    show_fault,
    completion_values.faults,
)
profile = group(
    "profile",
    "switch profile",
    requests.Profiles(),
    (
        "List switch profiles; change the profile of a switch in a lab.",
        "List the profiles that a topology's `profile` may name.",
        """Show the values of a profile, each with its unit and its source: D documented, M from memory, S a choice of
        this model, nothing for a default. `profile_values` in a topology file overrides single values.""",
        "Print one JSON object, with unit and source of each value.",
    ),
    ["ARP age", "MAC age", ""],
    profile_row,
    show_profile,
    completion_values.profiles,
)
for command in change_commands.inject, change_commands.recover, change_commands.fault_ps:
    fault.add_command(command)
profile.add_command(change_commands.profile_set)
