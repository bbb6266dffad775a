"""What becomes of ARP entries when the port of their owner goes down, by profile."""

import pytest
from switch_lab import B, C, arps, know_the_gateways, only, request, send, send_udp, svi_mac

from testbed.switch.frames import REQUEST
from testbed.switch.profile import profile

LEAF = "leaf.clab.yml"


@pytest.mark.fresh
@pytest.mark.topology(LEAF, profiles={"leaf": profile("h3c-comware7")})
def test_a_profile_that_purges_loses_the_entries_behind_the_port(lab, log):
    leaf = known(lab)

    lab.host("b")["eth1"].down()

    lab.scheduler.wait(lambda: leaf.arp_table() == {C: lab.host("c")["eth1"].mac}, within=2)
    lab.scheduler.catch_up()

    cleared = only(log.find("arp.cleared"))["data"]
    assert (cleared["ip"], cleared["reason"]) == (B, "port-down")
    flushed = only(log.find("fdb.flushed"))["data"]
    assert (flushed["mac"], flushed["port"]) == (lab.host("b")["eth1"].mac, "e2")


@pytest.mark.fresh
@pytest.mark.topology(LEAF, profiles={"leaf": profile("sonic")})
def test_sonic_probes_an_entry_that_no_answer_has_confirmed(lab, log):
    leaf = known(lab)
    wire = lab.host("c")["eth1"].capture("arp")

    lab.host("b")["eth1"].down()
    lab.scheduler.sleep(9)

    assert leaf.arp_table() == {B: None, C: lab.host("c")["eth1"].mac}
    assert [event["data"]["probe"] for event in log.find("arp.refresh", ip=B)] == [1, 2, 3]
    assert only(log.find("arp.failed"))["data"]["ip"] == B
    # The bridge has lost b's MAC: what goes to it is flooded.
    assert [str(asked.target_ip) for asked in arps(wire, REQUEST, svi_mac(lab))] == [B] * 3


@pytest.mark.fresh
@pytest.mark.topology(LEAF, profiles={"leaf": profile("sonic")})
def test_sonic_keeps_an_entry_that_an_answer_has_confirmed(lab, log):
    leaf = lab.switch("leaf")
    know_the_gateways(lab)
    send_udp(lab.host("a"), B, 1)
    lab.scheduler.sleep(1)

    lab.host("b")["eth1"].down()
    lab.scheduler.sleep(60)

    assert leaf.arp_table()[B] == lab.host("b")["eth1"].mac
    assert log.find("arp.refresh", ip=B) == []


def known(lab):
    """The leaf has learned b and c from their own requests."""
    know_the_gateways(lab)
    for name in "bc":
        send(lab.host(name), request(lab.host(name), "10.0.20.1"))
    leaf = lab.switch("leaf")
    assert set(leaf.arp_table()) == {B, C}
    return leaf
