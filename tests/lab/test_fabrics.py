"""Fabrics carry packets, and ECMP shares the flows out to the spines, the same way every time."""

import socket
import zlib
from pathlib import Path

import pytest

from testbed import Lab
from testbed.faults import LinkDown, injected
from testbed.scenario.event_log import EventLog
from testbed.topology import Family
from testbed.topology.fabrics import fat_tree, leaf_spine, rail_optimized, two_tier
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import connect_pair, open_endpoint

LEAF_SPINE = leaf_spine(leaves=2, spines=2, hosts=2).topology()
SPINES = {"e3": "spine1", "e4": "spine2"}
"""By leaf1's uplink."""
FLOW_LABELS = range(1, 17)
PACKETS = 8
FIRST_PORT, FLOWS = 40_000, 64
SOON = 5.0


def ip(lab: Lab, host: str, interface: str = "eth1") -> str:
    return str(lab.host(host)[interface].address().ip)


def write(
    lab: Lab,
    source: str,
    target: str,
    interface: str = "eth1",
    attributes: Attributes | None = None,
    family: Family = 4,
) -> bool:
    """Whether the bytes of an RDMA WRITE of PACKETS packets arrive."""
    here, there = lab.host(source), lab.host(target)
    with open_endpoint(here[interface], family) as near, open_endpoint(there[interface], family) as far:
        connect_pair(near, far, attributes)
        done = near.write(PACKETS * 1024, within=SOON)
        return done.ok and far.load(0, PACKETS * 1024) == near.load(0, PACKETS * 1024)


def spine_of(lab: Lab, flow_label: int) -> str:
    """Which spine the packets of a queue pair from host1 to host3 go through."""
    leaf = lab.switch("leaf1")

    def sent() -> dict[str, int]:
        return {port: leaf[port].counters()["tx_packets"] for port in SPINES}

    before = sent()
    assert write(lab, "host1", "host3", attributes=Attributes(flow_label=flow_label))
    (port,) = [port for port, count in sent().items() if count - before[port] >= PACKETS]
    return SPINES[port]


@pytest.mark.topology(LEAF_SPINE)
def test_hosts_of_two_leaves_reach_each_other_through_a_spine(lab):
    for source, target in ("host1", "host3"), ("host4", "host2"):
        assert "ttl=61" in lab.host(source).run("ping", "-c1", "-W1", ip(lab, target)).stdout


@pytest.mark.topology(LEAF_SPINE)
def test_an_rdma_write_goes_from_leaf_to_leaf(lab):
    assert write(lab, "host2", "host4")


@pytest.mark.topology(LEAF_SPINE)
def test_the_udp_source_port_decides_through_which_spine_a_flow_goes(lab):
    spines = [spine_of(lab, flow_label) for flow_label in FLOW_LABELS]

    assert {spine: spines.count(spine) >= 3 for spine in SPINES.values()} == {"spine1": True, "spine2": True}
    assert spines == [spine_of(lab, flow_label) for flow_label in FLOW_LABELS]


@pytest.mark.slow
def test_the_same_flows_go_the_same_way_in_the_next_lab(tmp_path: Path):
    def spines() -> list[str]:
        with Lab(LEAF_SPINE, tmp_path, EventLog(lambda _: None).emit) as lab:
            for leaf in "leaf1", "leaf2":
                with lab.switch(leaf).entered():
                    seed = Path("/proc/sys/net/ipv4/fib_multipath_hash_seed").read_text()
                assert int(seed) == zlib.crc32(leaf.encode())  # with a random one the next machine would differ
            return [spine_of(lab, flow_label) for flow_label in FLOW_LABELS]

    assert spines() == spines()


@pytest.mark.topology(leaf_spine(leaves=2, spines=2, hosts=1, family="dual").topology())
def test_a_dual_fabric_carries_both_families(lab):
    target = lab.host("host2")["eth1"].address(6).ip
    assert "ttl=61" in lab.host("host1").run("ping", "-c1", "-W1", str(target)).stdout
    for family in 4, 6:
        assert write(lab, "host1", "host2", family=family)


