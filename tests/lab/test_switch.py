"""A switch on the kernel's data plane: what its profile says is what the wire and the tables show."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from itertools import pairwise
from pathlib import Path

import pytest

from testbed import Lab, Topology
from testbed.errors import InputError, TestbedError
from testbed.lab import Host, Node
from testbed.lab.capture import Capture, Frame
from testbed.scenario.events import EventLog
from testbed.switch.frames import BROADCAST, NO_MAC, REPLY, REQUEST, Arp, gratuitous_arp, pack, parse

LEAF = """
name: leaf
topology:
  nodes:
    leaf: {kind: switch, profile: cisco-nxos, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}}
    a: {kind: host, rdma: false}
    b: {kind: host, rdma: false}
    c: {kind: host, rdma: false}
    d: {kind: host, rdma: false}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 20}
    - {endpoints: ["leaf:e3", "c:eth1"], vlan: 20}
    - {endpoints: ["leaf:e4", "d:eth1"], vlan: 20}
"""
A, B, C = "10.0.10.2", "10.0.20.2", "10.0.20.3"
SVI_10, SVI_20 = "10.0.10.1", "10.0.20.1"
NOBODY = "10.0.20.77"

TRUNK = """
name: trunk
topology:
  nodes:
    s1: {kind: switch, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}}
    s2: {kind: switch, vlans: {10: , 20: }}
    ten1: {kind: host, rdma: false}
    twenty1: {kind: host, rdma: false}
    ten2: {kind: host, rdma: false}
    twenty2: {kind: host, rdma: false}
  links:
    - {endpoints: ["s1:up", "s2:up"], trunk: [10, 20]}
    - {endpoints: ["s1:e1", "ten1:eth1"], vlan: 10}
    - {endpoints: ["s1:e2", "twenty1:eth1"], vlan: 20}
    - {endpoints: ["s2:e1", "ten2:eth1"], vlan: 10}
    - {endpoints: ["s2:e2", "twenty2:eth1"], vlan: 20}
"""

EXPERIMENTAL = b"\x88\xb5"
"""EtherType of IEEE 802 for local experiments: no kernel reacts to it."""
TAG_20 = b"\x81\x00\x00\x14"
EXACT_S = 0.02
LATE_S = 0.12
"""What a long sleep may be late: poll's slack is a thousandth, 100 ms at most (fs/select.c, MAX_SLACK)."""
LATE_GC = 1 / 8
"""What the bridge's gc may be late, as a share of its delay: a level of the timer wheel is so coarse
(kernel/time/timer.c). Forwarding goes on until the gc has run."""


def ethernet(dst: str, src: str, payload: bytes = EXPERIMENTAL) -> bytes:
    return bytes.fromhex((dst + src).replace(":", "")) + payload.ljust(48, b"\0")


