"""`ethtool -S` of nodes: the driver's statistics, and those of the port below them."""

import pytest
from lossless_lab import ECT, incast, pair

from testbed import Lab

FILE = """
name: counted
topology:
  lossless: {dscp: 26, priority: 3}
  kinds: {host: {nic: hardware, congestion_control: dcqcn}}
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24}, profile_values: {buffer: 60000, ecn_min: 2000, ecn_max: 30000}}
    a: {kind: host, congestion_control: none}
    b: {kind: host, congestion_control: none}
    c: {kind: host, reorder: 64}
    d: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10, rate: 50mbit}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10, rate: 50mbit}
    - {endpoints: ["leaf:e3", "c:eth1"], vlan: 10, rate: 50mbit}
    - {endpoints: ["leaf:e4", "d:eth1"], vlan: 10, lossless: false}
"""
pytestmark = pytest.mark.topology(FILE)


def told(lab: Lab, end: str) -> dict[str, int]:
    """What ethtool prints of an interface."""
    node, _, interface = end.partition(":")
    head, *lines = lab[node].run("ethtool", "-S", interface).stdout.splitlines()
    assert head == "NIC statistics:"
    pairs = (line.strip().rpartition(": ") for line in lines)
    return {name: int(value) for name, _, value in pairs}


@pytest.mark.parametrize("end", ["a:eth1", "c:eth1", "leaf:e1", "leaf:e3"])
def test_it_has_the_counters_of_the_port_below_those_of_the_driver(lab: Lab, end: str) -> None:
    assert incast(lab, ECT) == ["SUCCESS", "SUCCESS"]
    found = told(lab, end)
    counters = lab.interface(end).lossless.counters()
    assert list(found)[-len(counters) :] == list(counters)
    assert {name: found[name] for name in counters} == counters
    assert "peer_ifindex" in found
    assert any(counters.values())


def test_of_a_port_without_lossless_classes_it_has_the_drivers_alone(lab: Lab) -> None:
    pair(lab, "a", "c", ECT)
    assert not [name for name in told(lab, "d:eth1") if "prio" in name]


def test_what_else_ethtool_does_and_its_errors_are_its_own(lab: Lab) -> None:
    host = lab["a"]
    assert "driver: veth" in host.run("ethtool", "-i", "eth1").stdout
    for arguments in ("-S", "lo"), ("-S", "eth7"), ("-S",):
        own = host.run("/usr/sbin/ethtool", *arguments, check=False)
        ours = host.run("ethtool", *arguments, check=False)
        assert own.returncode
        assert (ours.returncode, ours.stdout, ours.stderr) == (own.returncode, own.stdout, own.stderr)
