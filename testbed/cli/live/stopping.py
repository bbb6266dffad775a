"""Runs that stop: `testbed run --stop-at`, `continue` and `back`."""

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from testbed.cli import console, options, summary
from testbed.cli.live.live_options import connect, format_option, lab_options, listening_at, print_json, then
from testbed.cli.live.up import end
from testbed.cli.progress import error_console, output_console
from testbed.cli.scenario_options import out_option
from testbed.cli.summary import write_report
from testbed.cli.words import clock
from testbed.documents.text import listing
from testbed.errors import InputError
from testbed.machine import moments, record, runs
from testbed.machine.files import reading
from testbed.machine.live import labs
from testbed.machine.live.connection import Connection
from testbed.machine.live.order import Order, start
from testbed.machine.live.stoppable import RunOrder
from testbed.machine.live.stops import Stop, names
from testbed.machine.moments import Moment
from testbed.machine.runs import VariantRun
from testbed.machine.scenarios import Source
from testbed.protocol import STEPS, ScenarioInfo, VariantInfo


def run(
    source: Source,
    info: ScenarioInfo,
    chosen: VariantRun,
    on: options.MachineOptions,
    stop: str,
    metrics: int | None,
    *,
    as_json: bool,
    show: Callable[[record.RunResult], None] | None = None,
) -> int:
    """Run a variant until it stops, or to its end; without `stop` to its end. `show` prints the result, as `testbed
    run` does by default. Exit status: 0 if it stopped."""
    if stop:
        Stop.of(stop)
    order = order_of(info["name"], source, chosen.label, chosen.variant, stop=stop)
    with begun(info["name"], order, info, on.seed, on.out, metrics) as connection:
        return follow(connection, {"control": "start"}, chosen, as_json=as_json, stop=stop, show=show)


def order_of(
    name: str,
    source: Source,
    label: str,
    variant: VariantInfo,
    *,
    stop: str = "",
    step: str | None = None,
    shares_lab: bool = False,
) -> RunOrder:
    topology = str(source.topology.resolve()) if source.topology else None
    program = str(source.program.resolve()) if source.program else None
    return RunOrder(name, str(source.file.resolve()), topology, label, variant, stop, step, program, shares_lab)


def begun(
    name: str,
    order: RunOrder,
    info: ScenarioInfo,
    seed: int,
    out: Path,
    metrics: int | None = None,
    *,
    attached: bool = False,
) -> Connection:
    """Start a keeper of the run, under a name that is free; `attached` to the connection, it ends with that. `latest`
    stays the run whose moment was kept."""
    labs.require_free(name)
    listening, address = listening_at(metrics)
    machine: Any = options.choose("vm", "virtual", lambda text: click.echo(f"… {text}", err=True))
    asyncio.run(options.equip(machine, info["packages"], info["images"]))
    directory = runs.run_directory(out, order.name, latest=not order.step).resolve()
    lab = labs.Lab.starting(name, f"{order.name} {order.label}", "virtual", seed, directory, address)
    needs = info["packages"], info["images"]
    whole = Order(lab, {}, {}, [], "tcg", seed, *needs, idle_s=None, attached=attached, run=asdict(order))
    return start(whole, listening)


def follow(
    connection: Connection,
    asked: dict[str, Any],
    chosen: VariantRun,
    *,
    as_json: bool,
    stop: str = "",
    show: Callable[[record.RunResult], None] | None = None,
) -> int:
    """Show a run until it stops or has ended."""
    with console.RunConsole(error_console(), [chosen]) as shown:
        begin = shown.started if chosen.variant["expected"] else shown.resumed
        begin(chosen)

        def receive(report: dict[str, Any]) -> None:
            if "event" in report:
                shown.event(chosen, report["event"])
            elif "settled" in report:
                shown.settled(chosen, report["settled"])
            elif "log" in report:
                shown.log(report["log"])

        number = connection.begin(asked, receive)
        try:
            answer = connection.end(number)
        except KeyboardInterrupt:
            end(connection)
            raise
    if "stopped" in answer:
        return show_stopped(connection, Moment.of(answer["stopped"]), as_json=as_json)
    out = Path(answer["result"]["out"])
    write_report(out)
    runs.explain(out, answer["result"]["scenario"])
    result = record.load(out)
    if as_json:
        click.echo(json.dumps(result.json()))
    else:
        if stop:
            click.echo(f"The run has ended and never reached {stop!r}.", err=True)
        if show:
            show(result)
        else:
            summary.report(output_console(), [result], result.wall_s)
        for touched in [variant.touched for variant in result.variants if variant.touched]:
            click.echo(f"Changed by hand while it was stopped: {', '.join(touched)}.")
    return 0 if result.as_expected else 1


