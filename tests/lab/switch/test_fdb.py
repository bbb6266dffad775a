"""The MAC addresses that a switch learned: where frames go with and without them, how long they stay."""

import pytest
from switch_lab import (
    EXACT_S,
    LEAF,
    SVI_20,
    B,
    arp_row,
    captured,
    ethernet,
    know_the_gateways,
    only,
    request,
    send,
    send_udp,
)

from testbed import Lab
from testbed.lab import Host
from testbed.switch.frames import BROADCAST

pytestmark = pytest.mark.topology(LEAF)

LATE_GC = 1 / 8
"""What the bridge's gc may be late, as a share of its delay: a level of the timer wheel is so coarse
(kernel/time/timer.c). Forwarding goes on until the gc has run."""


def mute(host: Host) -> None:
    """Has it answer nothing: the bridge does not learn its MAC from what it is sent."""
    host.run("nft", "add table ip mute; add chain ip mute out { type filter hook output priority 0; policy drop; }")


def test_frames_to_a_cleared_mac_are_flooded_until_it_speaks(lab, log):
    b, c, d = (lab.host(name) for name in "bcd")
    mac = b["eth1"].mac
    for host in b, c:
        send(host, ethernet(BROADCAST, host["eth1"].mac))
    to_b = ethernet(mac, c["eth1"].mac)
    assert lab.switch("leaf").fdb_table() == {mac: "e2", c["eth1"].mac: "e3"}

    lab.switch("leaf").clear_fdb(mac=mac)
    lab.scheduler.catch_up()
    assert only(log.find("fdb.flushed"))["data"]["mac"] == mac
    assert lab.switch("leaf").fdb_table() == {c["eth1"].mac: "e3"}
    wire = d["eth1"].capture(f"ether dst {mac}")
    send(c, *[to_b] * 3)
    send(b, ethernet(BROADCAST, mac))
    send(c, *[to_b] * 4)

    assert len(captured(wire)) == 3
    lab.scheduler.catch_up()
    assert [event["data"]["port"] for event in log.find("fdb.learned", mac=mac)] == ["e2", "e2"]


def test_a_mac_that_speaks_elsewhere_moves(lab, log):
    b, c = lab.host("b"), lab.host("c")
    mac = b["eth1"].mac
    send(b, ethernet(BROADCAST, mac))
    send(c, ethernet(BROADCAST, mac))

    assert lab.switch("leaf").fdb_table()[mac] == "e3"
    lab.scheduler.catch_up()
    moved = only(log.find("fdb.moved"))["data"]
    assert (moved["mac"], moved["old_port"], moved["port"]) == (mac, "e2", "e3")


def test_a_frame_between_hosts_is_not_copied_to_the_switch(lab):
    b, c = lab.host("b"), lab.host("c")
    for host in b, c:
        send(host, ethernet(BROADCAST, host["eth1"].mac))
    before = received_by_the_bridge(lab)

    send(b, *[ethernet(c["eth1"].mac, b["eth1"].mac)] * 10)

    assert received_by_the_bridge(lab) == before


def received_by_the_bridge(lab: Lab) -> int:
    ip = lab.switch("leaf").ip
    (bridge,) = ip.get_links(ifname="br0")
    return bridge.get_attr("IFLA_STATS64")["rx_packets"]


def test_lossless_packets_are_dropped_while_the_fdb_lacks_their_mac(lab, log):
    know_the_gateways(lab)
    a, b = lab.host("a"), lab.host("b")
    lab.switch("leaf").change_profile(mac_age=20, lossless_unknown_unicast="drop", lossless_dscp=(3, 26))
    mute(b)
    send(b, request(b, SVI_20))
    assert lab.scheduler.wait(lambda: bool(log.find("fdb.aged", mac=b["eth1"].mac)), within=30)

    assert dscps_that_arrive(a, b) == [0]
    lab.switch("leaf").change_profile(lossless_dscp=(26,))
    assert dscps_that_arrive(a, b) == [0, 3]
    lab.switch("leaf").change_profile(lossless_unknown_unicast="flood")
    assert dscps_that_arrive(a, b) == [0, 3, 26]
    lab.switch("leaf").change_profile(lossless_unknown_unicast="drop")
    assert dscps_that_arrive(a, b) == [0, 3]
    send(b, request(b, SVI_20))
    assert dscps_that_arrive(a, b) == [0, 3, 26]


