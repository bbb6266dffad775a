"""The links that flows take, as switches are asked for them, are those that packets take."""

import itertools
from collections import Counter

import pytest

from testbed.errors import InputError
from testbed.topology.fabrics import leaf_spine, single
from testbed.workload import Attributes, LinkTraffic, connected, paths

UPLINKS = 16
"""8 parallel links to each of two spines."""
FABRIC = leaf_spine(leaves=2, spines=2, hosts=1, parallel=UPLINKS // 2).topology()
LABELS = range(1, 257)
BYTES = 4096


def links_of(lab, label: int) -> list[str]:
    near, far = lab.host("host1")["eth1"], lab.host("host2")["eth1"]
    (path,) = paths([(near, far, Attributes(flow_label=label).source_port)])
    return [str(link) for link in path]


@pytest.mark.topology(FABRIC)
@pytest.mark.slow
def test_packets_take_the_links_that_the_switches_name(lab):
    near, far = lab.host("host1")["eth1"], lab.host("host2")["eth1"]
    leaf1, *others = (lab.switch(name) for name in ("leaf1", "spine1", "spine2", "leaf2"))
    ports = [switch[name] for switch in (leaf1, *others) for name in switch.interfaces]
    for label in LABELS[:8]:
        with connected(near, far, Attributes(flow_label=label)) as (sender, _):
            assert sender.write(BYTES, within=5).ok  # switches ask for MACs
            traffic = LinkTraffic([near, *ports])
            assert sender.write(BYTES, within=5).ok
            sent = traffic.sent()

        assert [name for name, count in sent.items() if count >= BYTES] == sorted(
            links_of(lab, label), key=list(sent).index
        )


@pytest.mark.topology(FABRIC)
def test_a_leaf_spreads_flows_over_16_uplinks_to_two_spines(lab):
    near, far = lab.host("host1")["eth1"], lab.host("host2")["eth1"]
    found = paths([(near, far, Attributes(flow_label=label).source_port) for label in LABELS])

    assert {len(path) for path in found} == {4}  # the NIC, leaf1, a spine, leaf2
    uplinks = Counter(path[1].name for path in found)
    spines = Counter(path[2].node.name for path in found)
    even = len(LABELS) / UPLINKS
    assert len(uplinks) == UPLINKS
    assert max(uplinks.values()) < 2.5 * even
    assert min(spines.values()) > 0.4 * len(LABELS)


BRIDGED = leaf_spine(leaves=2, spines=1, hosts=1, bridged=True).topology()


@pytest.mark.topology(BRIDGED)
def test_a_switch_that_bridges_is_asked_for_the_port_of_the_mac(lab):
    near, far = lab.host("host1")["eth1"], lab.host("host2")["eth1"]
    with pytest.raises(InputError, match="does not route"):
        paths([(near, far, 50_000)])
    with connected(near, far) as (sender, _):
        assert sender.write(BYTES, within=5).ok

    (path,) = paths([(near, far, 50_000)])
    assert [end.node.name for end in path] == ["host1", "leaf1", "spine1", "leaf2"]
    assert path[-1] is far.peer
    assert all(end.peer.node is after.node for end, after in itertools.pairwise(path))


@pytest.mark.topology(single(hosts=2, bridged=True).topology())
def test_hosts_of_one_switch_meet_no_other(lab):
    near, far = lab.host("host1")["eth1"], lab.host("host2")["eth1"]

    assert paths([(near, far, 50_000)]) == [[near, far.peer]]


@pytest.mark.topology("""
name: bridge
topology:
  nodes: {bridge: {kind: bridge}, a: {kind: host}, b: {kind: host}}
  links: [{endpoints: ["bridge:e1", "a:eth1"]}, {endpoints: ["bridge:e2", "b:eth1"]}]
""")
def test_a_node_that_is_no_switch_is_named(lab):
    near, far = lab.host("a")["eth1"], lab.host("b")["eth1"]

    with pytest.raises(InputError, match="no path from a:eth1 to b:eth1: the node behind a:eth1 is not a switch"):
        paths([(near, far, 50_000)])
