"""`testbed topology`: files that describe a lab."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from testbed.cli.progress import output_console
from testbed.errors import InputError
from testbed.machine import topologies

NEW = """Write a topology file of a KIND, for you to edit. What you leave out has a default; the file's head shows it.

\b
single          one switch (--hosts)
two-tier        access switches under a core (--switches --hosts)
leaf-spine      every leaf on every spine (--leaves --spines --hosts --rails)
rail-optimized  a leaf for each rail of a pod (--pods --hosts --rails --oversubscription)
fat-tree        k pods of switches with k ports (--k)
"""


@click.group(help="Make or check a topology file, or print the format's JSON Schema.")
def topology() -> None:
    pass


@topology.command(
    short_help="Check a topology file and show what it becomes.",
    help="Check FILE and show what it becomes: every interface with its MAC, address and VLAN.",
)
@click.argument("file")
@click.option("--mininet", is_flag=True, help="FILE[:NAME] is a Topo of Mininet, as for `from-mininet`.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(file: str, mininet: bool, as_json: bool) -> None:
    plan = _plan_of_mininet(file) if mininet else topologies.plan(Path(file))
    if as_json:
        click.echo(json.dumps(plan))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("interface", "peer", "MAC", "address", "VLAN", "RDMA device"):
        table.add_column(column, no_wrap=True)
    for row in plan["interfaces"]:
        addresses = ", ".join(filter(None, (row["address"], row["address6"])))
        cells = [row["peer"], row["mac"], addresses, "routed" if row["routed"] else row["vlan"], row["rdma"]]
        table.add_row(f"{row['node']}:{row['interface']}", *(str(cell or "") for cell in cells))
    output_console(uncut=True).print(table)


@topology.command(help=NEW)
@click.argument("kind")
@click.option("--hosts", type=int, help="Hosts: of the switch, on an access switch, for each leaf, in a pod.")
@click.option("--switches", type=int, help="Access switches.")
@click.option("--leaves", type=int)
@click.option("--spines", type=int)
@click.option("--rails", type=int, help="NICs of a host, each on a leaf of its own.")
@click.option("--pods", type=int)
@click.option("--oversubscription", metavar="DOWN:UP", help="Downlinks to uplinks of a leaf, such as 7:1.")
@click.option("--k", type=int, help="Ports of a switch; even.")
@click.option(
    "--routed/--bridged", default=True, help="Whether leaves route, the default, or bridge: a VLAN a rail, over trunks."
)
@click.option("--family", type=click.Choice(["4", "6", "dual"]), default="4", help="Addresses: IPv4, IPv6 or both.")
@click.option(
    "--routing",
    type=click.Choice(["static", "frr"]),
    help="Routes in the file, the default, or found by FRR on the switches: BGP unnumbered with BFD.",
)
@click.option("-o", "output", type=click.Path(path_type=Path), help="Write to this file, which must not exist.")
def new(kind: str, routed: bool, family: str, output: Path | None, **sizes: int | str | None) -> None:
    given = {name: value for name, value in sizes.items() if value is not None}
    addresses = int(family) if family.isdecimal() else family
    _give(topologies.new(kind, {**given, "bridged": not routed, "family": addresses}), output)


@topology.command(
    "from-mininet",
    help="""Convert a Topo of Mininet into a topology file.

    FILE is Python as `mn --custom` takes it, NAME an entry of its `topos` or a subclass of Topo, with arguments as
    `mn --topo` takes them: ring,4,delay=5ms. Without NAME it is the only one in the file.""",
)
@click.argument("file", metavar="FILE[:NAME]")
@click.option("-o", "output", type=click.Path(path_type=Path), help="Write to this file, which must not exist.")
def from_mininet(file: str, output: Path | None) -> None:
    _give(_plan_of_mininet(file)["text"], output)


def _plan_of_mininet(file: str) -> dict[str, Any]:
    path, _, name = file.partition(":") if not os.path.isfile(file) else (file, "", "")
    return topologies.plan_of_mininet(Path(path), name)


def _give(text: str, output: Path | None) -> None:
    """Prints a topology file, or writes it where none is: one that is there may have been edited."""
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        with output.open("x") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(
            "the file exists, and may have been edited", where=str(output), hint="Remove it, or name another."
        ) from None
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(output)) from None


@topology.command(help="Print the JSON Schema of topology files, for editors.")
def schema() -> None:
    click.echo(json.dumps(topologies.schema(), indent=1))
