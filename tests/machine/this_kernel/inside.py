"""Run in a machine that plays the user's VM: testbed is in the working directory, as if it were installed there."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed import executor
from testbed.executor import Context
from testbed.executor.leftovers import SETTINGS, collect
from testbed.kernel import netns, ownership, rdma, rxe_devices, sysctl
from testbed.kernel.rdma import Rdma
from testbed.lab.leaks import inventory
from testbed.nic import connections
from testbed.protocol import JOB, OWNS, Chosen, LabInfo, Leftover, messages
from testbed.protocol.requests import Collect, Variant

HERE = Path.cwd()
COMMAND = (sys.executable, "-P", "-m", "testbed")
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": f"{HERE / 'installed'}:{HERE / 'packages'}",
    "XDG_CACHE_HOME": str(HERE / "cache"),
}
COMMAND_LINE = ("run", "lab", "--machine", "local")
UP_S = 300.0
FOREIGN = "mine-b2"
"""The name of a namespace as the lab could have it."""


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*COMMAND, *arguments], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    print(done.args[3:], done.returncode, done.stdout, done.stderr)
    return done


def state() -> set[str]:
    """A line for each thing on this machine that a run may make or change."""
    (connections.TRACEFS / "instances").stat()
    found = inventory()
    found |= {f"sysctl {path} = {sysctl.read(path)}" for path in SETTINGS}
    found |= {f"process {pid} {words}" for pid, words in programs()}
    found |= {f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    found |= {f"file {path}" for path in files()}
    found |= {f"trace {entry.name}" for entry in (connections.TRACEFS / "instances").iterdir()}
    found.add(f"probes {(connections.TRACEFS / 'dynamic_events').read_text()}")
    with Rdma() as system:
        found.add(f"exclusive {system.exclusive}")
    return found


def files() -> Iterator[str]:
    """Those below /run of labs, without what is this machine's own."""
    for top in "/run/testbed", "/run/netns", "/run/frr":
        for place, directories, names in os.walk(top):
            directories[:] = set(directories) - {"in", "out", "code", "sys"}
            yield from (f"{place}/{name}" for name in names)


