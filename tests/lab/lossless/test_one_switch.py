"""Lossless links: nothing is dropped, pauses are real frames, bytes add up, all can be changed and is read back."""

from dataclasses import replace
from pathlib import Path

import pytest
from lossless_lab import BEST_EFFORT, ECT, LOSSLESS, cnps_of, icrc_holds, incast, pair
from scapy.contrib.roce import BTH
from scapy.layers.l2 import Ether

from testbed.errors import InputError
from testbed.faults import LinkCorrupt, LinkDelay, LinkDown, LinkLoss, LinkRate, PauseStorm, SlowReceiver
from testbed.faults.fault import injected
from testbed.lab import Lab
from testbed.records.counter_names import find
from testbed.scenario.event_log import EventLog
from testbed.scenario.evidence import counters
from testbed.workload.attributes import Attributes
from testbed.workload.tools import Side, perftest

FILE = """
name: lossless
topology:
  lossless: {dscp: 26, priority: 3}
  kinds:
    host: {nic: hardware, congestion_control: none}
    switch: {profile_values: {buffer: 150000, pfc_headroom: 10000}}
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
    d: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10, rate: 100mbit}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10, rate: 100mbit}
    - {endpoints: ["leaf:e3", "c:eth1"], vlan: 10, rate: 100mbit}
    - {endpoints: ["leaf:e4", "d:eth1"], vlan: 10, rate: 100mbit, lossless: false}
"""
pytestmark = pytest.mark.topology(FILE)


def test_a_lossless_class_loses_nothing_and_a_lossy_one_does(lab: Lab) -> None:
    out = lab.interface("leaf:e3").lossless
    assert incast(lab, LOSSLESS) == ["SUCCESS", "SUCCESS"]
    assert out.queue(3).dropped_packets == 0
    assert out.queue(3).most_bytes > 50_000
    assert lab.interface("a:eth1").lossless.counters()["rx_prio3_pause"] > 0
    incast(lab, BEST_EFFORT)
    counted = lab.host("c")["eth1"].rdma_counters()
    assert counted["out_of_sequence"] == counted["out_of_seq_request"] > 0
    assert out.queue(0).dropped_packets > 0
    assert out.queue(3).dropped_packets == 0


def test_what_a_port_sends_its_peer_receives(lab: Lab) -> None:
    """Pause frames and CNPs, too, in each direction of each cable."""
    cables = [("leaf:e1", "a:eth1"), ("leaf:e2", "b:eth1"), ("leaf:e3", "c:eth1")]
    ends = [pair for one, other in cables for pair in ((one, other), (other, one))]

    def unseen() -> list[tuple[int, int]]:
        """Packets and bytes that were sent and did not arrive, or the other way round."""
        found = []
        for near, far in ends:
            queues = [lab.interface(near).lossless.queue(priority) for priority in range(8)]
            sent = sum(queue.sent_packets for queue in queues), sum(queue.sent_bytes for queue in queues)
            got = lab.interface(far).counters()
            found.append((sent[0] - got["rx_packets"], sent[1] - got["rx_bytes"]))
        return found

    before = unseen()
    lab.switch("leaf").change_profile(ecn_min=5_000, ecn_max=30_000)
    for name in "a", "b", "c":
        lab.host(name)["eth1"].control_congestion("dcqcn", scale=100)
    incast(lab, ECT)
    lab.scheduler.sleep(0.1)
    assert unseen() == before
    assert lab.interface("leaf:e3").lossless.queue(3).sent_packets > 380


def test_pauses_are_events_of_who_is_paused(lab: Lab, log: EventLog) -> None:
    before = lab.interface("a:eth1").lossless.counters()["rx_prio3_pause"]
    incast(lab, LOSSLESS)
    lab.scheduler.sleep(0.1)
    lab.scheduler.catch_up()
    found = [event["data"] for event in log.find("pfc.paused") if event["node"] == "a"]
    frames = lab.interface("a:eth1").lossless.counters()["rx_prio3_pause"] - before
    assert sum(data["frames"] for data in found) == frames / 2  # as many let go on
    assert sum(data["lasted_ns"] for data in found) > 1e6
    assert all((data["interface"], data["priority"]) == ("eth1", 3) for data in found)


@pytest.mark.fresh
def test_pause_frames_are_those_of_the_standard(lab: Lab) -> None:
    capture = lab.interface("a:eth1").capture("ether proto 0x8808")
    incast(lab, LOSSLESS)
    frames = list(capture.frames())
    assert len(frames) == lab.interface("a:eth1").lossless.counters()["rx_prio3_pause"]
    assert {frame.data[:6] + frame.data[12:18] for frame in frames} == {bytes.fromhex("0180c2000001 8808 0101 0008")}
    assert {frame.data[24:26] for frame in frames} == {b"\xff\xff", b"\0\0"}
    assert {len(frame.data) for frame in frames} == {60}
    fields = "-e", "macc.opcode", "-e", "macc.cbfc.enbv.c3", "-e", "macc.cbfc.enbv.c0"
    shown = lab["a"].run("tshark", "-r", str(capture.file), "-T", "fields", *fields)
    assert set(shown.stdout.splitlines()) == {"0x0101\tTrue\tFalse"}


