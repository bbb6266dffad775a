"""Two leaves of one LACP system that tell each other nothing: they announce hosts by /32 routes from their ARP tables.

As in Alibaba's HPN (SIGCOMM 2024, "non-stacked dual-ToR"): hosts send each ARP packet to both leaves.
"""

from pathlib import Path

import pytest

from testbed.faults import LinkDown, injected
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import Endpoint, connect_pair

FILE = "dual-tor.clab.yml"
pytestmark = [pytest.mark.topology(FILE), pytest.mark.fresh]
LEAVES = ("tor1", "tor2")
HOST = "10.0.10.2/32"


def knows(lab, name):
    return lab.host("h")["bond0"].mac in lab.switch(name).arp_table().values()


def paths(lab, to):
    """The ports by which the spine reaches a subnet, as the kernel has them."""
    shown = lab["spine"].run("ip", "route", "show", to.removesuffix("/32")).stdout
    return {name for name in ("d1", "d2", "d3") if f"dev {name}" in shown}


def settled(lab, ports):
    return lab.scheduler.wait(lambda: paths(lab, HOST) == ports, 10)


def test_both_leaves_learn_from_each_arp_packet_and_announce_the_host(lab):
    assert lab.scheduler.programs.warnings == []
    assert lab.host("h")["bond0"].ping_gateway()
    assert all(knows(lab, name) for name in LEAVES)
    assert settled(lab, {"d1", "d2"})
    assert {lab.switch(name).svi_mac() for name in LEAVES} == {"00:00:5e:00:01:fe"}


@pytest.mark.parametrize(("leaf", "left"), [("tor1", {"d2"}), ("tor2", {"d1"})])
def test_a_leaf_withdraws_the_host_with_its_port_and_a_queue_pair_that_retries_lives_on(lab, leaf, left):
    """The route is gone after some 0.2 s; seven timeouts of 68 ms are enough for that."""
    h, r = lab.host("h")["bond0"], lab.host("r")["eth1"]
    assert h.ping_gateway()
    assert settled(lab, {"d1", "d2"})
    ends = [Endpoint(end.device, end.node.namespace, end.address().ip, ready=lab.scheduler.ready) for end in (h, r)]
    with ends[0] as near, ends[1] as far:
        connect_pair(near, far, Attributes(retry_cnt=6))
        assert near.write(4096, within=5).status == "SUCCESS"
        with injected(lab, LinkDown(end=f"{leaf}:e1")):
            assert near.write(4096, within=20).status == "SUCCESS"
            assert settled(lab, left)
            assert not knows(lab, leaf)


@pytest.mark.topology((Path(__file__).parent / FILE).read_text().replace(", broadcast_neighbor: true", ""))
def test_without_it_only_one_leaf_gets_the_answers_to_what_both_ask(lab):
    """Both ask with the same MAC, and the host's hash chooses the member for it: the other leaf never learns."""
    h = lab.host("h")["bond0"]
    for name in LEAVES:
        lab.switch(name).clear_arp()
        lab[name].ping(h.address().ip, within=4)
    knowing = [name for name in LEAVES if knows(lab, name)]
    assert len(knowing) == 1
    assert settled(lab, {"d1" if knowing == ["tor1"] else "d2"})
