"""A router's ICMP messages about the size of RoCE packets: soft-RoCE believes them, a hardware NIC has none."""

import pytest

from testbed.lab import Lab
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import connected

TOPOLOGY = """
name: routed
topology:
  kinds:
    host: {{nic: {nic}}}
  nodes:
    leaf:
      kind: switch
      vlans: {{10: [10.0.10.1/24, "2001:db8:10::1/64"], 20: [10.0.20.1/24, "2001:db8:20::1/64"]}}
    a: {{kind: host}}
    b: {{kind: host}}
  links:
    - {{endpoints: ["leaf:e1", "a:eth1"], vlan: 10, mtu: 9000}}
    - {{endpoints: ["leaf:e2", "b:eth1"], vlan: 20, mtu: 9000}}
"""
HARDWARE, RXE = TOPOLOGY.format(nic="hardware"), TOPOLOGY.format(nic="rxe")
LARGE = Attributes(path_mtu=4096, retry_cnt=1)
SMALL_MTU = 1500


def write(lab: Lab, family: int) -> str:
    """Write with new queue pairs, and return the status."""
    with connected(lab.host("a")["eth1"], lab.host("b")["eth1"], LARGE, family=family) as (near, _):
        return near.write(20_000, within=5).status


@pytest.mark.fresh
@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize(
    "believed",
    [pytest.param(False, marks=pytest.mark.topology(HARDWARE)), pytest.param(True, marks=pytest.mark.topology(RXE))],
)
def test_a_hardware_nic_sends_large_packets_as_soon_as_the_router_is_mended(
    lab: Lab, family: int, believed: bool
) -> None:
    leaf, a, ip = lab["leaf"], lab.host("a"), str(lab.host("b")["eth1"].address(family).ip)
    assert write(lab, family) == "SUCCESS"
    leaf.run("ip", "link", "set", "vlan20", "mtu", str(SMALL_MTU))
    assert write(lab, family) != "SUCCESS"
    assert (f"mtu {SMALL_MTU}" in a.run("ip", "route", "get", ip).stdout) == believed
    leaf.run("ip", "link", "set", "vlan20", "mtu", "9000")

    assert (write(lab, family) == "SUCCESS") != believed


@pytest.mark.fresh
@pytest.mark.topology(HARDWARE)
@pytest.mark.parametrize("family", [4, 6])
def test_other_programs_of_a_host_with_a_hardware_nic_learn_the_size(lab: Lab, family: int) -> None:
    a, ip = lab.host("a"), str(lab.host("b")["eth1"].address(family).ip)
    lab["leaf"].run("ip", "link", "set", "vlan20", "mtu", str(SMALL_MTU))
    a.run("ping", "-c", "1", "-W", "1", "-M", "do", "-s", "4000", ip, check=False)
    assert f"mtu {SMALL_MTU}" in a.run("ip", "route", "get", ip).stdout