def dscps_that_arrive(sender: Host, receiver: Host) -> list[int]:
    """Which of three classes' packets do."""
    wire = receiver["eth1"].capture("udp")
    for dscp in 0, 3, 26:
        send_udp(sender, B, 1, dscp=dscp)
    sender.context.scheduler.sleep(0.1)
    return [frame.data[15] >> 2 for frame in captured(wire)]


@pytest.mark.fresh
@pytest.mark.parametrize(("what", "seen"), [("flood", 30), ("drop", 0)])
def test_packets_to_an_arp_entry_without_an_fdb_entry(lab, log, what, seen):
    know_the_gateways(lab)
    a, b = lab.host("a"), lab.host("b")
    lab.switch("leaf").change_profile(mac_age=20, unknown_unicast=what)
    assert a.ping(B, within=1)
    assert lab.scheduler.wait(lambda: bool(log.find("fdb.aged", mac=b["eth1"].mac)), within=30)
    assert arp_row(lab, B)["mac"] == b["eth1"].mac
    mute(b)

    names = ("b", "c", "d")
    wires = {name: lab.host(name)["eth1"].capture(f"udp and ether dst {b['eth1'].mac}") for name in names}
    send_udp(a, B, 30)

    assert {name: len(captured(wire)) for name, wire in wires.items()} == dict.fromkeys(names, seen)


@pytest.mark.fresh
def test_macs_beyond_the_cap_are_flooded_and_not_learned(lab):
    b, c, d = (lab.host(name) for name in "bcd")
    lab.switch("leaf").change_profile(mac_cap=3)
    macs = [f"02:00:00:ff:00:{number:02x}" for number in range(10)]

    send(c, *[ethernet(BROADCAST, mac) for mac in macs])

    assert lab.switch("leaf").fdb_table() == dict.fromkeys(macs[:3], "e3")
    wire = d["eth1"].capture("ether proto 0x88b5")
    send(b, *[ethernet(mac, b["eth1"].mac) for mac in macs])
    assert [frame.dst for frame in captured(wire)] == macs[3:]
    lab.switch("leaf").change_profile(mac_cap=None)
    send(c, *[ethernet(BROADCAST, mac) for mac in macs])
    assert set(lab.switch("leaf").fdb_table()) == set(macs)


@pytest.mark.fresh
@pytest.mark.parametrize(
    "age", [pytest.param(1800, marks=pytest.mark.slow), 10, 299.5], ids=["profile", "short", "fraction"]
)
def test_a_mac_ages_from_its_last_frame(lab, log, age):
    b = lab.host("b")
    mac = b["eth1"].mac
    if age != 1800:
        lab.switch("leaf").change_profile(mac_age=age)
    frame = ethernet(BROADCAST, mac)
    send(b, frame)
    lab.scheduler.sleep(age - 3)
    send(b, frame)
    last_ns = log.now

    assert lab.scheduler.wait(lambda: bool(log.find("fdb.aged")), within=age * 2)

    lived = (only(log.find("fdb.aged", mac=mac))["t"] - last_ns) / 1e9
    assert age - EXACT_S <= lived <= age * (1 + LATE_GC) + EXACT_S
    assert lab.switch("leaf").fdb_table() == {}


def test_a_mac_that_is_forgotten_a_little_early_has_aged(lab, log):
    lab.switch("leaf").change_profile(mac_age=0.054)  # the kernel takes and tells whole hundredths
    send(lab.host("b"), ethernet(BROADCAST, lab.host("b")["eth1"].mac))

    lab.scheduler.sleep(1)

    assert [event["kind"] for event in log.events if event["kind"].startswith("fdb.")] == ["fdb.learned", "fdb.aged"]
