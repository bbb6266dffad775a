"""The ARP that a switch speaks: answers for its own addresses, questions for those that data packets need."""

from ipaddress import IPv4Address
from itertools import pairwise

import pytest
from switch_lab import (
    EXACT_S,
    LEAF,
    NOBODY,
    SVI_10,
    SVI_20,
    A,
    B,
    C,
    arp_row,
    arps,
    captured,
    ethernet,
    kernel_neighbours,
    know_the_gateways,
    only,
    request,
    seconds,
    send,
    send_udp,
    svi_mac,
)

from testbed.switch.frames import BROADCAST, REPLY, REQUEST, Arp, pack, parse
from testbed.switch.profile import profile

pytestmark = pytest.mark.topology(LEAF)


def test_a_request_for_the_svi_gets_exactly_one_reply(lab):
    a = lab.host("a")
    wire = a["eth1"].capture("arp")

    send(a, *[request(a, SVI_10)] * 3)
    lab.scheduler.sleep(5)

    replies = arps(wire, REPLY, svi_mac(lab))
    assert [str(arp.sender_ip) for arp in replies] == [SVI_10] * 3


@pytest.mark.parametrize(
    ("arp_ignore", "answered"),
    [(0, [SVI_10, SVI_20]), (1, [SVI_10]), (2, [SVI_10])],
    ids=["any", "same-vlan", "subnet"],
)
def test_the_profile_says_for_which_own_addresses_a_switch_answers(lab, arp_ignore, answered):
    a = lab.host("a")
    lab.switch("leaf").change_profile(arp_ignore=arp_ignore)
    wire = a["eth1"].capture("arp")

    send(a, request(a, SVI_10), request(a, SVI_20), request(a, B))
    lab.scheduler.sleep(5)

    assert [str(arp.sender_ip) for arp in arps(wire, REPLY, svi_mac(lab))] == answered


def test_the_kernel_of_a_switch_asks_for_nothing_by_itself(lab):
    know_the_gateways(lab)
    wires = [lab.host("a")["eth1"].capture("arp"), lab.host("b")["eth1"].capture("arp")]

    for _ in range(5):
        assert lab.host("a").ping(B, within=1)
        lab.scheduler.sleep(200)  # Linux's own neighbour entries would be stale, and probed, since long

    asked = [[str(arp.target_ip) for arp in arps(wire, REQUEST, svi_mac(lab))] for wire in wires]
    assert asked == [[A], [B]]


@pytest.mark.parametrize(("attempts", "interval"), [(3, 1), (5, 2)], ids=["profile", "changed"])
def test_a_miss_that_nobody_answers_fails_after_the_tries(lab, log, attempts, interval):
    know_the_gateways(lab)
    if (attempts, interval) != (3, 1):
        lab.switch("leaf").change_profile(resolve_attempts=attempts, resolve_interval=interval)
    wire = lab.host("c")["eth1"].capture("arp")

    send_udp(lab.host("a"), NOBODY, 3)
    assert lab.scheduler.wait(lambda: bool(log.find("arp.failed")), within=60)

    failed = only(log.find("arp.failed", ip=NOBODY, reason="no-answer"))
    assert seconds(only(log.find("arp.miss", ip=NOBODY)), failed) == pytest.approx(attempts * interval, abs=EXACT_S)
    asked = [frame for frame in captured(wire) if parse(frame.data).target_ip == IPv4Address(NOBODY)]
    assert len(asked) == attempts
    gaps = [(then.t_ns - first.t_ns) / 1e9 for first, then in pairwise(asked)]
    assert gaps == pytest.approx([interval] * (attempts - 1), abs=EXACT_S)
    assert NOBODY not in kernel_neighbours(lab.switch("leaf"))


