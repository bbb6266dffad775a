"""`testbed rerun`: a run repeated from its directory, and compared with it."""

import asyncio
import itertools
import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import click
from rich.padding import Padding
from rich.text import Text

from testbed.cli import options, summary
from testbed.cli.output import json_option
from testbed.cli.progress import output_console
from testbed.cli.run_command import run_shown
from testbed.cli.scenario_options import out_option
from testbed.cli.words import plain
from testbed.errors import InputError
from testbed.machine import questions, record, runs, snapshot
from testbed.machine.record import WORDS, RunResult, VariantResult
from testbed.machine.runs import VariantRun
from testbed.machine.scenarios import Source
from testbed.protocol import EVENTS, ScenarioInfo

Differences = dict[str, tuple[Any, Any]]
"""Differences in the inputs of a run: then and now, by the keys of `WORDS`."""
DEFECT = "None of the run's inputs differ: this is a defect of testbed. Please report it with both directories."


@click.command(
    help="""Repeat a run from its directory, and compare the traces.

    DIR is a run directory, such as runs/ip-reuse/latest, or a copy of one. Scenario files, parameters, seed, clock and
    machine come from the directory. If the traces differ, it shows the first event that differs, and the inputs of the
    run that differ: the image, QEMU, testbed's code.

    Exit status: 0 the same trace, 1 another trace, 2 wrong usage, no run directory or a damaged one, 3 this machine
    cannot run it."""
)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--variant", "named", metavar="NAME", multiple=True, help="Only this variant; may be repeated.")
@click.option(
    "--machine",
    "machine",
    type=click.Choice(["vm", "local"]),
    default="vm",
    show_default=True,
    help="local: yes, run the code of a run on this very kernel, as the run was.",
)
@out_option
@options.jobs_option
@json_option()
def rerun(directory: Path, named: tuple[str, ...], machine: str, out: Path, jobs: int | None, as_json: bool) -> int:
    if directory.is_symlink():
        directory = directory.parent / directory.readlink()  # `latest` is another one as soon as this run begins
    then = record.load(directory)
    chosen_records = choose(then, named, directory)
    if then.machine != machine:
        refuse(then, directory)
    questions.ON_THIS_KERNEL.set(machine == "local")
    source = record.source_of(then, directory)
    info, variant_runs = asyncio.run(plan(source, then, chosen_records))
    on = options.MachineOptions(then.seed, then.clock, then.machine, out)
    [result], _ = run_shown([(source, info, variant_runs)], on, jobs)
    differ = record.differences(then.made_from, result.made_from)
    compared = [
        compare(directory, result, one, other) for one, other in zip(chosen_records, result.variants, strict=True)
    ]
    if as_json:
        found = {
            "rerun_of": str(directory),
            "same": all(one.same for one in compared),
            "differs": as_json_differences(differ),
            "variants": [one.json() for one in compared],
            "run": result.json(),
        }
        click.echo(json.dumps(found))
    else:
        report(directory, result, then, differ, compared)
    return 0 if all(one.same for one in compared) else 1


def refuse(then: RunResult, directory: Path) -> NoReturn:
    """Refuse to run code as root only because a directory says that it was so before, or on another machine."""
    if then.machine == "local":
        hint = "Do you know the scenario in it? Then add --machine local."
        text = "was run on a machine's own kernel: its code would run here as root"
        raise InputError(text, where=str(directory), hint=hint)
    raise click.UsageError("the run was in a micro-VM: leave out --machine local")


def choose(then: RunResult, named: Sequence[str], directory: Path) -> list[VariantResult]:
    """Return the variants to repeat: the named ones, or all."""
    names = [variant.name for variant in then.variants]
    for name in named:
        if name not in names:
            hint = f"It had: {', '.join(names)}."
            raise InputError(f"the run had no variant {name!r}", where=str(directory), hint=hint)
    return [variant for variant in then.variants if not named or variant.name in named]


async def plan(
    source: Source, then: RunResult, variants: Sequence[VariantResult]
) -> tuple[ScenarioInfo, list[VariantRun]]:
    """Return the variants to run: the recorded ones, with the recorded settings."""
    try:
        [info] = await options.described([(source, {})])
        variant_runs = []
        for one in variants:
            [variant_run] = runs.choose(info, [one.variant])
            if variant_run.variant["settings"] != one.settings:
                [its] = await options.described([(source, one.settings)], [one.variant])
                [variant_run] = runs.choose(its, [one.variant])
            variant_runs.append(VariantRun(info["name"], one.name, variant_run.variant, one.without_faults))
    except InputError as error:
        if then.made_from.code != snapshot.code_digest():
            error.hint = f"Other code of testbed {then.made_from.testbed} made the run. {error.hint}".strip()
        raise
    return info, variant_runs


