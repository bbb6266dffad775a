"""`testbed up` and `down`: running labs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from testbed.cli import completion_values, summary
from testbed.cli.interrupts import stoppable
from testbed.cli.live import live_options
from testbed.cli.scenario_options import out_option, qemu_option, set_option, variant_option
from testbed.cli.words import plain
from testbed.errors import InputError, TestbedError
from testbed.machine.live import labs
from testbed.machine.live.connection import Connection, EndedError
from testbed.protocol.live import Down

if TYPE_CHECKING:
    from testbed.cli.live.source import Found

DOWN_S, LATE_S = 120.0, 15.0
"""Wall seconds for a lab's end, after which --force is named."""


@click.command(
    help="""Bring up a lab that lives until `testbed down`. The lab comes from a topology file, or is that of a variant
    of a scenario (`testbed list`); the scenario is not run. On the real clock the lab runs by itself. On the virtual
    clock time stands still between commands, and the same commands cause the same events: `testbed advance 25m` lets
    time pass."""
)
@click.argument("what", metavar="FILE|SCENARIO", required=False, default="", shell_complete=completion_values.scenarios)
@click.option("--topo", "-t", metavar="FILE", default="", help="The topology file, as containerlab's users name it.")
@click.option("--name", metavar="NAME", default="", help="The lab's name. Default: the name in its file.")
@click.option("--clock", type=click.Choice(["real", "virtual"]), default="real", show_default=True)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of all randomness in the lab.")
@variant_option("what", "Variant of the scenario. Default: its first.")
@set_option("what", "Set a parameter of the scenario.")
@click.option(
    "--plugin-dir",
    "plugins",
    metavar="DIR",
    multiple=True,
    type=click.Path(path_type=Path),
    help="CNI plugins of yours for `pod add`; also `cni-plugins` beside FILE, and CNI_PATH.",
)
@click.option("--with", "packages", metavar="PACKAGE,…", default="", help="Add Debian packages to the image.")
@click.option(
    "--idle",
    "idle_s",
    metavar="TIME",
    callback=live_options.duration,
    help="End after this time without a command: 8h.",
)
@live_options.metrics_option
@qemu_option
@click.option("--rm", "attached", is_flag=True, help="Wait in the foreground; Ctrl-C ends the lab.")
@out_option
@live_options.format_option
def up(
    what: str,
    topo: str,
    name: str,
    clock: str,
    seed: int,
    variant: str | None,
    settings: dict[str, str],
    plugins: tuple[Path, ...],
    packages: str,
    idle_s: float | None,
    metrics: int | None,
    attached: bool,
    out: Path,
    form: str,
) -> int:
    from testbed.cli.live import source
    from testbed.cli.live.lab_tables import show_metrics, show_nodes
    from testbed.protocol import live

    if bool(what) is bool(topo):
        raise click.UsageError("name a topology file or a scenario: testbed up FILE")
    found = source.find(what or topo, variant, settings, plugins, os.environ.get("CNI_PATH", ""))
    extra = filter(None, packages.split(","))
    found = replace(found, name=name or found.name, packages=[*found.packages, *extra])
    with (
        brought_up(found, clock, seed, idle_s, out, attached=attached, metrics=metrics) as connection,
        kept(connection),
    ):
        state = connection.answer(live.Inspect())
        lab = connection.lab
        if form == "json":
            live_options.print_json({**lab.__dict__, "state": "up", **state})
        else:
            show_nodes(state["nodes"])
            show_metrics(lab)
            node = next((row["name"] for row in state["nodes"] if row["kind"] == "host"), state["nodes"][0]["name"])
            live_options.then(f"testbed shell {node}", f"testbed down {lab.name}")
        if attached:
            stay(connection)
    return 0


@contextlib.contextmanager
def brought_up(
    found: Found, clock: str, seed: int, idle_s: float | None, out: Path, *, attached: bool, metrics: int | None = None
) -> Iterator[Connection]:
    """Yield a connection to a new lab, which is up; metrics are scraped at that port, if any."""
    from testbed.cli import options
    from testbed.cli.output import log
    from testbed.machine import containers
    from testbed.machine.live.order import Order, start
    from testbed.machine.runs import run_directory

    name = checked(found.name)
    labs.require_free(name)
    listening, address = live_options.listening_at(metrics)
    containers.find(found.images)  # a missing one is known before the machine is
    machine: Any = options.choose("vm", clock, log)  # type: ignore[arg-type]
    wanted = sorted(set(found.packages))
    asyncio.run(options.equip(machine, wanted, found.images))
    lab = labs.Lab.starting(name, found.shown, clock, seed, run_directory(out, name).resolve(), address)
    given, accelerator = (found.request(), found.files, found.executable), machine.flavour.accelerator
    order = Order(lab, *given, accelerator, seed, wanted, found.images, idle_s, attached)
    with start(order, listening) as connection:
        wait_up(connection, found.place)
        yield connection


@contextlib.contextmanager
def kept(connection: Connection) -> Iterator[None]:
    """Say at Ctrl-C that a lab which is up stays."""
    try:
        yield
    except KeyboardInterrupt:
        name = plain(connection.lab.name)
        click.echo(f"lab {name} stays up; `testbed down {name}` ends it", err=True)
        raise


