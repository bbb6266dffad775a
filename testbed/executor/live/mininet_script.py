"""The program behind `testbed mn`: a Mininet script, or the Topo that it only defines."""

import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NoReturn

OVS_CTL = "/usr/share/openvswitch/scripts/ovs-ctl"
RUNNER = "/usr/bin/mn"
CUSTOM = """
from testbed.mininet import KernelBridge, RdmaHost
hosts, switches = {"rdma": RdmaHost}, {"kernel": KernelBridge}
"""
"""Additions to `mn`, whose variables the names become."""


def main() -> None:
    """Run the script. Arguments: the script, and what follows it on the command line."""
    script, *arguments = sys.argv[1:]
    sys.path.insert(0, str(Path(script).resolve().parent))
    from mininet.net import Mininet
    from mininet.node import OVSSwitch

    made: list[Any] = []
    first, setup = Mininet.__init__, OVSSwitch.setup.__func__

    def make(self: Any, *given: Any, **options: Any) -> None:
        made.append(self)
        first(self, *given, **options)

    def set_up(kind: Any) -> None:
        start_open_vswitch()
        setup(kind)

    Mininet.__init__, OVSSwitch.setup = make, classmethod(set_up)
    sys.argv = [script, *arguments]
    found = runpy.run_path(script, run_name="__main__")
    if not made:
        run_topo(script, found.get("topos"), arguments)


def start_open_vswitch() -> None:
    """Start the daemons that a machine lacks before a switch that needs them is created."""
    subprocess.run(["modprobe", "openvswitch"], check=True)
    Path("/etc/resolv.conf").touch()  # each of its programs warns of its absence
    done = subprocess.run([OVS_CTL, "start", "--system-id=testbed"], capture_output=True, text=True, check=False)
    if done.returncode:
        refuse(f"Open vSwitch does not start: {done.stderr.strip()}")


def run_topo(script: str, topos: Any, arguments: list[str]) -> None:
    """Run a script as `mn --custom SCRIPT` does, with its only topology or that of `--topo`; hosts have RoCE."""
    name = Path(script).name
    if not topos:
        refuse(f"{name} creates no network: it must call Mininet(…) or define `topos`")
    if not any(one.startswith("--topo") for one in arguments):
        if len(topos) > 1:
            refuse(f"{name} has several topologies; name {' or '.join(topos)}: testbed mn {name} --topo NAME")
        arguments = ["--topo", *topos, *arguments]
    with tempfile.NamedTemporaryFile("w", suffix=".py") as custom:
        custom.write(CUSTOM)
        custom.flush()
        sys.argv = ["mn", "--custom", custom.name, "--custom", script, "--host", "rdma", *arguments]
        runpy.run_path(RUNNER, run_name="__main__")


def refuse(text: str) -> NoReturn:
    print(f"error: {text}", file=sys.stderr)
    sys.stderr.flush()
    os._exit(2)  # what the script started does not go on
