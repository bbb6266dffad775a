"""Watching labs that live, and Mininet's scripts: one lab on the real clock for most, one on the virtual."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import COMMAND, LIMIT_S, Done

pytestmark = pytest.mark.live

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


def run_in(place: Path, *arguments: str, text: str = "", lab: str = "") -> Done:
    env = {**environment(place), "TESTBED_LAB": lab}
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=place, env=env, input=text, capture_output=True, text=True, timeout=LIMIT_S,
        check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


def environment(place: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(place / "state"), "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}


@pytest.fixture
def real(place: Path) -> Run:
    return lambda *arguments: run_in(place, *arguments, lab="real")


@pytest.fixture
def virtual(place: Path) -> Run:
    return lambda *arguments: run_in(place, *arguments, lab="virtual")


class Terminal:
    """A command on a terminal of 80 by 24."""

    def __init__(self, handle: int, process: subprocess.Popen[bytes]) -> None:
        self._handle = handle
        self.process = process

    def type(self, keys: str) -> None:
        os.write(self._handle, keys.encode())

    def shows(self, *texts: str) -> str:
        """What it wrote until all of these were there."""
        found, deadline = "", time.monotonic() + WITHIN_S
        while not all(text in found for text in texts):
            assert select.select([self._handle], [], [], max(0, deadline - time.monotonic()))[0], found
            found += os.read(self._handle, 1 << 16).decode(errors="replace")
        return found

    def ends(self) -> int:
        """Its exit status. What it still writes is taken, or it would wait."""
        while True:
            try:
                if not os.read(self._handle, 1 << 16):
                    break
            except OSError:
                break
        return self.process.wait(WITHIN_S)


@contextmanager
def terminal(place: Path, *arguments: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    process = subprocess.Popen(
        ["setsid", "--ctty", "--", *COMMAND, *arguments], cwd=place, env=environment(place), **streams
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


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
        first = screen.shows("port", "leaf:e1", "q quits")
        assert "real clock" in first
        assert " - " in first
        assert " - " not in screen.shows("q quits").rpartition("rx bit/s")[2]  # rates take two pictures
        screen.type("q")
        assert screen.ends() == 0


def test_top_draws_a_lab_on_the_virtual_clock_when_something_happened_and_no_time_passes_for_it(
    place: Path, virtual: Run
) -> None:
    with terminal(place, "top", "--lab", "virtual") as screen:
        screen.shows("virtual clock", "q quits")
        before = virtual("inspect", "-f", "json").json["now_s"]
        time.sleep(1.5)
        after = virtual("inspect", "-f", "json").json["now_s"]
        assert after - before < 0.1
        virtual("rdma", "write", "h1", "h2")
        screen.shows("ends with SUCCESS")
        screen.type("\x03")
        assert screen.ends() == 0


# What completes, a drawing, containerlab's words


def test_completion_costs_no_virtual_time(place: Path, virtual: Run) -> None:
    before = (place / "runs" / "virtual" / "latest" / "session.jsonl").read_bytes()
    env = {**environment(place), "_TESTBED_COMPLETE": "bash_complete", "COMP_LINE": "testbed capture -l virtual leaf:"}
    done = subprocess.run(COMMAND, env=env, cwd=place, capture_output=True, text=True, check=True)
    assert [line.split("\t")[1] for line in done.stdout.splitlines()] == ["leaf:e1", "leaf:e2"]
    assert (place / "runs" / "virtual" / "latest" / "session.jsonl").read_bytes() == before


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
        shell.shows("arguments: --flag a b", "mininet> ")
        shell.type("pingall\n")
        shell.shows("0% dropped (2/2 received)")
        shell.type("h1 ibv_devices\n")
        shell.shows("h1-eth0")
        shell.type("h1 ping h2\n")
        shell.shows("icmp_seq=1")
        shell.type("\x03")
        shell.shows("packets transmitted", "mininet> ")
        shell.type("\x04")
        shell.shows("the end")
        assert shell.ends() == 0
    assert run_in(scripts, "ps", "-f", "json").out == "[]\n"


def test_a_file_that_only_has_topologies_is_run_as_mn_does(scripts: Path) -> None:
    done = run_in(scripts, "mn", "topo.py", "--mac", text="pingall\nh1 ibv_devices\nexit\n")
    assert done.status == 0
    assert "0% dropped (2/2 received)" in done.err
    assert "h1-eth0" in done.err


def test_a_script_that_makes_nothing_is_refused_and_one_that_fails_has_its_status(scripts: Path) -> None:
    none = run_in(scripts, "mn", "none.py")
    assert (none.status, "none.py makes no network" in none.error) == (2, True)
    assert run_in(scripts, "mn", "fails.py").status == 7
    assert "no such file" in run_in(scripts, "mn", "missing.py").error
