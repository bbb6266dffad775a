"""`testbed run`: scenarios on machines, shown as they run."""

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from testbed.cli import completion_values, console, options, summary
from testbed.cli import junit as reports
from testbed.cli.live.live_options import metrics_option
from testbed.cli.output import json_option
from testbed.cli.progress import error_console, output_console
from testbed.cli.scenario_list import with_tag
from testbed.cli.scenario_options import set_option, variants_option
from testbed.cli.words import noted, setting
from testbed.machine import containers, making, runs, scenarios
from testbed.machine.jobs import Machine
from testbed.machine.record import RunResult
from testbed.machine.runs import Listener, VariantRun
from testbed.machine.scenarios import Source
from testbed.machine.slots import Slots
from testbed.machine.task_group import TaskGroup
from testbed.machine.vm import VirtualMachine
from testbed.protocol import ScenarioInfo

Task = tuple[Source, ScenarioInfo, list[VariantRun]]


@click.command(
    help="""Run scenarios and report whether they went as expected.

    SCENARIO is a name of `testbed list`, or the path of a scenario.py or of a directory with one.

    Progress goes to standard error, the table of variants to standard output. Exit status: 0 every variant as expected,
    1 not as expected, 2 wrong usage or input, 3 this machine cannot run it."""
)
@click.argument("names", metavar="SCENARIO...", nargs=-1, shell_complete=completion_values.scenarios)
@click.option("--tag", metavar="TAG", help="Run every shipped scenario with this tag.")
@variants_option("names")
@set_option("names")
@click.option(
    "--topology",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Another topology file for the scenario. It must have the nodes and link ends that the scenario names.",
)
@options.machine_options
@click.option(
    "--keep-steps",
    is_flag=True,
    help="Keep the machine's state at each step, for `testbed back`: 10 to 30 MB each. Virtual clock only.",
)
@click.option(
    "--stop-at",
    "stop",
    metavar="WHERE",
    default="",
    help="Stop one variant at a step (its number or a part of its text), at `fault`, `first-failure` or `T=12.5s`, as "
    "a live lab to inspect; `testbed continue` continues. Virtual clock only.",
)
@metrics_option
@click.option(
    "--without-fault",
    "without",
    type=click.IntRange(1),
    metavar="N",
    multiple=True,
    help="Leave out the N-th fault that the scenario injects; may be repeated. `testbed shrink` finds faults that do "
    "not matter.",
)
@options.jobs_option
@json_option("Print one JSON object; for several scenarios an array of them.")
@options.junit_option
def run(
    names: tuple[str, ...],
    tag: str | None,
    variants: tuple[str, ...],
    settings: dict[str, str],
    topology: Path | None,
    on: options.MachineOptions,
    keep_steps: bool,
    stop: str,
    metrics: int | None,
    without: tuple[int, ...],
    jobs: int | None,
    as_json: bool,
    junit: Path | None,
) -> int:
    ahead = on.machine != "local" and on.clock != "real" and not stop
    run_in = click.get_current_context().with_resource(making.event_loop(ahead=ahead))
    tasks = run_in(plan(names, tag, variants, settings, topology))
    if junit:
        reports.require_place(junit)
    lines = [*(noted(note) for _, info, _ in tasks for note in info["notes"]), *kept(tasks, settings)]
    if (keep_steps or stop or metrics is not None) and (on.machine == "local" or on.clock == "real"):
        raise click.UsageError("--keep-steps, --stop-at and --metrics are for the virtual clock")
    lives = "--stop-at" if stop else "--metrics" if metrics is not None else ""
    if lives and keep_steps:
        raise click.UsageError(f"--keep-steps and {lives} exclude each other: leave one out")
    if lives and without:
        raise click.UsageError(f"--without-fault and {lives} exclude each other: leave one out")
    tasks = [(source, info, [replace(one, without_faults=without) for one in its]) for source, info, its in tasks]
    if lives:
        from testbed.cli.live import stopping

        source, info, chosen = tasks[0]
        if len(tasks) > 1 or len(chosen) > 1:
            labels = ", ".join(one.label for one in chosen)
            raise click.UsageError(f"{lives} is for one variant: add --variant with one of {labels}")
        return stopping.run(source, info, chosen[0], on, stop, metrics, as_json=as_json)
    results, wall_s = run_shown(tasks, on, jobs, lines, keep_steps=keep_steps, run_in=run_in)
    if junit:
        reports.write(results, junit)
    if as_json:
        found = [result.json() for result in results]
        click.echo(json.dumps(found[0] if len(found) == 1 else found))
    else:
        summary.report(output_console(), results, wall_s)
    return 0 if all(result.as_expected for result in results) else 1