def show_stopped(connection: Connection, moment: Moment, *, as_json: bool) -> int:
    name = connection.lab.name
    if as_json:
        print_json({"stopped": asdict(moment), "lab": name, "out": connection.lab.out})
    else:
        from testbed.cli.live.lab_tables import show_metrics

        where = {"time": "", "step": f" before step {moment.number}: {moment.text}"}.get(
            moment.kind, f": {moment.text}"
        )
        click.echo(f"{name} is stopped at {clock(moment.t)}{where}")
        show_metrics(connection.lab)
        then("testbed shell NODE · testbed tables SWITCH · testbed inspect", "testbed continue")
    return 0


@click.command(
    "continue",
    help="""Continue a stopped run, to its verdict or to the next stop. After commands that only read (inspect, tables,
    events, capture, top, save) it continues from the exact moment of the stop, as if there had been none. If a command
    changed the lab, the result reports it.""",
)
@click.option("--to", metavar="WHERE", default="", help="Stop again at this point, as in `testbed run --stop-at`.")
@click.option("--discard", is_flag=True, help="Discard everything done at the stop.")
@lab_options
def continue_(to: str, discard: bool, name: str, form: str) -> int:
    if to:
        Stop.of(to)
    with connect(name) as connection:
        lab = connection.lab
        scenario, _, label = lab.topology.rpartition(" ")
        variant: Any = {"name": label, "expected": "", "text": "", "settings": {}}
        chosen = VariantRun(scenario, label, variant)
        asked = {"control": "continue", "discard": discard, "to": to}
        return follow(connection, asked, chosen, as_json=form == "json", stop=to)


@click.command(
    help="""Go back to a step of a run made with --keep-steps: it starts a lab at that exact moment. RUN is a run
    directory, or RUN/VARIANT if it has several. STEP is a step's number or a part of its text; without it the steps are
    listed. It works any number of times: each lab starts at the same moment and goes its own way from there."""
)
@click.option("--name", "name", metavar="NAME", default="", help="The lab's name. Default: the scenario's.")
@out_option
@format_option
@click.argument("directory", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("step", default="")
def back(name: str, out: Path, form: str, directory: Path, step: str) -> int:
    result, label, directory = kept_run(directory)
    files = kept_files(directory / label / STEPS)
    kept = {int(path.stem): path for path in files if path.stem.isdecimal()}
    variant = next(one for one in result.variants if one.name == label)
    there = [moments.moment_of(kept[number]) for number in sorted(kept)]
    if not kept:
        command = f"testbed run {result.scenario} --variant {variant.variant} --seed {result.seed} --keep-steps"
        raise InputError("this run kept no steps", where=str(directory / label), hint=f"Run: {command}")
    if not step:
        return list_steps(there, kept, form)
    found = [moment for moment in there if names(step, moment)]
    if not found:
        listed = "; ".join(f"{moment.number} {moment.text}" for moment in there)
        raise InputError(f"the run has no step {step!r}", where=str(directory / label), hint=f"It has: {listed}.")
    source = record.source_of(result, directory)
    info: Any = {"name": variant.variant, "expected": variant.expected, "text": "", "settings": variant.settings}
    order = order_of(result.scenario, source, label, info, step=str(kept[found[0].number].resolve()))
    with begun(name or result.scenario, order, described(source), result.seed, out) as connection:
        number = connection.begin({"control": "start"}, lambda _: None)
        answer = connection.end(number)
        return show_stopped(connection, Moment.of(answer["stopped"]), as_json=form == "json")


def described(source: Source) -> ScenarioInfo:
    [info] = asyncio.run(options.described([(source, {})]))
    return info


def kept_run(directory: Path) -> tuple[record.RunResult, str, Path]:
    """Return a run's record, the chosen variant, and its directory."""
    if directory.is_symlink():
        directory = directory.parent / directory.readlink()
    label = ""
    if not (directory / "result.json").is_file() and (directory.parent / "result.json").is_file():
        directory, label = directory.parent, directory.name
    result = record.load(directory)
    names_ = [variant.name for variant in result.variants]
    with_steps = [one for one in names_ if (directory / one / STEPS).is_dir()]
    if label and label not in names_:
        raise InputError(f"the run has no variant {label!r}", where=str(directory), hint=f"It has: {listing(names_)}.")
    if label:
        return result, label, directory
    if len(with_steps) > 1:
        raise InputError(
            "several variants kept steps", where=str(directory), hint=f"Name one: {directory}/{with_steps[0]}"
        )
    return result, (with_steps or names_)[0], directory


def kept_files(directory: Path) -> list[Path]:
    """Return the files of the steps that a variant kept."""
    if not os.path.lexists(directory):
        return []
    with reading(directory):
        return [directory / name for name in os.listdir(directory) if name.endswith(moments.SUFFIX)]


def list_steps(found: list[Moment], kept: dict[int, Path], form: str) -> int:
    from testbed.cli.live.lab_tables import table
    from testbed.cli.words import size

    if form == "json":
        print_json([asdict(moment) for moment in found])
        return 0
    shown = table("number", "time", "kind", "text", "size")
    for moment in found:
        bytes_ = size(kept[moment.number].stat().st_size)
        shown.add_row(str(moment.number), clock(moment.t), moment.kind, moment.text, bytes_)
    output_console().print(shown)
    return 0
