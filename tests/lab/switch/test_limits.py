"""What the switch's processor gets to see."""

import pytest
from switch_lab import LEAF, SVI_10, SVI_20, A, B, arp_row, arps, know_the_gateways, request, send, svi_mac

from testbed.switch.frames import REPLY, REQUEST

pytestmark = pytest.mark.topology(LEAF)


def test_arp_above_the_limit_does_not_reach_the_processor(lab, log):
    a = lab.host("a")
    lab.switch("leaf").change_profile(arp_pps=5)
    lab.scheduler.sleep(10)
    wire = a["eth1"].capture("arp")

    send(a, *[request(a, SVI_10)] * 20)
    lab.scheduler.sleep(2)
    send(a, request(a, SVI_10))
    lab.scheduler.sleep(1)

    assert len(arps(wire, REPLY, svi_mac(lab))) == 5 + 1
    assert [event["data"]["packets"] for event in log.find("arp.limited", reason="arp-rate")] == [1, 15]


@pytest.mark.fresh
def test_a_new_address_is_not_learned_while_the_limit_is_exceeded(lab, log):
    know_the_gateways(lab)
    b, c = lab.host("b"), lab.host("c")
    assert lab.host("a").ping(B, within=1)
    lab.switch("leaf").change_profile(arp_pps=2)
    send(c, *[request(c, SVI_20)] * 10)
    c["eth1"].add_address(b["eth1"].address())

    c["eth1"].announce()
    lab.scheduler.sleep(0.2)
    assert arp_row(lab, B)["mac"] == b["eth1"].mac

    lab.scheduler.sleep(2)
    c["eth1"].announce()
    lab.scheduler.sleep(0.2)
    assert arp_row(lab, B)["mac"] == c["eth1"].mac


@pytest.mark.fresh
def test_a_switch_that_does_not_ask_routes_to_nobody_who_is_silent(lab, log):
    """https://github.com/sonic-net/sonic-buildimage/issues/9470: right as soon as the silent host sends something."""
    know_the_gateways(lab)
    a, b = lab.host("a"), lab.host("b")
    lab.switch("leaf").change_profile(miss="drop")
    wire = b["eth1"].capture("arp")

    assert not a.ping(B, within=3)
    lab.scheduler.catch_up()
    assert arps(wire, REQUEST, svi_mac(lab)) == []
    assert [event["data"]["ip"] for event in log.find("arp.unasked")] == [B, A]  # for a, the switch has an ICMP error

    send(a, request(a, SVI_10))  # else the answer finds nobody to go to
    send(b, request(b, SVI_20))
    assert a.ping(B, within=1)
