"""`testbed matrix`: a sweep of one variant and one seed, whose runs are in one run directory, with their outages."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import click
from rich.console import Console

from testbed.cli import completion_values, console, options, summary
from testbed.cli.output import json_option
from testbed.cli.progress import output_console
from testbed.cli.run_command import run_shown
from testbed.cli.scenario_list import columns
from testbed.cli.scenario_options import over_option, set_option, variant_option
from testbed.cli.sweep import sweep_table
from testbed.cli.sweep.planning import as_one_run, plan
from testbed.cli.words import duration, plain
from testbed.machine import scenarios
from testbed.machine.record import VariantResult
from testbed.protocol import EVENTS, Event, Observed, events
from testbed.records.event_reader import happened_ns, read


@click.command(
    help="""Run a variant of a scenario for each value of a parameter, and compare what users see.

    `--over profile` takes all switch profiles, `--over retry_cnt=1,3,6` the given values; several `--over` run every
    combination. The outage lasts from the first failed request, or the end of a job that died, to the end of the next
    successful one.

    Exit status: 0 every run has an observation, whichever it is; 1 a run has none, 2 wrong usage or input, 3 this
    machine cannot run it."""
)
@click.argument("name", metavar="SCENARIO", shell_complete=completion_values.scenarios)
@over_option("name", "A parameter and its values. Default: all its possible values.", required=True)
@variant_option("name", "Default: the scenario's variant for this, or its first.")
@set_option("name", "Set another parameter.")
@options.machine_options
@options.jobs_option
@json_option("Print one JSON object; outage_s is null if the outage did not end, or no request shows it.")
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
    [info] = asyncio.run(options.described([(source, {})]))
    info, planned = asyncio.run(plan(source, info, [on.seed], overs, [variant or info["compared"]], settings))
    [result], wall_s = run_shown([(source, info, as_one_run(info, planned))], on, jobs)
    variant, values = planned[0].variant["name"], [point.values for point in planned]
    outages = [outage(read(result.out / one.name / EVENTS), one.observed) for one in result.variants]
    if as_json:
        rows = [
            {"values": {**its}, "observed": one.observed, "outage_s": found.seconds, **asdict(one)}
            for its, one, found in zip(values, result.variants, outages, strict=True)
        ]
        click.echo(json.dumps({**result.json(), "variant": variant, "variants": rows}))
    else:
        report(output_console(), values, result.variants, outages)
        facts = f" · {summary.number(len(outages), 'run')} · {duration(wall_s)} · seed {on.seed}"
        summary.end(output_console(), f"{info['name']} {variant}", (), facts, result.out)
    return 0 if all(one.observed for one in result.variants) else 1


@dataclass(frozen=True)
class Outage:
    """An outage. `seconds` is None if it did not end, or if users notice a fault and no request of theirs failed."""

    seconds: float | None
    text: str


def outage(found: Iterable[Event], observed: Observed | None) -> Outage:
    """Measure from the first failed request's begin, or a failed job's end, to the end of one that worked."""
    began: float | None = None
    for event in found:
        worked = request_worked(event)
        if began is None and worked is False:
            done = events.COMPLETION.of(event)
            began = ended_s(event) - (done.elapsed_s if done else 0.0)
        elif began is not None and worked:
            lasted = ended_s(event) - began
            return Outage(lasted, duration(lasted))
    if began is not None:
        return Outage(None, "does not end")
    return Outage(0.0, "none") if observed == "healthy" else Outage(None, "no request failed")


def ended_s(event: Event) -> float:
    """Return the time at which a request ended; a late check of its completion reports it later."""
    return happened_ns(event) / 1e9


def request_worked(event: Event) -> bool | None:
    """Return whether a user's request or job came to a good end, None for an event that is no such end."""
    match events.read(event):
        case events.Completion(status=status):
            return status == "SUCCESS"
        case events.Job(ok=ok):
            return ok
        case data:
            return False if data and data.kind is events.CONNECT else None


def report(
    screen: Console, values: Sequence[Mapping[str, str]], results: Sequence[VariantResult], outages: Sequence[Outage]
) -> None:
    figures = names_of_figures(results)
    wide = screen.width >= summary.WIDE and not figures
    shown = columns(*values[0], "users see", "outage", *(["evidence"] if wide else []))
    for its, result, found in zip(values, results, outages, strict=True):
        shown.add_row(
            *map(plain, its.values()),
            sweep_table.observations({result.observed or sweep_table.NOTHING: 1}),
            found.text if result.observed else "",
            *([console.evidence_text(result.evidence)] if wide else []),
        )
    screen.print()
    screen.print(shown)
    if figures:
        # One word of a name on each line: many columns share 80 characters.
        below = columns(*values[0], *(console.evidence_item(name, 0)[0].replace(" ", "\n") for name in figures))
        below.padding = (0, 1, 0, 0)
        for its, result in zip(values, results, strict=True):
            cells = (console.evidence_item(name, result.evidence[name])[1] for name in figures)
            below.add_row(*map(plain, its.values()), *cells)
        screen.print()
        screen.print(below)
    elif not wide:
        named = (" ".join(its.values()) for its in values)
        screen.print()
        screen.print(summary.evidence_below(zip(named, results, strict=True)))
    for result in results:
        if not result.observed:
            summary.show_failures(screen, f"{plain(result.name)} has no observation:", result)
    screen.print()


def names_of_figures(results: Sequence[VariantResult]) -> list[str]:
    """Return the names of the evidence, if every run has numbers by the same names, for a column each."""
    names = list(results[0].evidence)
    numbers = all(type(value) in (int, float) for one in results for value in one.evidence.values())
    return names if numbers and all(list(one.evidence) == names for one in results) else []
