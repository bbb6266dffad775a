"""The command `testbed`. Its help must appear at once, so a subcommand's module is imported when it is called."""

from __future__ import annotations

import errno
import importlib
import itertools
import json
import os
import shlex
import sys
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from testbed.cli.interrupts import Interrupts
from testbed.errors import DISK_FULL, InputError, TestbedError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = {
    "run": ("testbed.cli.run_command", "Run scenarios and report whether they went as expected."),
    "rerun": ("testbed.cli.rerun", "Repeat a run from its directory, and compare the traces."),
    "continue": ("testbed.cli.live.stopping:continue_", "Continue a stopped run."),
    "back": ("testbed.cli.live.stopping:back", "Go back to a kept step of a run."),
    "diff": ("testbed.cli.diff", "Show the first event in which two runs differ, and the switch tables there."),
    "matrix": ("testbed.cli.sweep.matrix", "Run a variant for each value of a parameter, and compare what users see."),
    "sweep": ("testbed.cli.sweep.sweep_command:sweep", "Run a scenario with many seeds; find unexpected runs."),
    "shrink": ("testbed.cli.sweep.shrink", "Find the fewest settings and faults with which a run still fails."),
    "train": (
        "testbed.cli.train.train_command:train",
        "Run your own training script on a lab, and break the network under it.",
    ),
    "report": ("testbed.cli.report", "Make the report of a run from its directory."),
    "compare": ("testbed.cli.report", "Put runs, or variants of runs, side by side in one report."),
    "counters": ("testbed.cli.counters_command:counters", "Print a run's counters over time, or its events, as CSV."),
    "diagnose": ("testbed.cli.diagnose", "Report which rank of a job stalled first, on which link, since when, why."),
    "list": ("testbed.cli.scenario_list:list_", "List the scenarios."),
    "describe": ("testbed.cli.scenario_list", "Show what happens in a scenario, its variants and its parameters."),
    "new": ("testbed.cli.new_command:new", "Write a scenario of your own that runs, for you to edit."),
    "pytest": ("testbed.cli.pytest", "Run your own pytest files inside a machine."),
    "up": ("testbed.cli.live.up", "Bring up a lab that lives until `testbed down`."),
    "apply": ("testbed.cli.live.apply_command:apply", "Bring a lab to its edited file, or add Kubernetes objects."),
    "get": ("testbed.cli.live.object_commands:get", "List the Kubernetes objects of a lab."),
    "delete": ("testbed.cli.live.object_commands:delete", "Delete Kubernetes objects of a lab."),
    "scale": ("testbed.cli.live.object_commands:scale", "Give a workload of a lab another size."),
    "rollout": ("testbed.cli.live.object_commands:rollout", "Restart the pods of a workload of a lab."),
    "down": ("testbed.cli.live.up:down", "End labs."),
    "ps": ("testbed.cli.live.up:ps", "List the labs that are up."),
    "inspect": ("testbed.cli.live.inspect_commands:inspect", "Show the nodes, interfaces and faults of a lab."),
    "top": ("testbed.cli.live.top", "Watch a lab: rates and drops, tables, queue pairs, faults, events."),
    "exec": ("testbed.cli.live.program_commands:exec_", "Run a command on nodes of a lab."),
    "shell": ("testbed.cli.live.program_commands:shell", "Open a shell on a node of a lab."),
    "logs": ("testbed.cli.live.logs_command", "Show the output of programs on a lab's nodes."),
    "capture": ("testbed.cli.live.program_commands:capture", "Capture an interface of a lab, live."),
    "tables": ("testbed.cli.live.inspect_commands:tables", "Show the ARP, ND and FDB tables of a switch of a lab."),
    "events": ("testbed.cli.live.inspect_commands:events", "Show the events of a lab."),
    "advance": ("testbed.cli.live.change_commands:advance", "Let virtual time pass in a lab."),
    "address": ("testbed.cli.live.change_commands:address", "Add, delete or move an address of a host or pod."),
    "announce": ("testbed.cli.live.change_commands:announce", "Announce an interface's address by GARP or NA."),
    "link": ("testbed.cli.live.change_commands:link", "Change links of a lab."),
    "pod": ("testbed.cli.live.change_commands:pod", "Create and delete pods in a lab."),
    "reboot": ("testbed.cli.live.change_commands:reboot", "Reboot hosts of a lab, with their pods."),
    "rdma": ("testbed.cli.live.change_commands:rdma", "Send an RDMA WRITE in a lab: the ping of RoCE."),
    "probe": ("testbed.cli.live.probe_command:probe", "Probe all pairs of NICs of a lab: a pingmesh."),
    "incident": (
        "testbed.cli.incident.incident_commands:incident",
        "Work on a lab in which something is wrong that nobody tells.",
    ),
    "mcp": ("testbed.cli.mcp.mcp_command:mcp", "Serve labs to assistants as tools: a server for MCP."),
    "metrics": ("testbed.cli.metrics", "Print alarms and a dashboard for the metrics of labs."),
    "save": ("testbed.cli.live.change_commands:save", "Write a lab's topology file, with the changes made by hand."),
    "deploy": ("testbed.cli.live.containerlab_commands:deploy", "The same as `up`, with containerlab's flags."),
    "destroy": ("testbed.cli.live.containerlab_commands:destroy", "The same as `down`, with containerlab's flags."),
    "mn": ("testbed.cli.live.mn_command:mn", "Run a Mininet script in a machine, up to its `mininet>` prompt."),
    "topology": ("testbed.cli.topology_command", "Create or check a topology file, or print the format's JSON Schema."),
    "graph": ("testbed.cli.topology_command:graph", "Draw a topology file, or the lab that is up."),
    "fault": ("testbed.cli.fault_list", "List faults, inject them into a lab that is up, recover them."),
    "profile": ("testbed.cli.fault_list", "List switch profiles; change the profile of a switch in a lab."),
    "cni": ("testbed.cli.cni", "Try a CNI conflist out, as cnitool does."),
    "bench": ("testbed.cli.bench", "Measure IPAM plugins and RDMA devices with many pods."),
    "image": ("testbed.cli.image_command", "Build, show, move or remove the image that machines boot from."),
    "gc": ("testbed.cli.doctor", "Remove what killed labs left on this kernel."),
    "doctor": ("testbed.cli.doctor", "Check what works on this machine, and print how to fix the rest."),
    "completion": ("testbed.cli.completion", "Print the script for shell completion."),
}
"""Name -> module[:attribute], where the attribute defaults to the name of the command, and the line for the help."""

