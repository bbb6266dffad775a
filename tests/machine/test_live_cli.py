"""Watching labs that live, and Mininet's scripts: one lab on the real clock for most, one on the virtual."""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import COMMAND, LIMIT_S, Done
from terminal import Terminal

TOPOLOGY = """
name: {name}
topology:
  nodes:
    h1: {{kind: host, exec: [echo hello]}}
    h2: {{kind: host}}
    leaf: {{kind: switch}}
  links:
    - endpoints: ["h1:eth1", "leaf:e1"]
    - endpoints: ["h2:eth1", "leaf:e2"]
"""
WITHIN_S = 60
Run = Callable[..., Done]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working directory, with the labs `real` and `virtual` up in a state directory of its own."""
    directory = tmp_path_factory.mktemp("live")
    try:
        for clock in "real", "virtual":
            (directory / f"{clock}.clab.yml").write_text(TOPOLOGY.format(name=clock))
            assert run_in(directory, "up", f"{clock}.clab.yml", "--clock", clock).status == 0
        yield directory
    finally:
        run_in(directory, "down", "--all")


def run_in(place: Path, *arguments: str, text: str = "", lab: str = "", **variables: str) -> Done:
    env = {**environment(place), "TESTBED_LAB": lab, **variables}
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=place,
        env=env,
        input=text,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def environment(place: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(place / "state"), "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}


@pytest.fixture
def real(place: Path) -> Run:
    return lambda *arguments: run_in(place, *arguments, lab="real")


@pytest.fixture
def virtual(place: Path) -> Run:
    return lambda *arguments: run_in(place, *arguments, lab="virtual")


@contextmanager
def terminal(place: Path, *arguments: str) -> Iterator[Terminal]:
    screen = Terminal([*COMMAND, *arguments], place, environment(place))
    try:
        yield screen
    finally:
        screen.end()


def shows(screen: Terminal, *texts: str) -> str:
    """What it wrote until all of these were there, one after the other."""
    found = [screen.expect(f"(?s).*?{re.escape(text)}") for text in texts]
    return "".join(match[0] for match in found)


# Logs


def test_logs_are_behind_their_node_and_program(real: Run) -> None:
    assert "h1 echo-1 | hello" in real("logs").out.splitlines()
    [found] = map(json.loads, real("logs", "h1", "-f", "json").out.splitlines())
    assert found == {"node": "h1", "program": "echo-1", "line": "hello"}
    assert "It has: h1, h2, leaf." in real("logs", "h3").error


def test_logs_follow_what_a_program_writes_later(place: Path, real: Run) -> None:
    command = ["timeout", str(WITHIN_S), *COMMAND, "logs", "h2", "--follow", "--lab", "real"]
    with subprocess.Popen(command, cwd=place, env=environment(place), stdout=subprocess.PIPE, text=True) as followed:
        real("exec", "-d", "h2", "--", "sh", "-c", "echo one; sleep 0.2; echo two; exec sleep 100")
        assert followed.stdout
        assert [followed.stdout.readline() for _ in range(2)] == ["h2 sh-1 | one\n", "h2 sh-1 | two\n"]
        followed.terminate()


def test_a_log_that_is_larger_than_the_window_comes_whole(real: Run, virtual: Run) -> None:
    for run in real, virtual:
        numbers = 200_000  # 1.3 MB
        run("exec", "h1", "--", "true")
        run("exec", "-d", "leaf", "--", "seq", str(numbers))
        deadline = time.monotonic() + WITHIN_S
        while True:
            lines = run("logs", "leaf").out.splitlines()
            if len(lines) >= numbers or time.monotonic() > deadline:
                break
        assert [line.rpartition(" ")[2] for line in lines] == [str(number) for number in range(1, numbers + 1)]


# Top


def test_top_has_queue_pairs_with_their_states_and_counters(real: Run) -> None:
    real("exec", "-d", "h1", "--", "ib_write_bw", "-d", "h1-eth1", "-x", "1", "-D", "60")
    address = next(
        row["addresses"][0].partition("/")[0]
        for node in real("inspect", "-f", "json").json["nodes"]
        for row in node["interfaces"]
        if node["name"] == "h1"
    )
    loop = f"until ib_write_bw -d h2-eth1 -x 1 -D 60 {address}; do sleep 0.1; done"
    real("exec", "-d", "h2", "--", "sh", "-c", loop)
    deadline = time.monotonic() + WITHIN_S
    states: Any = []
    while states != [("h1", "RTR"), ("h2", "RTS")] and time.monotonic() < deadline:
        found = real("top", "-f", "json").json
        states = [(pair["node"], pair["state"]) for pair in found["queue_pairs"]]
    assert states == [("h1", "RTR"), ("h2", "RTS")]
    assert {row["end"] for row in found["ports"]} == {"h1:eth1", "h2:eth1", "leaf:e1", "leaf:e2"}
    assert found["tables"]["leaf"]["fdb"] == 2
    assert "ib_write_bw" in real("top", "--once").out


def test_top_is_drawn_again_on_the_real_clock_and_q_ends_it(place: Path) -> None:
    with terminal(place, "top", "--lab", "real", "--interval", "0.2s") as screen:
        first = shows(screen, "port", "leaf:e1", "q quits")
        assert "real clock" in first
        assert " - " in first
        assert " - " not in shows(screen, "q quits").rpartition("rx bit/s")[2]  # rates take two pictures
        screen.send("q")
        assert screen.status() == 0


def test_top_draws_a_lab_on_the_virtual_clock_when_something_happened_and_no_time_passes_for_it(
    place: Path, virtual: Run
) -> None:
    with terminal(place, "top", "--lab", "virtual") as screen:
        shows(screen, "virtual clock", "q quits")
        before = virtual("inspect", "-f", "json").json["now_s"]
        time.sleep(1.5)
        after = virtual("inspect", "-f", "json").json["now_s"]
        assert after - before < 0.1
        virtual("rdma", "write", "h1", "h2")
        shows(screen, "ends with SUCCESS")
        screen.send("\x03")
        assert screen.status() == 0


# What completes, a drawing, containerlab's words


def test_completion_costs_no_virtual_time(place: Path, virtual: Run) -> None:
    before = requests(place)
    env = {**environment(place), "_TESTBED_COMPLETE": "bash_complete", "COMP_LINE": "testbed capture -l virtual leaf:"}
    done = subprocess.run(COMMAND, env=env, cwd=place, capture_output=True, text=True, check=True)
    assert [line.split("\t")[1] for line in done.stdout.splitlines()] == ["leaf:e1", "leaf:e2"]
    assert requests(place) == before


def requests(place: Path) -> list[str]:
    """What the lab was asked. The end of an earlier command that was interrupted may be noted late."""
    lines = (place / "runs" / "virtual" / "latest" / "session.jsonl").read_text().splitlines()
    return [line for line in lines if "request" in json.loads(line)]


def test_graph_draws_the_lab_that_is_up(real: Run) -> None:
    assert real("graph").out.startswith("<svg")
    assert "several labs" not in real("graph", "--format", "dot").error


def test_deploy_and_destroy(place: Path) -> None:
    (place / "clab").mkdir()
    (place / "clab" / "x.clab.yml").write_text(TOPOLOGY.format(name="third"))
    assert run_in(place, "deploy", "-t", "clab").status == 0
    assert "a lab third is there" in run_in(place, "deploy", "-t", "clab").error
    again = run_in(place, "deploy", "-t", "clab/x.clab.yml", "--reconfigure", "-f", "json")
    assert again.json["state"] == "up"
    assert run_in(place, "destroy", "-t", "clab/x.clab.yml", "--cleanup").status == 0
    assert [*(place / "runs" / "third").iterdir()] == []


# CNI plugins of one's own

PLUGIN = """#!/usr/bin/python3
import json, os, sys
given = json.load(sys.stdin)
if os.environ["CNI_COMMAND"] == "VERSION":
    print(json.dumps({"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}))
elif os.environ["CNI_COMMAND"] == "ADD":
    result = given["prevResult"]
    result["dns"] = {"domain": "NAME.example"}
    print(json.dumps(result))
"""
CONFLIST = {
    "cniVersion": "1.0.0",
    "name": "own",
    "plugins": [
        {"type": "macvlan", "master": "eth1", "ipam": {"type": "static", "addresses": [{"address": "10.0.10.100/24"}]}},
        {"type": "beside"},
        {"type": "elsewhere"},
        {"type": "of-the-path"},
    ],
}


def test_a_lab_of_a_file_has_the_user_s_own_plugins(tmp_path: Path) -> None:
    places = {"cni-plugins": "beside", "dir": "elsewhere", "path": "of-the-path"}
    for place, name in places.items():
        (tmp_path / place).mkdir()
        (tmp_path / place / name).write_text(PLUGIN.replace("NAME", name))
        (tmp_path / place / name).chmod(0o755)
    (tmp_path / "path" / "unused").write_text("large")
    (tmp_path / "path" / "unused").chmod(0o755)
    (tmp_path / "own.conflist").write_text(json.dumps(CONFLIST))
    (tmp_path / "x.clab.yml").write_text(TOPOLOGY.format(name="plugins"))
    up = run_in(tmp_path, "up", "x.clab.yml", "--plugin-dir", "dir", CNI_PATH=str(tmp_path / "path"))
    assert up.status == 0, up.err
    assert f"your plugins of {tmp_path}/path: of-the-path" in up.err
    try:
        done = run_in(tmp_path, "pod", "add", "h1", "p1", "own.conflist")
        assert done.status == 0, done.err
        assert "of-the-path.example" in run_in(tmp_path, "events", "-f", "json").out
    finally:
        run_in(tmp_path, "down")


# Mininet

TOPOS = """
from mininet.topo import Topo
class Pair(Topo):
    def build(self):
        for host in "h1", "h2":
            self.addLink(self.addHost(host), "s1" if host == "h2" else self.addSwitch("s1"))
topos = {"pair": Pair}
"""
SCRIPT = """
import sys
from mininet.cli import CLI
from mininet.net import Mininet
from testbed.mininet import KernelBridge, RdmaHost
from topo import Pair
print("arguments:", *sys.argv[1:])
net = Mininet(Pair(), host=RdmaHost, switch=KernelBridge, controller=None)
net.start()
CLI(net)
net.stop()
print("the end")
"""


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    for name, text in ("topo", TOPOS), ("own", SCRIPT), ("none", ""), ("fails", "raise SystemExit(7)"):
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def test_a_mininet_script_has_its_prompt(scripts: Path) -> None:
    with terminal(scripts, "mn", "own.py", "--flag", "a b") as shell:
        shows(shell, "arguments: --flag a b", "mininet> ")
        shell.send("pingall\n")
        shows(shell, "0% dropped (2/2 received)", "mininet> ")
        shell.send("h1 ibv_devices\n")
        shows(shell, "h1-eth0", "mininet> ")
        shell.send("h1 ping h2\n")
        shows(shell, "icmp_seq=1")
        shell.send("\x03")
        shows(shell, "packets transmitted", "mininet> ")
        shell.send("\x04")
        shows(shell, "the end")
        assert shell.status() == 0
    assert run_in(scripts, "ps", "-f", "json").out == "[]\n"


def test_a_file_that_only_has_topologies_is_run_as_mn_does(scripts: Path) -> None:
    done = run_in(scripts, "mn", "topo.py", "--mac", text="pingall\nh1 ibv_devices\nexit\n")
    assert done.status == 0
    assert "0% dropped (2/2 received)" in done.err
    assert "h1-eth0" in done.err


AS_WRITTEN = """
from mininet.net import Mininet
from mininet.topo import SingleSwitchTopo

net = Mininet(topo=SingleSwitchTopo(k=3))
net.start()
print("dropped", net.pingAll())
print("rates", [rate.split()[1] for rate in net.iperf((net.get("h1"), net.get("h2")), seconds=1)])
net["h1"].cmd("vconfig add h1-eth0 7")
print("vlan", "h1-eth0.7" in net["h1"].cmd("ip link"))
net.stop()
"""


def test_a_script_has_mininet_s_default_controller_iperf_and_vconfig(tmp_path: Path) -> None:
    (tmp_path / "star.py").write_text(AS_WRITTEN)
    done = run_in(tmp_path, "mn", "star.py")
    assert done.status == 0, done.err
    assert "dropped 0.0\n" in done.out
    assert re.search(r"^rates \['[KMG]bits/sec', '[KMG]bits/sec'\]$", done.out, re.MULTILINE)
    assert "vlan True\n" in done.out


LIMITED = """
from mininet.net import Mininet
from mininet.node import CPULimitedHost, OVSBridge
from mininet.topo import SingleSwitchTopo
from mininet.util import custom

net = Mininet(SingleSwitchTopo(2), host=custom(CPULimitedHost, cpu=0.1), switch=OVSBridge, controller=None)
net.start()
free, limited = net.hosts
free.setCPUFrac(-1)
limited.setCPUs([0])
groups = [host.group for host in net.hosts]
BUSY = "import time\\nuntil = time.process_time() + 0.3\\nwhile time.process_time() < until: pass"
for host in net.hosts:
    host.cmd("python3", "-c", f"'{BUSY}'")
    stat = (host.group / "cpu.stat").read_text()
    print("throttled", host.name, int(stat.split("nr_throttled ")[1].split()[0]) > 0)
    inside = host.popen(["cat", "/proc/self/cgroup"]).communicate()[0].decode().strip()
    print("group", host.name, inside)
print("cpus", (limited.group / "cpuset.cpus").read_text())
net.stop()
print("left", [group.name for group in groups if group.exists()])
CPULimitedHost("h3", sched="rt", inNamespace=False)
"""


def test_a_script_limits_the_cpu_of_its_hosts(tmp_path: Path) -> None:
    (tmp_path / "limits.py").write_text(LIMITED)
    done = run_in(tmp_path, "mn", "limits.py")
    assert "throttled h1 False\ngroup h1 0::/mininet/h1\nthrottled h2 True\ngroup h2 0::/mininet/h2\n" in done.out
    assert "cpus 0\n" in done.out
    assert "left []\n" in done.out
    assert "ValueError: host h3: cgroup v2 has no limits for real time" in done.err
    assert done.status == 1


def test_mn_without_a_script_takes_the_options_of_mn(scripts: Path) -> None:
    done = run_in(scripts, "mn", "--custom", "topo.py", "--topo", "pair", "--test", "pingall")
    assert (done.status, "0% dropped (2/2 received)" in done.err) == (0, True)
    done = run_in(scripts, "mn", "--topo", "linear,3", text="h3 ibv_devices\nexit\n")
    assert (done.status, "h3-eth0" in done.err) == (0, True)


def test_a_script_that_makes_nothing_is_refused_and_one_that_fails_has_its_status(scripts: Path) -> None:
    none = run_in(scripts, "mn", "none.py")
    assert (none.status, "none.py creates no network" in none.error) == (2, True)
    assert run_in(scripts, "mn", "fails.py").status == 7
    assert "no such file" in run_in(scripts, "mn", "missing.py").error
