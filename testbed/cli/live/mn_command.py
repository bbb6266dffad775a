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

PACKAGES = ["iperf", "openvswitch-testcontroller", "vlan"]
"""Debian packages that Mininet's users have: `iperf`, the default controller, `vconfig`."""
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


def travelling(words: tuple[str, ...]) -> tuple[list[str], dict[str, bytes], Path]:
    """Return the words for the machine, the files that go along, and their directory here: those beside the script, or
    beside the files of `--custom`."""
    from testbed.machine import files

    given = list(words) or ["--topo", "minimal"]
    scripts = {0: given[0]} if not given[0].startswith("-") else {}
    for number, word in enumerate(given):
        option, equals, value = word.partition("=")
        if option == "--custom" and (equals or number + 1 < len(given)):
            scripts[number + (not equals)] = value if equals else given[number + 1]
    beside = {TOPOLOGY: EMPTY.encode()}
    places = []
    for number, names in scripts.items():
        paths = [Path(name) for name in names.split(",")]
        for path in paths:
            if path.suffix != ".py":
                raise InputError("is not a Mininet script: its name must end in .py", where=str(path))
            files.read(path)
            places.append(path.resolve().parent)
            beside |= files.below(places[-1])
        named = ",".join(path.name for path in paths)
        given[number] = f"--custom={named}" if given[number].startswith("--custom=") else named
    return given, beside, places[0] if places else Path()


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    help="""Run a Mininet script in a machine, up to its `mininet>` prompt. The machine ends with it: `exit`, Ctrl-D.

    A script that only defines `topos` is run as `mn --custom SCRIPT ARGS`, with RoCE on its hosts (`--host proc`:
    without); a script that calls Mininet itself creates its hosts with `testbed.mininet.RdmaHost`. Without a script the
    options are those of `mn`: `--topo linear,4`, `--custom FILE --topo NAME`, `--test pingall`. A script can read the
    files beside it; files that it writes are lost with the machine.""",
)
@out_option
@click.argument("words", metavar="[SCRIPT] [ARGS...]", nargs=-1, type=click.UNPROCESSED)
def mn(out: Path, words: tuple[str, ...]) -> int:
    from testbed.cli.live.source import Found
    from testbed.machine.jobs import below
    from testbed.machine.live.connection import Streams
    from testbed.protocol.live import Exec

    given, beside, place = travelling(words)
    shown = words[0] if words and not words[0].startswith("-") else "mn"
    asked = {"topology": TOPOLOGY}
    found = Found(f"mn-{Path(shown).stem}", shown, beside, asked, below(place), packages=PACKAGES)
    command = [*BESIDE, "python3", "-P", "-c", RUN, *given]
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
