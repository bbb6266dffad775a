"""Nodes that are containers, in a machine that has their images."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed import Container, Lab, Topology
from testbed.cni.runtime.pod_networks import PodNetworks
from testbed.errors import DeadlineError, InputError, TestbedError
from testbed.kernel.syscalls import readable
from testbed.lab.docker.client import containers
from testbed.scenario.event_log import EventLog
from testbed.workload.verbs import Endpoint, connect_pair

PAIR = """
name: pair
topology:
  rdma_mode: MODE
  defaults: {kind: linux}
  kinds:
    linux:
      image: testbed-tests/tools:1
      env: {WHERE: the kind}
      binds: ["conf:/etc/conf:ro"]
  nodes:
    a:
      env: {OWN: "a's"}
      exec: [sh -c "echo $WHERE > /made"]
    b:
      entrypoint: /bin/sh
      cmd: -c "echo begun; exec sleep 100000"
      binds: ["conf/greeting.txt:/greeting"]
  links:
    - {endpoints: ["a:eth1", "b:eth1"], ipv4: [10.0.0.1/24, 10.0.0.2/24]}
"""
SHARED, EXCLUSIVE = (PAIR.replace("MODE", mode) for mode in ("shared", "exclusive"))
ONE = "{{name: one, topology: {{nodes: {{a: {{kind: linux, image: testbed-tests/{}}}}}}}}}"
HOSTS = """
name: hosts
topology:
  nodes: {a: {kind: host}, b: {kind: host}}
  links: [{endpoints: ["a:eth1", "b:eth1"], ipv4: [10.0.0.1/24, 10.0.0.2/24]}]
