"""`testbed pytest`: a user's own tests inside a machine."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import click

from testbed.cli import options
from testbed.machine import layers, pytests, runs
from testbed.protocol import Clock


@click.command(
    help="""Run your own pytest files inside a machine, with the `lab` fixture.

    Options of pytest go behind a double dash: testbed pytest tests/lab -- -k aging -x

    What the tests leave in `tmp_path` is in the run directory afterwards.""",
)
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--training", is_flag=True, help="Have torch imported, for tests that start training jobs.")
@click.option("--with", "packages", metavar="PACKAGE,…", multiple=True, help="Debian packages that the tests need.")
@options.machine_options
def pytest(
    paths: tuple[Path, ...],
    training: bool,
    packages: tuple[str, ...],
    seed: int,
    clock: Clock | None,
    machine_name: str,
    out: Path,
) -> int:
    tests, arguments = pytests.split(paths)
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        arguments = ["--color=no", *arguments]
    wanted = layers.names(packages)
    chosen = options.choose(machine_name, clock, lambda text: click.echo(f"… {text}", err=True))
    if wanted:
        chosen = asyncio.run(options.equip(chosen, wanted))
    directory = runs.run_directory(out, "pytest")

    def show(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    return asyncio.run(
        pytests.run(tests, arguments, seed=seed, training=training, machine=chosen.machine, out=directory, show=show)
    )
