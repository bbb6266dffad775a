"""`testbed incident bench`: agents that work on many incidents, and what each reaches."""

import asyncio
import json
import os
import shlex
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

import click

from testbed.cli.incident import bench_table, on_cluster
from testbed.cli.incident.agents import BASELINES
from testbed.cli.incident.playing import Round, agent_of, play
from testbed.cli.output import json_option
from testbed.cli.progress import output_console
from testbed.cli.scenario_options import out_option
from testbed.errors import InputError, MachineError
from testbed.machine import child_processes
from testbed.machine.sweeps import commands
from testbed.machine.sweeps.points import seeds
from testbed.machine.task_group import TaskGroup
from testbed.protocol import IncidentArea, IncidentLevel, requests
from testbed.records.regular_files import contents

LIMIT_S = 1800.0
RESULTS = "incidents.jsonl"
SCRATCH = ".rounds-"
"""Prefix of the directories, beside the run directories, in which rounds are played."""
LAST = 500
Key = tuple[str, int, IncidentArea | None, IncidentLevel | None]
"""An agent, and its incident: the number, and the area and the level that were asked for."""
OnPrinted = Callable[[Sequence[str], str], Awaitable[None]]


def of_incidents(command: Any) -> Any:
    """Add the options that choose incidents and how agents work on them."""
    for option in reversed(
        [
            click.option("--area", type=click.Choice(get_args(IncidentArea)), help="Only of this area."),
            click.option("--level", type=click.IntRange(1, max(get_args(IncidentLevel))), help="Only of this level."),
            click.option(
                "--timeout", "limit_s", type=click.FloatRange(0, min_open=True), default=LIMIT_S, show_default=True,
                metavar="SECONDS", help="Wall time that a command has for an incident.",
            ),
        ]
    ):  # fmt: skip
        command = option(command)
    return command


@click.command(hidden=True, help="Play one round of a benchmark, and print its row.")
@click.option("--agent", required=True)
@click.option("--seed", "number", type=click.IntRange(0), required=True)
@of_incidents
@out_option
def round_(
    agent: str, number: int, area: IncidentArea | None, level: IncidentLevel | None, limit_s: float, out: Path
) -> int:
    one = play(number, area, level, agent, agent_of(agent, limit_s), out)
    click.echo(json.dumps(one))
    return 0


@click.command(
    help=f"""Have agents work on many incidents, and compare what they reach.

    AGENT is one of the baselines that come along ({", ".join(BASELINES)}), or a command. A command gets the ticket on
    its standard input; TESTBED_LAB names the lab. It works with the commands of `testbed`, and the last line of its
    output is its answer:

    \b
    {{"causes": ["link-down"], "places": ["leaf1:e1"], "since": "00:01:12"}}

    `{{}}` is the answer of one that has mended it. A client of the Model Context Protocol starts `testbed mcp` as its
    server; the tool `answer` ends the round, too.

    Each round is a line of the result file: the same command plays the missing ones.

    Exit status: 0 all rounds were played, 1 one went wrong."""
)
@click.option("--agent", "agents", multiple=True, required=True, metavar="AGENT", help="May be repeated.")
@click.option("--seeds", "numbers", required=True, metavar="SEEDS", help="Numbers of incidents, such as 0..99.")
@of_incidents
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Rounds at the same time.")
@click.option(
    "--engine", default="local", show_default=True, metavar="ENGINE",
    help="Where rounds are played: this machine, or dask://HOST:PORT, the workers of a Dask scheduler.",
)  # fmt: skip
@click.option(
    "--results", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help=f"The result file. Default: {RESULTS} beside the run directories.",
)  # fmt: skip
@out_option
@json_option()
def bench(
    agents: Sequence[str],
    numbers: str,
    area: IncidentArea | None,
    level: IncidentLevel | None,
    limit_s: float,
    jobs: int,
    engine: str,
    results: Path | None,
    out: Path,
    as_json: bool,
) -> int:
    for agent in agents:
        agent_of(agent, limit_s)
    file = results or out / RESULTS
    options = ["--timeout", f"{limit_s:g}"]
    options += [word for key, value in (("--area", area), ("--level", level)) if value for word in (key, str(value))]
    wanted = [(agent, number, area, level) for number in seeds(numbers) for agent in agents]
    done = {key_of(one) for one in read(file) if one["grade"]}
    missing = [key for key in wanted if key not in done]
    file.parent.mkdir(parents=True, exist_ok=True)
    asyncio.run(play_all(missing, options, jobs, engine, file))
    found = {key_of(one): one for one in read(file)}
    rounds = [found[key] for key in wanted if key in found]
    shown = bench_table.rows(rounds)
    if as_json:
        click.echo(json.dumps({"rows": [one._asdict() for one in shown], "results": str(file)}))
    else:
        output_console().print(bench_table.markdown(shown), markup=False, soft_wrap=True)
    wrong = [one for one in rounds if one["grade"] is None]
    for one in wrong:
        click.echo(f"incident {one['number']}, {one['agent']}: {one['error']}", err=True)
    return 1 if wrong or len(rounds) < len(wanted) else 0


def key_of(one: Round) -> Key:
    return one["agent"], one["number"], one["area"], one["level"]


def read(file: Path) -> list[Round]:
    """Return the rows of a result file, the last one of each round last; none if there is no file. InputError for
    another file."""
    if not os.path.lexists(file):
        return []
    rounds = requests.adapter(Round)
    try:
        return [rounds.validate_json(line) for line in contents(file).splitlines() if line.endswith(b"}")]
    except (OSError, ValueError):
        raise InputError("this is not the result file of a benchmark of incidents", where=str(file)) from None


async def play_all(keys: Iterable[Key], options: Sequence[str], jobs: int, engine: str, file: Path) -> None:
    """Play rounds, and append their rows to the result file as they end."""

    async def record(words: Sequence[str], printed: str) -> None:
        try:
            one = requests.adapter(Round).validate_json(printed)
        except ValueError:
            raise MachineError(f"`testbed {shlex.join(words)}` printed no round: {printed[-LAST:]!r}") from None
        with file.open("a") as rows:
            rows.write(json.dumps(one) + "\n")
        points = one["grade"]["points"] if one["grade"] else "no"
        click.echo(f"incident {one['number']}, {one['agent']}: {points} points", err=True)

    rounds = [["incident", "round", "--agent", agent, "--seed", str(number), *options] for agent, number, *_ in keys]
    if engine == "local":
        await play_here(rounds, jobs, file.parent, record)
    else:
        await on_cluster.play(engine, rounds, file.parent, record)


async def play_here(rounds: Iterable[Sequence[str]], jobs: int, parent: Path, on_printed: OnPrinted) -> None:
    waiting = iter(rounds)

    async def player() -> None:
        for words in waiting:
            with child_processes.scratch(parent, SCRATCH) as out:
                await on_printed(words, await asyncio.to_thread(commands.printed, [*words, "--out", str(out)]))

    async with TaskGroup() as group:
        for _ in range(jobs):
            group.create_task(player())
