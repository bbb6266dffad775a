"""`testbed graph`: a picture of a topology file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

import click

from testbed.cli.output import give, show_notes
from testbed.errors import InputError
from testbed.machine import topologies
from testbed.protocol import GraphStyle


@click.command(help="Draw the topology FILE: its switches in tiers, its hosts below them, each rail in a colour.")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--format", "style", type=click.Choice(get_args(GraphStyle)), default="svg", show_default=True)
@click.option("-o", "output", type=click.Path(path_type=Path), help="Write to this file.")
def graph(file: Path, style: GraphStyle, output: Path | None) -> None:
    text, notes = topologies.graph(file, style)
    if output is not None and os.path.exists(output) and output.samefile(file):
        raise InputError("is the topology itself", where=str(output), hint="Name another file for the picture.")
    show_notes(notes)
    give(text, output, over=True)
