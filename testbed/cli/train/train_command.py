"""`testbed train`: a training script of the user's on a lab, with faults, over settings of UCX."""

import asyncio
import json
import re
import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from testbed.cli import completion_values, options
from testbed.cli.completion_values import ENDS, NODES
from testbed.cli.live.live_options import duration as time_of
from testbed.cli.live.live_options import metrics_option, seconds
from testbed.cli.output import json_option
from testbed.cli.progress import output_console
from testbed.cli.run_command import run_shown
from testbed.cli.scenario_options import split_settings
from testbed.cli.sweep.planning import as_one_run, combinations, plan_settings
from testbed.cli.train import train_table
from testbed.cli.train import train_table as records
from testbed.cli.words import noted
from testbed.errors import InputError, did_you_mean
from testbed.machine import child_processes, questions, training
from testbed.machine.record import RunResult
from testbed.machine.scenarios import Source
from testbed.machine.training import Placement
from testbed.protocol import FaultInfo, Note, PlanRows, requests

FABRIC = "fabric.clab.yml"
"""Default topology, which is made in the run's directory."""


class Command(click.Command):
    """Command that explains an option that may have been meant for the script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            text = f"No such option {error.option_name!r}. Options of the script follow `--`."
            raise click.NoSuchOption(error.option_name, text, error.possibilities, error.ctx) from None


@click.command(
    cls=Command,
    help="""Run your own training script as the ranks of a job, and break the network under it.

    \b
    testbed train train.py --ranks 4
    testbed train train.py --fault "link-down leaf1:e1 after step 7 for 5s"
    testbed train train.py --fault "link-down leaf1:e1 after step 7 for 5s" --matrix ucx_timeout,ucx_retries

    SCRIPT is unchanged: PyTorch with DistributedDataParallel, FSDP, DTensor or pipelines, or mpi4py. Files beside it
    are copied along. ARGs are the script's; options among them follow `--`. A step is a call of step() of a torch
    optimizer.

    Exit status: 0 the job completed on all ranks, with --matrix every run was executed; 1 not, 2 wrong usage or input,
    3 this machine cannot run it.""",
)
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", metavar="[ARG...]", nargs=-1)
@click.option("--ranks", type=click.IntRange(2), metavar="N", help="Default: one for each host; 4 without --on.")
@click.option("--ranks-per-host", type=click.IntRange(1), metavar="N", help="Default: one for each of --nics.")
@click.option(
    "--nics",
    metavar="NAME,...",
    default="",
    help="The interfaces that the ranks of a host use, one after the other, such as eth1,eth2 for two rails. Default: "
    "the one with an RDMA device on most hosts.",
)
@click.option(
    "--on",
    "topology",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A topology file with a management network and a host `launcher`. Default: two leaves, two spines, and hosts "
    "for the ranks.",
)
@click.option(
    "--fault",
    "fault_texts",
    metavar="TEXT",
    multiple=True,
    shell_complete=completion_values.faults,
    help="FAULT [WHERE] [KEY=VALUE...] [after step N|after TIME] [for TIME]; may be repeated. A step counts when "
    "every rank has done it; a time counts from the job's start.",
)
@click.option(
    "--matrix",
    "matrix_texts",
    metavar="KEY[=VALUE,...]",
    multiple=True,
    help="Run the job for each value of ucx_timeout (20ms,100ms,1s), ucx_retries (2,6) or both.",
)
@click.option(
    "--env",
    "environment",
    metavar="[RANK:]KEY=VALUE",
    multiple=True,
    callback=split_settings,
    help="Set a variable of the ranks' environment, such as UCX_LOG_LEVEL=info, or of one rank: 3:UCX_IB_GID_INDEX=0; "
    "may be repeated.",
)
@click.option(
    "--torchrun",
    is_flag=True,
    help="Start the script by torchrun, with gloo over TCP on the hosts' data network, and a c10d rendezvous on the "
    "management network.",
)
@click.option(
    "--min-hosts",
    type=click.IntRange(1),
    metavar="N",
    help="With --torchrun: a round begins with N hosts or more, as --nnodes=N:HOSTS. Default: all.",
)
@click.option(
    "--restarts",
    type=click.IntRange(0),
    metavar="N",
    default=0,
    show_default=True,
    help="Start a job that failed again, up to N times; torchrun's --max-restarts. The files that it wrote are there, "
    "such as checkpoints.",
)
@click.option(
    "--limit",
    metavar="TIME",
    default="1h",
    show_default=True,
    callback=time_of,
    help="A job that lasts longer, on the lab's clock, is reported as hanging.",
)
@options.machine_options
@click.option(
    "--stop-at",
    "stop",
    metavar="WHERE",
    default="",
    help="Stop the job at `fault`, `first-failure`, `T=12.5s` or a part of a step's text, as a live lab to inspect; "
    "`testbed continue` continues. Virtual clock only.",
)
@metrics_option
@options.jobs_option
@json_option("Print the JSON object of `testbed run`, with `job` in each of its variants.")
def train(
    script: Path,
    arguments: tuple[str, ...],
    ranks: int | None,
    ranks_per_host: int | None,
    nics: str,
    topology: Path | None,
    fault_texts: tuple[str, ...],
    matrix_texts: tuple[str, ...],
    environment: dict[str, str],
    torchrun: bool,
    min_hosts: int | None,
    restarts: int,
    limit: float,
    on: options.MachineOptions,
    stop: str,
    metrics: int | None,
    jobs: int | None,
    as_json: bool,
) -> int:
    if not limit:
        raise InputError("--limit is 0: give a time longer than 0")
    if min_hosts and not torchrun:
        raise click.UsageError("--min-hosts is torchrun's: add --torchrun")
    if torchrun and matrix_texts:
        raise click.UsageError("--matrix varies settings of UCX, which torchrun's gloo does not use: leave it out")
    lives = "--stop-at" if stop else "--metrics" if metrics is not None else ""
    if lives and (on.machine == "local" or on.clock == "real"):
        raise click.UsageError(f"{lives} is for the virtual clock")
    if lives and matrix_texts:
        raise click.UsageError(f"{lives} is for one run: leave out --matrix")
    with stopped_files(on.out, script) if stop else child_processes.scratch() as directory:
        source = training.source(script, topology or directory / FABRIC)
        planned_faults = [parse_fault(text, questions.kept(requests.Faults())) for text in fault_texts]
        environment, of_ranks = by_rank(environment)
        axes = matrix_axes(matrix_texts, environment)
        if topology is None:
            (directory / FABRIC).write_text(training.fabric(ranks or training.RANKS, ranks_per_host))
        placement, notes = placed(source, topology, ranks, ranks_per_host, names_of(nics), planned_faults)
        if unknown := [rank for rank in of_ranks if rank >= len(placement.hosts)]:
            raise InputError(f"--env: the job has no rank {unknown[0]}", hint=f"It has {len(placement.hosts)} ranks.")
        check_torchrun(placement, of_ranks, min_hosts, torchrun=torchrun)
        asked = {
            "script": script.name,
            "arguments": [*arguments],
            "hosts": placement.hosts,
            "nics": placement.nics,
            "launcher": placement.launcher,
            "management": placement.management,
            "faults": planned_faults,
            "of_ranks": {str(rank): own for rank, own in of_ranks.items()},
            "torchrun": torchrun,
            "at_least": min_hosts or 0,
            "restarts": restarts,
            "limit": limit,
        }
        chosen = [
            (values, {**asked, "environment": {**environment, **variables(values)}}) for values in combinations(axes)
        ]
        info, planned = asyncio.run(plan_settings(source, [on.seed], chosen, []))
        tasks = [(source, info, as_one_run(info, planned))]
        if lives:
            from testbed.cli.live import stopping

            def show(result: RunResult) -> None:
                name = chosen_run.label
                train_table.job(output_console(), result, {name: records.read(result.out / name)}, result.wall_s)

            [chosen_run] = as_one_run(info, planned)
            return stopping.run(source, info, chosen_run, on, stop, metrics, as_json=as_json, show=show)
        [result], wall_s = run_shown(tasks, on, jobs, map(noted, notes))
    done = {variant.name: records.read(result.out / variant.name) for variant in result.variants}
    if as_json:
        found = result.json()
        found["variants"] = [{**one, "job": done[one["name"]]} for one in found["variants"]]
        click.echo(json.dumps(found))
    elif axes:
        train_table.matrix(output_console(), result, done, [point.values for point in planned], wall_s)
    else:
        train_table.job(output_console(), result, done, wall_s)
    carried_out = all(train_table.carried_out(variant, done[variant.name]) for variant in result.variants)
    return 0 if (carried_out if axes else result.as_expected) else 1


def by_rank(given: Mapping[str, str]) -> tuple[dict[str, str], dict[int, dict[str, str]]]:
    """Return the variables of all ranks, and those of single ones."""
    of_all: dict[str, str] = {}
    of_ranks: dict[int, dict[str, str]] = {}
    for key, value in given.items():
        rank, colon, name = key.rpartition(":")
        if not colon:
            of_all[key] = value
        elif rank.isascii() and rank.isdecimal() and name:
            of_ranks.setdefault(int(rank), {})[name] = value
        else:
            raise InputError(f"--env {key}={value}: {rank!r} is no number of a rank", hint="Such as 3:UCX_TLS=tcp.")
    return of_all, of_ranks


def check_torchrun(
    placement: Placement, of_ranks: Mapping[int, object], min_hosts: int | None, *, torchrun: bool
) -> None:
    """InputError for a placement that torchrun cannot have."""
    if not torchrun:
        return
    hosts = list(dict.fromkeys(placement.hosts))
    if of_ranks:
        raise InputError("--env: torchrun gives its ranks their numbers in each round", hint="Leave out `RANK:`.")
    if len({*zip(placement.hosts, placement.nics, strict=True)}) > len(hosts):
        raise InputError("--nics: gloo has one interface on a host", hint="Name one.")
    if len(placement.hosts) % len(hosts):
        raise InputError(
            f"{len(placement.hosts)} ranks on {len(hosts)} hosts: torchrun starts as many on each",
            hint="Use --ranks-per-host, or another number of ranks.",
        )
    if min_hosts and min_hosts > len(hosts):
        raise InputError(f"--min-hosts is {min_hosts}, and the job has {len(hosts)}")


def names_of(nics: str) -> list[str]:
    """Return the interfaces of --nics."""
    found = [name.strip() for name in nics.split(",")] if nics else []
    if "" in found or len(set(found)) < len(found):
        raise InputError(f"--nics {nics}: an interface is missing, or there twice", hint="Such as eth1,eth2.")
    return found


@contextmanager
def stopped_files(out: Path, script: Path) -> Iterator[Path]:
    """Yield a directory for the generated fabric that stays while the job does: `testbed back` reads it again."""
    directory = out / f".{script.stem}"
    directory.mkdir(parents=True, exist_ok=True)
    yield directory


def placed(
    source: Source,
    topology: Path | None,
    ranks: int | None,
    ranks_per_host: int | None,
    nics: Sequence[str],
    planned: Sequence[Mapping[str, Any]],
) -> tuple[Placement, list[Note]]:
    """Return the places of the ranks, and the notes on the topology. InputError for a mismatch with it."""
    assert source.topology is not None, "of a script it is given"
    found = questions.plan(source.topology)
    where = str(topology) if topology else "the fabric made for the job"
    rows: PlanRows = {"name": found["name"], "interfaces": found["interfaces"]}
    placement = training.place(rows, where, ranks or (None if topology else training.RANKS), ranks_per_host, nics)
    check_places(planned, rows)
    return placement, found["notes"]


TIME = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)")
VARIABLES = {"ucx_timeout": "UCX_RC_VERBS_TIMEOUT", "ucx_retries": "UCX_RC_VERBS_RETRY_COUNT"}
DEFAULTS = {"ucx_timeout": ["20ms", "100ms", "1s"], "ucx_retries": ["2", "6"]}
"""Values of a setting that is named without any."""


def matrix_axes(texts: Sequence[str], environment: Container[str]) -> dict[str, list[str]]:
    """Return the values of each setting. A comma stands before a value, or before the next setting. InputError for a
    setting whose variable is set in the environment, too."""
    found: dict[str, list[str]] = {}
    for text in texts:
        key = ""
        for word in filter(None, (part.strip() for part in text.split(","))):
            named, equals, value = word.partition("=")
            if equals or word in VARIABLES or not key:
                key = named
                check_name(key, found)
                found[key] = []
            if equals or word not in VARIABLES:
                check_value(key, value if equals else word, found[key])
                found[key].append(value if equals else word)
    if texts and not found:
        raise InputError("--matrix names no setting", hint=f"Settings: {', '.join(VARIABLES)}.")
    for key in found:
        if (variable := VARIABLES[key]) in environment:
            raise InputError(f"--env sets {variable}, and --matrix varies it as {key}", hint="Leave out one of them.")
    return {key: values or DEFAULTS[key] for key, values in found.items()}


def check_name(key: str, found: dict[str, list[str]]) -> None:
    if key not in VARIABLES:
        hint = f"{did_you_mean(key, VARIABLES)}Settings: {', '.join(VARIABLES)}."
        raise InputError(f"--matrix: there is no setting {key!r}", hint=hint)
    if key in found:
        raise InputError(f"--matrix: {key} is given twice")


def check_value(key: str, value: str, there: Sequence[str]) -> None:
    if key == "ucx_timeout" and not (TIME.fullmatch(value) and float(TIME.fullmatch(value)[1])):  # type: ignore[index]
        raise InputError(f"--matrix: ucx_timeout={value} is not a time for UCX", hint="Such as 500us, 20ms, 1s.")
    if key == "ucx_retries" and not re.fullmatch("[0-7]", value):
        hint = "From 0 to 7; soft-RoCE retries for ever with 7."
        raise InputError(f"--matrix: ucx_retries={value} is not a number of retries", hint=hint)
    if value in there:
        raise InputError(f"--matrix: {key}={value} is given twice")


def variables(point: Mapping[str, str]) -> dict[str, str]:
    return {VARIABLES[key]: value for key, value in point.items()}


FORM = "Such as `link-down leaf1:e1 after step 7 for 5s`, `link-loss leaf1:e1 loss=5 after 2s`; `testbed fault list`."
PLACES = {*ENDS, *NODES} - {"port"}
"""Parameters that name an end of a link, or a node."""


def parse_fault(text: str, known: Sequence[FaultInfo]) -> dict[str, Any]:
    """Return the fault of a line, ``link-down leaf1:e1 after step 7 for 5s``, for the scenario: its name,
    parameters and time. A word without `=` is its first parameter."""
    where = f"--fault {text!r}"
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"cannot be read: {error}", where=where, hint=FORM) from None
    if not words:
        raise InputError("names no fault", where=where, hint=FORM)
    name, *rest = words
    kinds = {info["name"]: info for info in known}
    if name not in kinds:
        raise InputError(f"there is no fault {name!r}", where=where, hint=f"{did_you_mean(name, kinds)}{FORM}")
    required = kinds[name]["parameters"].get("required", [])
    found: dict[str, Any] = {"name": name, "parameters": {}}
    while rest:
        word, *rest = rest
        match word, rest:
            case "after", ["step", number, *rest] if not {"after_step", "after_s"} & {*found}:
                if not number.isascii() or not number.isdecimal() or int(number) < 1:
                    raise InputError(f"{number!r} is not a step number: steps count from 1", where=where, hint=FORM)
                found["after_step"] = int(number)
            case "after", [time, *rest] if not {"after_step", "after_s"} & {*found}:
                found["after_s"] = seconds(time)
            case "for", [time, *rest] if "lasting_s" not in found:
                found["lasting_s"] = seconds(time)
            case _ if "=" in word:
                key, _, value = word.partition("=")
                if key in found["parameters"]:
                    raise InputError(f"{key} is given twice", where=where)
                found["parameters"][key] = value
            case _ if required and not found["parameters"] and word not in ("after", "for"):
                found["parameters"][required[0]] = word
            case _:
                raise InputError(f"{word!r} is not allowed there", where=where, hint=FORM)
    return found


def check_places(faults: Sequence[Mapping[str, Any]], plan: PlanRows) -> None:
    """Raise InputError for a fault at a node or an end of a link that a topology does not have."""
    ends = [f"{row['node']}:{row['interface']}" for row in plan["interfaces"] if row["peer"]]
    nodes = list(dict.fromkeys(row["node"] for row in plan["interfaces"]))
    for fault in faults:
        for key, value in fault["parameters"].items():
            there = ends if ":" in value else nodes
            if key not in PLACES or value in there:
                continue
            what = "end of a link" if ":" in value else "node"
            near = did_you_mean(value, there)
            own = [end for end in ends if end.startswith(value.partition(":")[0] + ":")] if ":" in value else []
            hint = f"{near}There are: {', '.join(own or there)}."
            raise InputError(f"fault {fault['name']}: the topology has no {what} {value!r}", hint=hint)
