"""`testbed list` and `testbed describe`."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from testbed.cli.completion_values import scenarios as scenarios_
from testbed.cli.output import json_option
from testbed.cli.progress import output_console, table_console
from testbed.cli.words import plain, plain_lines, setting
from testbed.errors import InputError, TestbedError, did_you_mean
from testbed.machine import questions, scenarios
from testbed.protocol import ScenarioInfo

WIDE = 110
"""Minimum terminal width in columns for tags beside the titles."""


@click.command(
    "list",
    help="""List the scenarios that come with testbed, and your own: those in the directories that TESTBED_SCENARIOS
    names, or `scenarios` of [tool.testbed] in pyproject.toml.""",
)
@click.option("--tag", metavar="TAG", help="Only scenarios with this tag.")
@json_option("Print a JSON array of {name, title, tags, variants}.")
def list_(tag: str | None, as_json: bool) -> None:
    infos = asyncio.run(scenarios.describe([(source, {}) for source in scenarios.shipped()])) + described_own()
    if tag is not None:
        infos = with_tag(infos, tag)
    if as_json:
        keys = ("name", "title", "tags", "variants")
        click.echo(json.dumps([{key: info[key] for key in keys} for info in infos]))  # type: ignore[literal-required]
        return
    console = table_console()
    wide = console.width >= WIDE
    table = columns("name", "title", *(["tags"] if wide else []))
    for info in infos:
        tags = [Text(plain(", ".join(info["tags"])), "dim")] if wide else []
        table.add_row(Text(plain(info["name"]), "bold"), plain(info["title"]), *tags)
    console.print(table)


def described_own() -> list[ScenarioInfo]:
    """Describe the user's own scenarios. One that cannot be described is named on standard error."""
    from testbed.cli.output import log

    questions.LOG.set(log)
    found = []
    for source in scenarios.own():
        try:
            found += asyncio.run(scenarios.describe([(source, {})]))
        except TestbedError as error:
            click.echo(plain(f"{source.name} cannot be described: {error.where}: {error.message}"), err=True)
    return found


def with_tag(infos: Sequence[ScenarioInfo], tag: str) -> list[ScenarioInfo]:
    """Return the scenarios with a tag. InputError if none has it."""
    tags = sorted({known for info in infos for known in info["tags"]})
    if tag not in tags:
        raise InputError(f"no scenario has the tag {tag!r}", hint=f"{did_you_mean(tag, tags)}Tags: {', '.join(tags)}.")
    return [info for info in infos if tag in info["tags"]]


@click.command(help="Show what happens in a scenario, its variants and its parameters.")
@click.argument("name", metavar="SCENARIO", shell_complete=scenarios_)
@click.option(
    "--machine",
    type=click.Choice(["vm", "local"]),
    default="vm",
    show_default=True,
    help="Where a scenario of yours is loaded, which runs its code: in a micro-VM, or on this very kernel.",
)
@json_option()
def describe(name: str, machine: str, as_json: bool) -> None:
    from testbed.cli import options  # takes a while

    questions.ON_THIS_KERNEL.set(machine == "local")
    source = scenarios.resolve(name)
    [info] = asyncio.run(options.described([(source, {})]))
    if as_json:
        click.echo(json.dumps({**info, "source": str(source.file)}))
        return
    console = output_console()
    console.print(Text.assemble((plain(info["name"]), "bold"), ": ", plain(info["title"])))
    for label, names in ("tags", info["tags"]), ("Debian packages", info["packages"]), ("images", info["images"]):
        if names:
            console.print(Text(plain(f"{label}: {', '.join(names)}"), "dim"))
    console.print()
    paragraphs(console, info["text"])
    section(console, "Variants", variants(info))
    if properties := info["parameters"].get("properties"):
        section(console, "Parameters (--set KEY=VALUE)", parameters(properties))
    console.print(Text(plain(source.file), "dim"), soft_wrap=True)


def variants(info: ScenarioInfo) -> Table:
    from testbed.cli.console import OUTCOME  # imports much that faults and profiles do not need

    table = columns("name", "expected", "")
    for variant in info["variants"]:
        table.add_row(variant["name"], Text(variant["expected"], OUTCOME[variant["expected"]]), plain(variant["text"]))
    return table


def parameters(properties: Mapping[str, Mapping[str, Any]]) -> Table:
    """Make a table of parameters, required ones first."""
    table = columns("name", "default", "")
    for name, schema in sorted(properties.items(), key=lambda item: "default" in item[1]):
        default = schema.get("default", "required")
        value = "-" if default is None else setting(default)
        table.add_row(plain(name), value, plain(schema.get("description", "")))
    return table


def paragraphs(console: Console, text: str) -> None:
    """Print paragraphs, each filled; one whose lines are all indented, such as a table, is printed as it is."""
    for paragraph in filter(None, text.split("\n\n")):
        as_it_is = all(line.startswith(" ") for line in paragraph.splitlines())
        console.print(plain_lines(paragraph) if as_it_is else plain(" ".join(paragraph.split())))
        console.print()


def section(console: Console, title: str, table: Table) -> None:
    console.print(Text(title, "bold"))
    console.print(Padding(table, (0, 0, 1, 2)))


def columns(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, name in enumerate(names):
        table.add_column(name, no_wrap=number == 0, overflow="fold")
    return table