@pytest.mark.topology(leaf_spine(leaves=2, spines=2, hosts=1, rails=2, family=6).topology())
def test_a_fabric_may_have_ipv6_alone(lab):
    for interface in "eth1", "eth2":
        assert list(lab.host("host1")[interface].addresses) == [6]
        assert write(lab, "host1", "host2", interface, family=6)


@pytest.mark.topology(rail_optimized(pods=2, hosts=1, rails=2).topology())
def test_each_nic_of_a_host_reaches_both_rails_of_another_pod(lab):
    assert write(lab, "host1", "host2", "eth1")
    assert write(lab, "host1", "host2", "eth2")
    for source in "eth1", "eth2":
        for target in "eth1", "eth2":
            lab.host("host1").run("ping", "-c1", "-W1", "-I", ip(lab, "host1", source), ip(lab, "host2", target))


@pytest.mark.topology(fat_tree(k=4).topology(), rdma_mode="exclusive")
def test_in_a_fat_tree_a_packet_goes_up_to_a_core_as_far_as_it_must(lab):
    for target, hops in (("host2", 0), ("host3", 3), ("host16", 5)):
        assert f"ttl={64 - hops}" in lab.host("host1").run("ping", "-c1", "-W1", ip(lab, target)).stdout


@pytest.mark.topology(fat_tree(k=4).topology(), rdma_mode="exclusive")
def test_flows_that_one_tier_has_sorted_are_sorted_anew_by_the_next(lab):
    """With the same key everywhere the flows to an aggregation switch would all go on to one of its two cores."""
    host, cores = lab.host("host1"), [lab.switch(f"core{number}") for number in range(1, 5)]
    host.run("ping", "-c1", "-W1", ip(lab, "host16"))

    def received() -> list[int]:
        return [core["e1"].counters()["rx_packets"] for core in cores]  # e1 is to pod 1

    before = received()
    with host.entered():
        for port in range(FIRST_PORT, FIRST_PORT + FLOWS):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
                udp.bind(("", port))
                udp.sendto(b"data", (ip(lab, "host16"), 9))
    lab.scheduler.sleep(1)

    counts = [now - then for now, then in zip(received(), before, strict=True)]
    assert all(count >= FLOWS // 12 for count in counts), counts


@pytest.mark.topology(two_tier(switches=2, hosts=1, bridged=True).topology())
def test_a_bridged_tree_is_one_subnet(lab):
    assert "ttl=64" in lab.host("host1").run("ping", "-c1", "-W1", ip(lab, "host2")).stdout


def behind(leaf, mac):
    """The switches behind which a leaf has a MAC."""
    return next((row.get("vteps", []) for row in leaf.tables()["fdb"] if row["mac"] == mac), [])


@pytest.mark.fresh
@pytest.mark.parametrize(
    "routing",
    [
        pytest.param(
            routing, marks=pytest.mark.topology(leaf_spine(4, 1, 1, dual_tor=True, routing=routing).topology())
        )
        for routing in ("frr", "evpn")
    ],
)
def test_hosts_on_two_leaves_keep_their_queue_pairs_when_a_leaf_loses_its_link(lab, routing):
    """leaf1 and leaf2 have host1, leaf3 and leaf4 host2. Each of host1's links fails, one after the other."""
    assert lab.scheduler.programs.warnings == []
    ends = [lab.host(name)["bond0"] for name in ("host1", "host2")]
    assert all(end.ping_gateway(within=5) for end in ends)
    if routing == "evpn":
        assert lab.scheduler.wait(lambda: len(behind(lab.switch("leaf3"), ends[0].mac)) == 2, SOON)
    with open_endpoint(ends[0]) as near, open_endpoint(ends[1]) as far:
        connect_pair(near, far, Attributes(timeout=16, retry_cnt=6))
        for leaf in ("leaf1", "leaf2"):
            assert near.write(PACKETS * 1024, within=SOON).ok
            assert far.write(PACKETS * 1024, within=SOON).ok
            with injected(lab, LinkDown(end=f"{leaf}:e1")):
                assert near.write(PACKETS * 1024, within=SOON).ok
                assert far.write(PACKETS * 1024, within=SOON).ok
                assert far.load(0, PACKETS * 1024) == near.load(0, PACKETS * 1024)
            assert lab.scheduler.wait(lambda: not lab["host1"].members_out(), 90)
