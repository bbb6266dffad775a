"""`testbed report` and `testbed compare`: pages made from run directories."""

import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from testbed.cli.words import plain
from testbed.errors import DISK_FULL, InputError
from testbed.machine import questions
from testbed.protocol import REPORT, RESULT
from testbed.report import has_runs, write, write_index
from testbed.report.run_model import Run, read_run

COMPARISON = "compare.html"

open_option = click.option("--open", "shown", is_flag=True, help="Open it in the browser.")


def output_option(default: str) -> Callable[[Any], Any]:
    return click.option(
        "-o",
        "output",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help=f"Write to this file. Default: {default}.",
    )


@click.command(
    help="""Write the report of a run from its directory, and print its path.

    RUN is a run directory, such as runs/ip-reuse/latest, or a copy of one. Every run writes its report at its end; this
    command writes it again, also for runs of an older testbed. For a directory of runs, such as runs, it writes
    index.html, a page with the last run of each scenario.

    The report is one HTML file that needs no network. It links to the captures and logs beside it."""
)
@click.argument("directory", metavar="RUN", type=click.Path(path_type=Path))
@output_option("report.html in the directory")
@open_option
def report(directory: Path, output: Path | None, shown: bool) -> None:
    if not (directory / RESULT).is_file() and has_runs(directory):
        if output is not None:
            raise click.UsageError("-o is for the report of a run: links of an index are relative to its directory")
        give(write_index(directory), shown)
        return
    run = read_run(directory)
    make([run], output or directory / REPORT, shown)


@click.command(
    help="""Put runs, or variants of runs, side by side in one report, and print its path.

    RUN is a run directory with all its variants, or the directory of one variant: runs/ip-reuse/latest/garp."""
)
@click.argument("directories", metavar="RUN RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@output_option("compare.html in the first run's directory")
@open_option
def compare(directories: tuple[Path, ...], output: Path | None, shown: bool) -> None:
    if len(directories) < 2:
        raise click.UsageError("name at least two runs or variants; `testbed report` is for one run")
    runs: dict[Path, Run] = {}
    for directory in directories:
        place, run = chosen(directory)
        before = runs.get(place)
        parts = (*before.parts, *(part for part in run.parts if part not in before.parts)) if before else run.parts
        runs[place] = replace(run, parts=parts)
    make(list(runs.values()), output or next(iter(runs)) / COMPARISON, shown, side_by_side=True)


def chosen(directory: Path) -> tuple[Path, Run]:
    """Return the directory of a run, and the run with the one variant whose directory it is, or with all."""
    parent = directory.absolute().parent
    if (directory / RESULT).is_file() or not (parent / RESULT).is_file():
        return directory.resolve(), read_run(directory)
    run = read_run(parent)
    parts = tuple(part for part in run.parts if part.name == directory.name)
    if not parts:
        hint = f"It has: {', '.join(part.name for part in run.parts)}."
        raise InputError(f"the run has no variant {directory.name!r}", where=str(directory.parent), hint=hint)
    return parent.resolve(), replace(run, parts=parts)


def make(runs: Sequence[Run], output: Path, shown: bool, *, side_by_side: bool = False) -> None:
    try:
        write(runs, questions.draw_plan, output, side_by_side=side_by_side)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        raise InputError(f"cannot be written: {error.strerror}", where=str(output)) from None
    give(output, shown)


def give(output: Path, shown: bool) -> None:
    click.echo(plain(output))
    if shown and not webbrowser.open(output.resolve().as_uri()):
        raise InputError("no browser could be started", where=str(output), hint="Open the file yourself.")
