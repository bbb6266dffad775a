"""`testbed counters`: the counters of a run over time, and its events, for other programs."""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from testbed.cli.live.lab_tables import table
from testbed.cli.live.live_options import print_json
from testbed.cli.output import give
from testbed.cli.progress import table_console
from testbed.cli.words import plain
from testbed.errors import InputError
from testbed.protocol import COUNTERS, EVENTS
from testbed.records import event_reader
from testbed.records.counter_series import Sample, samples

EVENT_COLUMNS = "t_s", "kind", "node", "text", "data"


@click.command(
    help="""Print the counters, queues and rates of a run over time, or its events.

    RUN is the directory of a variant, of a live lab, or of a run with all its variants: runs/ip-reuse/latest. Each row
    is a counter that has changed: its time in seconds, what happened before, node, interface or device, value, change,
    mean rate since it was known before, unit, meaning (docs/counters.md)."""
)
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--events", is_flag=True, help="The events instead of the counters.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, with a line of column names.")
@click.option("--json", "as_json", is_flag=True, help="Print an array of objects.")
@click.option("-o", "output", type=click.Path(path_type=Path), help="Write the CSV to this file; it must not exist.")
def counters(run: Path, events: bool, as_csv: bool, as_json: bool, output: Path | None) -> None:
    parts = [(name, directory) for name, directory in parts_of(run)]
    columns = ["variant", *(EVENT_COLUMNS if events else Sample._fields)]
    rows = ([name, *row] for name, directory in parts for row in (events_of if events else samples)(directory))
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif as_csv or output:
        give(as_text(columns, rows), output, over=False)
    else:
        shown = table(*columns)
        for row in rows:
            shown.add_row(*(plain(cell(value)) for value in row))
        table_console().print(shown)


def parts_of(run: Path) -> Iterator[tuple[str, Path]]:
    """Yield the directories with counters, each with its variant; a directory that has some itself has no name."""
    if not run.is_dir():
        raise InputError("no such directory", where=str(run), hint="Such as runs/ip-reuse/latest.")
    if (run / COUNTERS).is_file():
        yield "", run
        return
    found = sorted(file.parent for file in run.glob(f"*/{COUNTERS}"))
    if not found:
        raise InputError(f"has no {COUNTERS}", where=str(run), hint="Name the directory of a run, or of a variant.")
    yield from ((directory.name, directory) for directory in found)


def events_of(directory: Path) -> Iterator[tuple[Any, ...]]:
    for event in event_reader.read(directory / EVENTS):
        yield event["t"] / 1e9, event["kind"], event["node"], event["text"], json.dumps(event["data"])


def cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def as_text(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([plain(cell(value)) for value in row] for row in rows)
    return file.getvalue()
