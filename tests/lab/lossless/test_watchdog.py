"""Pause frames that are sent again, and the PFC watchdog, which is SONiC's: it polls for frames that go on coming."""

import time
from itertools import pairwise

import pytest
import yaml
from lossless_lab import LOSSLESS, pair

from testbed.faults import PauseNotSent, PauseStorm
from testbed.faults.fault import injected
from testbed.lab import Lab
from testbed.lab.port import Port, pause_frame
from testbed.workload.attributes import Attributes

PATIENT = Attributes(timeout=20, traffic_class=26 << 2)
QUANTA_BITS = 0xFFFF * 512
DETECTED, RESTORED = "DEADLOCK_DETECTED", "DEADLOCK_RESTORED"


def star(rate: int) -> str:
    """Three hosts at one leaf; `rate` in Mbit/s."""
    profile = {"buffer": 150_000, "pfc_headroom": 10_000}
    nodes = {"leaf": {"kind": "switch", "profile_values": profile, "vlans": {10: "10.0.10.1/24"}}}
    ends = [([f"leaf:e{number}", f"{name}:eth1"], name) for number, name in enumerate("abc", 1)]
    topology = {
        "lossless": {"dscp": 26, "priority": 3},
        "kinds": {"host": {"nic": "hardware", "congestion_control": "none"}},
        "nodes": nodes | {name: {"kind": "host"} for _, name in ends},
        "links": [{"endpoints": end, "vlan": 10, "rate": f"{rate}mbit"} for end, _ in ends],
    }
    return yaml.safe_dump({"name": "star", "topology": topology})


pytestmark = pytest.mark.topology(star(100))


def watched(port: Port, *names: str) -> list[int]:
    counters = port.counters()
    return [counters[f"PFC_WD_QUEUE_STATS_{name}:3"] for name in names]


@pytest.mark.fresh
@pytest.mark.parametrize(
    "rate", [pytest.param(rate, marks=pytest.mark.topology(star(rate))) for rate in (10, 100, 1000)]
)
def test_a_pause_is_sent_again_at_half_of_its_time_and_counted_meanwhile(lab: Lab, rate: int) -> None:
    port, half = lab.interface("leaf:e3").lossless, QUANTA_BITS / rate / 1e6 / 2
    capture = lab.interface("c:eth1").capture("ether proto 0x8808")
    found = []
    with injected(lab, PauseStorm(end="c:eth1", priority=3)):
        for _ in range(4):
            lab.scheduler.sleep(2.5 * half)
            counters = port.counters()
            found.append(
                (counters["SAI_PORT_STAT_PFC_3_RX_PKTS"], counters["SAI_PORT_STAT_PFC_3_RX_PAUSE_DURATION_US"])
            )
    assert [frames for frames, _ in found] == [3, 6, 8, 11]
    times = [us for _, us in found]
    assert [later - us for us, later in pairwise(times)] == pytest.approx([2.5e6 * half] * 3, rel=0.02)
    lab.scheduler.sleep(3 * half)
    assert not port.paused(3), "and the last one ends by itself"
    sent = [frame.t_ns / 1e9 for frame in capture.frames()]
    assert len(sent) == 11 == lab.interface("c:eth1").lossless.counters()["tx_prio3_pause"]
    gaps = [later - before for before, later in pairwise(sent)]
    assert gaps == pytest.approx([half] * 10, rel=3e-3)


@pytest.mark.fresh
def test_a_switch_that_still_means_it_sends_its_pause_again(lab: Lab) -> None:
    """c is in a storm, so the leaf stops a, and says so for as long as that lasts; it is no storm of a's own."""
    end, a = pair(lab, "a", "c", PATIENT), lab.interface("a:eth1").lossless
    with injected(lab, PauseStorm(end="c:eth1", priority=3)):
        posted = [end.post_write(200_000) for _ in range(3)]
        lab.scheduler.sleep(3)
        frames = a.counters()["rx_prio3_pause"]
        assert lab.interface("leaf:e3").lossless.queue(3).dropped_packets == 0
        with injected(lab, PauseNotSent(end="leaf:e1")):
            lab.scheduler.sleep(1)
            assert a.counters()["rx_prio3_pause"] == frames
        assert frames >= 3 / (QUANTA_BITS / 1e8 / 2) - 2
    assert {end.wait(request, within=30).status for request in posted} == {"SUCCESS"}


