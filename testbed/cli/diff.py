"""`testbed diff`: the first event in which two runs differ, with the events of each around it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from testbed.cli.output import json_option
from testbed.cli.progress import output_console
from testbed.cli.scenario_list import columns
from testbed.cli.summary import number as counted
from testbed.cli.words import clock, plain
from testbed.errors import InputError, did_you_mean
from testbed.machine import record
from testbed.machine.record import WORDS, RunResult, VariantResult
from testbed.protocol import RESULT
from testbed.records import difference, switch_tables
from testbed.records.difference import Difference, Pair
from testbed.records.event_reader import Log
from testbed.records.switch_tables import Tables

MOMENTS = ("right after the first event that differs", "after the last events shown")
TABLE_KEYS = ("switch", "table", "vlan", "entry")
Inputs = dict[str, tuple[Any, Any]]
"""Differences in the inputs of two variants, by name."""


@click.command(
    help="""Show where two runs diverge: the first event that differs, the events before it, the next events of each
    run, and the switch tables side by side where they differ.

    RUN1 and RUN2 are run directories, whose variants are compared by their names, or the directories of two variants:
    runs/ip-reuse/latest/as-is runs/ip-reuse/latest/garp. An event that differs only in its time does not count, unless
    no other event differs.

    Exit status: 0 the same, 1 different, 2 wrong usage, no run directory or a damaged one."""
)
@click.argument("one", metavar="RUN1", type=click.Path(path_type=Path))
@click.argument("other", metavar="RUN2", type=click.Path(path_type=Path))
@click.option(
    "--context",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    metavar="N",
    help="Number of events shown before the first that differs, and for each run from there on.",
)
@json_option()
def diff(one: Path, other: Path, context: int, as_json: bool) -> int:
    pairs, alone = paired(one, other)
    compared = [Compared.of(pair, context) for pair in pairs]
    same = not any(alone.values()) and all(found.difference is None for found in compared)
    if as_json:
        variants = [found.json() for found in compared]
        click.echo(json.dumps({"same": same, "only_in_one": alone, "variants": variants}))
    else:
        report(output_console(), compared, alone)
    return 0 if same else 1


def paired(one: Path, other: Path) -> tuple[list[tuple[Path, Path]], dict[str, list[str]]]:
    """Return the directories to compare, and the variants that only one run has, by that run. Two directories of
    variants are a pair whatever their names, and so are the only ones of two runs."""
    left, right = difference.variants(one), difference.variants(other)
    if len(left) == len(right) == 1:
        return [*zip(left.values(), right.values(), strict=True)], {}
    for given, found, place, there in (one, left, other, right), (other, right, one, left):
        if given in found.values():
            [name] = found
            if name not in there:
                hint = f"{did_you_mean(name, there)}It has: {', '.join(there)}."
                raise InputError(f"has no variant {name!r}", where=str(place), hint=hint)
            return [(left[name], right[name])], {}
    both = [name for name in left if name in right]
    if not both:
        hint = f"{one} has {', '.join(left)}; {other} has {', '.join(right)}."
        raise InputError("the two runs have no variant in common", where=str(other), hint=hint)
    alone = {"run1": sorted(left.keys() - right.keys()), "run2": sorted(right.keys() - left.keys())}
    return [(left[name], right[name]) for name in both], alone


@dataclass(frozen=True)
class Compared:
    """Two variants. `shown` are the events around the difference, aligned; `moments` the switch tables of both, by
    moment."""

    places: tuple[Path, Path]
    logs: tuple[Log, Log]
    difference: Difference | None
    inputs: Inputs
    shown: Sequence[Pair]
    moments: Mapping[str, tuple[Tables, Tables]]

    @classmethod
    def of(cls, places: tuple[Path, Path], context: int) -> Compared:
        logs = Log.read(places[0]), Log.read(places[1])
        inputs = differing_inputs(*places)
        found = difference.compare(*logs)
        if found is None:
            return cls(places, logs, None, inputs, [], {})
        shown = difference.around(*logs, found.first, context)
        sides = [
            tables_of(place, log, found.first, shown, side)
            for side, (place, log) in enumerate(zip(places, logs, strict=True))
        ]
        moments = dict(zip(MOMENTS, zip(*sides, strict=True), strict=True))
        return cls(places, logs, found, inputs, shown, moments)

    def json(self) -> dict[str, Any]:
        found = self.difference
        return {
            "run1": str(self.places[0]),
            "run2": str(self.places[1]),
            "same": found is None,
            "inputs": {name: {"run1": left, "run2": right} for name, (left, right) in self.inputs.items()},
            "times_only": found is not None and found.content is None,
            "times_differ_from_line": None if found is None or found.time is None else found.time + 1,
            "first_difference": found and self._events((found.first, found.first)),
            "events": [self._events(pair) for pair in self.shown],
            "tables": [
                {"moment": when, **dict(zip(TABLE_KEYS, key, strict=True)), "run1": left, "run2": right}
                for when, both in self.moments.items()
                for key, left, right in switch_tables.differing(*both)
            ],
        }

    def _events(self, pair: Pair) -> dict[str, Any]:
        return {f"run{side + 1}": self.logs[side].row(pair[side]) for side in (0, 1)}


def tables_of(place: Path, log: Log, first: int, shown: Sequence[Pair], side: int) -> list[Tables]:
    """Return the switch tables of a side at each of `MOMENTS`, or at its end."""
    last = max((pair[side] or 0 for pair in shown), default=first)
    end = len(log.lines) - 1
    return switch_tables.after(place, log, [min(first, end), max(min(first, end), last)])


def differing_inputs(one: Path, other: Path) -> Inputs:
    """Return the differences in the inputs of two variants; none where one has no whole record of them."""
    left, right = recorded(one), recorded(other)
    if left is None or right is None:
        return {}
    found: Inputs = {name: (getattr(left[0], name), getattr(right[0], name)) for name in ("scenario", "seed", "clock")}
    for key, values in record.differences(left[0].made_from, right[0].made_from).items():
        found[WORDS[key]] = values
    parameters = left[1].parameters or {}, right[1].parameters or {}
    for name in sorted({*parameters[0], *parameters[1]}):
        found[f"parameter {name}"] = parameters[0].get(name), parameters[1].get(name)
    return {name: values for name, values in found.items() if values[0] != values[1]}


def recorded(place: Path) -> tuple[RunResult, VariantResult] | None:
    """Return the record of the run of a variant."""
    run = place.resolve().parent
    if not (run / RESULT).is_file():
        return None
    try:
        result = record.load(run)
    except InputError:  # from another testbed, or changed since: the events can be compared all the same
        return None
    name = place.resolve().name
    return next(((result, variant) for variant in result.variants if variant.name == name), None)


def report(screen: Console, compared: Sequence[Compared], alone: Mapping[str, Sequence[str]]) -> None:
    for found in compared:
        mark = ("✓ ", "bold green") if found.difference is None else ("✗ ", "bold red")
        screen.print(Text.assemble(mark, plain(sentence(found))), soft_wrap=True)
        if found.difference is None:
            continue
        for number, place in enumerate(found.places, 1):
            screen.print(Text(f"  run {number}: {plain(place)}", "dim"), soft_wrap=True)
        for name, (left, right) in found.inputs.items():
            text = f"  different: {name}: {record.short(left)} and {record.short(right)}"
            screen.print(Text(plain(text), "dim"), soft_wrap=True)
        screen.print()
        screen.print(events_table(found))
        if text := data_words(found):
            screen.print()
            screen.print(Text(plain(text)), soft_wrap=True)
        for when, both in found.moments.items():
            show_tables(screen, when, *both)
        screen.print()
    for run, names in alone.items():
        if names:
            text = f"only in {run.replace('run', 'run ')}: {', '.join(names)}"
            screen.print(Text.assemble(("✗ ", "bold red"), plain(text)), soft_wrap=True)


def sentence(found: Compared) -> str:
    names = list(dict.fromkeys(place.resolve().name for place in found.places))
    name = " and ".join(names)
    if found.difference is None:
        return f"{name}: the same {counted(len(found.logs[0].lines), 'event')} at the same times"
    first, time = found.difference.first, found.difference.time
    if found.difference.content is None:
        by = abs(found.logs[0].event(first)["t"] - found.logs[1].event(first)["t"])
        return f"{name}: the same events; their times differ from line {first + 1} on, there by {by} ns"
    times = "" if time is None else f"; times differ from line {time + 1} on"
    return f"{name}: the first event that differs is line {first + 1}{times}"


def events_table(found: Compared) -> Table:
    """Make a table of the events of both runs, each with its time in those that have it."""
    table = columns("run 1", "run 2", "event")
    for pair in found.shown:
        events = [None if number is None else log.event(number) for number, log in zip(pair, found.logs, strict=True)]
        there = [event for event in events if event]
        event = there[0]
        node = f"{event['node']}: " if event["node"] else ""
        style = "" if len(there) == 2 else "red" if events[0] else "green"
        times = [clock(one["t"]) if one else "" for one in events]
        table.add_row(*times, plain(f"{event['kind']}: {node}{event['text']}"), style=style)
    return table


def data_words(found: Compared) -> str:
    """Return the data in which the first differing events differ, where the table shows the same."""
    assert found.difference is not None
    number = found.difference.content
    if number is None or any(number >= len(log.lines) for log in found.logs):
        return ""
    left, right = (log.event(number) for log in found.logs)
    if any(left[key] != right[key] for key in ("kind", "node", "text")):
        return ""
    keys = [key for key in sorted({*left["data"], *right["data"]}) if left["data"].get(key) != right["data"].get(key)]
    words = (f"{key} {json.dumps(left['data'].get(key))} and {json.dumps(right['data'].get(key))}" for key in keys)
    return f"Their data differs in line {number + 1}: {', '.join(words)}"


def entries(count: int) -> str:
    return f"{count} entr{'y' if count == 1 else 'ies'}"


def show_tables(screen: Console, when: str, left: Tables, right: Tables) -> None:
    differing = switch_tables.differing(left, right)
    screen.print()
    if not differing:
        screen.print(Text(f"The switch tables {when} are the same: {entries(len(left))}.", "dim"))
        return
    screen.print(Text(f"The switch tables {when}, where they differ:"))
    table = columns("switch", "table", "entry", "run 1", "run 2")
    for (switch, name, vlan, entry), one, other in differing:
        table.add_row(*map(plain, (switch, name, f"VLAN {vlan} {entry}", one or "none", other or "none")))
    screen.print(table)
