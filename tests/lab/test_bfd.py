"""BFD in the ports of switches: packets on the wire, counters, which end detects what, FRR's own BFD as a peer."""

import json
import os
import shutil
import time
from itertools import pairwise
from pathlib import Path

import pytest

from testbed import Lab
from testbed.lab.capture import Capture, Frame
from testbed.lab.interface import Interface
from testbed.scenario.event_log import EventLog
from testbed.switch import frr
from testbed.topology.fabrics import leaf_spine

LEAF_SPINE = leaf_spine(leaves=1, spines=2, hosts=1, routing="frr").topology()
BESIDE_FRR = """
name: beside
topology:
  routing: frr
  defaults: {kind: host, rdma: false}
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.0.1/24}}
    spine: {kind: switch}
    router: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "router:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "spine:e1"]}
"""
SOON = 20.0
POLL = 0x20


def peer(lab: Lab, switch: str, port: str) -> dict[str, object]:
    peers = json.loads(lab.routing.ask(lab.switch(switch), "bfdd", "show bfd peers json"))
    return next(one for one in peers if one["interface"] == port)


def counted(lab: Lab, switch: str, port: str) -> tuple[int, int]:
    peers = json.loads(lab.routing.ask(lab.switch(switch), "bfdd", "show bfd peers counters json"))
    found = next(one for one in peers if one["interface"] == port)
    return found["control-packet-input"], found["control-packet-output"]


def on_the_wire(interface: Interface, wire: Capture) -> tuple[list[Frame], list[Frame]]:
    """The frames that an interface received and sent, of a capture there."""
    frames = list(wire.frames())
    theirs = [frame for frame in frames if frame.src != interface.mac]
    return theirs, [frame for frame in frames if frame.src == interface.mac]


def differences(before: tuple[int, int], after: tuple[int, int]) -> list[int]:
    return [now - then for then, now in zip(before, after, strict=True)]


def control(frame: Frame) -> bytes:
    """The control packet of a frame over IPv6."""
    return frame.data[62:]


def number(packet: bytes, at: int) -> int:
    return int.from_bytes(packet[at : at + 4], "big")


def changes(log: EventLog, since: int) -> list[tuple[str, str, str, str, float]]:
    return [
        (event["node"], event["data"]["port"], event["data"]["state"], event["data"]["reason"], event["t"] / 1e9)
        for event in log.events[since:]
        if event["kind"] == "bfd.changed"
    ]


@pytest.mark.fresh
@pytest.mark.topology(LEAF_SPINE)
def test_the_packets_on_the_wire_are_what_the_rfcs_say_and_what_frr_counts(lab):
    leaf = lab.switch("leaf1")
    received, sent = counted(lab, "leaf1", "e2")
    wire = leaf["e2"].capture("udp port 3784")
    before = counted(lab, "leaf1", "e2")
    lab.scheduler.sleep(30)
    after = counted(lab, "leaf1", "e2")
    wire.stop()
    assert received > 0
    assert sent > 0

    theirs, ours = on_the_wire(leaf["e2"], wire)
    assert [len(theirs), len(ours)] == differences(before, after)
    known = peer(lab, "leaf1", "e2")
    for frame in wire.frames():
        packet = control(frame)
        assert (frame.data[12:14], frame.data[21], len(packet)) == (b"\x86\xdd", 255, 24)
        assert packet[:4] == bytes([0x20, 0xC0, frr.BFD_MULTIPLIER, 24])
        assert [number(packet, at) for at in (12, 16, 20)] == [300_000, 300_000, 0]
        assert {number(packet, 4), number(packet, 8)} == {known["id"], known["remote-id"]}
    assert number(control(ours[0]), 4) == known["id"]
    assert {frame.packet["UDP"].sport >= 49152 for frame in ours} == {True}
    assert len({frame.packet["UDP"].sport for frame in ours}) == 1
    for one in ours, theirs:
        gaps_ms = [(after.t_ns - before.t_ns) / 1e6 for before, after in pairwise(one)]
        assert {round(gap, 1) for gap in gaps_ms} == {225, 300}


@pytest.mark.fresh
@pytest.mark.topology(LEAF_SPINE)
def test_of_one_lost_direction_the_end_that_hears_nothing_finds_it(lab, log):
    since, began = len(log.events), time.monotonic()
    lab.interface("spine1:e1").sends.change(loss=100)
    lab.scheduler.sleep(4)
    found = changes(log, since)
    assert [one[:4] for one in found[:3]] == [
        ("leaf1", "e2", "down", "control detection time expired"),
        ("spine1", "e1", "down", "neighbor signaled session down"),
        ("spine1", "e1", "init", "neighbor signaled session down"),
    ]
    lab.scheduler.sleep(30)
    assert changes(log, since) == found
    assert found[0][4] - began < frr.DETECTION_S + 2
    assert (peer(lab, "leaf1", "e2")["status"], peer(lab, "spine1", "e1")["status"]) == ("down", "init")
    assert peer(lab, "spine1", "e1")["remote-diagnostic"] == "control detection time expired"

    lab.interface("spine1:e1").sends.change(loss=0)
    lab.routing.converged(within=30)
    back = [one[:3] for one in changes(log, since)[3:]]
    assert back == [("leaf1", "e2", "up"), ("spine1", "e1", "up")]