def send(host: Host, *frames: bytes) -> None:
    with host.entered(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind(("eth1", 0))
        for frame in frames:
            wire.send(frame)


def send_udp(host: Host, ip: str, count: int) -> None:
    with host.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for _ in range(count):
            udp.sendto(b"data", (ip, 9))


def captured(capture: Capture) -> list[Frame]:
    capture.stop()
    return list(capture.frames())


def arps(capture: Capture, op: int, sender_mac: str) -> list[Arp]:
    found = [parse(frame.data) for frame in captured(capture)]
    return [arp for arp in found if arp is not None and (arp.op, arp.sender_mac) == (op, sender_mac)]


def svi_mac(lab: Lab) -> str:
    return lab.plan.nodes["leaf"].svis[0].mac


def request(host: Host, target: str) -> bytes:
    """A host's broadcast question for the MAC of `target`."""
    mac, ip = host.macs["eth1"], host.addresses["eth1"].ip
    return pack(BROADCAST, mac, Arp(REQUEST, mac, ip, NO_MAC, IPv4Address(target)))


def arp_row(lab: Lab, ip: str) -> dict | None:
    return next((row for row in lab.switch("leaf").tables()["arp"] if row["ip"] == ip), None)


def kernel_neighbours(node: Node) -> dict[str, str | None]:
    with node.entered():
        return {entry.get_attr("NDA_DST"): entry.get_attr("NDA_LLADDR") for entry in node.ip.get_neighbours(family=2)}


def know_the_gateways(lab: Lab) -> None:
    """The hosts ask for nothing by themselves: what ARP there is on the wire is the switch's."""
    for name in "abcd":
        host = lab.host(name)
        host.set_neighbour("eth1", lab.plan.nodes[name].interfaces[0].gateway, svi_mac(lab))


def seconds(first: dict, then: dict) -> float:
    return (then["t"] - first["t"]) / 1e9


def only(events: list[dict]) -> dict:
    (event,) = events
    return event


# Who speaks ARP


@pytest.mark.topology(LEAF)
def test_a_request_for_the_svi_gets_exactly_one_reply(lab):
    a = lab.host("a")
    wire = a.capture("eth1", "arp")

    send(a, *[request(a, SVI_10)] * 3)
    lab.sleep(5)

    replies = arps(wire, REPLY, svi_mac(lab))
    assert [str(arp.sender_ip) for arp in replies] == [SVI_10] * 3


@pytest.mark.parametrize(
    ("arp_ignore", "answered"),
    [(0, [SVI_10, SVI_20]), (1, [SVI_10]), (2, [SVI_10])],
    ids=["any", "same-vlan", "subnet"],
)
@pytest.mark.topology(LEAF)
def test_the_profile_says_for_which_own_addresses_a_switch_answers(lab, arp_ignore, answered):
    a = lab.host("a")
    lab.agent.set("leaf", arp_ignore=arp_ignore)
    wire = a.capture("eth1", "arp")

    send(a, request(a, SVI_10), request(a, SVI_20), request(a, B))
    lab.sleep(5)

    assert [str(arp.sender_ip) for arp in arps(wire, REPLY, svi_mac(lab))] == answered


@pytest.mark.topology(LEAF)
def test_the_kernel_of_a_switch_asks_for_nothing_by_itself(lab):
    know_the_gateways(lab)
    wires = [lab.host("a").capture("eth1", "arp"), lab.host("b").capture("eth1", "arp")]

    for _ in range(5):
        assert lab.host("a").ping(B, within=1)
        lab.sleep(200)  # Linux's own neighbour entries would be stale, and probed, since long

    asked = [[str(arp.target_ip) for arp in arps(wire, REQUEST, svi_mac(lab))] for wire in wires]
    assert asked == [[A], [B]]


# Resolving


@pytest.mark.topology(LEAF)
def test_a_packet_to_another_vlan_goes_through_the_svi(lab, log):
    know_the_gateways(lab)
    wire = lab.host("b").capture("eth1", "icmp[icmptype] == icmp-echo")

    output = lab.host("a").run("ping", "-c1", "-W1", B).stdout

    assert "ttl=63" in output
    echo = only(captured(wire))
    assert (echo.src, echo.dst, echo.data[22]) == (svi_mac(lab), lab.host("b").macs["eth1"], 63)
    lab.drain()
    assert [event["data"]["ip"] for event in log.find("arp.miss")] == [B, A]
    assert lab.switch("leaf").arp_table() == {A: lab.host("a").macs["eth1"], B: lab.host("b").macs["eth1"]}
    assert kernel_neighbours(lab.switch("leaf")) == lab.switch("leaf").arp_table()


@pytest.mark.parametrize(("attempts", "interval"), [(3, 1), (5, 2)], ids=["profile", "changed"])
@pytest.mark.topology(LEAF)
def test_a_miss_that_nobody_answers_fails_after_the_tries(lab, log, attempts, interval):
    know_the_gateways(lab)
    if (attempts, interval) != (3, 1):
        lab.agent.set("leaf", resolve_attempts=attempts, resolve_interval=interval)
    wire = lab.host("c").capture("eth1", "arp")

    send_udp(lab.host("a"), NOBODY, 3)
    assert lab.wait(lambda: bool(log.find("arp.failed")), within=60)

    failed = only(log.find("arp.failed", ip=NOBODY, reason="no-answer"))
    assert seconds(only(log.find("arp.miss", ip=NOBODY)), failed) == pytest.approx(attempts * interval, abs=EXACT_S)
    asked = [frame for frame in captured(wire) if parse(frame.data).target_ip == IPv4Address(NOBODY)]
    assert len(asked) == attempts
    gaps = [(then.t_ns - first.t_ns) / 1e9 for first, then in pairwise(asked)]
    assert gaps == pytest.approx([interval] * (attempts - 1), abs=EXACT_S)
    assert NOBODY not in kernel_neighbours(lab.switch("leaf"))


@pytest.mark.topology(LEAF)
def test_a_failed_address_is_asked_for_again_when_its_hold_down_is_over(lab, log):
    know_the_gateways(lab)
    send_udp(lab.host("a"), NOBODY, 1)
    assert lab.wait(lambda: bool(log.find("arp.failed")), within=10)

    lab.sleep(170)
    send_udp(lab.host("a"), NOBODY, 10)
    lab.sleep(1)
    assert len(log.find("arp.miss", ip=NOBODY)) == 1
    assert arp_row(lab, NOBODY)["state"] == "held"

    lab.sleep(10)
    send_udp(lab.host("a"), NOBODY, 1)
    lab.sleep(0.5)
    assert len(log.find("arp.miss", ip=NOBODY)) == 2


@pytest.mark.topology(LEAF)
def test_packets_that_wait_for_an_answer_are_delivered_when_it_comes(lab):
    know_the_gateways(lab)
    b = lab.host("b")
    b.set_link("eth1", "down")
    lab.sleep(1)
    send_udp(lab.host("a"), B, 3)
    lab.sleep(1.5)

    b.set_link("eth1", "up")
    wire = b.capture("eth1", "udp")
    lab.sleep(3)

    assert len(captured(wire)) == 3


# An address moves


@pytest.mark.topology(LEAF)
def test_after_a_silent_move_the_old_entry_lives_its_whole_age(lab, log):
    know_the_gateways(lab)
    a, b, c = lab.host("a"), lab.host("b"), lab.host("c")
    assert a.ping(B, within=1)
    b.set_link("eth1", "down")
    c.add_address("eth1", b.addresses["eth1"])

    lab.sleep(1400)
    assert not a.ping(B, within=1)
    assert arp_row(lab, B)["mac"] == b.macs["eth1"]
    lab.sleep(200)

    learned, aged = only(log.find("arp.learned", ip=B)), only(log.find("arp.aged", ip=B))
    assert seconds(learned, aged) == pytest.approx(1500, abs=EXACT_S)
    probes = [seconds(learned, event) for event in log.find("arp.refresh", ip=B)]
    assert probes == pytest.approx([1470, 1480, 1490], abs=LATE_S)
    assert a.ping(B, within=1)
    assert arp_row(lab, B)["mac"] == c.macs["eth1"]


@pytest.mark.topology(LEAF)
def test_an_owner_that_answers_the_probe_keeps_its_entry(lab, log):
    know_the_gateways(lab)
    assert lab.host("a").ping(B, within=1)

    lab.sleep(4000)

    assert not log.find("arp.aged")
    learned = only(log.find("arp.learned", ip=B))
    confirmed = [seconds(learned, event) for event in log.find("arp.confirmed", ip=B)]
    assert confirmed == pytest.approx([1470, 2940], abs=2 * LATE_S)
    assert arp_row(lab, B)["age"] == pytest.approx(4000 - 2940, abs=1)


@pytest.mark.parametrize(
    ("owner", "told"),
    [
        pytest.param("c", "arp.updated", marks=pytest.mark.topology(LEAF), id="cisco-nxos"),
        pytest.param(
            "b",
            "arp.ignored",
            marks=pytest.mark.topology(LEAF.replace("cisco-nxos", "ignore-garp-strict")),
            id="ignore-garp-strict",
        ),
    ],
)
def test_a_gratuitous_arp_moves_the_entry_where_the_profile_lets_it(lab, log, owner, told):
    know_the_gateways(lab)
    a, b, c = lab.host("a"), lab.host("b"), lab.host("c")
    assert a.ping(B, within=1)
    send_udp(c, B, 1)  # the bridge knows c's port now
    c.add_address("eth1", b.addresses["eth1"])
    c.announce("eth1")
    lab.sleep(1)

    wires = {host.name: host.capture("eth1", "udp") for host in (b, c)}
    send_udp(a, B, 10)
    lab.sleep(1)

    assert {name: len(captured(wire)) for name, wire in wires.items()} == {"b": 0, "c": 0} | {owner: 10}
    assert arp_row(lab, B)["mac"] == lab.host(owner).macs["eth1"]
    changes = [event for kind in ("arp.updated", "arp.ignored") for event in log.find(kind, ip=B)]
    assert [(event["kind"], event["data"]["mac"]) for event in changes] == [(told, c.macs["eth1"])]


@pytest.mark.topology(LEAF)
def test_a_gratuitous_arp_creates_an_entry_only_where_the_profile_lets_it(lab, log):
    c = lab.host("c")
    frame = gratuitous_arp(c.macs["eth1"], IPv4Address(C))

    send(c, frame)
    lab.sleep(1)
    assert arp_row(lab, C) is None

    lab.agent.set("leaf", garp_new=True)
    send(c, frame)
    lab.sleep(1)
    assert arp_row(lab, C)["mac"] == c.macs["eth1"]
    assert kernel_neighbours(lab.switch("leaf")) == {C: c.macs["eth1"]}
    assert only(log.find("arp.learned"))["data"]["reason"] == "garp"


# Commands


@pytest.mark.topology(LEAF)
def test_a_cleared_arp_entry_is_asked_for_again(lab, log):
    know_the_gateways(lab)
    a, leaf = lab.host("a"), lab.switch("leaf")
    assert a.ping(B, within=1)
    assert a.ping(C, within=1)

    lab.agent.clear_arp("leaf", ip=IPv4Address(B))

    assert set(leaf.arp_table()) == set(kernel_neighbours(leaf)) == {A, C}
    assert a.ping(B, within=1)
    lab.drain()
    assert [event["data"]["ip"] for event in log.find("arp.cleared")] == [B]
    assert len(log.find("arp.miss", ip=B)) == 2
    lab.agent.clear_arp("leaf", vlan=20)
    assert set(leaf.arp_table()) == set(kernel_neighbours(leaf)) == {A}


@pytest.mark.topology(LEAF)
def test_frames_to_a_cleared_mac_are_flooded_until_it_speaks(lab, log):
    b, c, d = (lab.host(name) for name in "bcd")
    mac = b.macs["eth1"]
    send(b, ethernet(BROADCAST, mac))
    to_b = ethernet(mac, c.macs["eth1"])
    assert lab.switch("leaf").fdb_table()[mac] == "e2"

    lab.agent.clear_fdb("leaf", mac=mac)
    assert mac not in lab.switch("leaf").fdb_table()
    wire = d.capture("eth1", f"ether dst {mac}")
    send(c, *[to_b] * 3)
    send(b, ethernet(BROADCAST, mac))
    send(c, *[to_b] * 4)

    assert len(captured(wire)) == 3
    lab.drain()
    assert only(log.find("fdb.flushed"))["data"]["mac"] == mac
    assert [event["data"]["port"] for event in log.find("fdb.learned", mac=mac)] == ["e2", "e2"]


@pytest.mark.topology(LEAF)
def test_a_mac_that_speaks_elsewhere_moves(lab, log):
    b, c = lab.host("b"), lab.host("c")
    mac = b.macs["eth1"]
    send(b, ethernet(BROADCAST, mac))
    send(c, ethernet(BROADCAST, mac))

    assert lab.switch("leaf").fdb_table()[mac] == "e3"
    lab.drain()
    moved = only(log.find("fdb.moved"))["data"]
    assert (moved["mac"], moved["old_port"], moved["port"]) == (mac, "e2", "e3")


@pytest.mark.topology(LEAF)
def test_a_wrong_value_changes_nothing(lab):
    for wrong in {"mac_agee": 3}, {"mac_age": -1}, {"unknown_unicast": "eat"}:
        with pytest.raises(InputError):
            lab.agent.set("leaf", **wrong)
    with pytest.raises(InputError, match="leaf"):
        lab.agent.tables("spine")
    assert lab.host("a").ping(B, within=1)


# Bridging


def broadcast_reaches(lab: Lab, sender: str, payload: bytes = EXPERIMENTAL) -> set[str]:
    """The hosts that see a broadcast of `sender` (other than itself)."""
    wires = {name: node.capture("eth1") for name, node in lab.nodes.items() if isinstance(node, Host)}
    host = lab.host(sender)
    send(host, ethernet(BROADCAST, host.macs["eth1"], payload))
    return {name for name, wire in wires.items() if name != sender and EXPERIMENTAL in _data(wire)}


def _data(capture: Capture) -> bytes:
    return b"".join(frame.data for frame in captured(capture))


@pytest.mark.topology(TRUNK)
def test_a_trunk_carries_two_vlans_and_keeps_them_apart(lab):
    wire = lab.switch("s1").capture("up", "vlan")

    assert broadcast_reaches(lab, "ten1") == {"ten2"}
    assert broadcast_reaches(lab, "twenty2") == {"twenty1"}

    tags = [frame.data[12:16] for frame in captured(wire)]
    assert tags == [b"\x81\x00\x00\x0a", TAG_20]
    tables = lab.switch("s2").tables()["fdb"]
    assert {(row["vlan"], row["mac"], row["port"]) for row in tables} == {
        (10, lab.host("ten1").macs["eth1"], "up"),
        (20, lab.host("twenty2").macs["eth1"], "e2"),
    }


@pytest.mark.topology(TRUNK)
def test_a_tag_does_not_take_a_host_into_another_vlan(lab):
    assert broadcast_reaches(lab, "ten1", TAG_20 + EXPERIMENTAL) == set()


@pytest.mark.topology(TRUNK)
def test_hosts_on_two_switches_reach_each_other_in_their_vlan_and_between_vlans(lab):
    address = {name: str(lab.host(name).addresses["eth1"].ip) for name in ("ten2", "twenty2")}

    assert "ttl=64" in lab.host("ten1").run("ping", "-c1", "-W1", address["ten2"]).stdout
    assert "ttl=63" in lab.host("ten2").run("ping", "-c1", "-W1", address["twenty2"]).stdout


@pytest.mark.parametrize(("what", "seen"), [("flood", 30), ("drop", 0)])
@pytest.mark.topology(LEAF)
def test_packets_to_an_arp_entry_without_an_fdb_entry(lab, log, what, seen):
    know_the_gateways(lab)
    a, b = lab.host("a"), lab.host("b")
    lab.agent.set("leaf", mac_age=20, unknown_unicast=what)
    assert a.ping(B, within=1)
    assert lab.wait(lambda: bool(log.find("fdb.aged", mac=b.macs["eth1"])), within=30)
    assert arp_row(lab, B)["mac"] == b.macs["eth1"]
    b.run("nft", "add table ip mute; add chain ip mute out { type filter hook output priority 0; policy drop; }")

    names = ("b", "c", "d")
    wires = {name: lab.host(name).capture("eth1", f"udp and ether dst {b.macs['eth1']}") for name in names}
    send_udp(a, B, 30)

    assert {name: len(captured(wire)) for name, wire in wires.items()} == dict.fromkeys(names, seen)


@pytest.mark.topology(LEAF)
def test_macs_beyond_the_cap_are_flooded_and_not_learned(lab):
    b, c, d = (lab.host(name) for name in "bcd")
    lab.agent.set("leaf", mac_cap=3)
    macs = [f"02:00:00:ff:00:{number:02x}" for number in range(10)]

    send(c, *[ethernet(BROADCAST, mac) for mac in macs])

    assert lab.switch("leaf").fdb_table() == dict.fromkeys(macs[:3], "e3")
    wire = d.capture("eth1", "ether proto 0x88b5")
    send(b, *[ethernet(mac, b.macs["eth1"]) for mac in macs])
    assert [frame.dst for frame in captured(wire)] == macs[3:]
    lab.agent.set("leaf", mac_cap=None)
    send(c, *[ethernet(BROADCAST, mac) for mac in macs])
    assert set(lab.switch("leaf").fdb_table()) == set(macs)


@pytest.mark.parametrize("age", [1800, 10, 299.5], ids=["profile", "short", "fraction"])
@pytest.mark.topology(LEAF)
def test_a_mac_ages_from_its_last_frame(lab, log, age):
    b = lab.host("b")
    mac = b.macs["eth1"]
    if age != 1800:
        lab.agent.set("leaf", mac_age=age)
    frame = ethernet(BROADCAST, mac)
    send(b, frame)
    lab.sleep(age - 3)
    send(b, frame)
    last_ns = log.now

    assert lab.wait(lambda: bool(log.find("fdb.aged")), within=age * 2)

    lived = (only(log.find("fdb.aged", mac=mac))["t"] - last_ns) / 1e9
    assert age - EXACT_S <= lived <= age * (1 + LATE_GC) + EXACT_S
    assert lab.switch("leaf").fdb_table() == {}


# The switch's processor


@pytest.mark.topology(LEAF)
def test_arp_above_the_limit_does_not_reach_the_processor(lab, log):
    a = lab.host("a")
    lab.agent.set("leaf", arp_pps=5)
    lab.sleep(10)
    wire = a.capture("eth1", "arp")

    send(a, *[request(a, SVI_10)] * 20)
    lab.sleep(2)
    send(a, request(a, SVI_10))
    lab.sleep(1)

    assert len(arps(wire, REPLY, svi_mac(lab))) == 5 + 1
    assert [event["data"]["packets"] for event in log.find("arp.limited", reason="arp-rate")] == [1, 15]


@pytest.mark.topology(LEAF)
def test_a_new_address_is_not_learned_while_the_limit_is_exceeded(lab, log):
    know_the_gateways(lab)
    b, c = lab.host("b"), lab.host("c")
    assert lab.host("a").ping(B, within=1)
    lab.agent.set("leaf", arp_pps=2)
    send(c, *[request(c, SVI_20)] * 10)
    c.add_address("eth1", b.addresses["eth1"])

    c.announce("eth1")
    lab.sleep(0.2)
    assert arp_row(lab, B)["mac"] == b.macs["eth1"]

    lab.sleep(2)
    c.announce("eth1")
    lab.sleep(0.2)
    assert arp_row(lab, B)["mac"] == c.macs["eth1"]


# The agent


@contextmanager
def no_child_left() -> Iterator[None]:
    def children() -> set[str]:
        return {
            child for task in Path("/proc/self/task").iterdir() for child in (task / "children").read_text().split()
        }

    before = children()
    yield
    assert children() == before


@pytest.mark.topology(LEAF)
def test_a_killed_agent_is_an_error_at_every_later_use(lab):
    os.kill(lab.agent.pid, signal.SIGKILL)

    with pytest.raises(TestbedError, match="status -9"):
        lab.sleep(1)
    with pytest.raises(TestbedError, match="status -9"):
        lab.switch("leaf").arp_table()
    with pytest.raises(TestbedError, match="status -9"):
        lab.agent.set("leaf", mac_age=3)


@pytest.mark.parametrize(
    "pass_time", [lambda lab: lab.wait(lambda: False, 5), lambda lab: lab.sleep(5)], ids=["wait", "sleep"]
)
@pytest.mark.topology(LEAF)
def test_waiting_again_after_the_agent_was_killed_is_the_same_error(lab, pass_time):
    os.kill(lab.agent.pid, signal.SIGKILL)

    for _ in range(2):
        with pytest.raises(TestbedError, match="status -9"):
            pass_time(lab)


@pytest.mark.topology(LEAF)
def test_an_agent_that_fails_says_why(lab):
    know_the_gateways(lab)
    lab.switch("leaf").ip.link("del", ifname="e2")
    lab.switch("leaf").ip.link("del", ifname="br0")
    send(lab.host("a"), request(lab.host("a"), SVI_10))

    with pytest.raises(TestbedError, match=r"(?s)status 1.*Traceback"):
        lab.agent.set("leaf", mac_age=30)


def test_a_lab_whose_agent_was_killed_unnoticed_ends_with_an_error_and_leaves_nothing(tmp_path: Path, log: EventLog):
    with (
        no_child_left(),
        pytest.raises(TestbedError, match="status -9"),
        Lab(Topology.parse(LEAF), tmp_path, log.emit) as lab,
    ):
        os.kill(lab.agent.pid, signal.SIGKILL)
    assert not list(Path("/run/netns").iterdir())