@pytest.mark.fresh
@pytest.mark.parametrize(
    "rate", [pytest.param(rate, marks=pytest.mark.topology(star(rate))) for rate in (24, 100, 1000)]
)
def test_one_pause_frame_is_no_storm(lab: Lab, rate: int) -> None:
    lab.switch("leaf").change_profile(pfc_watchdog=0.2)
    receiver, port = lab.host("c")["eth1"], lab.interface("leaf:e3").lossless
    end = pair(lab, "a", "c", PATIENT)
    receiver.send(pause_frame(receiver.mac, 3))
    posted = end.post_write(100_000)
    lab.scheduler.sleep(4)
    assert end.wait(posted, within=5).status == "SUCCESS"
    assert watched(port, DETECTED, "TX_DROPPED_PACKETS") == [0, 0]


@pytest.mark.fresh
@pytest.mark.parametrize(
    "rate", [pytest.param(rate, marks=pytest.mark.topology(star(rate))) for rate in (24, 100, 1000)]
)
def test_a_storm_on_an_idle_queue_is_found(lab: Lab, rate: int) -> None:
    lab.switch("leaf").change_profile(pfc_watchdog=0.4)
    port = lab.interface("leaf:e3").lossless
    with injected(lab, PauseStorm(end="c:eth1", priority=3)):
        lab.scheduler.sleep(3)
        assert watched(port, DETECTED, RESTORED) == [1, 0]
        assert not port.paused(3)
    lab.scheduler.sleep(3)
    assert watched(port, DETECTED, RESTORED) == [1, 1]


@pytest.mark.fresh
@pytest.mark.parametrize("action", ["drop", "forward"])
def test_an_action_is_for_both_directions(lab: Lab, action: str) -> None:
    lab.switch("leaf").change_profile(pfc_watchdog=0.2, pfc_watchdog_action=action)
    port = lab.interface("leaf:e3").lossless
    there, back = (
        pair(lab, *ends, Attributes(timeout=14, retry_cnt=1, traffic_class=26 << 2)) for ends in ("ac", "cb")
    )
    with injected(lab, PauseStorm(end="c:eth1", priority=3)):
        lab.scheduler.sleep(1)
        if action == "drop":
            assert [end.write(20_000, within=5).status for end in (there, back)] == ["RETRY_EXC_ERR"] * 2
        else:
            assert [end.write(20_000, within=5).status for end in (there, back)] == ["SUCCESS"] * 2
        sent, dropped, received, dropped_in = watched(
            port, "TX_PACKETS", "TX_DROPPED_PACKETS", "RX_PACKETS", "RX_DROPPED_PACKETS"
        )
        if action == "drop":
            assert (sent, received) == (0, 0)
            assert (dropped, dropped_in) == (40, 40)  # 20 packets, and once again
        else:
            assert (dropped, dropped_in) == (0, 0)
            assert sent > 20 < received
        sends = lab.interface("leaf:e3").counters()["tx_packets"]
        lab.scheduler.sleep(0.5)
        assert lab.interface("leaf:e3").counters()["tx_packets"] == sends
    assert port.adds_up()