@pytest.mark.fresh
def test_marks_become_cnps_that_slow_the_sender_down(lab: Lab) -> None:
    lab.switch("leaf").change_profile(ecn_min=5_000, ecn_max=30_000, ecn_probability=50)
    for name in "a", "b", "c":
        lab.host(name)["eth1"].control_congestion("dcqcn", scale=100, additive_bps=1e6)
    capture = lab.interface("a:eth1").capture("udp port 4791")
    assert incast(lab, ECT, 250_000) == ["SUCCESS", "SUCCESS"]
    cnps = cnps_of(capture)
    receiver, sender = (lab.interface(f"{name}:eth1").lossless.counters() for name in ("c", "a"))
    assert receiver["np_ecn_marked_roce_packets"] >= receiver["np_cnp_sent"] > 1
    assert len(cnps) == sender["rp_cnp_handled"] > 0
    assert all(icrc_holds(data) and data[-4:] == scapys_icrc(data) for data in cnps)
    assert all(data[15] == 48 << 2 and len(data) == 74 for data in cnps)
    assert {data[42:47] for data in cnps} == {bytes.fromhex("81 00 ff ff 40")}  # as InfiniBand's annex A17.9.3 has it
    [(_, _, rate)] = lab.interface("a:eth1").lossless.rates()
    assert 0 < rate < 100_000_000


def scapys_icrc(data: bytes) -> bytes:
    """What scapy makes of an IPv4 packet."""
    packet = Ether(data)
    packet[BTH].icrc = None
    return bytes(packet)[-4:]


def test_each_counter_of_the_kernel_and_of_the_ports_is_in_the_table(lab: Lab) -> None:
    lab.host("a")["eth1"].control_congestion("dcqcn", scale=100)
    incast(lab, ECT, 20_000)
    missing: list[str] = []
    found = counters(lab, missing)
    assert missing == []
    places = [one for kinds in found.values() for of_kind in kinds.values() for one in of_kind.values()]
    owners = {find(name).owner for names in places for name in names}
    expected = {"interface", "RDMA device", "NIC", "switch queue", "priority group", "switch port", "PFC watchdog"}
    assert owners == expected | {"link queue"}, "and none is unknown"


def test_other_sizes_take_effect_at_once_and_are_read_back(lab: Lab) -> None:
    leaf, into = lab.switch("leaf"), lab.interface("leaf:e1").lossless
    take_back = leaf.change_profile(pfc_headroom=20_000)
    assert into.settings()["headroom"] == 20_000
    take_back()
    assert into.settings()["headroom"] == 10_000
    with pytest.raises(InputError, match="the buffer"):
        leaf.change_profile(buffer=20_000)
    assert leaf.profile()["buffer"] == 150_000


def test_headroom_is_what_makes_it_lossless(lab: Lab) -> None:
    lab.switch("leaf").change_profile(pfc_headroom=0, buffer=120_000)
    incast(lab, LOSSLESS)
    assert lab.interface("leaf:e3").lossless.queue(3).dropped_packets > 0


def test_a_port_that_heeds_no_pause_overruns_the_headroom(lab: Lab) -> None:
    lab.switch("leaf").change_profile(pfc_headroom=3_100, buffer=80_000)
    take_back = lab.interface("a:eth1").lossless.change(honours_pause=())
    incast(lab, LOSSLESS)
    dropped = lab.interface("leaf:e3").lossless.queue(3).dropped_packets
    assert dropped > 0
    take_back()
    incast(lab, LOSSLESS)
    assert lab.interface("leaf:e3").lossless.queue(3).dropped_packets == dropped


LINK_FAULTS = (
    LinkLoss(end="leaf:e3", loss=5),
    LinkCorrupt(end="leaf:e3", corrupt=5),
    LinkDelay(end="a:eth1", delay=0.002),
    LinkDelay(end="a:eth1", delay=0.002, jitter=0.0001),
    LinkRate(end="leaf:e3", rate=20_000_000),
)


@pytest.mark.fresh
def test_faults_of_links_work_on_lossless_ones(lab: Lab) -> None:
    end = pair(lab, "a", "c", replace(LOSSLESS, retry_cnt=7))
    for fault in LINK_FAULTS:
        plain = end.write(200_000, within=10)
        with injected(lab, fault):
            slow = end.write(200_000, within=60)
        again = end.write(200_000, within=10)
        assert [done.status for done in (plain, slow, again)] == ["SUCCESS"] * 3, fault
        assert again.elapsed_s < plain.elapsed_s * 1.02 < plain.elapsed_s + 0.001 < slow.elapsed_s, fault


