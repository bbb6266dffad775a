"""`testbed deploy` and `destroy`: `up` and `down` with the flags of containerlab, where they mean the same here.

Source of the flags: https://containerlab.dev/cmd/deploy/ and https://containerlab.dev/cmd/destroy/.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from testbed.cli import completion_values
from testbed.cli.live.live_options import format_option
from testbed.cli.live.up import down, remove_run, take_down, up
from testbed.errors import InputError

Command = TypeVar("Command", bound=Callable[..., Any])
SUFFIXES = ".clab.yml", ".clab.yaml"
NO_CONTAINERS = "nodes are namespaces in a machine here, not containers"
WHOLE = "a lab is started and ended as a whole"
OWN_KERNEL = "a lab is in a machine of its own, without a management network"
WITHOUT: Mapping[str, str] = {
    "--vars": "topology files are no templates here",
    "--runtime, -r": NO_CONTAINERS,
    "--max-workers": NO_CONTAINERS,
    "--timeout": NO_CONTAINERS,
    "--node-filter": WHOLE,
    "--export-template": "`testbed inspect -f json` describes a lab",
    "--skip-post-deploy": "`exec` in the file belongs to the lab and always runs",
    "--skip-labdir-acl": "run directories belong to the user",
    "--owner": "a lab belongs to its user",
    "--network": OWN_KERNEL,
    "--ipv4-subnet, -4": OWN_KERNEL,
    "--ipv6-subnet, -6": OWN_KERNEL,
    "--keep-mgmt-net": OWN_KERNEL,
    "--log-level": "the lab's log is keeper.log in its directory",
    "--debug, -d": "the lab's log is keeper.log in its directory",
}
"""Flags of containerlab that cannot mean the same, with the reason."""
SWITCHES = "--skip-post-deploy", "--skip-labdir-acl", "--keep-mgmt-net", "--debug, -d"
"""Flags without a value."""


def refused(*names: str) -> Callable[[Command], Command]:
    """Make a decorator that lets a command refuse these flags."""

    def add(command: Command) -> Command:
        for name in names:
            spelled = name.split(", ")
            flag = name in SWITCHES
            command = click.option(*spelled, flag_key(name), is_flag=flag, hidden=True, default=None)(command)
        return command

    return add


def flag_key(name: str) -> str:
    return name.partition(",")[0].removeprefix("--").replace("-", "_")


def refuse(given: Mapping[str, object], instead: str) -> None:
    """Raise InputError for flags that were given, all of them at once."""
    wrong = {name.partition(",")[0]: why for name, why in WITHOUT.items() if given.get(flag_key(name)) is not None}
    if wrong:
        reasons = "; ".join(f"{name}: {why}" for name, why in wrong.items())
        raise InputError(f"{', '.join(wrong)} cannot work here as in containerlab: {reasons}", hint=instead)


topo_option = click.option(
    "--topo", "-t", metavar="FILE", default="", type=click.Path(), help="The topology file, or a directory with one."
)
name_option = click.option(
    "--name", "-n", metavar="NAME", default="", shell_complete=completion_values.labs, help="The lab's."
)


def topology(given: str) -> Path:
    """Return the topology file: this one, or the only one of a directory, by default the working directory."""
    if "://" in given or given == "-":
        raise InputError("is no file", where=given, hint="Download it first, then: testbed deploy -t FILE.")
    path = Path(given or ".")
    if not path.is_dir():
        return path
    found = sorted(entry for entry in path.iterdir() if entry.name.endswith(SUFFIXES) and entry.is_file())
    if len(found) != 1:
        there = f"{len(found)} topology files" if found else "no topology file"
        hint = f"There are {', '.join(map(str, found))}." if found else f"Its name must end in {SUFFIXES[0]}."
        raise InputError(f"this directory has {there}: name one with --topo", where=str(path), hint=hint)
    return found[0]


def lab_of(topo: str) -> str:
    """Return the name of the lab of a topology file, as `topology` takes it."""
    from testbed.cli.live import source

    return source.of_file(topology(topo)).name


@click.command(
    help="""Bring a lab up: `testbed up FILE` with the flags of containerlab.

    Without --topo it takes the only *.clab.yml here. Only `testbed up` has --clock, --seed, --idle and --rm."""
)
@topo_option
@name_option
@click.option("--reconfigure", "-c", is_flag=True, help="First end the lab of that name and remove its run directory.")
@format_option
@refused(
    "--vars", "--runtime, -r", "--max-workers", "--timeout", "--node-filter", "--export-template", "--skip-post-deploy",
    "--skip-labdir-acl", "--owner", "--network", "--ipv4-subnet, -4", "--ipv6-subnet, -6", "--log-level", "--debug, -d",
)  # fmt: skip
@click.pass_context
def deploy(context: click.Context, /, topo: str, name: str, reconfigure: bool, form: str, **others: object) -> Any:
    from testbed.machine.live import labs

    refuse(others, "See `testbed up --help`.")
    file = topology(topo)
    name = name or lab_of(str(file))
    if reconfigure and (lab := labs.read(name)):
        take_down(lab, force=False)
        remove_run(lab)
    return context.invoke(up, what=str(file), topo="", name=name, form=form)


@click.command(
    help="""End a lab: `testbed down` with the flags of containerlab.

    It ends the lab of --name, or of the file --topo; default: the only *.clab.yml here."""
)
@topo_option
@name_option
@click.option("--all", "-a", "all_", is_flag=True, help="All labs of this user.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask; no effect, since testbed never asks.")
@click.option("--cleanup", "-c", is_flag=True, help="Remove the run directory, too.")
@click.option("--graceful", is_flag=True, help="Let programs end by themselves; no effect, since testbed always does.")
@format_option
@refused("--vars", "--runtime, -r", "--max-workers", "--timeout", "--node-filter", "--keep-mgmt-net", "--log-level",
         "--debug, -d")  # fmt: skip
@click.pass_context
def destroy(
    context: click.Context, /, topo: str, name: str, all_: bool, cleanup: bool, form: str, **others: object
) -> Any:
    from testbed.machine.live import labs

    refuse(others, "See `testbed down --help`.")
    chosen = labs.every() if all_ else [labs.named(name or lab_of(topo))]
    return context.invoke(down, names=tuple(lab.name for lab in chosen), removed=cleanup, form=form) if chosen else 0
