"""EVPN by FRR on the switches, and their agents in front of it: what each knows is what the other one has."""

import json

import pytest

from testbed.workload.attributes import Attributes
from testbed.workload.verbs import Endpoint, connect_pair

pytestmark = [pytest.mark.topology("evpn.clab.yml"), pytest.mark.fresh]
LEAVES = ("leaf1", "leaf2")
VTEPS = {"leaf1": "10.255.0.3", "leaf2": "10.255.0.4"}
WITHIN_S = 2.0


def zebra(lab, leaf, what):
    return json.loads(lab.routing.ask(lab.switch(leaf), "zebra", f"show evpn {what} vni all json"))


def rows(lab, leaf, table="arp"):
    return {row.get("ip") or row["mac"]: row for row in lab.switch(leaf).tables()[table]}


def address(lab, host):
    return str(lab.host(host)["eth1"].address().ip)


def known(lab, leaf, ip, state):
    """Whether a leaf has come to have an address in this state."""
    return lab.scheduler.wait(lambda: rows(lab, leaf).get(ip, {}).get("state") == state, WITHIN_S)


def test_what_a_leaf_hears_the_other_one_has_with_its_far_end(lab, log):
    a, b, c = (lab.host(name)["eth1"] for name in "abc")
    assert a.node.ping(address(lab, "b"), within=2)
    assert a.node.ping(address(lab, "c"), within=2)
    assert known(lab, "leaf2", str(a.address().ip), "remote")
    assert known(lab, "leaf1", str(c.address().ip), "remote")
    assert rows(lab, "leaf1")[str(a.address().ip)]["port"] == "e1"
    assert rows(lab, "leaf2")[str(a.address().ip)]["port"] == "vni10010"
    found = rows(lab, "leaf1", "fdb")[b.mac]
    assert (found["port"], found["state"], found["vteps"]) == ("vni10010", "remote", [VTEPS["leaf2"]])
    learned = log.find("arp.learned", ip=str(a.address().ip), reason="evpn")
    assert [(event["node"], event["data"]["port"]) for event in learned] == [("leaf2", "vni10010")]


def test_the_tables_are_those_of_frr(lab):
    lab.host("a").ping(address(lab, "c"), within=2)
    lab.host("b").ping(address(lab, "d"), within=2)
    assert known(lab, "leaf1", address(lab, "c"), "remote")
    for leaf in LEAVES:
        macs = {mac: one for vni in zebra(lab, leaf, "mac").values() for mac, one in vni["macs"].items()}
        ours = rows(lab, leaf, "fdb")
        assert ours.keys() == macs.keys()
        for mac, one in macs.items():
            where = [one["remoteVtep"]] if one["type"] == "remote" else one["intf"]
            assert (ours[mac].get("vteps") or ours[mac]["port"]) == where
        neighbours = {
            ip: one for vni in zebra(lab, leaf, "arp-cache").values() for ip, one in vni.items() if ip != "numArpNd"
        }
        for table, family in ("arp", "."), ("nd", ":"):
            expected = {ip for ip in neighbours if family in ip and not ip.startswith("fe80")}
            assert {ip for ip in rows(lab, leaf, table) if not ip.startswith("fe80")} == expected
        for ip, row in rows(lab, leaf).items():
            assert row["state"] == {"local": "resolved", "remote": "remote"}[neighbours[ip]["type"]]


@pytest.mark.parametrize("far", ["b", "c"])
def test_rdma_goes_through_the_fabric_bridged_and_routed(lab, far):
    ends = [lab.host(name)["eth1"] for name in ("a", far)]
    assert ends[0].node.ping(str(ends[1].address().ip), within=2)
    made = [Endpoint(end.device, end.node.namespace, end.address().ip, ready=lab.scheduler.ready) for end in ends]
    with made[0] as near, made[1] as other:
        connect_pair(near, other, Attributes())
        assert near.write(4096, within=5).status == "SUCCESS"


def test_a_leaf_answers_for_hosts_that_it_knows_and_floods_no_request_for_them(lab):
    """ARP suppression (RFC 9161): the owner's MAC, from the leaf; the owner hears nothing."""
    a, d = lab.host("a"), lab.host("d")
    assert lab.host("b")["eth1"].ping_gateway()
    ip = address(lab, "b")
    assert known(lab, "leaf1", ip, "remote")
    heard = lab.host("b")["eth1"].capture("arp")
    for host in (a, d):
        shown = host.run("arping", "-c", "1", "-I", "eth1", ip).stdout
        assert lab.host("b")["eth1"].mac in shown.lower()
    heard.stop()
    assert [*heard.frames()] == []


def test_suppression_holds_for_ipv6_too(lab):
    b = str(lab.host("b")["eth1"].address(6).ip)
    a = str(lab.host("a")["eth1"].address(6).ip)
    assert lab.host("b").ping(a, within=2)
    assert lab.scheduler.wait(lambda: rows(lab, "leaf1", "nd").get(b, {}).get("state") == "remote", WITHIN_S)
    heard = lab.host("b")["eth1"].capture("icmp6 and ip6[40] == 135")
    lab.host("a").run("ip", "-6", "neigh", "flush", "dev", "eth1")
    assert lab.host("a").ping(b, within=2)
    heard.stop()
    assert [*heard.frames()] == []


def test_a_vlan_without_an_address_is_announced_too(lab):
    e, f = lab.host("e"), lab.host("f")
    assert e.ping(address(lab, "f"), within=2)
    assert known(lab, "leaf2", address(lab, "e"), "remote")
    assert rows(lab, "leaf1")[address(lab, "e")]["state"] == "resolved"
    assert f.ping(address(lab, "e"), within=2)


def test_a_host_that_moves_has_a_higher_number_and_one_that_moves_too_often_is_a_duplicate(lab, log):
    a, b, mac = lab.host("a"), lab.host("b"), lab.host("b")["eth1"].mac
    a.run("ip", "link", "set", "eth1", "address", mac)
    for number in range(6):
        host = (b, a)[number % 2]
        host.run("arping", "-U", "-c", "1", "-I", "eth1", str(host["eth1"].address().ip))
        lab.scheduler.sleep(1)
        if number == 2:
            assert rows(lab, "leaf1", "fdb")[mac]["sequence"] == 2
    assert rows(lab, "leaf1", "fdb")[mac]["duplicate"]
    found = log.find("evpn.duplicate")
    assert [(event["data"]["vlan"], event["data"]["mac"]) for event in found][:1] == [(10, mac)]


def test_the_profile_is_that_of_bgpd(lab):
    leaf = lab.switch("leaf1")

    def shown():
        return lab.routing.ask(leaf, "zebra", "show evpn")

    assert "Detection max-moves 5, time 180" in shown()
    undo = leaf.change_profile(evpn_dup_moves=3, evpn_dup_freeze=0)
    assert "Detection max-moves 3, time 180" in shown()
    assert "Detection freeze permanent" in shown()
    undo()
    assert "freeze" not in shown()
    leaf.change_profile(evpn_dup_moves=None)()


def test_zebra_that_is_gone_is_unknown_and_no_error(lab):
    lab.host("a")["eth1"].ping_gateway()
    assert rows(lab, "leaf1")[address(lab, "a")]["sequence"] == 0
    leaf = lab.switch("leaf1")
    lab.routing.forget(leaf)
    assert "sequence" not in rows(lab, "leaf1")[address(lab, "a")]
