"""`testbed mcp`: live labs for assistants, over the Model Context Protocol."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from testbed.cli import completion_values
from testbed.cli.scenario_options import out_option
from testbed.errors import UnsupportedError


@click.command(
    help="""Serve labs that live to an assistant, such as one in an IDE, over the Model Context Protocol: tools that
    show a lab, run commands in it, capture, inject faults, and mend. docs/mcp.md has the lines for an IDE.

    Without --http the assistant's program starts this command, and it speaks over standard input and output. An
    assistant may do in labs what you may do with testbed; it gets no file and no program of this machine."""
)
@click.option(
    "--lab",
    "-l",
    "name",
    envvar="TESTBED_LAB",
    default="",
    metavar="NAME",
    shell_complete=completion_values.labs,
    help="Only this lab; or set TESTBED_LAB.",
)
@click.option(
    "--http",
    "port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve over streamable HTTP at this port of the loopback address, this user only; 0 takes a free port.",
)
@click.option("--read-only", is_flag=True, help="Only tools that change nothing.")
@out_option
def mcp(name: str, port: int | None, read_only: bool, out: Path) -> int:
    if importlib.util.find_spec("mcp") is None:
        hint = "Install it: pip install 'testbed[mcp]'"
        raise UnsupportedError("testbed mcp needs the SDK of MCP, which is not installed", hint=hint)
    from testbed.cli.mcp import mcp_server
    from testbed.cli.mcp.lab_calls import Access
    from testbed.machine.live import endpoint, labs

    if name:
        labs.living(name)
    access = Access(name, not read_only, out.resolve())
    if port is None:
        mcp_server.run_stdio(access)
        return 0
    listening = endpoint.listen(port, "--http")
    click.echo(f"http://{endpoint.address(listening)}/mcp", err=True)
    mcp_server.run_http(access, listening)
    return 0
