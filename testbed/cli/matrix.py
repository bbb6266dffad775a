"""`testbed matrix`: one variant for each value of a parameter."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from testbed.cli import console, options
from testbed.cli.catalogue import columns
from testbed.cli.progress import error_console, output_console
from testbed.cli.run import run_all, split_setting
from testbed.cli.words import duration, plain, plain_lines
from testbed.errors import InputError
from testbed.machine import runs, scenarios
from testbed.machine.runs import Settings, Telling, VariantResult
from testbed.protocol import Clock, Event, ScenarioInfo


@click.command(
    help="""Run a variant of a scenario for each value of a parameter, and compare what users see.

    `--over profile` takes all switch profiles, `--over retry_cnt=1,3,6` the values that are named; with several
    `--over` every combination is run. The outage lasts from the first request that failed to the end of the next one
    that worked.

    Exit status: 0 users saw something in every run, whatever it was; 1 not, 2 wrong usage or input, 3 this machine
    cannot run it."""
)
@click.argument("name", metavar="SCENARIO")
@click.option(
    "--over",
    "overs",
    metavar="KEY[=VALUE,…]",
    multiple=True,
    required=True,
    help="A parameter and its values. Without values all that it can have.",
)
@click.option("--variant", metavar="NAME", help="Default: the one the scenario names for this, or its first.")
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, callback=split_setting, help="Set another parameter."
)
@options.machine_options
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Runs side by side. Default: by the number of CPUs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; outage_s is null if it did not end.")
def matrix(
    name: str,
    overs: tuple[str, ...],
    variant: str | None,
    settings: dict[str, str],
    seed: int,
    clock: Clock | None,
    machine_name: str,
    out: Path,
    jobs: int | None,
    as_json: bool,
) -> int:  # fmt: skip
    source = scenarios.resolve(name)
    info, tellings = asyncio.run(plan(source, variant, overs, settings))
    with console.RunConsole(error_console(), tellings) as shown:
        chosen = options.choose(machine_name, clock, shown.say)
        started = time.monotonic()
        settled = Settings(seed, chosen.clock, options.jobs_for(chosen, jobs))
        [result] = asyncio.run(run_all([(source, info, tellings)], settled, chosen, out, shown))
    outages = [outage_s(events(result.out / one.name / "events.jsonl")) for one in result.variants]
    if as_json:
        rows = [
            {"values": values_of(one.name), "observed": one.observed, "outage_s": outage, **one.json()}
            for one, outage in zip(result.variants, outages, strict=True)
        ]
        click.echo(json.dumps({**result.json(), "variant": tellings[0].variant["name"], "variants": rows}))
    else:
        report(output_console(), result.variants, outages)
        facts = f" · {console.number(len(outages), 'run')} · {duration(time.monotonic() - started)} · seed {seed}"
        output_console().print(
            Text.assemble((plain(f"{info['name']} {tellings[0].variant['name']}"), "bold"), (facts, "dim"))
        )
        output_console().print(Text(plain(result.out), "dim"), soft_wrap=True)
    return 0 if all(one.observed for one in result.variants) else 1


async def plan(
    source: scenarios.Source, variant: str | None, overs: Sequence[str], settings: Mapping[str, str]
) -> tuple[ScenarioInfo, list[Telling]]:
    """The scenario, and a telling for each combination of values, all of them checked."""
    [info] = await scenarios.describe([(source, settings)])
    [telling] = runs.choose(info, [variant or info["compared"]])
    axes = [[(key, value) for value in values] for key, values in (values_over(over, info) for over in overs)]
    if twice := sorted({axis[0][0] for axis in axes if sum(other[0][0] == axis[0][0] for other in axes) > 1}):
        raise InputError(f"--over {twice[0]} is there twice")
    points = [dict(point) for point in itertools.product(*axes)]
    asked = [(source, {**settings, **point}) for point in points]
    described = await scenarios.describe(asked, [telling.label])
    tellings = []
    for point, said in zip(points, described, strict=True):
        [chosen] = runs.choose(said, [telling.label])
        tellings.append(
            Telling(info["name"], ",".join(f"{key}={value}" for key, value in point.items()), chosen.variant)
        )
    return info, tellings


def values_over(over: str, info: ScenarioInfo) -> tuple[str, list[str]]:
    """A parameter and the values that the user named, or all that its schema has."""
    key, equals, named = over.partition("=")
    properties = info["parameters"].get("properties", {})
    if key not in properties:
        raise InputError(
            f"--over: there is no parameter {key!r}", hint=f"Parameters: {', '.join(properties) or 'none'}."
        )
    values = [value.strip() for value in named.split(",") if value.strip()]
    schema = properties[key]
    if not values and not equals:
        values = ["false", "true"] if schema.get("type") == "boolean" else list(map(str, schema.get("enum", ())))
    if not values:
        raise InputError(
            f"--over {key}: name its values", hint=f"For example --over {key}={schema.get('default', 1)},…"
        )
    for value in values:
        if "/" in value:
            raise InputError(f"--over {key}: {value!r} cannot be one of the values: each has a directory of its name")
        if values.count(value) > 1:
            raise InputError(f"--over {key}: {value} is there twice")
    return key, values


def values_of(label: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in label.split(","))


def events(file: Path) -> list[Event]:
    """Those of a run that came to its end; none of one that did not."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def outage_s(story: Iterable[Event]) -> float | None:
    """Seconds from the begin of the first request of a user that failed to the end of the next that worked; None if
    there is no such, 0 if none failed."""
    began: float | None = None
    for event in story:
        if event["kind"] not in ("completion", "connect"):
            continue
        worked = event["data"].get("status") == "SUCCESS"
        if began is None and not worked:
            began = event["t"] / 1e9 - event["data"].get("elapsed_s", 0.0)
        elif began is not None and worked:
            return event["t"] / 1e9 - began
    return 0.0 if began is None else None


def report(screen: Console, results: Sequence[VariantResult], outages: Sequence[float | None]) -> None:
    wide = screen.width >= console.WIDE
    table = columns(*values_of(results[0].name), "users see", "outage", *(["evidence"] if wide else []))
    for result, outage in zip(results, outages, strict=True):
        lasted = "does not end" if outage is None else duration(outage) if outage else "none"
        table.add_row(
            *map(plain, values_of(result.name).values()),
            Text(result.observed or "nothing", console.OUTCOME.get(result.observed or "", "bold red")),
            lasted if result.observed else "",
            *([console.evidence_text(result.evidence)] if wide else []),
        )
    screen.print()
    screen.print(table)
    for result in results:
        if not result.observed:
            screen.print()
            screen.print(Text(f"{plain(result.name)} came to no observation:", "bold red"))
            for failure in result.failures:
                screen.print(Padding(Text(plain_lines(failure)), (0, 0, 0, 2)))
    screen.print()