@pytest.mark.fresh
@pytest.mark.parametrize("action", ["drop", "forward"])
def test_a_watchdog_finds_a_storm_at_its_polls_and_its_end(lab: Lab, action: str) -> None:
    lab.switch("leaf").change_profile(pfc_watchdog=0.4, pfc_watchdog_poll=0.2, pfc_watchdog_action=action)
    out = lab.interface("leaf:e3").lossless
    end = pair(lab, "a", "c", Attributes(timeout=18, traffic_class=26 << 2))
    with injected(lab, PauseStorm(end="c:eth1", priority=3)):
        posted = end.post_write(50_000)
        counts = {}
        for tenth in range(1, 11):
            lab.scheduler.sleep(0.1)
            counts[tenth] = out.counters()["PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED:3"]
        assert (counts[3], counts[7]) == (0, 1)  # [detection, detection + poll)
        dropped = out.counters()["PFC_WD_QUEUE_STATS_TX_DROPPED_PACKETS:3"]
        if action == "drop":
            assert dropped > 40
        else:
            assert (dropped, end.wait(posted, within=1).status) == (0, "SUCCESS")
    restored = "PFC_WD_QUEUE_STATS_DEADLOCK_RESTORED:3"
    receiver = lab.host("c")["eth1"]
    for quanta in 0xFFFF, 0:  # the last pause ends now, whatever was left of the storm's
        receiver.send(pause_frame(receiver.mac, 3, quanta))
    lab.scheduler.sleep(0.38)
    assert out.counters()[restored] == 0  # two intervals between polls without a pause are needed: 0.4 s
    lab.scheduler.sleep(0.25)
    assert out.counters()[restored] == 1
    assert pair(lab, "b", "c", LOSSLESS).write(50_000, within=5).status == "SUCCESS"


def test_a_watchdog_does_not_add_up_pauses_that_end(lab: Lab) -> None:
    """One between two polls, and one over the next: the queue stood still for 20 ms at most."""
    poll = 0.2
    lab.switch("leaf").change_profile(pfc_watchdog=poll, pfc_watchdog_poll=poll)
    out, receiver = lab.interface("leaf:e3").lossless, lab.host("c")["eth1"]
    end = pair(lab, "a", "c", LOSSLESS)
    begin = (time.monotonic() // poll + 2) * poll
    for at, quanta in (begin - 0.1, 200), (begin + 0.19, 0xFFFF), (begin + 0.21, 0):
        lab.scheduler.sleep(at - time.monotonic())
        posted = end.post_write(100_000)
        lab.scheduler.sleep(0.001)
        receiver.send(pause_frame(receiver.mac, 3, quanta))
    assert end.wait(posted, within=5).status == "SUCCESS"
    counted = out.counters()
    assert counted["SAI_PORT_STAT_PFC_3_RX_PAUSE_DURATION_US"] > 15_000
    assert counted["PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED:3"] == 0


def test_a_watchdog_lets_congestion_pass(lab: Lab) -> None:
    """Frames in each interval, and a pause at each poll, with an XON between; then two frames before a first poll."""
    poll = 0.2
    lab.switch("leaf").change_profile(pfc_watchdog=poll, pfc_watchdog_poll=poll)
    out, receiver = lab.interface("leaf:e3").lossless, lab.host("c")["eth1"]
    before = out.counters()
    begin = (time.monotonic() // poll + 2) * poll
    ups = [(begin + number * poll + 0.1, 0) for number in range(1, 5)]
    frames = sorted([*ups, *((begin + number * poll + 0.12, 0xFFFF) for number in range(5)), (begin + 1.05, 0)])
    first = begin + 8 * poll
    for at, quanta in [*frames, (first + 0.1, 0xFFFF), (first + 0.15, 0xFFFF), (first + poll + 0.02, 0)]:
        lab.scheduler.sleep(at - time.monotonic())
        receiver.send(pause_frame(receiver.mac, 3, quanta))
    lab.scheduler.sleep(2 * poll)
    counted = {name: value - before[name] for name, value in out.counters().items()}
    assert counted["SAI_PORT_STAT_PFC_3_RX_PKTS"] == 13
    assert counted["PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED:3"] == 0