@pytest.mark.fresh
@pytest.mark.topology(LEAF_SPINE)
def test_the_detection_time_begins_with_the_last_packet(lab, log):
    wire = lab.interface("leaf1:e2").capture("udp port 3784")
    lab.scheduler.sleep(3)
    since = len(log.events)
    lab.interface("spine1:e1").sends.change(loss=100)
    lab.scheduler.sleep(2)
    wire.stop()
    frames = list(wire.frames())
    down = next(frame for frame in frames if frame.src == lab.interface("leaf1:e2").mac and control(frame)[1] >> 6 == 1)
    last = [frame for frame in frames if frame.src != down.src and frame.t_ns < down.t_ns][-1]
    assert control(down)[0] & 0x1F == 1
    assert number(control(down), 8) == 0
    assert frr.DETECTION_S <= (down.t_ns - last.t_ns) / 1e9 < frr.DETECTION_S + 0.005
    assert changes(log, since)[0][:3] == ("leaf1", "e2", "down")


@pytest.mark.fresh
@pytest.mark.topology(LEAF_SPINE)
def test_counters_can_be_asked_for_again_and_again(lab, log):
    since = len(log.events)
    for _ in range(150):
        received, _ = counted(lab, "leaf1", "e2")
    lab.scheduler.sleep(3)
    assert counted(lab, "leaf1", "e2")[0] >= received + 9
    assert changes(log, since) == []


@pytest.mark.fresh
@pytest.mark.topology(LEAF_SPINE)
def test_settings_of_frr_change_a_session_that_is_up(lab, log):
    since = len(log.events)
    leaf = lab.switch("leaf1")
    asn = leaf.planned.bgp.asn
    fast = "profile fast", "transmit-interval 50", "receive-interval 50"
    wire = leaf["e2"].capture("udp port 3784")
    before = counted(lab, "leaf1", "e2")
    lab.routing.ask(leaf, "bfdd", "configure terminal", "bfd", *fast)
    lab.routing.ask(leaf, "bgpd", "configure terminal", f"router bgp {asn}", "neighbor fabric bfd profile fast")
    lab.scheduler.sleep(3)
    after = counted(lab, "leaf1", "e2")
    wire.stop()
    theirs, ours = on_the_wire(leaf["e2"], wire)
    assert [len(theirs), len(ours)] == differences(before, after)
    assert {bool(control(frame)[1] & POLL) for frame in theirs + ours} == {True, False}
    assert peer(lab, "spine1", "e1")["remote-transmit-interval"] == 50
    before = counted(lab, "spine1", "e1")
    lab.scheduler.sleep(10)
    after = counted(lab, "spine1", "e1")
    assert 30 <= after[0] - before[0] <= 46  # spine1 accepts one packet in 300 ms
    assert changes(log, since) == []


@pytest.mark.fresh
@pytest.mark.topology(LEAF_SPINE)
def test_a_session_that_is_taken_away_tells_its_peer(lab, log):
    since = len(log.events)
    leaf = lab.switch("leaf1")
    lab.routing.ask(leaf, "bgpd", "configure terminal", f"router bgp {leaf.planned.bgp.asn}", "no neighbor fabric bfd")
    lab.scheduler.sleep(1)
    found = {one[:4] for one in changes(log, since)}
    assert ("spine1", "e1", "down", "neighbor signaled session down") in found
    assert ("spine2", "e1", "down", "neighbor signaled session down") in found


@pytest.mark.fresh
@pytest.mark.topology(BESIDE_FRR)
def test_frrs_own_bfd_is_a_peer_over_ipv4(lab):
    leaf, router = lab.switch("leaf"), lab.host("router")
    place = Path("/run/frr", router.namespace)
    place.mkdir()
    shutil.chown(place, "frr", "frr")
    address = str(router["eth1"].address().ip)
    (place / "bfdd.conf").write_text(f"bfd\n peer 10.0.0.1 local-address {address} interface eth1\n")
    for daemon, file in ("mgmtd", ""), ("zebra", os.devnull), ("bfdd", str(place / "bfdd.conf")):
        given = ["-f", file] if file else []
        router.spawn(f"/usr/lib/frr/{daemon}", "-N", router.namespace, "-P", "0", "--log", "stdout", *given)
        assert lab.scheduler.wait_quietly((place / f"{daemon}.vty").exists, SOON)
    lab.routing.ask(
        leaf, "bfdd", "configure terminal", "bfd", f"peer {address} local-address 10.0.0.1 interface vlan10"
    )

    def state() -> tuple[str, str]:
        shown = router.run("vtysh", "-N", router.namespace, "-c", "show bfd peers json").stdout
        return str(peer(lab, "leaf", "vlan10")["status"]), json.loads(shown)[0]["status"]

    assert lab.scheduler.wait_quietly(lambda: state() == ("up", "up"), SOON)
    assert peer(lab, "leaf", "vlan10")["remote-transmit-interval"] == frr.BFD_INTERVAL_MS
    lab.scheduler.sleep(60)
    assert state() == ("up", "up")

    router["eth1"].sends.change(loss=100)
    lab.scheduler.sleep(3)
    assert peer(lab, "leaf", "vlan10")["status"] == "down"
    router["eth1"].sends.change(loss=0)
    assert lab.scheduler.wait_quietly(lambda: state() == ("up", "up"), SOON)
