"""An address moves to another host: how long a switch believes the old one."""

from ipaddress import IPv4Address

import pytest
from switch_lab import (
    EXACT_S,
    LEAF,
    B,
    C,
    arp_row,
    captured,
    kernel_neighbours,
    know_the_gateways,
    only,
    seconds,
    send,
    send_udp,
)

from testbed.switch.packets import gratuitous
from testbed.switch.profile import profile

pytestmark = pytest.mark.topology(LEAF)

STRICT = pytest.mark.topology(LEAF, profiles={"leaf": profile("ignore-garp-strict")})


@pytest.mark.fresh
def test_after_a_silent_move_the_old_entry_lives_its_whole_age(lab, log):
    know_the_gateways(lab)
    a, b, c = lab.host("a"), lab.host("b"), lab.host("c")
    assert a.ping(B, within=1)
    b["eth1"].down()
    c["eth1"].add_address(b["eth1"].address())

    lab.scheduler.sleep(1400)
    assert not a.ping(B, within=1)
    assert arp_row(lab, B)["mac"] == b["eth1"].mac
    lab.scheduler.sleep(200)

    learned, aged = only(log.find("arp.learned", ip=B)), only(log.find("arp.aged", ip=B))
    assert seconds(learned, aged) == pytest.approx(1500, abs=EXACT_S)
    probes = [seconds(learned, event) for event in log.find("arp.refresh", ip=B)]
    assert probes == pytest.approx([1470, 1480, 1490], abs=EXACT_S)
    assert a.ping(B, within=1)
    assert arp_row(lab, B)["mac"] == c["eth1"].mac


def test_an_owner_that_answers_the_probe_keeps_its_entry(lab, log):
    know_the_gateways(lab)
    assert lab.host("a").ping(B, within=1)

    lab.scheduler.sleep(4000)

    assert not log.find("arp.aged")
    learned = only(log.find("arp.learned", ip=B))
    confirmed = [seconds(learned, event) for event in log.find("arp.confirmed", ip=B)]
    assert confirmed == pytest.approx([1470, 2940], abs=EXACT_S)
    assert arp_row(lab, B)["age"] == pytest.approx(4000 - 2940, abs=1)


@pytest.mark.fresh
@pytest.mark.parametrize(
    ("owner", "told"),
    [
        pytest.param("c", "arp.updated", id="cisco-nxos"),
        pytest.param("b", "arp.ignored", id="ignore-garp-strict", marks=STRICT),
    ],
)
def test_a_gratuitous_arp_moves_the_entry_where_the_profile_lets_it(lab, log, owner, told):
    know_the_gateways(lab)
    a, b, c = lab.host("a"), lab.host("b"), lab.host("c")
    assert a.ping(B, within=1)
    send_udp(c, B, 1)  # the bridge knows c's port now
    c["eth1"].add_address(b["eth1"].address())
    c["eth1"].announce()
    lab.scheduler.sleep(1)

    wires = {host.name: host["eth1"].capture("udp") for host in (b, c)}
    send_udp(a, B, 10)
    lab.scheduler.sleep(1)

    assert {name: len(captured(wire)) for name, wire in wires.items()} == {"b": 0, "c": 0} | {owner: 10}
    assert arp_row(lab, B)["mac"] == lab.host(owner)["eth1"].mac
    changes = [event for kind in ("arp.updated", "arp.ignored") for event in log.find(kind, ip=B)]
    assert [(event["kind"], event["data"]["mac"]) for event in changes] == [(told, c["eth1"].mac)]


def test_a_gratuitous_arp_creates_an_entry_only_where_the_profile_lets_it(lab, log):
    c = lab.host("c")
    frame = gratuitous(c["eth1"].mac, IPv4Address(C))

    send(c, frame)
    lab.scheduler.sleep(1)
    assert arp_row(lab, C) is None

    lab.switch("leaf").change_profile(garp_new=True)
    send(c, frame)
    lab.scheduler.sleep(1)
    assert arp_row(lab, C)["mac"] == c["eth1"].mac
    assert kernel_neighbours(lab.switch("leaf")) == {C: c["eth1"].mac}
    assert only(log.find("arp.learned"))["data"]["reason"] == "garp"
