"""`testbed sweep`: a scenario with many seeds and values, without the runs that are already done."""

import asyncio
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path

import click

from testbed.cli import completion_values, options, summary
from testbed.cli.output import json_option
from testbed.cli.progress import ensure_image, error_console, output_console
from testbed.cli.scenario_options import out_option, over_option, set_option, variants_option
from testbed.cli.sweep import sweep_table
from testbed.cli.sweep.planning import plan
from testbed.cli.sweep.sweep_table import Shown
from testbed.errors import InputError, UnsupportedError
from testbed.machine import layers, runs, scenarios
from testbed.machine.image import Image
from testbed.machine.record import Origin, RunResult
from testbed.machine.sweeps import points
from testbed.machine.sweeps.points import Engine, Here, Point, Work
from testbed.machine.sweeps.result_file import Results

KEPT = 20
"""Maximum of run directories of unexpected runs kept by the sweeps of a result file. Any other run is repeated by its
command."""
FILE = "sweep.sqlite"


@click.command(
    help="""Run a scenario with many seeds and values, and find the unexpected runs.

    Every variant is run with every seed and every combination of the values of `--over`. Each run is a row of one
    SQLite file: the same command continues an interrupted sweep, and a command with more seeds or values runs only the
    missing ones. The first 20 unexpected runs keep their run directories.

    Exit status: 0 every run as expected, 1 not as expected, 2 wrong usage or input, 3 this machine cannot run it."""
)
@click.argument("name", metavar="SCENARIO", shell_complete=completion_values.scenarios)
@click.option("--seeds", metavar="SEEDS", required=True, help="Such as 0..999, or 1,5,9, or 0..99,200.")
@over_option("name", "A parameter and its values; may be repeated. Default: all its possible values.")
@variants_option("name")
@set_option("name")
@click.option(
    "--results",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help=f"The result file. Default: {FILE} beside the run directories.",
)
@click.option(
    "--engine",
    metavar="ENGINE",
    default="local",
    show_default=True,
    help="Where runs are executed: this machine, or dask://HOST:PORT, the workers of a Dask scheduler.",
)
@out_option
@options.jobs_option
@json_option()
def sweep(
    name: str,
    seeds: str,
    overs: tuple[str, ...],
    variants: tuple[str, ...],
    settings: dict[str, str],
    file: Path | None,
    engine: str,
    out: Path,
    jobs: int | None,
    as_json: bool,
) -> int:
    if engine != "local":
        require_dask(jobs)
    source = scenarios.resolve(name).taken()
    [info] = asyncio.run(options.described([(source, {})]))
    info, planned = asyncio.run(plan(source, info, points.seeds(seeds), overs, variants, settings))
    if engine != "local" and info["images"]:
        hint = "Run the sweep on this machine: leave out --engine."
        raise InputError(f"{info['name']} has containers, whose images are not sent to a cluster", hint=hint)
    file = file or out / info["name"] / FILE
    with Shown(error_console(), file, len(planned), name) as shown:
        asked, parent = Work(source, info), out / info["name"]
        parent.mkdir(parents=True, exist_ok=True)
        if engine == "local":
            machine = options.choose("vm", "virtual", shown.once)
            machine = asyncio.run(options.equip(machine, info["packages"], info["images"]))
            here = Here(asked, machine, options.jobs_for(machine, jobs), parent)
            found = asyncio.run(carry_out(asked, planned, here, file, out, shown))
        else:
            found = asyncio.run(on_cluster(engine, asked, planned, ensure_image(), file, out, shown))
    rows = sweep_table.rows(planned, found)
    if as_json:
        click.echo(json.dumps(sweep_table.as_json(name, info["name"], file, rows, planned, found)))
    else:
        sweep_table.report(output_console(), name, info["name"], file, rows, planned, found)
    return 0 if all(found[point.key].as_expected for point in planned) else 1


async def carry_out(
    asked: Work, planned: Sequence[Point], engine: Engine, file: Path, out: Path, shown: Shown
) -> sweep_table.Found:
    """Run the points that the result file lacks. Return all its results."""
    origin = Origin.of_run(await engine.identity(), asked.source, asked.source.files())
    with Results(file, asked.info["name"], origin) as results:
        found = results.recorded()
        missing = [point for point in planned if point.key not in found]
        kept = sum(one.directory is not None for one in found.values())
        shown.begin(planned, found)

        async def record(point: Point, result: RunResult, directory: Path | None) -> None:
            nonlocal kept
            place = None
            if directory and kept < KEPT:
                kept += 1
                place = await asyncio.to_thread(keep, result, directory, out)
            results.add(point, result, place)
            shown.ended(point, result.variants[0])

        await engine.run(missing, record, lambda: kept < KEPT)
        return results.recorded()


async def on_cluster(
    engine: str, asked: Work, planned: Sequence[Point], base: Image, file: Path, out: Path, shown: Shown
) -> sweep_table.Found:
    from testbed.machine.sweeps import dask_cluster

    image = await layers.ensure(base, asked.info["packages"], shown.once)
    async with dask_cluster.connected(engine, asked, image, out / asked.info["name"], shown.once) as connected:
        return await carry_out(asked, planned, connected, file, out, shown)


def require_dask(jobs: int | None) -> None:
    if jobs is not None:
        raise click.UsageError("a cluster runs one variant for each thread of its workers: leave out --jobs")
    if importlib.util.find_spec("distributed") is None:
        hint = "Install it: pip install 'testbed[dask]'"
        raise UnsupportedError("--engine dask://… needs Dask, which is not installed", hint=hint)


def keep(result: RunResult, directory: Path, out: Path) -> Path:
    kept = points.keep(result, directory, out)
    summary.write_report(kept)
    runs.explain(kept, result.scenario)
    return kept
