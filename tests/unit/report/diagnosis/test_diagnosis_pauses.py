"""Lossless classes: who pauses whom first, storms, circles, and drops where nothing may drop."""

import pytest
from diagnosis_runs import DIED, Builder, S, found

RX, XON, US, TX = (
    f"SAI_PORT_STAT_PFC_3_{name}" for name in ("RX_PKTS", "ON2OFF_RX_PKTS", "RX_PAUSE_DURATION_US", "TX_PKTS")
)
GROUP = "SAI_INGRESS_PRIORITY_GROUP_STAT_SHARED_WATERMARK_BYTES:3"


def port(seconds: float, frames: int = 40, resumed: int = 20) -> dict[str, int]:
    """The counters of a switch's port that was paused."""
    return {RX: frames, XON: resumed, US: round(seconds * 1e6)}


def nic(seconds: float, frames: int = 40) -> dict[str, int]:
    return {"rx_prio3_pause": frames, "rx_prio3_pause_duration": round(seconds * 1e6)}


def slow(run: Builder) -> Builder:
    """Ten collectives of 0.4 s, one after the other."""
    run.starts().counters(1.01)
    for number in range(1, 11):
        run.collective(number, *((1 + 0.5 * number, 1.4 + 0.5 * number),) * 4)
    return run


def test_a_nic_that_pauses_its_switch_for_a_fifth_of_the_time(run: Builder) -> None:
    slow(run).event(2.5, "pfc.paused", "leaf2", "", interface="e3", priority=3, lasted_ns=S, frames=4)
    paused = {"leaf2": {"e3": port(1.5)}, "leaf1": {"up": port(1.0)}, "n0": {"eth1": nic(0.8)}}
    one = run.counters(7, **paused).ends(7, ok=True).diagnosis()
    assert found(one) == ("paused", [3], "leaf2:e3 - n3:eth1")
    assert one.finding.since == 2.5 * S
    assert one.finding.text == "rank 3 on n3 pauses first: its NIC stops leaf2:e3 for 1.50 s"
    shown = [text for _, text in one.finding.evidence]
    assert shown[0] == "n3 pauses leaf2:e3 in priority 3: 40 pause frames, 1.50 s"
    assert "leaf2 pauses leaf1:up in priority 3: 40 pause frames, 1.00 s" in shown


def test_the_first_one_is_found_from_the_end_of_the_chain_that_is_paused_the_longest(run: Builder) -> None:
    paused = {"leaf2": {"e3": port(1.0)}, "leaf1": {"up": port(1.5)}}
    one = slow(run).counters(7, **paused).ends(7, ok=True).diagnosis()
    assert found(one) == ("paused", [3], "leaf2:e3 - n3:eth1")
    assert one.finding.text.endswith("and so these stop, one after the other: leaf1:up")


def test_pauses_of_a_sound_class_are_no_finding(run: Builder) -> None:
    assert slow(run).counters(7, leaf2={"e3": port(0.5)}).ends(7, ok=True).diagnosis().healthy


def test_pauses_without_an_end_are_a_storm(run: Builder) -> None:
    slow(run).collective(11, *((8.0, None),) * 4)
    one = run.counters(16, leaf2={"e3": port(7.5, 18, 0)}).ends(16, **DIED).diagnosis()
    assert found(one) == ("pause-storm", [3], "leaf2:e3 - n3:eth1")
    assert "its NIC stops leaf2:e3 without end" in one.finding.text


def test_a_storm_that_a_watchdog_found(run: Builder) -> None:
    watched = {"PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED:3": 1, "PFC_WD_QUEUE_STATS_TX_DROPPED_PACKETS:3": 60}
    one = slow(run).counters(16, leaf2={"e3": watched}).ends(16, **DIED).diagnosis()
    assert found(one) == ("pause-storm", [3], "leaf2:e3 - n3:eth1")
    assert one.finding.evidence[0][1] == "leaf2:e3: the PFC watchdog of priority 3 has found 1 storms"


def test_switches_that_pause_each_other_in_a_circle(run: Builder) -> None:
    paused = {"leaf1": {"up": port(7.0, 18, 0)}, "leaf2": {"up": port(7.2, 18, 0)}}
    slow(run).collective(11, *((8.0, None),) * 4)
    for row in run.topology["interfaces"]:  # two links between the leaves, one for each way
        if row["interface"] == "up":
            row["peer"] = row["peer"].replace("up", "down")
    one = run.counters(16, **paused).ends(16, **DIED).diagnosis()
    assert one.finding.cause == "pfc-deadlock"
    assert one.finding.text == "pauses go round in a circle, and nothing moves: leaf2:up, leaf1:up"


