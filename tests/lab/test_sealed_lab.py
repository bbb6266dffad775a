"""A sealed lab: a node has its own processes, programs of users see a node only, no command shows a bad cable."""

import re
import subprocess
from itertools import pairwise

import pytest

from testbed.errors import InputError
from testbed.faults import LinkCorrupt, LinkDelay, LinkLoss, LinkMtu, PauseStorm
from testbed.faults.fault import injected
from testbed.faults.secret import SecretInjection
from testbed.lab import Lab, Node, processes

FILE = """
name: sealed
topology:
  nodes:
    leaf1: {kind: switch, vlans: {10: 10.0.10.1/24}}
    leaf2: {kind: switch, vlans: {10: }}
    a: {kind: host}
    b: {kind: host}
  links:
    - {endpoints: ["leaf1:e1", "a:eth1"], vlan: 10, rate: 100mbit}
    - {endpoints: ["leaf2:e1", "b:eth1"], vlan: 10}
    - {endpoints: ["leaf1:u1", "leaf2:u1"], vlan: 10, rate: 100mbit}
"""
pytestmark = pytest.mark.topology(FILE, sealed=True)
SHOWS = ("tc", "-s", "qdisc", "show"), ("tc", "filter", "show"), ("ip", "-d", "-s", "link"), ("nft", "list", "ruleset")


def run(node: Node, *command: str) -> subprocess.CompletedProcess[str]:
    """A program of a user."""
    with node.for_users() as rights:
        process = subprocess.Popen(
            [*rights, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/root"
        )
    output, _ = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, output, "")


def pinged(lab: Lab, number: int = 100) -> int:
    """How many of so many pings are answered, which are too large for the ones of neighbours."""
    said = lab["a"].run("ping", "-n", "-c", f"{number}", "-i", "0.01", "-W1", "10.0.10.3", check=False).stdout
    return int(re.findall(r"(\d+) received", said)[0])


def shown(lab: Lab) -> str:
    """What commands show that has no counters and no random numbers."""
    texts = [run(node, *command).stdout for node in lab.nodes.values() for command in SHOWS]
    return " ".join(re.sub(r"\d+", "N", "\n".join(texts)).split())


@pytest.mark.parametrize("end", ["leaf1:u1", "leaf1:e1", "a:eth1", "b:eth1", "leaf2:e1"])
def test_a_lossy_cable_loses_packets_and_no_command_shows_it(lab: Lab, end: str) -> None:
    assert pinged(lab) == 100
    before = shown(lab)
    injection = SecretInjection(lab, LinkLoss(end=end, loss=50))
    injection.inject()
    assert 25 < pinged(lab) < 75
    assert shown(lab) == before
    assert lab.interface(end).sends.counters()["lost"] == 0
    injection.recover()
    assert pinged(lab) == 100


def test_losses_come_in_bursts(lab: Lab) -> None:
    assert pinged(lab) == 100, "the neighbours know each other"
    injection = SecretInjection(lab, LinkLoss(end="leaf1:u1", loss=50, loss_burst=20))
    injection.inject()
    said = lab["a"].run("ping", "-n", "-c400", "-i0.01", "-W1", "10.0.10.3", check=False).stdout
    injection.recover()
    arrived = [int(number) for number in re.findall(r"icmp_seq=(\d+) ttl", said)]
    gaps = [later - earlier - 1 for earlier, later in pairwise(arrived) if later - earlier > 1]
    assert 100 < len(arrived) < 300
    assert 8 < sum(gaps) / len(gaps) < 50


def test_damaged_frames_are_errors_at_the_other_end(lab: Lab) -> None:
    assert pinged(lab) == 100, "the neighbours know each other"
    injection = SecretInjection(lab, LinkCorrupt(end="leaf1:u1", corrupt=50))
    injection.inject()
    answered = pinged(lab)
    errors = lab.interface("leaf2:u1").counters()["rx_crc_errors"]
    assert answered < 80
    assert errors > 20
    assert lab.interface("leaf1:u1").counters()["rx_errors"] == 0
    for node, number in ("leaf2", errors), ("leaf1", 0):
        assert f"     rx_crc_errors: {number}\n" in run(lab[node], "ethtool", "-S", "u1").stdout
    assert "rx_crc_errors: 0" in run(lab["a"], "ethtool", "-S", "eth1").stdout
    assert "Speed" in run(lab["a"], "ethtool", "eth1").stdout
    injection.recover()


@pytest.mark.parametrize("fault", [LinkDelay(end="leaf1:u1", delay=0.1), LinkMtu(end="leaf1:e1", mtu=600)], ids=str)
def test_what_a_command_would_show_is_refused(lab: Lab, fault: LinkDelay | LinkMtu) -> None:
    with pytest.raises(InputError, match="cannot be hidden"):
        SecretInjection(lab, fault).inject()


def test_a_node_has_its_own_processes(lab: Lab) -> None:
    here, there = lab["a"].spawn("sleep", "1234"), lab["b"].spawn("sleep", "1234")
    lines = run(lab["a"], "ps", "-e", "-o", "args=").stdout.splitlines()
    assert sorted(lines) == ["ps -e -o args=", "sleep 1234", "sleep infinity"]
    assert run(lab["a"], "pkill", "-f", "1234").returncode == 0
    here.wait(5)
    assert there.running
    run(lab["b"], "bash", "-c", "kill -9 -1")
    there.wait(5)
    assert pinged(lab) == 100


def test_what_somebody_does_on_a_node_is_done_to_its_processes(lab: Lab) -> None:
    here, there = lab["a"].spawn("sleep", "1234"), lab["b"].spawn("sleep", "1234")
    lab["a"].run("pkill", "-f", "1234")
    here.wait(5)
    assert there.running
    lab["a"].run("pgrep", "-f", "leaf", check=False)
    there.stop()


def test_a_node_whose_programs_are_killed_has_processes_again(lab: Lab) -> None:
    processes.end_all(lab["a"].namespace)
    assert run(lab["a"], "echo", "there").stdout == "there\n"


def test_an_orphan_leaves_no_zombie(lab: Lab) -> None:
    run(lab["a"], "sh", "-c", "(sleep 0.1 &)")
    lab.scheduler.sleep(1)
    assert run(lab["a"], "ps", "-e", "-o", "args=").stdout.splitlines() == ["sleep infinity", "ps -e -o args="]


LOSSLESS = """
name: lossless
topology:
  lossless: {dscp: 26, priority: 3}
  kinds:
    host: {nic: hardware}
    switch: {profile_values: {buffer: 150000, pfc_headroom: 10000}}
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}
    a: {kind: host}
    b: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10, rate: 100mbit}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10, rate: 100mbit}
"""


@pytest.mark.topology(LOSSLESS, sealed=True)
def test_a_node_has_the_counters_of_its_lossless_ports(lab: Lab) -> None:
    with injected(lab, PauseStorm(end="b:eth1", priority=3)):
        lab.scheduler.sleep(1)
        for end in "leaf:e1", "leaf:e2", "a:eth1", "b:eth1":
            interface = lab.interface(end)
            said = run(interface.node, "ethtool", "-S", interface.name).stdout
            rows = [line.strip().rpartition(": ") for line in said.splitlines()[1:]]
            found = {name: int(value) for name, _, value in rows}
            ours = interface.lossless.counters()
            assert ours.keys() <= found.keys()
            paused = found.get("SAI_PORT_STAT_PFC_3_RX_PKTS", 0)
            assert (paused > 0) == (end == "leaf:e2")
    assert "SAI" not in run(lab["leaf"], "ethtool", "-S", "lo").stdout
