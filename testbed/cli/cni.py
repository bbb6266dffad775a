"""`testbed cni`: try out a conflist, as cnitool does on a node."""

import asyncio
import json
import os
from pathlib import Path
from typing import Literal

import click

from testbed.cli import options
from testbed.cli.output import log
from testbed.machine import networks, runs
from testbed.protocol.requests import Cni


@click.group(
    help="""Try a CNI conflist out, as cnitool does.

    Each command starts a machine, makes a pod, adds it to the network of CONFLIST and takes it away again. Without a
    topology the pod's node has one NIC, eth1, behind one switch. CONFLIST may also be the configuration of one plugin.
    As with libcni, files NETWORK/*.conf beside it add plugins.

    Your own plugins, scripts or binaries, are copied into the machine: the plugins in the directories of CNI_PATH that
    CONFLIST names, and everything in a --plugin-dir. They are searched before Debian's.

    Exit status: 0, 1 for a plugin's error, 2 for a wrong conflist."""
)
def cni() -> None:
    pass


def add_command(name: Literal["add", "check", "del", "gc", "status"], text: str) -> None:
    @cni.command(name, help=text)
    @click.argument("conflist", type=click.Path(path_type=Path))
    @click.option("--ifname", envvar="CNI_IFNAME", default="eth0", show_default=True, help="The pod's interface.")
    @click.option("--args", "arguments", envvar="CNI_ARGS", default="", metavar="K=V;K=V", help="CNI_ARGS.")
    @click.option(
        "--capability-args", envvar="CAP_ARGS", default="", metavar="JSON", help="Values for the plugins' capabilities."
    )
    @click.option(
        "--plugin-dir",
        "plugin_directories",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="A directory with your own plugins; may be repeated.",
    )
    @click.option("--topology", type=click.Path(path_type=Path), help="Your own topology file.")
    @click.option("--node", help="The pod's node. Default: the first host.")
    @options.machine_options
    def run(
        conflist: Path,
        ifname: str,
        arguments: str,
        capability_args: str,
        plugin_directories: tuple[Path, ...],
        topology: Path | None,
        node: str | None,
        on: options.MachineOptions,
    ) -> int:
        request = Cni(
            command=name,
            conflist=str(conflist),
            topology=str(topology) if topology else None,
            node=node,
            interface=ifname,
            arguments=arguments,
            capabilities=capability_args,
        )
        asyncio.run(networks.load(request))
        plugins = networks.own_plugins([conflist], plugin_directories, os.environ.get("CNI_PATH", ""))
        for directory, names in plugins.items():
            log(f"your plugins of {directory}: {', '.join(names)}")
        machine = options.choose(on.machine, on.clock, log)
        answer = asyncio.run(networks.use(request, plugins, machine, on.seed, runs.run_directory(on.out, "cni")))
        if name == "add":
            click.echo(json.dumps(answer["result"], indent=4))
        if answer["kept"]:
            log(f"the plugins keep, after a node's first pod: {'; '.join(answer['kept'])}")
        return 0


add_command("add", "Add a pod to the network and print the result.")
add_command("check", "Add a pod, and have the plugins check it.")
add_command("del", "Add a pod, delete it, and check that nothing is left.")
add_command("gc", "Add a pod, lose it without DEL, collect garbage, and check that nothing is left.")
add_command("status", "Ask the plugins whether they can add a pod (CNI 1.1).")
