"""Loops that spanning tree breaks, and parts of a lab that no link joins."""

import pytest
from refusals import refused

from testbed.topology import Topology

RING = "name: ring\ntopology:\n  nodes: {{s1: {}, s2: {}, s3: {}}}\n  links:\n" + "".join(
    f"    - endpoints: [s{a}:e{b}, s{b}:e{a}]\n" for a, b in ((1, 2), (2, 3), (3, 1))
)
BRIDGE, STP = "{kind: bridge}", "{kind: bridge, stp: true}"


def test_a_loop_without_spanning_tree_is_refused_with_two_ways_on() -> None:
    (line,) = refused(RING.format(BRIDGE, BRIDGE, BRIDGE))
    assert line == (
        "t.yml:7:7: this link closes a layer-2 loop (bridge s3): 'stp: true' on a switch or bridge in it runs spanning "
        "tree, 'routing: frr' routes between switches"
    )


@pytest.mark.parametrize(
    "nodes", [(STP, STP, STP), (BRIDGE, STP, BRIDGE), ("{kind: switch, stp: true}", BRIDGE, BRIDGE)]
)
def test_one_node_with_spanning_tree_breaks_the_loops_that_it_is_in(nodes: tuple[str, str, str]) -> None:
    plan = Topology.parse(RING.format(*nodes)).plan()
    assert [node.stp for node in plan.nodes.values()] == ["stp" in node for node in nodes]


def test_a_loop_beside_it_is_refused() -> None:
    (line,) = refused(RING.format(STP, BRIDGE, BRIDGE) + "    - endpoints: [s2:x, s3:x]\n")
    assert line.startswith("t.yml:8:7: this link closes a layer-2 loop")


PAIRS = """\
name: pairs
topology:
  nodes: {a: {kind: host}, b: {kind: host}, c: {kind: host}, d: {kind: host}}
  links:
    - {endpoints: [a:eth1, b:eth1], ipv4: [10.0.0.1/8, 10.0.0.2/8]}
    - {endpoints: [c:eth1, d:eth1], ipv4: [10.0.0.3/8, 10.0.0.4/8]}
"""


def test_parts_that_no_link_joins_may_have_the_same_subnet() -> None:
    plan = Topology.parse(PAIRS).plan()
    assert [str(node.interfaces[0].address) for node in plan.nodes.values()] == [
        "10.0.0.1/8",
        "10.0.0.2/8",
        "10.0.0.3/8",
        "10.0.0.4/8",
    ]


def test_segments_of_one_part_need_their_own() -> None:
    (line,) = refused(PAIRS + "    - {endpoints: [b:eth2, c:eth2], ipv4: [192.0.2.1/24, 192.0.2.2/24]}\n")
    assert line.startswith("t.yml:6:44: 10.0.0.0/8 of the link c:eth1 – d:eth1 overlaps 10.0.0.0/8 of the link a:eth1")


def test_addresses_of_containers_are_those_of_the_file() -> None:
    plan = Topology.parse(PAIRS.replace("host", "linux") + "    - {endpoints: [b:eth2, c:eth2]}\n").plan()
    assert str(plan.nodes["c"].interfaces[0].address) == "10.0.0.3/8"
