"""`testbed pytest`: a user's own tests inside a machine."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import click

from testbed.cli import options
from testbed.cli.words import plain
from testbed.machine import pytests, runs
from testbed.protocol import Clock


@click.command(
    help="""Run your own pytest files inside a machine, with the `lab` fixture.

    Options of pytest go behind a double dash: testbed pytest tests/lab -- -k aging -x

    What the tests leave in `tmp_path` is in the run directory afterwards.""",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--training", is_flag=True, help="Have torch imported, for tests that start training jobs.")
@options.machine_options
def pytest(
    paths: tuple[Path, ...], training: bool, seed: int, clock: Clock | None, machine_name: str, out: Path
) -> int:
    tests, arguments = pytests.split(paths)
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        arguments = ["--color=no", *arguments]
    chosen = options.choose(machine_name, clock, lambda text: click.echo(f"… {plain(text)}", err=True))
    directory = runs.run_directory(out, "pytest")

    def show(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    return asyncio.run(
        pytests.run(tests, arguments, seed=seed, training=training, machine=chosen.machine, out=directory, show=show)
    )
