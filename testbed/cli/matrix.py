"""`testbed matrix`: one variant for each value of a parameter."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import click
from rich.console import Console
from rich.text import Text

from testbed.cli import completing, console, options, summary
from testbed.cli.catalogue import columns
from testbed.cli.output import json_option
from testbed.cli.over import combinations
from testbed.cli.progress import output_console
from testbed.cli.run import run_shown
from testbed.cli.scenario_options import over_option, set_option, variant_option
from testbed.cli.words import duration, plain
from testbed.errors import InputError
from testbed.machine import runs, scenarios
from testbed.machine.record import VariantResult
from testbed.machine.runs import LONGEST_S, VariantRun
from testbed.protocol import EVENTS, Event, Observed, ScenarioInfo
from testbed.records.events import happened_ns, read


@click.command(
    help="""Run a variant of a scenario for each value of a parameter, and compare what users see.

    `--over profile` takes all switch profiles, `--over retry_cnt=1,3,6` the values that are named; with several
    `--over` every combination is run. The outage lasts from the first request that failed, or the end of a job that
    died, to the end of the next one that worked.

    Exit status: 0 users saw something in every run, whatever it was; 1 not, 2 wrong usage or input, 3 this machine
    cannot run it."""
)
@click.argument("name", metavar="SCENARIO", shell_complete=completing.scenarios)
@over_option("name", "A parameter and its values. Without values all that it can have.", required=True)
@variant_option("name", "Default: the one the scenario names for this, or its first.")
@set_option("name", "Set another parameter.")
@options.machine_options
@options.jobs_option
@json_option("Print one JSON object; outage_s is null if it did not end, or no request shows it.")
def matrix(
    name: str,
    overs: tuple[str, ...],
    variant: str | None,
    settings: dict[str, str],
    on: options.MachineOptions,
    jobs: int | None,
    as_json: bool,
) -> int:
    source = scenarios.resolve(name)
    info, variant_runs = asyncio.run(plan(source, variant, overs, settings))
    [result], wall_s = run_shown([(source, info, variant_runs)], on, jobs)
    outages = [outage(read(result.out / one.name / EVENTS), one.observed) for one in result.variants]
    if as_json:
        rows = [
            {"values": values_of(one.name), "observed": one.observed, "outage_s": found.seconds, **asdict(one)}
            for one, found in zip(result.variants, outages, strict=True)
        ]
        click.echo(json.dumps({**result.json(), "variant": variant_runs[0].variant["name"], "variants": rows}))
    else:
        report(output_console(), result.variants, outages)
        facts = f" · {summary.number(len(outages), 'run')} · {duration(wall_s)} · seed {on.seed}"
        name = plain(f"{info['name']} {variant_runs[0].variant['name']}")
        output_console().print(Text.assemble((name, "bold"), (facts, "dim")))
        output_console().print(Text(plain(result.out), "dim"), soft_wrap=True)
    return 0 if all(one.observed for one in result.variants) else 1


async def plan(
    source: scenarios.Source, variant: str | None, overs: Sequence[str], settings: Mapping[str, str]
) -> tuple[ScenarioInfo, list[VariantRun]]:
    """The scenario, and a variant_run for each combination of values, all of them checked."""
    [info] = await scenarios.describe([(source, settings)])
    [variant_run] = runs.choose(info, [variant or info["compared"]])
    points = combinations(overs, info)
    for key, value in (item for point in points for item in point.items() if "/" in item[1]):
        raise InputError(f"--over {key}: {value!r} cannot be one of the values: each has a directory of its name")
    asked = [(source, {**settings, **point}) for point in points]
    described = await scenarios.describe(asked, [variant_run.label])
    labels = [",".join(f"{key}={value}" for key, value in point.items()) for point in points]
    chosen = [runs.choose(found, [variant_run.label])[0].variant for found in described]
    return info, [VariantRun(info["name"], *one) for one in zip(labels, chosen, strict=True)]


def values_of(label: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in label.split(","))


@dataclass(frozen=True)
class Outage:
    """`seconds` is None where it did not end, and where users see a fault and none of their requests failed."""

    seconds: float | None
    text: str


def outage(events: Iterable[Event], observed: Observed | None) -> Outage:
    """From the begin of the first request that failed, or the end of a job that did, to the end of one that worked."""
    began: float | None = None
    for event in events:
        worked = request_worked(event)
        if began is None and worked is False:
            elapsed = event["data"].get("elapsed_s")
            took = elapsed if isinstance(elapsed, float) and 0 <= elapsed < LONGEST_S else 0.0
            began = ended_s(event) - took
        elif began is not None and worked:
            lasted = ended_s(event) - began
            return Outage(lasted, duration(lasted))
    if began is not None:
        return Outage(None, "does not end")
    return Outage(0.0, "none") if observed == "healthy" else Outage(None, "no request failed")


def ended_s(event: Event) -> float:
    """The time at which a request ended; one that was looked at late was reported later."""
    return happened_ns(event) / 1e9


def request_worked(event: Event) -> bool | None:
    """Whether a user's request or job came to a good end; None of an event that is no such end."""
    if event["kind"] in ("completion", "connect"):
        return event["data"].get("status") == "SUCCESS"
    if event["kind"] == "job" and "ok" in event["data"]:
        return bool(event["data"]["ok"])
    return None


def report(screen: Console, results: Sequence[VariantResult], outages: Sequence[Outage]) -> None:
    keys, figures = list(values_of(results[0].name)), names_of_figures(results)
    wide = screen.width >= summary.WIDE and not figures
    table = columns(*keys, "users see", "outage", *(["evidence"] if wide else []))
    for result, found in zip(results, outages, strict=True):
        table.add_row(
            *map(plain, values_of(result.name).values()),
            Text(result.observed or "nothing", console.OUTCOME.get(result.observed or "", "bold red")),
            found.text if result.observed else "",
            *([console.evidence_text(result.evidence)] if wide else []),
        )
    screen.print()
    screen.print(table)
    if figures:
        # A word of a name on each line: many columns are beside each other on 80 characters.
        below = columns(*keys, *(console.evidence_item(name, 0)[0].replace(" ", "\n") for name in figures))
        below.padding = (0, 1, 0, 0)
        for result in results:
            cells = (console.evidence_item(name, result.evidence[name])[1] for name in figures)
            below.add_row(*map(plain, values_of(result.name).values()), *cells)
        screen.print()
        screen.print(below)
    elif not wide:
        screen.print()
        screen.print(summary.evidence_below((" ".join(values_of(one.name).values()), one) for one in results))
    for result in results:
        if not result.observed:
            summary.show_failures(screen, f"{plain(result.name)} came to no observation:", result)
    screen.print()


def names_of_figures(results: Sequence[VariantResult]) -> list[str]:
    """The names of the evidence, if every run has numbers by the same names: a column for each is read best."""
    names = list(results[0].evidence)
    numbers = all(type(value) in (int, float) for one in results for value in one.evidence.values())
    return names if numbers and all(list(one.evidence) == names for one in results) else []