"""


def refused(topology: str, directory: Path, emit) -> TestbedError:
    with pytest.raises(TestbedError) as caught, Lab(Topology.parse(topology), directory, emit):
        pass
    return caught.value


@contextmanager
def leaving_nothing(topology: str, directory: Path) -> Iterator[Lab]:
    """A lab of two containers, of which nothing is left at the end although a program still runs."""
    with Lab(Topology.parse(topology), directory, EventLog(lambda _: None).emit) as lab:
        yield lab
        assert len(containers()) == 2
        assert {f"container {name}" for name in containers()} <= lab.resources()
        lab["a"].spawn("ibv_rc_pingpong", "-e", "-g", "1")
    assert containers() == []
    assert not [line for line in lab.resources() if "pair-" in line or "RDMA" in line or "pingpong" in line]
    assert (directory / "b-container.log").read_text() == "begun\n"


def assert_they_talk_by_their_own_rdma_devices(lab: Lab) -> None:
    a, b = lab.host("a"), lab.host("b")
    assert [line.split()[0] for line in a.run("ibv_devices").stdout.splitlines()[2:]] == ["a-eth1"]
    assert a.run("ls", "/sys/class/infiniband").stdout == "a-eth1\n"
    server = b.spawn("ibv_rc_pingpong", "-e", "-g", "1", "-n", "50")
    lab.scheduler.sleep(0.3)
    assert "50 iters" in a.run("ibv_rc_pingpong", "-e", "-g", "1", "-n", "50", "10.0.0.2").stdout
    assert server.wait(5) == 0
    files = {name: os.stat(f"/run/testbed/rdma/{lab[name].namespace}/dev/uverbs{n}") for n, name in enumerate("ab")}
    number = files["b"].st_rdev
    made = f"mknod /foreign c {os.major(number)} {os.minor(number)} && cat /foreign"
    denied = a.run("sh", "-c", made, check=False)
    assert "Operation not permitted" in denied.stderr
    assert a.ping("10.0.0.2", within=1)
    with (
        Endpoint("a-eth1", a.namespace, a["eth1"].address().ip) as near,
        Endpoint("b-eth1", b.namespace, b["eth1"].address().ip) as far,
    ):
        connect_pair(near, far)
        assert near.write(5000, within=5).ok


def test_containers_in_exclusive_mode_talk_by_their_own_rdma_devices_and_have_no_others(tmp_path):
    with leaving_nothing(EXCLUSIVE, tmp_path) as lab:
        assert_they_talk_by_their_own_rdma_devices(lab)


class TestContainersThatRun:
    @pytest.fixture(scope="class")
    @classmethod
    def lab(cls, tmp_path_factory):
        with leaving_nothing(SHARED, tmp_path_factory.mktemp("shared")) as lab:
            yield lab

    def test_a_container_has_what_the_image_and_the_file_give_it(self, lab):
        a, b = lab.host("a"), lab.host("b")
        shown = dict(line.split("=", 1) for line in a.run("env").stdout.splitlines())
        assert {name: shown[name] for name in ("FROM", "WHERE", "OWN")} == {
            "FROM": "the image",
            "WHERE": "the kind",
            "OWN": "a's",
        }
        assert a.run("cat", "/made").stdout == "the kind\n"
        assert a.run("hostname").stdout == "a\n"
        assert a.run("ps", "-o", "args").stdout.splitlines()[1] == "sleep infinity"
        assert b.run("ps", "-o", "args").stdout.splitlines()[1] == "sleep 100000"
        assert a.run("cat", "/etc/conf/greeting.txt").stdout == b.run("cat", "/greeting").stdout == "hello\n"
        assert a.run("sh", "-c", "echo more >> /etc/conf/greeting.txt", check=False).returncode == 1
        assert b.run("sh", "-c", "echo more > /greeting; cat /greeting").stdout == "more\n"
        assert not Path("/made").exists()

    def test_they_talk_by_their_own_rdma_devices_and_have_no_others(self, lab):
        assert_they_talk_by_their_own_rdma_devices(lab)

    def test_a_program_that_heeds_no_signal_ends_with_its_stop(self, lab):
        stubborn = lab["a"].spawn("sh", "-c", 'trap "" TERM; echo ready; while :; do sleep 1; done')
        stubborn.wait_output("ready", within=5)
        stubborn.stop()
        assert "while :" not in lab["a"].run("ps", "-o", "args").stdout

    def test_a_program_ends_although_a_daemon_that_it_leaves_holds_its_output(self, lab):
        a = lab["a"]
        done = a.run("sh", "-c", "sleep 300 & echo out; echo err >&2; exit 4", within=5, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (4, "out\n", "err\n")
        program = a.spawn("sh", "-c", "sleep 300 & echo begun")
        assert (program.wait(5), program.output) == (0, "begun\n")
        assert a.run("ps", "-o", "args").stdout.count("sleep 300") == 2

    def test_programs_in_a_container_have_statuses_input_and_deadlines(self, lab):
        a = lab["a"]
        assert a.run("sh", "-c", "exit 7", check=False).returncode == 7
        assert a.run("cat", text="given\n").stdout == "given\n"
        with pytest.raises(DeadlineError, match="a: sleep 100: still running after 1 s"):
            a.run("sleep", "100", within=1)
        with pytest.raises(InputError, match="a: its image testbed-tests/tools:1 has no program perl"):
            a.run("perl", "-e", "1")


SHARING = """
name: sharing
topology:
  rdma_mode: exclusive
  defaults: {kind: linux, image: "testbed-tests/tools:1"}
  nodes:
    first: {stages: {create: {wait-for: [{node: main, stage: healthy}]}}, exec: [ls /sys/class/net/eth1]}
    main:
      cmd: sh -c "sleep 5; touch /ready; exec sleep 1000"
      healthcheck: {test: [CMD-SHELL, "ls /ready"], interval: 2}
    sidecar: {network-mode: container:main, cmd: sleep 1000}
  links:
    - {endpoints: ["main:eth1", "first:eth1"], ipv4: [10.0.0.1/24, 10.0.0.2/24]}
