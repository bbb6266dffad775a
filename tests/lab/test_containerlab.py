"""Files of containerlab, running: the commands of `exec`, `env`, and what they leave."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

import pytest

from testbed import Lab, Topology
from testbed.errors import TestbedError
from testbed.workload.verbs import Endpoint, connect_pair

ROUTED = """
name: routed
topology:
  kinds:
    linux: {image: "alpine:3", env: {WHERE: the kind}}
  nodes:
    router:
      kind: linux
      exec:
        - sysctl -w net.ipv4.ip_forward=1
        - ip addr add 192.168.1.1/24 dev eth1
        - ip addr add 192.168.2.1/24 dev eth2
    pc1:
      kind: linux
      exec:
        - ip addr add 192.168.1.10/24 dev eth1
        - ip route add 192.168.2.0/24 via 192.168.1.1
    pc2:
      kind: linux
      env: {WHERE: the node}
      exec:
        - ip addr add 192.168.2.10/24 dev eth1
        - bash -c "ip route add 192.168.1.0/24 via 192.168.2.1 && echo set by $WHERE"
  links:
    - endpoints: ["router:eth1", "pc1:eth1"]
    - endpoints: ["router:eth2", "pc2:eth1"]
"""

ONE = "name: one\ntopology:\n  nodes:\n    a: {{kind: linux, exec: [{}]}}\n"


@pytest.mark.topology(ROUTED)
def test_commands_set_up_a_network_that_carries_rdma(lab):
    pc1, pc2 = lab.host("pc1"), lab.host("pc2")
    assert pc1.ping("192.168.2.10", within=1)
    with (
        Endpoint("pc1-eth1", pc1.namespace, IPv4Address("192.168.1.10")) as near,
        Endpoint("pc2-eth1", pc2.namespace, IPv4Address("192.168.2.10")) as far,
    ):
        connect_pair(near, far)
        assert near.write(5000, within=5).ok


@pytest.mark.topology(ROUTED)
def test_what_commands_write_is_kept_and_every_program_of_a_node_has_its_variables(lab, log):
    assert (lab.directory / "pc2-bash-2.log").read_text() == "set by the node\n"
    assert lab["pc1"].run("printenv", "WHERE").stdout == "the kind\n"
    program = lab["pc2"].spawn("printenv", "WHERE")
    assert (program.wait(5), program.output) == (0, "the node\n")
    ran = [event["data"]["command"] for event in log.find("exec") if event["node"] == "pc1"]
    assert ran == ["ip addr add 192.168.1.10/24 dev eth1", "ip route add 192.168.2.0/24 via 192.168.1.1"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("ls /nowhere", "a: exec ls /nowhere: status 2: ls: cannot access '/nowhere'"),
        ("no-such-program", "a: no-such-program cannot be started: No such file"),
    ],
)
def test_a_command_that_fails_ends_the_lab_with_its_name_and_status(tmp_path: Path, log, command, message):
    topology = Topology.parse(ONE.format(f'"echo before", "{command}", "touch {tmp_path}/after"'))
    with pytest.raises(TestbedError, match=message), Lab(topology, tmp_path, log.emit):
        pass
    assert (tmp_path / "a-echo-1.log").read_text() == "before\n"
    assert not (tmp_path / "after").exists()


def runs(number: str) -> bool:
    """Whether the process is there, and more than its exit status that nobody asks for."""
    stat = Path(f"/proc/{number}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_daemons_that_commands_start_end_with_the_lab(tmp_path: Path, log):
    daemon = f"setsid -f bash -c 'echo $$ > {tmp_path}/pid; exec sleep 1000'"
    with Lab(Topology.parse(ONE.format(f'"{daemon}"')), tmp_path, log.emit) as lab:
        assert lab.wait((tmp_path / "pid").exists, 5)
        assert lab.wait(lambda: (tmp_path / "pid").read_text() != "", 5)
        number = (tmp_path / "pid").read_text().strip()
        assert runs(number)
    assert not runs(number)