@pytest.mark.parametrize(("sent", "cause"), [(8000, "congested-link"), (1000, "paused")])
def test_a_switch_that_pauses_because_a_port_of_its_own_is_full_or_for_no_reason(
    run: Builder, sent: int, cause: str
) -> None:
    slow(run).sends(7, 16_000, {"leaf2:e3": sent})
    run.counted[-1]["counters"]["leaf1"]["up"] |= port(2.0)
    one = run.ends(7, ok=True).diagnosis()
    assert one.finding.cause == cause
    assert one.finding.link == ("leaf2:e3 - n3:eth1" if sent == 8000 else "leaf1:up - leaf2:up")


@pytest.mark.parametrize(
    ("counted", "why"),
    [
        ({"leaf2": {"e2": {"rx_bytes": 9000}}}, "it sends no pause frame on any port"),
        (
            {"leaf2": {"e2": {"rx_bytes": 9000, TX: 30}}, "n2": {"eth1": {"rx_prio3_pause": 30}}},
            "n2:eth1 gets pause frames and does not stop",
        ),
        (
            {"leaf2": {"e2": {"rx_bytes": 9000, TX: 30}}, "n2": {"eth1": nic(0.1)}},
            "it pauses its peers, and more comes in: they stop late or not at all, or the headroom is too small",
        ),
    ],
)
def test_drops_in_a_class_that_must_not_drop(
    run: Builder, counted: dict[str, dict[str, dict[str, int]]], why: str
) -> None:
    counted["leaf2"]["e3"] = {"SAI_QUEUE_STAT_DROPPED_PACKETS:3": 40, GROUP: 9000}
    again = {"n1": {"n1-eth1": {"completer_retry_err": 3}}}
    one = slow(run).counters(7, **counted, **again).ends(7, ok=True).diagnosis()
    assert found(one) == ("lossless-drop", [3], "leaf2:e3 - n3:eth1")
    assert one.finding.text == f"leaf2 drops packets of priority 3, which must not drop: 40 to leaf2:e3; {why}"


def test_drops_of_a_lossy_class_are_none_of_a_lossless_one(run: Builder) -> None:
    counted = {"leaf2": {"e3": {"SAI_QUEUE_STAT_DROPPED_PACKETS:0": 40, GROUP: 9000}}}
    one = slow(run).counters(7, n1={"n1-eth1": {"completer_retry_err": 3}}, **counted).ends(7, ok=True).diagnosis()
    assert found(one) == ("lossy-link", [3], "leaf2:e3 - n3:eth1")


CONTROL = ("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled", "rp_cnp_ignored")


@pytest.mark.parametrize(
    ("counted", "said"),
    [
        ({"n3": (500, 0, 0, 0)}, "rank 3 on n3 gets 500 marked packets, and its NIC sends no CNP: its senders go on"),
        (
            {"n3": (500, 60, 0, 0), "n0": (0, 0, 20, 0)},
            "CNPs are lost on the way: the NICs of the job send 60, and 20 arrive; most are from rank 3 on n3",
        ),
        ({"n3": (500, 60, 0, 0), "n0": (0, 0, 0, 60)}, "rank 0 on n0 gets 60 CNPs, and its NIC does not slow down"),
        ({"n3": (500, 60, 0, 0), "n0": (0, 0, 58, 0)}, ""),
    ],
)
@pytest.mark.parametrize("stops", [True, False])
def test_marks_that_nobody_answers(run: Builder, counted: dict[str, tuple[int, ...]], said: str, stops: bool) -> None:
    """Where queues stop others it is the cause, else a remark."""
    nics = {host: {"eth1": dict(zip(CONTROL, values, strict=True))} for host, values in counted.items()}
    paused = {"leaf2": {"e3": port(1.5 if stops else 0.1)}}
    one = slow(run).counters(7, **paused, **nics).ends(7, ok=True).diagnosis()
    if not stops:
        assert one.healthy
        assert [text for _, text in one.remarks] == ([said] if said else [])
    elif said:
        assert (one.finding.cause, one.finding.text) == ("ecn-unanswered", said)
        assert [other.cause for other in one.findings[1:]] == ([] if "rank 3" in said else ["paused"])
    else:
        assert one.finding.cause == "paused"


def test_a_port_that_the_plan_does_not_have_is_no_error(run: Builder) -> None:
    dropped = {"e3": {"SAI_QUEUE_STAT_DROPPED_PACKETS:3": 40, GROUP: 9000}, "e99": {TX: 30}}
    one = slow(run).counters(7, leaf2=dropped).ends(7, ok=True).diagnosis()
    assert one.finding.cause == "lossless-drop"