@pytest.mark.fresh
def test_a_port_that_goes_down_drops_what_waits_and_its_senders_go_on(lab: Lab) -> None:
    out, inward, nic = (lab.interface(end).lossless for end in ("leaf:e3", "leaf:e1", "a:eth1"))
    blocked, free = (pair(lab, "a", host, replace(LOSSLESS, timeout=20)) for host in "cb")
    with injected(lab, PauseStorm(end="c:eth1", priority=3)):
        blocked.post_write(200_000)
        lab.scheduler.sleep(0.2)
        assert out.queue(3).bytes > 50_000
        assert nic.paused(3)
        with injected(lab, LinkDown(end="leaf:e3")):
            lab.scheduler.sleep(0.2)
            group = inward.group(3)
            assert (out.queue(3).bytes, out.queue(3).packets) == (0, 0)
            assert (group.reserve, group.shared, group.headroom) == (0, 0, 0)
            assert free.write(100_000, within=1).status == "SUCCESS"
            assert out.adds_up()


def test_both_kinds_of_links_work_in_one_lab(lab: Lab) -> None:
    for near, far in ("a", "d"), ("d", "a"):
        assert pair(lab, near, far, LOSSLESS).write(100_000, within=10).status == "SUCCESS"
    with pytest.raises(InputError, match="d:eth1 is not the end of a lossless link"):
        _ = lab.interface("d:eth1").lossless


def test_a_queue_is_not_for_a_lossless_link(lab: Lab) -> None:
    with pytest.raises(InputError, match="has no queue of its own"):
        lab.interface("leaf:e3").sends.change(queue=10)


def test_nodes_reach_each_other_by_ip(lab: Lab) -> None:
    assert lab["a"].ping(lab.host("c")["eth1"].address().ip, within=2)
    assert lab.host("a")["eth1"].ping_gateway()


def paused_us(lab: Lab) -> list[int]:
    """Return how long the port to c and a's NIC have been stopped, as their counters say."""
    leaf, a = (lab.interface(end).lossless.counters() for end in ("leaf:e3", "a:eth1"))
    return [leaf["SAI_PORT_STAT_PFC_3_RX_PAUSE_DURATION_US"], a["rx_prio3_pause_duration"]]


@pytest.mark.fresh
def test_a_storm_stops_whoever_sends_there_and_the_others_behind_it(lab: Lab) -> None:
    end = pair(lab, "a", "c", LOSSLESS)
    with injected(lab, PauseStorm(end="c:eth1", priority=3)):
        posted = end.post_write(200_000)
        lab.scheduler.sleep(5)  # seven times the quanta of a pause frame at this rate
        assert not end.done(posted)
        assert lab.interface("leaf:e3").lossless.paused(3)
        assert lab.interface("a:eth1").lossless.paused(3)
        before = paused_us(lab)
        lab.scheduler.sleep(2)
        assert [after - us for us, after in zip(before, paused_us(lab), strict=True)] == pytest.approx(
            [2e6, 2e6], rel=1e-3
        )
        assert pair(lab, "a", "c", BEST_EFFORT).write(1_000, within=5).status == "SUCCESS"
    assert lab.interface("leaf:e3").lossless.queue(3).dropped_packets == 0
    lab.scheduler.sleep(1)
    assert end.wait(posted, within=5).status in ("SUCCESS", "RETRY_EXC_ERR")


@pytest.mark.fresh
def test_a_slow_receiver_slows_its_sender_down_and_nothing_is_lost(lab: Lab) -> None:
    end = pair(lab, "a", "c", Attributes(timeout=18, traffic_class=26 << 2))
    plain = end.write(200_000, within=10).elapsed_s
    with injected(lab, SlowReceiver(end="c:eth1", rate=20_000_000)):
        slow = end.write(200_000, within=10)
    assert slow.status == "SUCCESS"
    assert 4 < slow.elapsed_s / plain < 5.5
    assert lab.interface("leaf:e3").lossless.queue(3).dropped_packets == 0
    assert lab.interface("c:eth1").lossless.counters()["tx_prio3_pause"] > 4


@pytest.mark.fresh
def test_an_ack_timeout_below_a_pause_is_a_warning_whichever_program_has_it(lab: Lab, tmp_path: Path) -> None:
    """At 100 Mbit/s a pause takes 0.336 s: t is 17 at least. A class without pauses has none."""
    warnings = lab.scheduler.programs.warnings

    def told(timeout: int, dscp: int) -> list[str]:
        pair(lab, "a", "b", Attributes(timeout=timeout, traffic_class=dscp << 2))
        lab.scheduler.catch_up()
        return warnings[:]

    assert [told(14, 0), told(17, 26), told(0, 26)] == [[], [], []]
    sides = [Side.of(lab.host(name)["eth1"]) for name in "ab"]
    options = ["-n", "20", "--tclass", "104", "-u", "15"]
    assert perftest("ib_send_bw", *sides, tmp_path, options=options, within=30, ready=lab.scheduler.ready).ok
    lab.scheduler.catch_up()
    [text] = warnings
    assert "at 100 Mbit/s one pause frame stops a link for 0.336 s" in text
    assert "an ACK timeout of 0.134 s (15)" in text
    assert text.endswith("17 or more")
    assert told(15, 26) == [text]
    with injected(lab, LinkRate(end="a:eth1", rate=1_000_000_000)):
        assert told(15, 26) == [text]  # a pause is shorter there than 0.134 s