@pytest.mark.fresh
def test_a_failed_address_is_asked_for_again_when_its_hold_down_is_over(lab, log):
    know_the_gateways(lab)
    send_udp(lab.host("a"), NOBODY, 1)
    assert lab.scheduler.wait(lambda: bool(log.find("arp.failed")), within=10)

    lab.scheduler.sleep(170)
    send_udp(lab.host("a"), NOBODY, 10)
    lab.scheduler.sleep(1)
    assert len(log.find("arp.miss", ip=NOBODY)) == 1
    assert arp_row(lab, NOBODY)["state"] == "held"

    lab.scheduler.sleep(10)
    send_udp(lab.host("a"), NOBODY, 1)
    lab.scheduler.sleep(0.5)
    assert len(log.find("arp.miss", ip=NOBODY)) == 2


@pytest.mark.fresh
def test_packets_that_wait_for_an_answer_are_delivered_when_it_comes(lab):
    know_the_gateways(lab)
    b = lab.host("b")
    b["eth1"].down()
    lab.scheduler.sleep(1)
    send_udp(lab.host("a"), B, 3)
    lab.scheduler.sleep(1.5)

    b["eth1"].up()
    wire = b["eth1"].capture("udp")
    lab.scheduler.sleep(3)

    assert len(captured(wire)) == 3


@pytest.mark.fresh
def test_a_cleared_arp_entry_is_asked_for_again(lab, log):
    know_the_gateways(lab)
    a, leaf = lab.host("a"), lab.switch("leaf")
    assert a.ping(B, within=1)
    assert a.ping(C, within=1)

    lab.switch("leaf").clear_arp(ip=IPv4Address(B))

    assert set(leaf.arp_table()) == set(kernel_neighbours(leaf)) == {A, C}
    assert a.ping(B, within=1)
    lab.scheduler.catch_up()
    assert [event["data"]["ip"] for event in log.find("arp.cleared")] == [B]
    assert len(log.find("arp.miss", ip=B)) == 2
    lab.switch("leaf").clear_arp(vlan=20)
    assert set(leaf.arp_table()) == set(kernel_neighbours(leaf)) == {A}


@pytest.mark.fresh
def test_arp_between_hosts_is_not_for_the_switch_even_while_it_is_captured_there(lab):
    know_the_gateways(lab)
    a, b, c, d = (lab.host(name) for name in "abcd")
    assert a.ping(B, within=1)
    lab.switch("leaf").adopt("br0", svi_mac(lab)).capture()
    send(d, ethernet(BROADCAST, d["eth1"].mac))

    claim = Arp(REPLY, c["eth1"].mac, IPv4Address(B), d["eth1"].mac, d["eth1"].address().ip)
    send(c, pack(d["eth1"].mac, c["eth1"].mac, claim))

    assert arp_row(lab, B)["mac"] == b["eth1"].mac


@pytest.mark.topology(LEAF, profiles={"leaf": profile("sonic")})
def test_a_refresh_daemon_keeps_its_period_while_there_is_nothing_to_ask(lab):
    a = lab.host("a")
    lab.scheduler.sleep(1000)
    wire = a["eth1"].capture("arp")

    send(a, request(a, SVI_10))
    lab.scheduler.sleep(250)

    assert [str(arp.target_ip) for arp in arps(wire, REQUEST, svi_mac(lab))] == [A] * 2


@pytest.mark.fresh
@pytest.mark.topology(LEAF, profiles={"leaf": profile("cisco-ios")})
def test_ios_asks_for_each_entry_at_a_time_of_its_own(lab, log):
    """After four hours and up to thirty minutes; entries that are made together do not end together."""
    hosts = [lab.host(name)["eth1"] for name in "ab"]
    for host in hosts:
        assert host.ping_gateway()
        host.node.run("ip", "neigh", "flush", "dev", "eth1")
    made = log.now / 1e9

    lab.scheduler.sleep(4.6 * 3600)

    asked = [event["t"] / 1e9 - made for event in log.find("arp.refresh")]
    assert len(asked) == 2
    assert all(14400 - 1 <= after <= 16200 for after in asked)
    assert abs(asked[0] - asked[1]) > 1
    assert set(lab.switch("leaf").arp_table()) == {A, B}