"""


def test_a_container_shares_a_network_and_waits_for_the_health_of_another(tmp_path, log):
    with Lab(Topology.parse(SHARING), tmp_path, log.emit) as lab:
        began = {event["node"]: event["t"] / 1e9 for event in log.find("container")}
        assert began["main"] < began["sidecar"] < 5 < began["main"] + 5 <= began["first"] < began["main"] + 8
        assert [event["data"]["status"] for event in log.find("exec")] == [0]
        assert lab["sidecar"].run("ls", "/sys/class/net").stdout.split() == ["eth1", "lo"]
        assert list(lab["sidecar"].interfaces) == []
        assert lab["sidecar"].run("ls", "/sys/class/infiniband").stdout == "main-eth1\n"
        assert lab["sidecar"].run("ps", "-o", "args").stdout.splitlines()[1] == "sleep 1000"


def test_an_image_without_a_shell_runs_its_programs_and_says_what_is_missing(tmp_path, log):
    with Lab(Topology.parse(ONE.format("bare:1")), tmp_path, log.emit) as lab:
        assert "device" in lab["a"].run("ibv_devices").stdout
        with pytest.raises(InputError) as caught:
            lab["a"].run("sh", "-c", "true")
        assert caught.value.message == "a: its image testbed-tests/bare:1 has no shell sh"
        with pytest.raises(InputError, match="has no shell"):
            lab["a"].container.shell()


def test_a_container_that_cannot_live_ends_the_lab_with_the_reason(tmp_path, log):
    missing = refused(ONE.format("other:1"), tmp_path, log.emit).message
    assert missing.startswith("a: the container of testbed-tests/other:1 cannot be started: No such image")
    ended = ONE.format("tools:1").replace("1}", "1, cmd: \"sh -c 'echo why; exit 3'\"}", 1)
    with Lab(Topology.parse(ended), tmp_path, log.emit) as lab:
        lab.scheduler.sleep(1)
        with pytest.raises(TestbedError, match="a: its container has ended with status 3:\nwhy") as caught:
            lab["a"].run("ls")
        assert "such as sleep infinity" in caught.value.hint
    bound = ONE.format("tools:1").replace("1}", "1, binds: ['none.txt:/x']}", 1)
    assert "bind none.txt:/x: the file does not exist" in refused(bound, tmp_path, log.emit).message
    nothing = ONE.format("tools:1").replace("1}", "1, cmd: /nothing}", 1)
    assert "no such file or directory" in refused(nothing, tmp_path, log.emit).message
    assert containers() == []


NETWORK = {
    "cniVersion": "1.0.0",
    "name": "rdma",
    "plugins": [
        {
            "type": "macvlan",
            "master": "eth1",
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.100"}]]},
        },
        {"type": "rxe"},
    ],
}


def test_a_pod_can_be_a_container(tmp_path, log):
    two_hosts = Topology.parse(HOSTS)
    with Lab(two_hosts, tmp_path, log.emit, networks=PodNetworks(tmp_path)) as lab:
        before = lab.resources()
        pod = lab.pods.create(lab.host("a"), "web", [NETWORK], container=Container("testbed-tests/tools:1"))
        assert [line.split()[0] for line in pod.run("ibv_devices").stdout.splitlines()[2:]] == [pod["eth0"].rdma]
        assert pod.run("ps", "-o", "args").stdout.splitlines()[1] == "sleep infinity"
        pod.delete()
        assert not {line for line in lab.resources() - before if "container" in line or "process" in line}
        with pytest.raises(TestbedError, match="web: the container of testbed-tests/other:1 cannot be started"):
            lab.pods.create(lab.host("a"), "web", [NETWORK], container=Container("testbed-tests/other:1"))
        assert "web" not in lab.nodes


FORWARDING = """
name: forwarding
topology:
  defaults: {kind: linux, image: "testbed-tests/tools:1"}
  nodes: {r: {}, pc1: {}, pc2: {}}
  links:
    - {endpoints: ["r:eth1", "pc1:eth1"], ipv4: [192.168.1.1/24, 192.168.1.2/24]}
    - {endpoints: ["r:eth2", "pc2:eth1"], ipv4: [192.168.2.1/24, 192.168.2.2/24]}
"""


def test_a_container_forwards_as_under_every_daemon_of_docker(tmp_path, log):
    """Docker switches ip_forward on, on the machine and in its containers' network namespaces."""
    with Lab(Topology.parse(FORWARDING), tmp_path, log.emit) as lab:
        for name, gateway in ("pc1", "192.168.1.1"), ("pc2", "192.168.2.1"):
            lab[name].use("ip", "route", "replace", "default", "via", gateway)
        assert lab["r"].read_sysctl("net/ipv4/ip_forward") == "1"
        assert lab["pc1"].ping("192.168.2.2", within=2)


def test_docker_that_has_ended_is_named(tmp_path, log):
    """The last test of the file: no other machine has this Docker."""
    number = int(Path("/run/docker.pid").read_text())
    handle = os.pidfd_open(number)
    os.kill(number, signal.SIGKILL)
    assert readable([handle], 5)
    os.close(handle)
    message = refused(ONE.format("tools:1"), tmp_path, log.emit).message
    assert message.startswith("a: the container of testbed-tests/tools:1 cannot be started: Docker does not answer.")
