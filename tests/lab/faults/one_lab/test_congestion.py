"""Faults of congestion: their traffic takes the path that was chosen, at the rate that was asked for."""

import pytest

from testbed import Lab
from testbed.faults import BackgroundFlow, EcmpCollision, Incast, injected
from testbed.faults.congestion import LABELS, labels
from testbed.nic.connections import source_port
from testbed.topology import Family
from testbed.topology.fabrics import leaf_spine
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import connect_pair, open_endpoint

PAIRS = (("host1", "host3"), ("host2", "host4"))
UPLINKS = ("e3", "e4")
MBIT = 1_000_000
pytestmark = pytest.mark.topology(leaf_spine(leaves=2, spines=2, hosts=2, family="dual").topology())


def sent(lab: Lab) -> dict[str, int]:
    return {port: lab.switch("leaf1")[port].counters()["tx_bytes"] for port in UPLINKS}


def passed(lab: Lab, seconds: float) -> dict[str, float]:
    """Mbit/s of each uplink of leaf1."""
    before = sent(lab)
    lab.scheduler.sleep(seconds)
    return {port: (count - before[port]) * 8 / seconds / MBIT for port, count in sent(lab).items()}


@pytest.mark.parametrize("family", [4, 6])
def test_the_kernel_says_which_uplink_a_source_port_takes(lab: Lab, family: Family) -> None:
    source, target, leaf = lab.host("host1"), lab.host("host3"), lab.switch("leaf1")
    ends = source["eth1"].address(family).ip, target["eth1"].address(family).ip
    for label in range(1, 9):
        (uplink,) = leaf.uplinks(*ends, [source_port(label, 0, 0)])
        before = sent(lab)
        with open_endpoint(source["eth1"], family) as near, open_endpoint(target["eth1"], family) as far:
            connect_pair(near, far, Attributes(flow_label=label))
            assert near.write(8192, within=5).ok
        assert [port for port, count in sent(lab).items() if count - before[port] > 8192] == [uplink]


@pytest.mark.parametrize(("uplink", "family"), [("e3", 4), ("e4", 4), ("e4", 6)])
def test_flows_collide_on_the_uplink_that_was_chosen(lab: Lab, uplink: str, family: Family) -> None:
    with injected(lab, EcmpCollision(end=f"leaf1:{uplink}", pairs=PAIRS, rate=4 * MBIT, family=family)):
        rates = passed(lab, 1.0)
    (other,) = set(UPLINKS) - {uplink}
    assert rates[uplink] == pytest.approx(8, rel=0.2)
    assert rates[other] < 0.1


def test_a_background_flow_keeps_its_rate_and_ends(lab: Lab) -> None:
    with injected(lab, BackgroundFlow(source="host1", target="host2", rate=10 * MBIT)):
        before = lab["host2"]["eth1"].counters()["rx_bytes"]
        lab.scheduler.sleep(1)
        assert (lab["host2"]["eth1"].counters()["rx_bytes"] - before) * 8 / MBIT == pytest.approx(10, rel=0.2)
    before = lab["host2"]["eth1"].counters()["rx_bytes"]
    lab.scheduler.sleep(1)
    assert lab["host2"]["eth1"].counters()["rx_bytes"] == before


def test_it_goes_on_while_the_story_waits_for_a_completion(lab: Lab) -> None:
    with injected(lab, BackgroundFlow(source="host2", target="host4", rate=10 * MBIT)):
        near, far = open_endpoint(lab.host("host1")["eth1"]), open_endpoint(lab.host("host3")["eth1"])
        connect_pair(near, far)
        lab.switch("leaf1")["e1"].down()
        before = lab["host4"]["eth1"].counters()["rx_bytes"]
        done = near.write(4096, within=5)
        assert done.status == "RETRY_EXC_ERR"
        lab.switch("leaf1")["e1"].up()
        rate = (lab["host4"]["eth1"].counters()["rx_bytes"] - before) * 8 / done.elapsed_s
        assert rate / MBIT == pytest.approx(10, rel=0.3)


def test_the_senders_of_an_incast_write_at_the_same_moment(lab: Lab) -> None:
    capture = lab["leaf2"]["e2"].capture("udp port 4791 and greater 1000")
    with injected(lab, Incast(target="host4", senders=["host1", "host2", "host3"], size=8192, wait=0.5)):
        lab.scheduler.sleep(2)
    capture.stop()
    bursts: list[set[bytes]] = []
    last = 0
    for frame in capture.frames():
        if frame.t_ns - last > 0.2e9:
            bursts.append(set())
        bursts[-1].add(frame.data[26:30])  # the source address
        last = frame.t_ns
    assert len(bursts) >= 4
    assert all(len(senders) == 3 for senders in bursts)


def test_labels_share_the_flows_of_a_pair_out_to_all_uplinks(lab: Lab) -> None:
    ends = lab.host("host1")["eth1"].address().ip, lab.host("host3")["eth1"].address().ip
    chosen = [list(labels(lab.switch("leaf1")[port], *ends)) for port in UPLINKS]
    assert sum(map(len, chosen)) == len(LABELS)
    assert all(len(found) > len(LABELS) / 4 for found in chosen)
