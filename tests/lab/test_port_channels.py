"""Bonds of hosts and port channels of a switch: LACP, static and active-backup, with RDMA on them, and their faults."""

from contextlib import contextmanager

import pytest

from testbed.errors import InputError
from testbed.faults import ArpDrop, HashWrong, LacpLost, LinkDown, LinkLoss, LinkMtu, MemberMoved, injected
from testbed.workload.verbs import Endpoint, connect_pair

pytestmark = pytest.mark.topology("channels.clab.yml")
SLOW_S, FAST_S = 90, 3
"""Seconds after which a partner that is not heard is lost (IEEE 802.1AX: three periods of 30 s, or of 1 s)."""
FLOWS = range(50000, 50032)
"""UDP source ports."""


@contextmanager
def connected(lab, name):
    ends = (lab.host(name)["bond0"], lab.host("far")["eth1"])
    near, far = (Endpoint(end.device, end.node.namespace, end.address().ip, ready=lab.scheduler.ready) for end in ends)
    with near, far:
        connect_pair(near, far)
        yield near


def changes(log, node):
    """What was said of members of bonds of a node: (interface, whether it carries traffic)."""
    found = [(event["data"]["interface"], event["data"].get("active")) for event in log.events if event["node"] == node]
    return [one for one in found if one[1] is not None]


@pytest.fixture
def since(log):
    """The changes since the test began."""
    before = len(log.events)

    class Later:
        @property
        def events(self):
            return [event for event in log.events[before:] if event["kind"] == "link"]

    return Later()


def test_the_switch_knows_its_port_channels(lab):
    leaf, host = lab.switch("leaf"), lab.host("lacp")
    assert host["bond0"].ping_gateway()
    tables = leaf.tables()
    assert [row["port"] for row in tables["arp"] if row["mac"] == host["bond0"].mac] == ["po1"]
    assert leaf.fdb_table()[host["bond0"].mac] == "po1"
    assert leaf.uplinks("10.0.10.5", host["bond0"].address().ip, [50000]) == ["po1"]
    assert host["bond0"].peer is leaf["po1"]
    assert leaf["po1"].peer is host["bond0"]


def test_a_port_channel_counts_what_its_members_do(lab):
    leaf = lab.switch("leaf")
    before = {name: leaf[name].counters()["rx_bytes"] for name in ("e1", "e2", "po1")}
    with connected(lab, "lacp") as endpoint:
        assert endpoint.write(4096, within=5).status == "SUCCESS"
    more = {name: leaf[name].counters()["rx_bytes"] - count for name, count in before.items()}
    assert more["po1"] >= 4096
    assert more["e1"] + more["e2"] >= more["po1"]


def test_a_port_channel_is_captured_as_one(lab):
    leaf = lab.switch("leaf")
    capture = leaf["po1"].capture("udp port 4791")
    with connected(lab, "lacp") as endpoint:
        endpoint.write(4096, within=5)
    capture.stop()
    assert lab.file("leaf-po1.pcap").stat().st_size > 4096


@pytest.mark.parametrize(("name", "ports"), [("lacp", ("e1", "e2")), ("static", ("e3", "e4"))])
def test_queue_pairs_live_on_when_a_member_goes_down(lab, name, ports):
    with connected(lab, name) as endpoint:
        for port in ports:
            with injected(lab, LinkDown(end=f"leaf:{port}")):
                assert endpoint.write(4096, within=20).status == "SUCCESS"
            lab.scheduler.sleep(4)


def test_those_of_active_backup_end_with_the_active_member(lab):
    """As docs/cni-plugins.md says: until the bond looks at its carriers, soft-RoCE's packets are dropped at its own
    interface, which ends a queue pair."""
    with connected(lab, "backup") as endpoint, injected(lab, LinkDown(end="leaf:e5")):
        assert endpoint.write(4096, within=20).status == "WR_FLUSH_ERR"
        lab.scheduler.sleep(1)
        assert lab.host("backup")["bond0"].ping_gateway()
    assert lab.switch("leaf").fdb_table()[lab.host("backup")["bond0"].mac] == "e6"


@pytest.mark.parametrize(("port", "host"), [("leaf:po1", "lacp"), ("leaf:po2", "static")])
def test_a_port_channel_goes_down_at_both_ends(lab, port, host):
    """Linux alone leaves the members of a bond up that is set down."""
    bond = lab.host(host)["bond0"].index
    with injected(lab, LinkDown(end=port)):
        assert lab.scheduler.wait(lambda: not lab[host].now().links[bond].carrier, 1)
    assert lab.scheduler.wait(lambda: lab[host].now().links[bond].carrier and lab[host].bonds_aggregate(), SLOW_S)


