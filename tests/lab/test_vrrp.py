"""One gateway on two switches by VRRP: FRR's vrrpd elects, the agent answers ARP and ND for the master only."""

from ipaddress import IPv4Address
from pathlib import Path

import pytest

from testbed.faults import LinkDown, VrrpLost, injected
from testbed.switch.frames import REPLY, parse
from testbed.switch.virtual_routers import VIRTUAL_MACS
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import Endpoint, connect_pair

FILE = "vrrp.clab.yml"
TEXT = (Path(__file__).parent / FILE).read_text()
pytestmark = pytest.mark.topology(FILE)
LEAVES = ("leaf1", "leaf2")
VIRTUAL, MAC = "10.0.10.1", "00:00:5e:00:01:05"
VIRTUAL6, MAC6 = "2001:db8:10::1", "00:00:5e:00:02:05"
BOTH = {MAC, "00:00:5e:00:01:06"}
TAKES_OVER_S = 3.61
"""Three intervals and leaf2's skew: (256 - 100) / 256 of one (RFC 9568 section 6.1), in centiseconds."""


def states(lab):
    """Both leaves' states for their virtual routers, as vrrpd has them."""
    return [{row["state"] for row in lab.routing.vrrp(lab.switch(name))} for name in LEAVES]


def settled(lab, *expected, within=10.0):
    return lab.scheduler.wait(lambda: states(lab) == [{state} for state in expected], within, pause=0.05)


def pings(host, target, count=3):
    """The answers to pings: one more than `count` is a copy."""
    done = host.run("ping", "-c", str(count), "-i", "0.2", "-W", "1", target, within=30, check=False)
    return done.stdout.count("bytes from")


def own_macs(switch):
    """The MACs of virtual routers that the bridge takes frames in for."""
    shown = switch.run("bridge", "fdb", "show", "dev", "br0").stdout.splitlines()
    return {line.split()[0] for line in shown if line.startswith(VIRTUAL_MACS) and "master br0 permanent" in line}


def promiscuous(switch):
    return "promiscuity 0" not in switch.run("ip", "-d", "link", "show", "br0").stdout


def reports(log, state, name, ip):
    """A switch's reports that it is master, or a backup again."""
    return [event for event in log.find(f"vrrp.{state}", ip=ip) if event["node"] == name]


def leads_to(lab, port, within=3.0):
    """Whether the switch between has the virtual MAC at a port soon: each advertisement has it as its source."""
    return lab.scheduler.wait(lambda: lab.switch("access").fdb_table().get(MAC) == port, within)


@pytest.mark.fresh
def test_the_switch_with_the_higher_priority_is_master_as_vrrpd_has_it(lab, log):
    assert states(lab) == [{"Master"}, {"Backup"}]
    became = {(event["node"], event["data"]["ip"]) for event in log.find("vrrp.master")}
    assert became == {("leaf1", VIRTUAL), ("leaf1", "10.0.20.1")}
    row = lab.routing.vrrp(lab.switch("leaf1"))[0]
    assert row == {"vlan": 10, "id": 5, "address": VIRTUAL, "mac": MAC, "state": "Master", "priority": 200}


def test_only_the_master_has_the_mac_and_the_address_and_no_bridge_is_promiscuous(lab):
    assert own_macs(lab["leaf1"]) == BOTH
    assert own_macs(lab["leaf2"]) == set()
    assert [promiscuous(lab[name]) for name in LEAVES] == [False, False]
    assert f"{VIRTUAL}/" in lab["leaf1"].run("ip", "-4", "-br", "address").stdout
    assert f"{VIRTUAL}/" not in lab["leaf2"].run("ip", "-4", "-br", "address").stdout
    assert leads_to(lab, "u1")


@pytest.mark.parametrize("name", ["a", "c"])
def test_arp_for_the_virtual_address_has_one_answer_the_virtual_mac(lab, name):
    host = lab.host(name)
    assert host["eth1"].gateway() == IPv4Address(VIRTUAL)
    capture = host["eth1"].capture("arp")
    assert host["eth1"].ping_gateway()
    capture.stop()
    answers = [(parse(frame.data), frame.data[6:12].hex(":")) for frame in capture.frames()]
    answers = [(arp, source) for arp, source in answers if arp and arp.op == REPLY and str(arp.sender_ip) == VIRTUAL]
    # The frame itself is from the switch (RFC 9568 section 8.1.2).
    assert [(arp.sender_mac, source) for arp, source in answers] == [(MAC, lab.switch("leaf1").svi_mac())]