def stay(connection: Connection) -> None:
    """Wait until the lab has ended: by Ctrl-C, by `down`, or after the idle time."""
    with stoppable() as stop, contextlib.suppress(EndedError):
        watched: list[Any] = [connection, stop]
        ready, _, _ = select.select(watched, [], [])
        if stop in ready:
            end(connection)
        else:
            connection.receive()


def wait_up(connection: Connection, place: Any) -> None:
    """Wait until the lab is up. Ctrl-C ends it."""
    from testbed.cli.output import log

    try:
        connection.end(connection.begin({"control": "start"}, lambda message: log(message["log"])))
    except KeyboardInterrupt:
        end(connection)
        click.echo(f"lab {plain(connection.lab.name)} was not up yet, and is ended", err=True)
        raise
    except EndedError:  # by a `down` that the keeper read before our start
        raise connection.never_up() from None
    except TestbedError as error:
        error.where = place(error.where)
        error.also = tuple((place(where), message) for where, message in error.also)
        raise


def checked(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", name):
        raise InputError(f"{name!r} cannot be a lab's name", hint="Letters, digits, `-`, `_` and `.`, at most 63.")
    return name


def end(connection: Connection) -> Any:
    """End the lab. Return the response of its keeper."""
    number = connection.ask(Down())
    began = time.monotonic()
    deadline, told = began + DOWN_S, False
    while not connection.done(number):
        if not told and time.monotonic() > began + LATE_S:
            told = True
            hint = f"`testbed down --force {connection.lab.name}` kills its machine"
            click.echo(f"… {plain(connection.lab.name)} has not ended for {LATE_S:g} s; {hint}", err=True)
        if time.monotonic() > deadline:
            raise _does_not_end(connection.lab)
        connection.receive(within=1)
    return connection.ended(number)


@click.command(help="""End labs; their run directories stay. Also remove the remains of dead labs.""")
@click.argument("names", metavar="[NAME...]", nargs=-1, shell_complete=completion_values.labs)
@click.option("--all", "all_", is_flag=True, help="All labs of this user.")
@click.option("--force", is_flag=True, help="Kill the machine of a lab that does not end.")
@click.option("--cleanup", "removed", is_flag=True, help="Remove the run directories, too.")
@live_options.lab_option
@live_options.format_option
def down(names: tuple[str, ...], all_: bool, force: bool, removed: bool, name: str, form: str) -> int:
    chosen = labs.every() if all_ else [labs.named(one) for one in dict.fromkeys(names or (name,))]
    threading.Thread(target=summary.load_reports, daemon=True).start()
    results = []
    failed: list[TestbedError] = []
    for lab in chosen:
        try:
            take_down(lab, force)
        except TestbedError as error:
            failed.append(error)
            continue
        report = None if removed else page(lab)
        if removed:
            remove_run(lab)
        results.append({"name": lab.name, "out": lab.out, "report": str(report or "")})
        if form == "table":
            left = os.path.relpath(report or lab.out) if (report or lab.out) and not removed else ""
            click.echo(f"{plain(lab.name)} is down · {plain(left)}".rstrip(" ·"))
    if form == "json":
        live_options.print_json(results)
    if failed:
        first, *others = failed
        first.also += tuple((error.where, error.message) for error in others)
        raise first
    return 0


def remove_run(lab: labs.Lab) -> None:
    """Remove the run directory of a lab that has ended."""
    if not lab.out:
        return
    place = Path(lab.out)
    shutil.rmtree(place, ignore_errors=True)
    latest = place.parent / "latest"
    if latest.is_symlink() and not latest.exists():
        latest.unlink()


def page(lab: labs.Lab) -> Path | None:
    """Write the report of a lab that has left a result."""
    from testbed.machine.live.kept import explain
    from testbed.protocol import RESULT, SCENARIO

    out = Path(lab.out)
    if not lab.out or not (out / RESULT).is_file():
        return None
    report = summary.write_report(out)
    if not (out / SCENARIO).is_dir():  # a run that was stopped has its own
        explain(out, lab.name)
    return report


def take_down(lab: labs.Lab, force: bool) -> None:
    if lab.alive() and not force and labs.reachable(lab):
        try:
            with Connection(lab) as connection:
                end(connection)
        except EndedError:
            pass
        return
    if pid := labs.keeper(lab):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL if force else signal.SIGTERM)
        if not labs.wait_dead(lab, DOWN_S):
            raise _does_not_end(lab)
    if force or not lab.alive():
        labs.remove(lab)


def _does_not_end(lab: labs.Lab) -> TestbedError:
    return TestbedError(f"lab {lab.name} does not end", hint=f"To kill its machine: testbed down --force {lab.name}")


@click.command(help="""List this user's labs: those that are up, and those that died.""")
@live_options.format_option
def ps(form: str) -> int:
    from testbed.cli.live.lab_tables import show_labs

    found = labs.every()
    if form == "json":
        now = time.time()
        live_options.print_json([{**lab.__dict__, "age_s": max(0.0, round(now - lab.since, 3))} for lab in found])
    elif found:
        show_labs(found)
        live_options.then(*(f"testbed down {lab.name}" for lab in found if not lab.alive()))
    else:
        click.echo("No lab is up.")
        live_options.then("testbed up FILE")
    return 0