@dataclass(frozen=True)
class Comparison:
    """A variant then and now. `first` is the first line of events.jsonl that differs, if both have such a file."""

    then: VariantResult
    now: VariantResult
    differ: Differences
    first: tuple[str, str] | None

    @property
    def same(self) -> bool:
        """Return whether both are equal. A variant that ended without a trace then cannot be compared."""
        return bool(self.then.trace) and self.then.trace == self.now.trace

    def json(self) -> dict[str, Any]:
        return {
            "name": self.then.name,
            "same": self.same,
            "trace": {"then": self.then.trace, "now": self.now.trace},
            "observed": {"then": self.then.observed, "now": self.now.observed},
            "differs": as_json_differences(self.differ),
            "first_difference": self.first and dict(zip(("then", "now"), self.first, strict=True)),
        }


def compare(directory: Path, result: RunResult, then: VariantResult, now: VariantResult) -> Comparison:
    logs = [place / then.name / EVENTS for place in (directory, result.out)]
    first = first_difference(*logs) if all(log.is_file() for log in logs) else None
    return Comparison(then, now, record.differences(then, now), first)


def first_difference(one: Path, other: Path) -> tuple[str, str] | None:
    """Return the first line of two files that differs, empty where one has ended."""
    with one.open(errors="replace") as left, other.open(errors="replace") as right:
        for pair in itertools.zip_longest(left, right, fillvalue=""):
            if pair[0] != pair[1]:
                return pair[0].rstrip("\n"), pair[1].rstrip("\n")
    return None


def as_json_differences(differ: Differences) -> dict[str, dict[str, Any]]:
    return {key: {"then": then, "now": now} for key, (then, now) in differ.items()}


def report(
    directory: Path, result: RunResult, then: RunResult, differ: Differences, compared: Sequence[Comparison]
) -> None:
    """Print a line for each variant, the differences, and the verdict."""
    screen = output_console()
    screen.print()
    for one in compared:
        mark = ("✓", "bold green") if one.same else ("✗", "bold red")
        screen.print(Text.assemble(mark, f" {plain(one.then.name)}: ", sentence(one)), soft_wrap=True)
        for label, line in zip(("then", "now"), one.first or (), strict=False):
            screen.print(Padding(Text(f"{label}: {plain(line) or 'nothing more'}", "dim"), (0, 0, 0, 2)))
    same = all(one.same for one in compared)
    if not same:
        screen.print()
        for line in reasons(then, differ, compared):
            screen.print(Text(plain(line)), soft_wrap=True)
        if any(one.first for one in compared):
            command = shlex.join(["testbed", "diff", str(directory), str(result.out)])
            screen.print(Text(f"See the events around it: {plain(command)}"), soft_wrap=True)
    screen.print()
    verdict = ("the same trace", "bold green") if same else ("not the same trace", "bold red")
    facts = f" · {summary.number(len(compared), 'variant')} · seed {result.seed}"
    screen.print(Text.assemble((plain(result.scenario), "bold"), ": ", verdict, (facts, "dim")))
    screen.print(Text(plain(result.out), "dim"), soft_wrap=True)


def sentence(one: Comparison) -> str:
    if one.same:
        return f"the same trace, {one.now.trace[:12]}"
    if not one.then.trace:
        return "the run ended without a trace: nothing to compare"
    if not one.now.trace:
        return f"no trace: {plain(one.now.failures[0] if one.now.failures else 'it did not end')}"
    return f"trace {one.now.trace[:12]}, then {plain(one.then.trace)[:12]}; the first events that differ:"


def reasons(then: RunResult, differ: Differences, compared: Sequence[Comparison]) -> Iterator[str]:
    """Yield lines on inputs of the run that differ from the recorded run."""
    if then.clock == "real":
        yield "On the real clock no two runs have the same trace."
    for key, (old, new) in differ.items():
        yield f"different: {WORDS[key]}: {record.short(old)} then, {record.short(new)} now"
    for one in compared:
        for key, (old, new) in one.differ.items():
            yield f"different: {WORDS[key]} of {one.then.name}: {record.short(old)} then, {record.short(new)} now"
    if then.clock == "virtual" and not differ and all(one.then.trace and not one.differ for one in compared):
        yield DEFECT