@pytest.mark.parametrize("name", ["a", "c"])
def test_a_packet_through_the_gateway_arrives_once(lab, name):
    """c's packets pass the bridge of the backup."""
    assert pings(lab[name], "10.0.20.4") == 3


def test_the_backup_reaches_the_virtual_address_at_the_master(lab):
    assert pings(lab["leaf2"], VIRTUAL) == 3
    assert lab.switch("leaf2").neighbour(VIRTUAL) == MAC


@pytest.mark.fresh
def test_the_backup_takes_over_announces_the_mac_and_gives_it_back(lab, log):
    a = lab.host("a")["eth1"]
    assert a.ping_gateway()
    capture = a.capture("arp")
    with injected(lab, LinkDown(end="leaf1:up")):
        began = log.now
        assert lab.scheduler.wait(lambda: reports(log, "master", "leaf2", VIRTUAL), 10)
        taken = (reports(log, "master", "leaf2", VIRTUAL)[-1]["t"] - began) / 1e9
        assert TAKES_OVER_S - 1 < taken < TAKES_OVER_S + 0.05
        assert settled(lab, "Master", "Master")  # leaf1 hears nobody
        assert leads_to(lab, "u2")
        assert a.ping_gateway()
        assert pings(lab["c"], "10.0.20.4") == 3
        assert own_macs(lab["leaf2"]) == BOTH
    assert settled(lab, "Master", "Backup")
    assert leads_to(lab, "u1")
    assert lab.scheduler.wait(lambda: reports(log, "backup", "leaf2", VIRTUAL), 1)
    assert own_macs(lab["leaf2"]) == set()
    assert pings(lab["c"], "10.0.20.4") == 3
    capture.stop()
    announced = [arp for frame in capture.frames() if (arp := parse(frame.data)) and arp.gratuitous]
    assert [(str(arp.sender_ip), arp.sender_mac) for arp in announced] == [(VIRTUAL, MAC)]  # of leaf2: vrrpd's own


@pytest.mark.fresh
@pytest.mark.parametrize(("timeout", "status"), [(18, "SUCCESS"), (14, "RETRY_EXC_ERR")])
def test_a_queue_pair_through_the_gateway_survives_by_its_timeout(lab, timeout, status):
    """Seven timeouts of 1.07 s are longer than the change of the master, of 67 ms are not."""
    a, b = lab.host("a")["eth1"], lab.host("b")["eth1"]
    assert a.ping_gateway()
    assert b.ping_gateway()
    ends = [Endpoint(end.device, end.node.namespace, end.address().ip, ready=lab.scheduler.ready) for end in (a, b)]
    with ends[0] as near, ends[1] as far:
        connect_pair(near, far, Attributes(timeout=timeout, retry_cnt=6))
        assert near.write(4096, within=5).status == "SUCCESS"
        with injected(lab, LinkDown(end="leaf1:up")):
            assert near.write(4096, within=30).status == status


@pytest.mark.fresh
@pytest.mark.topology(TEXT.replace("priority: 200", "priority: 200, preempt: false"))
def test_a_master_that_stops_hands_over_and_without_preempt_does_not_take_back(lab, log):
    leaf1 = lab.switch("leaf1")
    configure = ("configure terminal", "interface vlan10")
    began = log.now
    lab.routing.ask(leaf1, "vrrpd", *configure, "vrrp 5 shutdown")
    assert lab.scheduler.wait(lambda: reports(log, "master", "leaf2", VIRTUAL), 10)
    # It advertises the priority 0: only leaf2's skew passes.
    assert (reports(log, "master", "leaf2", VIRTUAL)[0]["t"] - began) / 1e9 < TAKES_OVER_S - 2.9
    assert leads_to(lab, "u2")
    lab.routing.ask(leaf1, "vrrpd", *configure, "no vrrp 5 shutdown")
    lab.scheduler.sleep(10)
    of_vlan_10 = [lab.routing.vrrp(lab.switch(name))[0]["state"] for name in LEAVES]
    assert of_vlan_10 == ["Backup", "Master"]
    assert own_macs(lab["leaf1"]) == {"00:00:5e:00:01:06"}
    assert pings(lab["a"], VIRTUAL) == 3


