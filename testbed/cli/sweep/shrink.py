"""`testbed shrink`: the fewest settings and faults with which a run still fails in the same way."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from testbed.cli import completion_values, options, summary
from testbed.cli.output import json_option
from testbed.cli.progress import error_console, output_console
from testbed.cli.scenario_list import columns
from testbed.cli.scenario_options import out_option, set_option, variant_option
from testbed.cli.sweep.sweep_command import keep
from testbed.cli.sweep.sweep_table import Remarks
from testbed.cli.words import plain, plain_lines
from testbed.errors import InputError
from testbed.machine import child_processes, record, runs, scenarios
from testbed.machine.record import RunResult
from testbed.machine.scenarios import Source
from testbed.machine.sweeps import points
from testbed.machine.sweeps.attempts import Attempts, InjectedFault, Part, Setting, Shrunk
from testbed.machine.sweeps.points import SCRATCH, Work
from testbed.protocol import RESULT


@click.command(
    help="""Find the fewest settings and faults with which a run still fails in the same way.

    RUN is a run directory with an unexpected variant, or a SCENARIO as for `testbed run`, with the options that make it
    fail. It leaves out settings, so they return to their defaults; for a number that matters it searches the value
    nearest to the default. It leaves out faults that the scenario injects. A run fails in the same way if users see the
    same and the same expectations do not hold. The smallest run keeps its run directory.

    Exit status: 0 it was shrunk or cannot be, 2 wrong usage or input, or a run as expected, 3 this machine cannot run
    it."""
)
@click.argument("name", metavar="RUN|SCENARIO", shell_complete=completion_values.scenarios)
@variant_option("name", "The variant that fails. Default: the only one of a run directory.")
@set_option("name", "For a scenario: set a parameter; may be repeated.")
@click.option("--seed", type=click.IntRange(0), help="For a scenario: the seed. Default: 1.")
@out_option
@options.jobs_option
@json_option()
def shrink(
    name: str,
    variant: str | None,
    settings: dict[str, str],
    seed: int | None,
    out: Path,
    jobs: int | None,
    as_json: bool,
) -> int:
    if (Path(name) / RESULT).is_file():
        if settings or seed is not None:
            raise click.UsageError("--set and --seed are for a scenario: a run directory has its own values")
        failing = asyncio.run(of_directory(Path(name), variant))
    else:
        failing = asyncio.run(of_scenario(name, variant, settings, 1 if seed is None else seed))
    remarks = Remarks(error_console())
    machine = options.choose("vm", "virtual", remarks.once)
    machine = asyncio.run(options.equip(machine, failing.work.info["packages"], failing.work.info["images"]))
    parent = out / failing.work.info["name"]
    parent.mkdir(parents=True, exist_ok=True)
    with child_processes.scratch(parent, SCRATCH) as scratch:
        at_once = options.jobs_for(machine, jobs)
        attempts = Attempts(failing.work, failing.variant, failing.seed, machine, at_once, scratch, remarks.log)
        found = asyncio.run(attempts.shrink(failing.given, failing.without_faults))
        directory = keep(found.smallest, found.smallest.out, out)
    if as_json:
        click.echo(json.dumps(json_of(found, failing.scenario, directory)))
    else:
        show(output_console(), found, failing.scenario, directory)
    return 0


@dataclass(frozen=True)
class Failing:
    """A variant run to shrink. `scenario` is its name on the command line."""

    work: Work
    scenario: str
    variant: str
    seed: int
    given: list[Setting]
    without_faults: list[int]


async def of_scenario(name: str, named: str | None, settings: Mapping[str, str], seed: int) -> Failing:
    source = scenarios.resolve(name).taken()
    if named is None:
        [info] = await options.described([(source, {})])
        variants = ", ".join(one.label for one in runs.choose(info, []))
        raise click.UsageError(f"name the variant that fails: --variant with one of {variants}")
    info, checked = await options.described([(source, {}), (source, settings)], [named])
    runs.choose(checked, [named])
    return Failing(Work(source, info), name, named, seed, [Setting(*item) for item in settings.items()], [])


async def of_directory(directory: Path, named: str | None) -> Failing:
    then = record.load(directory)
    if then.clock != "virtual":
        raise InputError("a run on the real clock cannot be shrunk: no two are the same", where=str(directory))
    if then.made_from.given_program or then.made_from.given_topology:
        text = "a run with the user's own topology or script cannot be shrunk: its command does not name them"
        raise InputError(text, where=str(directory))
    unexpected = [one for one in then.variants if not one.as_expected]
    chosen = [one for one in unexpected if named in (None, one.name)]
    if len(chosen) != 1:
        names = ", ".join(one.name for one in unexpected) or "none"
        raise InputError("name one variant with an unexpected outcome", where=str(directory), hint=f"It has: {names}.")
    [one] = chosen
    source = record.source_of(then, directory)
    [info] = await options.described([(source, {})])
    [variant_run] = runs.choose(info, [one.variant])
    own = variant_run.variant["settings"]
    given = [Setting(*item) for item in one.settings.items() if item not in own.items()]
    scenario = name_of(then, source)
    return Failing(Work(source.taken(), info), scenario, one.variant, then.seed, given, [*one.without_faults])


def name_of(then: RunResult, source: Source) -> str:
    """Return the name of the scenario, if it is shipped and the same, or the path of the copy of its file."""
    for shipped in scenarios.shipped():
        if shipped.name == then.scenario and record.digests(shipped.files()) == dict(then.made_from.files):
            return shipped.name
    return str(source.file)


def command(found: Shrunk, scenario: str) -> str:
    """Return the command that repeats the smallest run."""
    given = {part.key: part.text for part in found.after if isinstance(part, Setting)}
    without = [word for number in found.without_faults for word in ("--without-fault", str(number))]
    return points.command(scenario, found.variant, given, found.seed, *without)


def end_of(part: Part, found: Shrunk) -> str | None:
    """Return a part as it is in the end, None if the run fails without it."""
    if isinstance(part, InjectedFault):
        return str(part) if part in found.after else None
    return next((str(one) for one in found.after if isinstance(one, Setting) and one.key == part.key), None)


def json_of(found: Shrunk, scenario: str, directory: Path) -> dict[str, Any]:
    return {
        "variant": found.variant,
        "seed": found.seed,
        "failures": [*found.failures],
        "parts": [
            {"part": str(part), "matters": (end := end_of(part, found)) is not None, "end": end}
            for part in found.before
        ],
        "tried": [{"parts": [*map(str, attempt.parts)], "same_failure": attempt.same} for attempt in found.tried],
        "settings": {part.key: part.text for part in found.after if isinstance(part, Setting)},
        "without_faults": found.without_faults,
        "command": command(found, scenario),
        "directory": str(directory),
    }


def show(screen: Console, found: Shrunk, scenario: str, directory: Path) -> None:
    screen.print()
    screen.print(Text(plain(f"Failure of {found.variant}, in each run below with the same failure:"), "bold"))
    for failure in found.failures:
        screen.print(Padding(Text(plain_lines(failure)), (0, 0, 0, 2)))
    screen.print()
    tried = columns("failure", "with")
    for attempt in found.tried:
        words = ", ".join(map(str, attempt.parts)) or "nothing set, no fault"
        tried.add_row(Text("the same", "bold") if attempt.same else Text("another, or none", "dim"), plain(words))
    screen.print(tried)
    if found.before:
        screen.print()
        parts = columns("setting or fault", "for this failure")
        for part in found.before:
            parts.add_row(plain(part), _words(part, found))
        screen.print(parts)
    screen.print()
    left, count = len(found.after), len(found.before)
    facts = f" · {summary.number(len(found.tried), 'run')} · seed {found.seed}"
    screen.print(Text.assemble((f"{left} of {count} settings and faults matter", "bold"), (facts, "dim")))
    screen.print(Text(f"Run it: {plain(command(found, scenario))}"), soft_wrap=True)
    screen.print(Text(plain(directory), "dim"), soft_wrap=True)


def _words(part: Part, found: Shrunk) -> Text:
    end = end_of(part, found)
    if end is None:
        return Text("does not matter", "dim")
    return Text("matters" if end == str(part) else f"matters; {plain(end)} is enough", "bold")
