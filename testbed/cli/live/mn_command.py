"""`testbed mn`: a Mininet script in a machine of its own."""

import sys
from pathlib import Path

import click

from testbed.cli.live.live_options import put
from testbed.cli.live.program_commands import attached, feed
from testbed.cli.live.up import brought_up, end
from testbed.cli.scenario_options import out_option
from testbed.errors import InputError
from testbed.protocol import FILES

NODE = "machine"
TOPOLOGY = ".mininet.clab.yml"
"""Name among the job's files that does not collide with hidden files of the user's."""
EMPTY = f"name: mn\ntopology: {{nodes: {{{NODE}: {{kind: host}}}}}}\n"
"""A lab needs a node. The script runs beside it, in the machine's own namespaces, as Mininet requires."""
BESIDE = "nsenter", "--target", "1", "--net", "--mount", "--"
RUN = f"""
import os, sys
sys.path.append("/run/testbed/code")
os.chdir("/run/testbed/in/{FILES}")
from testbed.executor.live.mininet_script import main
main()
"""


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    help="""Run a Mininet script in a machine, up to its `mininet>` prompt. The machine ends with it: `exit`, Ctrl-D.

    A script that only defines `topos` is run as `mn --custom SCRIPT ARGS`, with RoCE on its hosts (`--host proc`:
    without); a script that calls Mininet itself creates its hosts with `testbed.mininet.RdmaHost`. It can read the
    files beside it; files that it writes are lost with the machine.""",
)
@out_option
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("arguments", metavar="[ARGS...]", nargs=-1, type=click.UNPROCESSED)
def mn(out: Path, script: Path, arguments: tuple[str, ...]) -> int:
    from testbed.cli.live.source import Found
    from testbed.machine import files
    from testbed.machine.jobs import below
    from testbed.machine.live.connection import Streams
    from testbed.protocol.live import Exec

    if script.suffix != ".py":
        raise InputError("is not a Mininet script: its name must end in .py", where=str(script))
    files.read(script)
    place = script.resolve().parent
    beside = {**files.below(place), TOPOLOGY: EMPTY.encode()}
    found = Found(f"mn-{script.stem}", str(script), beside, {"topology": TOPOLOGY}, below(place))
    command = [*BESIDE, "python3", "-P", "-c", RUN, script.name, *arguments]
    with brought_up(found, "real", 1, None, out, attached=True) as connection:
        if sys.stdin.isatty() and sys.stdout.isatty():
            status = attached(connection, NODE, command)
        else:
            streams = Streams(connection, put)
            request = Exec(node=NODE, command=command, input=True)
            streams.number = connection.ask(request, streams.receive)
            feed(connection, [streams])
            status = int(connection.end(streams.number))
        end(connection)
    return status