@pytest.mark.fresh
def test_a_master_whose_priority_is_lowered_hands_over_as_by_tracking(lab, log):
    lab.routing.ask(lab.switch("leaf1"), "vrrpd", "configure terminal", "interface vlan10", "vrrp 5 priority 50")
    assert lab.scheduler.wait(lambda: reports(log, "backup", "leaf1", VIRTUAL), 10)
    assert reports(log, "master", "leaf2", VIRTUAL)
    assert leads_to(lab, "u2")
    assert pings(lab["a"], "10.0.20.4") == 3


@pytest.mark.fresh
def test_while_advertisements_are_lost_both_are_masters_and_the_mac_moves_with_each(lab):
    with injected(lab, VrrpLost(end="access:u2")):
        assert settled(lab, "Master", "Master")
        assert leads_to(lab, "u2")
        assert leads_to(lab, "u1")
    assert settled(lab, "Master", "Backup")
    assert leads_to(lab, "u1")
    lab.scheduler.sleep(3)
    assert leads_to(lab, "u1", within=0)


@pytest.mark.fresh
@pytest.mark.topology(
    TEXT.replace("10: 10.0.10.2/24", '10: [10.0.10.2/24, "2001:db8:10::2/64"]')
    .replace("10: 10.0.10.3/24", '10: [10.0.10.3/24, "2001:db8:10::3/64"]')
    .replace("address: 10.0.10.1", 'address: 10.0.10.1, address6: "2001:db8:10::1"')
)
def test_ipv6_has_a_virtual_router_of_its_own(lab, log):
    assert reports(log, "master", "leaf1", VIRTUAL6)
    assert not reports(log, "master", "leaf2", VIRTUAL6)
    for name in "a", "c":
        assert pings(lab[name], VIRTUAL6) == 3
        assert lab.host(name)["eth1"].neighbour(VIRTUAL6) == MAC6
    with injected(lab, LinkDown(end="leaf1:up")):
        assert lab.scheduler.wait(lambda: reports(log, "master", "leaf2", VIRTUAL6), 10)
        for name in "a", "c":
            assert pings(lab[name], VIRTUAL6) == 3
        assert lab.host("a")["eth1"].neighbour(VIRTUAL6) == MAC6
    assert lab.scheduler.wait(lambda: reports(log, "backup", "leaf2", VIRTUAL6), 10)
    assert pings(lab["a"], VIRTUAL6) == 3


@pytest.mark.fresh
def test_a_device_whose_mac_a_command_changes_is_no_virtual_router(lab, log):
    """As vrrpd has it, which needs a device with the MAC of the virtual router."""
    leaf = lab["leaf1"]
    device = next(line.split("@")[0] for line in leaf.run("ip", "-br", "link").stdout.splitlines() if MAC in line)
    leaf.run("ip", "link", "set", device, "address", "02:00:00:00:00:99")
    assert lab.scheduler.wait(lambda: reports(log, "backup", "leaf1", VIRTUAL), 3)
    assert own_macs(leaf) == BOTH - {MAC}
    assert f"{VIRTUAL}/" not in leaf.run("ip", "-4", "-br", "address").stdout
    leaf.run("ip", "link", "set", device, "address", MAC)
    assert settled(lab, "Master", "Backup")
    assert own_macs(leaf) == BOTH
    assert pings(lab["a"], "10.0.20.4") == 3


@pytest.mark.topology("vrrp-routed.clab.yml")
def test_beside_bgp_a_virtual_address_is_no_route_of_its_own(lab):
    routes = lab["spine"].run("ip", "route", "show", "proto", "bgp").stdout
    assert [line.split()[0] for line in routes.splitlines() if line[0] != "\t"] == ["10.0.10.0/24"]
    a, r = lab.host("a")["eth1"], lab.host("r")["eth1"]
    assert str(a.gateway()) == VIRTUAL
    assert a.node.ping(r.address().ip, within=4)
    lab.routing.converged()