SECTIONS = {
    "run": "Scenarios and runs",
    "up": "Labs that live",
    "topology": "Topologies, faults, plugins",
    "image": "This machine",
}
"""Headings of the help, by the command below each."""
KUBECTL = {
    **dict.fromkeys(("cordon", "uncordon", "drain"), "Apply its Node with `spec: {unschedulable: true}`, or false."),
    **dict.fromkeys(("taint", "label", "annotate", "create", "edit", "patch", "replace"), "Apply the changed object."),
    "describe": "`testbed get KIND NAME -o yaml` and `testbed events` have it.",
}
"""What to type in the place of kubectl's commands that are not here."""
LOOP = "Symlink loop from "
EPILOG = "Exit status: 0 as expected, 1 not as expected, 2 wrong usage or input, 3 this machine cannot do it."


class LazyGroup(click.Group):
    """Group that has its commands by name and line; it loads one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "help":
            return help_command()
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute or cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Complete the names of commands without loading them."""
        found = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        return found or super(click.Group, self).shell_complete(ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names, starts = list(COMMANDS), [*map(list(COMMANDS).index, SECTIONS), len(COMMANDS)]
        for heading, start, end in zip(SECTIONS.values(), starts, starts[1:], strict=False):
            with formatter.section(heading):
                formatter.write_dl([(name, COMMANDS[name][1]) for name in names[start:end]])


def help_command() -> click.Command:
    """Return the command `help [COMMAND…]`, which is `[COMMAND…] --help`."""

    @click.command("help", add_help_option=False)
    @click.argument("words", nargs=-1)
    @click.pass_context
    def show_help(context: click.Context, words: tuple[str, ...]) -> None:
        cli.main([*words, "--help"], prog_name="testbed", standalone_mode=False)

    return show_help


def print_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from testbed.version import version

        click.echo(f"testbed {version()}")
        ctx.exit()


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=print_version, help="Show the version."
)
def cli() -> None:
    """Reproduce RoCE network failures of AI clusters, without RDMA hardware."""


def main() -> None:
    for stream in filter(None, (sys.stdout, sys.stderr)):  # a stream that was closed by the caller is None
        stream.reconfigure(errors="replace")
    if "_TESTBED_COMPLETE" in os.environ:
        importlib.import_module("testbed.cli.completion")  # registers its shells
    os.environ["PATH"] = with_sbin(os.environ.get("PATH", os.defpath))
    interrupts = Interrupts()
    try:
        status = invoke(sys.argv[1:])
    except BaseException:
        if not interrupts.first:
            raise
        status = interrupted(sys.argv[1:])
    interrupts.over()
    sys.exit(128 + interrupts.first if interrupts.first else status)


