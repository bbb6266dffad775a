"""`testbed run`: scenarios on machines, shown as they run."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from testbed.cli import completing, console, options, summary
from testbed.cli import junit as reports
from testbed.cli.catalogue import with_tag
from testbed.cli.output import json_option
from testbed.cli.progress import error_console, output_console
from testbed.cli.words import noted, setting
from testbed.machine import runs, scenarios
from testbed.machine.jobs import Machine
from testbed.machine.record import RunResult
from testbed.machine.runs import Listener, VariantRun
from testbed.machine.scenarios import Source
from testbed.protocol import Clock, ScenarioInfo

Task = tuple[Source, ScenarioInfo, list[VariantRun]]


def split_setting(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for value in values:
        key, equals, chosen = value.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{value!r} is not of the form KEY=VALUE")
        settings[key.strip()] = chosen.strip()
    return settings


@click.command(
    help="""Run scenarios and report whether they went as expected.

    SCENARIO is a name of `testbed list`, or the path of a scenario.py or of a directory with one.

    Progress goes to standard error, the table of variants to standard output. Exit status: 0 every variant as expected,
    1 not, 2 wrong usage or input, 3 this machine cannot run it."""
)
@click.argument("names", metavar="SCENARIO...", nargs=-1, shell_complete=completing.scenarios)
@click.option("--tag", metavar="TAG", help="Every shipped scenario with this tag.")
@click.option(
    "--variant", "named", metavar="NAME", multiple=True, shell_complete=completing.variants("names"),
    help="Only this variant; may be repeated.",
)  # fmt: skip
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, callback=split_setting,
    shell_complete=completing.parameters("names"),
    help="Replace a parameter's default; may be repeated. What a variant sets itself stays, unless --variant names it.",
)  # fmt: skip
@click.option(
    "--topology", type=click.Path(path_type=Path), metavar="FILE",
    help="Another topology file for the scenario. It must have the nodes and ends of links that the scenario names.",
)  # fmt: skip
@options.machine_options
@options.jobs_option
@json_option("Print one JSON object; for several scenarios an array of them.")
@click.option(
    "--junit", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a JUnit XML report, too."
)
def run(
    names: tuple[str, ...],
    tag: str | None,
    named: tuple[str, ...],
    settings: dict[str, str],
    topology: Path | None,
    seed: int,
    clock: Clock | None,
    machine_name: str,
    out: Path,
    jobs: int | None,
    as_json: bool,
    junit: Path | None,
) -> int:
    tasks = asyncio.run(plan(names, tag, named, settings, topology))
    if junit:
        reports.require_place(junit)
    lines = [*(noted(note) for _, info, _ in tasks for note in info["notes"]), *kept(tasks, settings)]
    results, wall_s = run_shown(tasks, machine_name, clock, seed, jobs, out, lines)
    if junit:
        reports.write(results, junit)
    if as_json:
        found = [result.json() for result in results]
        click.echo(json.dumps(found[0] if len(found) == 1 else found))
    else:
        summary.report(output_console(), results, wall_s)
    return 0 if all(result.as_expected for result in results) else 1


def run_shown(
    tasks: Sequence[Task], machine_name: str, clock: Clock | None, seed: int, jobs: int | None, out: Path,
    lines: Iterable[str] = (),
) -> tuple[list[RunResult], float]:  # fmt: skip
    """Run the variants, shown on standard error, where `lines` come first; the results, and the wall seconds."""
    with console.RunConsole(error_console(), [one for _, _, variant_runs in tasks for one in variant_runs]) as shown:
        for line in lines:
            shown.log(line)
        machine = options.choose(machine_name, clock, shown.log)
        started = time.monotonic()
        results = asyncio.run(run_all(tasks, seed, machine, options.jobs_for(machine, jobs), out, shown))
        return results, time.monotonic() - started


async def run_all(
    tasks: Sequence[Task], seed: int, machine: Machine, jobs: int, out: Path, listener: Listener
) -> list[RunResult]:
    """The variants of all scenarios, side by side."""
    free = asyncio.Semaphore(jobs)
    equipped = [await options.equip(machine, info["packages"]) for _, info, _ in tasks]
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(
                runs.run(source, info, chosen, seed, its, runs.run_directory(out, info["name"]), listener, free)
            )
            for (source, info, chosen), its in zip(tasks, equipped, strict=True)
        ]
    return [task.result() for task in running]


async def plan(
    names: Sequence[str], tag: str | None, named: Sequence[str], settings: dict[str, str], topology: Path | None
) -> list[Task]:
    """Resolve the scenarios, with every name and setting checked before a machine is started."""
    if not names and not tag:
        raise click.UsageError("name a scenario; `testbed list` shows them")
    sources = [scenarios.resolve(name) for name in names]
    if tag:
        infos = await scenarios.describe([(source, {}) for source in scenarios.shipped()])
        tagged = {info["name"] for info in with_tag(infos, tag)} - set(names)
        sources += [source for source in scenarios.shipped() if source.name in tagged]
    if topology is not None:
        if len(sources) != 1:
            raise click.UsageError("--topology is for one scenario")
        sources = [replace(sources[0], topology=topology)]
    described = await scenarios.describe([(source, settings) for source in sources], named)
    return [(source, info, runs.choose(info, named)) for source, info in zip(sources, described, strict=True)]


def kept(tasks: Sequence[Task], settings: dict[str, str]) -> Iterator[str]:
    """Lines on settings of the user's that do not count."""
    for variant_run in (one for _, _, variant_runs in tasks for one in variant_runs):
        found = variant_run.variant["settings"]
        if own := [f"{key}={setting(found[key])}" for key, value in settings.items() if found[key] != value]:
            yield f"{variant_run.label} keeps its own {', '.join(own)}"
