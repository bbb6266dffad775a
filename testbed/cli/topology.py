"""`testbed topology`: files that describe a lab."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.table import Table

from testbed.cli.progress import output_console
from testbed.errors import InputError
from testbed.machine import topologies


@click.group(help="Check a topology file, or print the format's JSON Schema.")
def topology() -> None:
    pass


@topology.command(help="Check FILE and show what it becomes: every interface with its MAC, address and VLAN.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(file: Path, as_json: bool) -> None:
    if not file.is_file():
        raise InputError("there is no such file", where=str(file))
    plan = topologies.plan(file)
    if as_json:
        click.echo(json.dumps(plan))
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in ("interface", "peer", "MAC", "address", "VLAN", "RDMA device"):
        table.add_column(column, no_wrap=True)
    for row in plan["interfaces"]:
        cells = [row[key] for key in ("peer", "mac", "address", "vlan", "rdma")]
        table.add_row(f"{row['node']}:{row['interface']}", *(str(cell or "") for cell in cells))
    output_console(uncut=True).print(table)


@topology.command(help="Print the JSON Schema of topology files, for editors.")
def schema() -> None:
    click.echo(json.dumps(topologies.schema(), indent=1))