def with_sbin(path: str) -> str:
    """Return a PATH with the directories of administrators' programs, which Debian's users do not have."""
    known = path.split(os.pathsep)
    return os.pathsep.join(
        [*known, *(place for place in ("/usr/local/sbin", "/usr/sbin", "/sbin") if place not in known)]
    )


def invoke(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status. Every error ends here, with its message on standard error and with
    --json as an object on standard output, too. A defect of testbed stays an exception."""
    try:
        status = cli.main(arguments, prog_name="testbed", standalone_mode=False, obj=shlex.join(arguments))
    except click.ClickException as error:
        failure = usage_error(error)
        usage = error.ctx.get_usage() if isinstance(error, click.UsageError) and error.ctx else ""
        status = give_up(arguments, failure, error.exit_code, usage)
    except (click.Abort, KeyboardInterrupt):
        status = interrupted(arguments)
    except TestbedError as error:
        status = give_up(arguments, error, error.exit_status)
    except RuntimeError as error:
        if not str(error).startswith(LOOP):  # of pathlib, before Python 3.13
            raise
        where = str(error).removeprefix(LOOP)
        status = give_up(arguments, InputError("is a symbolic link to itself", where=where), 2)
    except OSError as error:
        if error.errno in DISK_FULL:
            message, hint = "the disk is full", "Free some space, or name another place."
        elif error.errno == errno.EROFS or (error.errno in (errno.EACCES, errno.EPERM) and error.filename):
            message = "this file system is read-only" if error.errno == errno.EROFS else "permission denied"
            hint = "Name another place: --out for runs, XDG_CACHE_HOME for the cache, TMPDIR for temporary files."
        else:
            raise
        where = str(error.filename or "")
        if named := error.errno == errno.EACCES and any(_leads_to(word, where) for word in arguments):
            hint = ""
        status = give_up(arguments, TestbedError(message, where=where, hint=hint), 2 if named else 3)
    return status if isinstance(status, int) else 0


def _leads_to(word: str, path: str) -> bool:
    """Return whether a word of the command is a path, or a part of one, that the user has named."""
    here, there = os.path.abspath(word), os.path.abspath(path)
    return word not in ("", "/") and bool(path) and f"{there}/".startswith(f"{here}/")


def interrupted(arguments: Sequence[str]) -> int:
    click.echo("interrupted", err=True)
    if asked_for_json(arguments):
        print_json(TestbedError("interrupted"), 130)
    return 130


def usage_error(error: click.ClickException) -> TestbedError:
    """Return the error of click for a wrong call, with the most similar name."""
    asked, known, help_ = "", [], ""
    if isinstance(error, click.UsageError) and error.ctx:
        context = error.ctx
        help_ = f"See `{context.command_path} --help`."
        if isinstance(error, click.NoSuchOption):
            asked = error.option_name
            known = [name for option in context.command.get_params(context) for name in option.opts if name[0] == "-"]
        elif isinstance(error, click.exceptions.NoSuchCommand) and isinstance(context.command, click.Group):
            asked, known = error.command_name, context.command.list_commands(context)
    message = error.message if asked else error.format_message()
    if asked in KUBECTL:
        return TestbedError(message, hint=f"{KUBECTL[asked]} {help_}")
    return TestbedError(message, hint=f"{did_you_mean(asked, known)}{help_}")


def give_up(arguments: Sequence[str], error: TestbedError, status: int, usage: str = "") -> int:
    if usage:
        click.echo(usage, err=True)
    show(error)
    if asked_for_json(arguments):
        print_json(error, status)
    return status


def asked_for_json(arguments: Sequence[str]) -> bool:
    """Return whether --json is among the words before those for another program, whatever else is wrong."""
    words = list(itertools.takewhile(lambda word: word != "--", arguments))
    named = {*itertools.pairwise(words)} & {("-f", "json"), ("--format", "json")}
    return bool(named or {*words} & {"--json", "-fjson", "--format=json"})


def print_json(error: TestbedError, status: int) -> None:
    also = [{"message": message, "where": where} for where, message in error.also]
    found = {"message": error.message, "where": error.where, "hint": error.hint, "also": also}
    click.echo(json.dumps({"error": found, "status": status}))


def show(error: TestbedError) -> None:
    from testbed.cli.words import plain_lines

    label = click.style("error:", fg="red", bold=True) if not os.environ.get("NO_COLOR") else "error:"
    click.echo(f"{label} {plain_lines(str(error))}", err=True)
