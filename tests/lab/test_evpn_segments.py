"""A host with LACP to two leaves of an EVPN fabric: one Ethernet segment, by FRR and by what the agents add to it."""

import pytest

from testbed.faults import LinkDown, injected
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import Endpoint, connect_pair

pytestmark = [pytest.mark.topology("segments.clab.yml"), pytest.mark.fresh]
VTEPS = {"leaf1": "10.255.0.2", "leaf2": "10.255.0.3"}
SOON_S = 3.0


@pytest.fixture
def both(lab):
    """The host, which has announced itself to one of the leaves."""
    port = lab.host("both")["bond0"]
    port.node.run("arping", "-U", "-c", "1", "-I", "bond0", str(port.address().ip))
    assert lab.scheduler.wait(lambda: "remote" in states(lab, port).values(), SOON_S)
    return port


def row(lab, leaf, table, name):
    rows = lab.switch(leaf).tables()[table]
    return next((row for row in rows if name in (row.get("ip"), row["mac"])), {})


def states(lab, port):
    return {leaf: row(lab, leaf, "arp", str(port.address().ip)).get("state") for leaf in ("leaf1", "leaf2", "leaf3")}


def forwarders(lab, log):
    """The leaves that deliver floods to the segment, as the last events say."""
    last = {event["node"]: event["data"] for event in log.find("evpn.segment")}
    return [leaf for leaf, data in last.items() if "reason" not in data]


def echoes(lab, host, to, number=5):
    shown = lab.host(host).run("ping", "-i", "0.2", "-c", str(number), "-W", "1", to, check=False).stdout
    return shown.count("bytes from"), shown.count("DUP!")


def test_one_leaf_has_heard_it_the_other_is_told_and_the_third_sends_to_both(lab, both):
    found = states(lab, both)
    assert found["leaf3"] == "remote"
    assert sorted([found["leaf1"], found["leaf2"]]) == ["resolved", "synced"]
    for leaf in VTEPS:
        assert row(lab, leaf, "arp", str(both.address().ip))["port"] == "po1"
        entry = row(lab, leaf, "fdb", both.mac)
        assert entry["port"] == "po1"
        assert found[leaf] == "resolved" or entry["state"] == "synced"
    assert row(lab, "leaf3", "fdb", both.mac)["vteps"] == list(VTEPS.values())


def test_a_frame_arrives_once_known_unknown_or_for_all(lab, log, both):
    """Without the agents' part each flooded frame arrives over both leaves, and the host's own come back."""
    ip = str(both.address().ip)
    assert lab.scheduler.wait(lambda: len(forwarders(lab, log)) == 1, SOON_S)
    assert echoes(lab, "far", ip) == (5, 0)
    assert echoes(lab, "one", ip) == (5, 0)
    heard = both.capture("arp")
    hosts = [lab.host(name) for name in ("both", "far", "one")]
    for host in hosts:  # for an address that nobody has: the fabric does not flood announcements
        host.run(
            "arping", "-c", "1", "-w", "1", "-I", "bond0" if host is both.node else "eth1", "10.0.10.99", check=False
        )
    heard.stop()
    senders = [frame.src for frame in heard.frames() if frame.dst == "ff:ff:ff:ff:ff:ff"]
    macs = [both.mac, *(host["eth1"].mac for host in hosts[1:])]
    assert sorted(senders) == sorted(macs)


def test_both_leaves_route_to_it(lab, both):
    """Each has the neighbour, heard or synchronised: the answer to its own request may go to the other one."""
    assert echoes(lab, "routed", str(both.address().ip)) == (5, 0)
    for leaf in VTEPS:
        lab.switch(leaf).clear_arp(ip=both.address().ip)
    both.node.run("arping", "-U", "-c", "1", "-I", "bond0", str(both.address().ip))
    assert lab.scheduler.wait(
        lambda: sorted(map(str, states(lab, both).values())) == ["remote", "resolved", "synced"], 5
    )


@pytest.mark.parametrize("leaf", VTEPS)
def test_a_leaf_that_loses_its_link_reaches_the_host_by_the_other(lab, log, both, leaf):
    ip, (left,) = str(both.address().ip), [vtep for name, vtep in VTEPS.items() if name != leaf]
    for host in ("far", "one", "routed"):
        assert echoes(lab, host, ip)[0] >= 4
    with injected(lab, LinkDown(end=f"{leaf}:e1")):
        for host in ("far", "one", "routed"):
            assert echoes(lab, host, ip)[0] >= 4
        assert lab.scheduler.wait(lambda: row(lab, "leaf3", "fdb", both.mac)["vteps"] == [left], SOON_S)
        assert forwarders(lab, log) != [leaf]
    assert lab.scheduler.wait(lambda: row(lab, "leaf3", "fdb", both.mac)["vteps"] == list(VTEPS.values()), 10)


def test_a_queue_pair_survives_the_loss_of_either_link(lab, both):
    far = lab.host("far")["eth1"]
    ends = [
        Endpoint(end.device, end.node.namespace, end.address().ip, ready=lab.scheduler.ready) for end in (far, both)
    ]
    with ends[0] as near, ends[1] as other:
        connect_pair(near, other, Attributes())
        for leaf in VTEPS:
            with injected(lab, LinkDown(end=f"{leaf}:e1")):
                assert near.write(4096, within=10).status == "SUCCESS"
            assert near.write(4096, within=10).status == "SUCCESS"
            whole = list(VTEPS.values())  # LACP has to be back, too
            assert lab.scheduler.wait(lambda: row(lab, "leaf3", "fdb", both.mac)["vteps"] == whole, 10)  # noqa: B023


def test_another_segment_by_hand_has_its_own_forwarder(lab, log, both):
    """Its filters would keep on dropping what the leaf of the former segment sends."""
    leaf = lab.switch("leaf2")
    commands = "configure terminal", "interface po1", "evpn mh es-id 7"
    leaf.run("vtysh", "-N", leaf.namespace, *(part for command in commands for part in ("-c", command)))
    assert lab.scheduler.wait(lambda: log.find("evpn.segment", esi="03:44:38:39:be:ef:aa:00:00:07"), 2 * SOON_S)
    assert lab.scheduler.wait(lambda: sorted(forwarders(lab, log)) == ["leaf1", "leaf2"], 2 * SOON_S)