def programs() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if words := (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode():
                    yield int(entry.name), words


@pytest.fixture(scope="module", autouse=True)
def _the_users_vm() -> None:
    """What a distribution and its daemons have set, and a module that gives each network namespace a tunnel. Its kernel
    does not trace queue pairs, as that of the snapshot does. Modules that this machine has compiled are not compiled
    again for the command."""
    shutil.copytree(Path(executor.__file__).parents[1], HERE / "installed" / "testbed", dirs_exist_ok=True)
    connections.disarm()
    for path in SETTINGS:
        sysctl.write(path, 512 if "gc_thresh" in path else 0)
    sysctl.write("net/ipv4/conf/all/rp_filter", 2)
    sysctl.write("net/ipv4/conf/default/rp_filter", 2)
    subprocess.run(["modprobe", "ipip"], check=True)


@pytest.fixture(autouse=True)
def _this_kernel_is_as_before() -> Iterator[None]:
    """And not in the state that a run wants."""
    before = state()
    assert not before & {f"sysctl {path} = {value}" for path, value in SETTINGS.items()}
    yield
    assert state() ^ before == set()


class Run:
    """A run that the command would start: a process of its own, but with all that it needs imported."""

    def __init__(self, then: str = "wait", lab: str = "lab") -> None:
        self.out = Path(tempfile.mkdtemp(dir=HERE))
        self.progress = self.out / "progress"
        chosen: Chosen = {"variant": "only", "settings": {"then": then}, "without_faults": []}
        topology: LabInfo = {"topology": "topology.clab.yml", "profiles": {}}
        request = Variant(scenario=f"{lab}/scenario.py", lab=topology, chosen=chosen)
        job = {"requests": [messages.ask(0, request)], "files": str(HERE), "training": False, "lives": False}
        (self.out / JOB).write_text(json.dumps(job))
        self.pid = os.fork()
        if not self.pid:
            try:
                os.dup2(os.open(self.progress, os.O_WRONLY | os.O_CREAT), 3)
                sys.argv[1:] = [str(self.out), str(self.out), OWNS]
                executor.main()
            finally:
                os._exit(0)

    def wait_until_up(self) -> None:
        def up() -> bool:
            assert os.waitpid(self.pid, os.WNOHANG) == (0, 0), self.progress.read_text()
            return (self.out / "ready").exists()

        until(up)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def end(self, number: int = 0) -> dict[str, Any]:
        """The last message, of a run that ends by itself or by a signal."""
        if number:
            os.kill(self.pid, number)
        os.waitpid(self.pid, 0)
        found: dict[str, Any] = json.loads(self.progress.read_text().splitlines()[-1])
        return found


def left(*, dry_run: bool = False) -> list[Leftover]:
    """What `testbed gc` does."""
    return collect(Collect(dry_run=dry_run), Context(HERE, HERE, lambda _: None))


def test_a_run_that_ends_and_one_that_fails() -> None:
    outcome = Run("end").end()["response"]
    assert (outcome["observed"], outcome["failures"]) == ("healthy", [])
    assert outcome["evidence"]["inherited"] == "0"
    failed = Run("fail").end()["response"]
    assert "the user's mistake" in failed["failures"][0]


def test_a_run_that_is_ended_and_another_that_waits_for_the_kernel() -> None:
    run = Run()
    run.wait_until_up()
    assert state() >= {"namespace mine-a", "exclusive True", "sysctl net/ipv4/neigh/default/gc_thresh3 = 1000"}
    refused = Run("end").end()["error"]
    assert (refused["message"], refused["status"]) == (f"another run uses this kernel: process {run.pid}", 3)
    assert left() == []
    assert "namespace mine-a" in state()
    run.end(signal.SIGTERM)


def make_foreign() -> subprocess.Popen[bytes]:
    """Things of somebody else's, with names as the lab could give them."""
    netns.create(FOREIGN)
    subprocess.run(["ip", "link", "add", "mine-a-eth1", "type", "dummy"], check=True)
    with netns.entered(FOREIGN):
        subprocess.run(["ip", "link", "set", "lo", "alias", "testbed running"], check=True)
        subprocess.run(["ip", "link", "add", "eth1", "type", "veth", "peer", "name", "eth2"], check=True)
        program = subprocess.Popen(["sleep", "400000"], env={**os.environ, "TESTBED": ownership.runs()[0].name})
    rxe_devices.add(FOREIGN, "eth1", "b2-eth1")
    return program


def remove_foreign(program: subprocess.Popen[bytes]) -> None:
    program.kill()
    program.wait()
    rxe_devices.delete(FOREIGN, ["b2-eth1"])
    netns.delete(FOREIGN)
    subprocess.run(["ip", "link", "del", "mine-a-eth1"], check=True)


def test_gc_removes_what_a_killed_run_left_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdma, "GONE_S", 1.0)  # for a mode that cannot be changed
    run = Run()
    run.wait_until_up()
    plain = state()
    program = make_foreign()
    theirs = state() - plain
    assert {f"namespace {FOREIGN}", "the machine: interface mine-a-eth1"} <= theirs
    run.kill()
    listed = left(dry_run=True)
    kinds = {one["kind"] for one in listed}
    assert kinds == {"process", "RDMA device", "namespace", "mount", "trace", "sysctl", "RDMA netns mode"}
    assert {one["name"] for one in listed if one["kind"] == "namespace"} == {"mine-a", "mine-b", "mine-leaf"}
    assert [one["name"].split()[0] for one in listed if one["kind"] == "process"].count("sleep") == 2

    refused = Run("end").end()["error"]
    assert (refused["message"], refused["status"]) == ("a killed run left something on this kernel", 3)
    assert "`testbed gc`" in refused["hint"]
    [busy] = left()
    assert busy["kind"] == "RDMA netns mode"  # it cannot be changed beside another's namespace
    assert f"Found: {FOREIGN}." in busy["problem"]
    assert theirs <= state()
    assert not any("mine-a " in line or "mine-leaf" in line for line in state())
    remove_foreign(program)
    assert [(one["kind"], one["problem"]) for one in left()] == [("RDMA netns mode", "")]


def test_the_next_run_removes_what_a_killed_one_left() -> None:
    run = Run()
    run.wait_until_up()
    run.kill()
    assert "namespace mine-a" in state()
    assert Run("end").end()["response"]["failures"] == []


@contextlib.contextmanager
def command_up() -> Iterator[tuple[subprocess.Popen[str], ownership.Run]]:
    """The command with a run that waits, and that run."""
    command = [*COMMAND, *COMMAND_LINE, "--set", "then=wait"]
    with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: list(HERE.glob("runs/lab/*/only/ready")))
        [run] = ownership.runs()
        try:
            yield process, run
        finally:
            process.kill()
            shutil.rmtree(HERE / "runs")


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + UP_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_the_command_at_ctrl_c() -> None:
    with command_up() as (process, run):
        process.send_signal(signal.SIGINT)
        assert process.wait(UP_S) == 130
        assert not run.lives


@pytest.mark.slow
def test_the_command_is_killed_and_its_run_ends_by_itself() -> None:
    with command_up() as (process, run):
        process.kill()
        process.wait()
        until(lambda: not run.lives)
    until(
        lambda: not [words for _, words in programs() if f"{tempfile.gettempdir()}/testbed." in words]
    )  # what removes its directory


def test_the_run_of_a_command_is_killed_and_gc_is_named() -> None:
    with command_up() as (process, run):
        os.kill(run.pid, signal.SIGKILL)
        _, told = process.communicate(timeout=UP_S)
    assert process.returncode == 1
    assert "the run left something on this kernel: `testbed gc` removes it\n" in told
    done = call("gc")
    assert (done.returncode, done.stderr) == (0, "")
    assert "namespace mine-a: removed\n" in done.stdout
