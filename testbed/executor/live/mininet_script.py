"""The program behind `testbed mn`: a Mininet script, the Topo that it only defines, or `mn` itself."""

import os
import re
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

OVS_CTL = "/usr/share/openvswitch/scripts/ovs-ctl"
RUNNER = "/usr/bin/mn"
CONTROLLER = Path("/usr/bin/controller")
OPENFLOW_S_CONTROLLER = """#!/bin/sh
for word; do
    shift
    [ "$word" = ptcp: ] && word=ptcp:6633
    set -- "$@" "$word"
done
exec /usr/bin/ovs-testcontroller "$@"
"""
"""The program of Mininet's `Controller`, which Debian does not have: Open vSwitch's, at the port of OpenFlow's own."""
CUSTOM = """
from testbed.mininet import KernelBridge, RdmaHost
hosts, switches = {"rdma": RdmaHost}, {"kernel": KernelBridge}
"""
"""Additions to `mn`, whose variables the names become."""
ANSWER_S = 60
"""Seconds for the first answer of Open vSwitch."""
REPORT_S = 10.0
"""Seconds for the server's report after an iperf client has ended."""


def main() -> None:
    """Run the script. Arguments: the script, and what follows it on the command line; or only options of `mn`."""
    script, *arguments = sys.argv[1:]
    if script.startswith("-"):
        prepare()
        run_mn([script, *arguments])
        return
    sys.path.insert(0, str(Path(script).resolve().parent))
    made = prepare()
    if b"ovs-" in Path(script).read_bytes():  # commands for its daemons, without a switch of Mininet's
        start_open_vswitch()
    sys.argv = [script, *arguments]
    found = runpy.run_path(script, run_name="__main__")
    if not made:
        run_topo(script, found.get("topos"), arguments)


def prepare() -> list[Any]:
    """Give Mininet what it finds on a machine of its own: a controller, the daemons of Open vSwitch, an iperf that
    ends, limits of CPU. Return the list of the networks and nodes that are made from now on."""
    from mininet.net import Mininet
    from mininet.node import CPULimitedHost, Node, OVSSwitch

    from testbed.executor.live.mininet_cpu import use_cgroup_v2

    made: list[Any] = []
    setup = OVSSwitch.setup.__func__

    def counted(first: Any) -> Any:
        def make(self: Any, *given: Any, **options: Any) -> None:
            made.append(self)
            first(self, *given, **options)

        return make

    def set_up(kind: Any) -> None:
        start_open_vswitch()
        setup(kind)

    Mininet.__init__, Node.__init__ = counted(Mininet.__init__), counted(Node.__init__)
    OVSSwitch.setup, Mininet.iperf = classmethod(set_up), iperf
    use_cgroup_v2(CPULimitedHost)
    if not CONTROLLER.exists():
        CONTROLLER.write_text(OPENFLOW_S_CONTROLLER)
        CONTROLLER.chmod(0o755)
    return made


def start_open_vswitch() -> None:
    """Start the daemons that a machine lacks before a switch that needs them is created."""
    subprocess.run(["modprobe", "openvswitch"], check=True)
    Path("/etc/resolv.conf").touch()  # each of its programs warns of its absence
    done = subprocess.run([OVS_CTL, "start", "--system-id=testbed"], capture_output=True, text=True, check=False)
    if done.returncode:
        refuse(f"Open vSwitch does not start: {done.stderr.strip()}")
    # Mininet gives it one second to answer (OVSSwitch.setup); the first call of a machine that is busy takes longer.
    subprocess.run(["ovs-vsctl", f"--timeout={ANSWER_S}", "show"], capture_output=True, check=False)


def iperf(
    self: Any,
    hosts: Any = None,
    l4Type: str = "TCP",  # noqa: N803
    udpBw: str = "10M",  # noqa: N803
    fmt: str | None = None,
    seconds: float = 5,
    port: int = 5001,
) -> list[str]:
    """Measure as `Mininet.iperf` does. That one waits for two reports of the server, one of them for its own probe of
    the port, for which iperf 2.2 prints none (Mininet's issues 1060 and 1239)."""
    from mininet.log import output
    from mininet.util import waitListening

    client, server = hosts or [self.hosts[0], self.hosts[-1]]
    udp = l4Type == "UDP"
    output(f"*** Iperf: testing {l4Type} bandwidth between {client} and {server}\n")
    words = ["iperf", "-p", str(port), *(["-u"] if udp else []), *(["-f", fmt] if fmt else [])]
    server.cmd("killall -9 iperf")
    server.sendCmd(" ".join([*words, "-s"]))
    if not (udp or waitListening(client, server.IP(), port)):
        raise RuntimeError(f"Could not connect to iperf on port {port}")
    bandwidth = ["-b", udpBw] if udp else []
    from_client = client.cmd(*words, "-t", seconds, "-c", server.IP(), *bandwidth)
    from_server, deadline = "", time.monotonic() + REPORT_S
    while "/sec" not in from_server and time.monotonic() < deadline:
        from_server += server.monitor(timeoutms=500)
    server.sendInt()
    from_server += server.waitOutput()
    found = [last_rate(from_server), last_rate(from_client)]
    if udp:
        found.insert(0, udpBw)
    output(f"*** Results: {found}\n")
    return found


def last_rate(text: str) -> str:
    """Return the last rate of a report of iperf, such as `9.57 Gbits/sec`; empty without one."""
    rates = re.findall(r"([\d.]+ \w+/sec)", text)
    return rates[-1] if rates else ""


def run_topo(script: str, topos: Any, arguments: list[str]) -> None:
    """Run a script as `mn --custom SCRIPT` does, with its only topology or that of `--topo`."""
    name = Path(script).name
    if not topos:
        refuse(f"{name} creates no network: it must call Mininet(…) or define `topos`")
    if not any(one.startswith("--topo") for one in arguments):
        if len(topos) > 1:
            refuse(f"{name} has several topologies; name {' or '.join(topos)}: testbed mn {name} --topo NAME")
        arguments = ["--topo", *topos, *arguments]
    run_mn(["--custom", script, *arguments])


def run_mn(arguments: list[str]) -> None:
    """Run `mn` with these options. Its hosts have RoCE, unless an option `--host` says otherwise."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as custom:
        custom.write(CUSTOM)
        custom.flush()
        sys.argv = ["mn", "--custom", custom.name, "--host", "rdma", *arguments]
        runpy.run_path(RUNNER, run_name="__main__")


def refuse(text: str) -> NoReturn:
    print(f"error: {text}", file=sys.stderr)
    sys.stderr.flush()
    os._exit(2)  # what the script started does not go on