@pytest.mark.fresh
def test_a_member_that_is_dead_in_one_direction_is_out_after_three_lacpdus_that_are_missed(lab, log, since):
    """The carrier stays: for 90 s at the slow rate flows of this member are lost, then they take the other one."""
    lab.scheduler.sleep(10)
    with injected(lab, LinkLoss(end="lacp:eth1", loss=100)):
        began = log.now
        leaf = lab.switch("leaf")
        assert lab.scheduler.wait(lambda: changes(since, "leaf"), 2 * SLOW_S)
        assert changes(since, "leaf") == [("e1", False)]
        assert SLOW_S - 31 <= (log.now - began) / 1e9 <= SLOW_S + 2
        assert leaf["e1"].is_up
        assert lab.scheduler.wait(lambda: changes(since, "lacp") == [("eth1", False)], SLOW_S)
        with connected(lab, "lacp") as endpoint:
            assert endpoint.write(4096, within=5).status == "SUCCESS"


@pytest.mark.fresh
def test_lacpdus_that_are_lost_take_the_member_out_at_both_ends(lab, since):
    with injected(lab, LacpLost(end="leaf:e1")) as fault:
        assert lab.scheduler.wait(lambda: changes(since, "leaf") and changes(since, "lacp"), 2 * SLOW_S)
        assert (changes(since, "lacp"), changes(since, "leaf")) == ([("eth1", False)], [("e1", False)])
        assert fault.fault.hits(lab) >= 3
    assert lab.scheduler.wait(lambda: not lab["lacp"].members_out(), SLOW_S)


@pytest.mark.fresh
def test_a_port_channel_without_a_partner_is_down_and_a_bond_of_a_host_is_not(lab):
    """As on NX-OS, EOS and SONiC without a fallback. Linux goes on with a member as a link without LACP."""
    leaf, host = lab.switch("leaf"), lab.host("lacp")

    def carrier(interface):
        return interface.node.now().links[interface.index].carrier

    assert carrier(leaf["po1"])
    with injected(lab, LacpLost(end="lacp:eth1")), injected(lab, LacpLost(end="lacp:eth2")):
        assert lab.scheduler.wait(lambda: not carrier(leaf["po1"]), SLOW_S + 10)
        lab.scheduler.sleep(SLOW_S)
        assert not carrier(leaf["po1"])
        assert leaf["e1"].is_up
        assert carrier(host["bond0"])
        assert not host["bond0"].ping_gateway()
    assert lab.scheduler.wait(lambda: carrier(leaf["po1"]), SLOW_S + 10)
    assert host["bond0"].ping_gateway(within=10)


@pytest.mark.fresh
def test_a_member_in_another_bond_is_not_taken_by_lacp(lab, since):
    with injected(lab, MemberMoved(end="leaf:e1", to="po2")):
        assert lab.scheduler.wait(lambda: ("eth1", False) in changes(since, "lacp"), SLOW_S + 10)
        assert [end.name for end in lab["lacp"].members_out()] == ["eth1"]
    assert lab.scheduler.wait(lambda: not lab["lacp"].members_out(), SLOW_S)


def members_of(lab):
    """The members of po1 by which packets of 32 flows of RoCE leave the switch."""
    leaf, host = lab.switch("leaf"), lab.host("lacp")
    before = {name: leaf[name].counters()["tx_packets"] for name in ("e1", "e2")}
    far, to = lab.host("far")["eth1"], host["bond0"].address().ip
    for port in FLOWS:
        far.node.run("bash", "-c", f"exec 3<>/dev/udp/{to}/{port}; echo x >&3")
    more = {name: leaf[name].counters()["tx_packets"] - count for name, count in before.items()}
    return {name for name, count in more.items() if count >= 4}


def test_by_layer_2_all_flows_of_two_hosts_take_one_member(lab):
    assert lab.host("far").ping(lab.host("lacp")["bond0"].address().ip, within=5)
    assert members_of(lab) == {"e1", "e2"}
    with injected(lab, HashWrong(end="leaf:po1", hash="layer2")):
        assert len(members_of(lab)) == 1
    assert members_of(lab) == {"e1", "e2"}


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (LacpLost(end="leaf:e3"), "leaf:e3 is not a member of a bond of mode 802.3ad"),
        (LacpLost(end="leaf:e7"), "leaf:e7 is not a member of a bond"),
        (MemberMoved(end="leaf:e1", to="po7"), "leaf has no bond 'po7'"),
        (HashWrong(end="backup:bond0", hash="layer3+4"), "is not a bond that chooses a member for each flow"),
        (LinkLoss(end="lacp:bond0", loss=1), "lacp:bond0 is a bond, not the end of a link"),
        (LinkMtu(end="leaf:e1", mtu=1000), "a member of a bond, which the bridge does not see"),
    ],
)
def test_a_fault_where_there_is_no_such_bond_is_refused(lab, fault, message):
    with pytest.raises(InputError, match=message), injected(lab, fault):
        pass


def test_packets_of_a_bond_are_dropped_by_its_name(lab):
    host = lab.host("lacp")
    with injected(lab, ArpDrop(end="lacp:bond0")):
        host.run("ip", "neigh", "flush", "dev", "bond0")
        assert not host["bond0"].ping_gateway()
    assert host["bond0"].ping_gateway(within=3)