def run_shown(
    tasks: Sequence[Task],
    on: options.MachineOptions,
    jobs: int | None,
    lines: Iterable[str] = (),
    *,
    keep_steps: bool = False,
    run_in: Callable[[Coroutine[Any, Any, list[RunResult]]], list[RunResult]] = asyncio.run,
) -> tuple[list[RunResult], float]:
    """Run the variants, shown on standard error, where `lines` come first. Return the results and the wall seconds."""
    with console.RunConsole(error_console(), [one for _, _, variant_runs in tasks for one in variant_runs]) as shown:
        for line in lines:
            shown.log(line)
        machine = options.choose(on.machine, on.clock, shown.log)
        if isinstance(machine, VirtualMachine):
            machine.keep_steps = keep_steps
        started = time.monotonic()
        results = run_in(run_all(tasks, on.seed, machine, options.jobs_for(machine, jobs), on.out, shown))
        return results, time.monotonic() - started


async def run_all(
    tasks: Sequence[Task], seed: int, machine: Machine, jobs: int, out: Path, listener: Listener
) -> list[RunResult]:
    """Run the variants of all scenarios, side by side, with a report of each and, of several, an index."""
    slots = Slots(jobs)
    equipped = [await options.equip(machine, info["packages"], info["images"]) for _, info, _ in tasks]

    async def one(task: Task, its: Machine) -> RunResult:
        source, info, chosen = task
        directory = runs.run_directory(out, info["name"])
        result = await runs.run(source, info, chosen, seed, its, directory, listener, slots)
        await asyncio.to_thread(summary.write_report, directory)
        runs.explain(directory, info["name"])
        return result

    async with TaskGroup() as group:
        group.create_task(asyncio.to_thread(summary.load_reports))
        running = [group.create_task(one(task, its)) for task, its in zip(tasks, equipped, strict=True)]
    if len(tasks) > 1:
        from testbed.report import write_index

        write_index(out)
    return [task.result() for task in running]


async def plan(
    names: Sequence[str], tag: str | None, named: Sequence[str], settings: dict[str, str], topology: Path | None
) -> list[Task]:
    """Resolve the scenarios; check every name and setting before a machine is started."""
    if not names and not tag:
        raise click.UsageError("name a scenario; `testbed list` shows them")
    sources = [scenarios.resolve(name) for name in names]
    if tag:
        every = [*scenarios.shipped(), *scenarios.own()]
        infos = await scenarios.describe([(source, {}) for source in every])
        tagged = {info["name"] for info in with_tag(infos, tag)} - set(names)
        sources += [source for source in every if source.name in tagged]
    if topology is not None:
        if len(sources) != 1:
            raise click.UsageError("--topology is for one scenario")
        sources = [replace(sources[0], topology=topology)]
    described = await options.described([(source, settings) for source in sources], named)
    for info in described:
        containers.find(info["images"])
    return [(source, info, runs.choose(info, named)) for source, info in zip(sources, described, strict=True)]


def kept(tasks: Sequence[Task], settings: dict[str, str]) -> Iterator[str]:
    """Yield lines on settings of the user's that have no effect."""
    for variant_run in (one for _, _, variant_runs in tasks for one in variant_runs):
        found = variant_run.variant["settings"]
        if own := [f"{key}={setting(found[key])}" for key, value in settings.items() if found[key] != value]:
            yield f"variant {variant_run.label} sets {', '.join(own)} itself: --set does not change it"
