"""Links that have more to carry than they can, or are slow to carry it."""

from diagnosis_runs import Builder, S, found, interface


def in_turn(run: Builder, waiting: dict[str, int], sent: dict[str, int]) -> Builder:
    """Ten collectives that take most of the job's time, in which so many packets wait at ports, which send bytes."""
    run.starts()
    for number in range(1, 11):
        run.collective(number, *((float(number), number + 0.8),) * 4)
        leaves: dict[str, dict[str, dict[str, int]]] = {"leaf1": {}, "leaf2": {}}
        for port in range(4):
            values = {"queue_waiting": waiting.get(f"e{port}", 0), "tx_bytes": number * sent.get(f"e{port}", 1000)}
            leaves[f"leaf{port // 2 + 1}"][f"e{port}"] = values
        run.counters(number + 0.5, **leaves)
    return run.ends(12, ok=True)


def test_a_link_that_is_slow_without_a_drop(run: Builder) -> None:
    one = in_turn(run, {"e2": 12}, {}).diagnosis()
    assert found(one) == ("slow-link", [2], "leaf2:e2 - n2:eth1")
    assert [text for _, text in one.finding.evidence] == [
        "leaf2:e2: 12.0 packets wait on average, at the others 0.0",
        "leaf2:e2 sends 10000 bytes, not more than the others",
        "9 collectives take 7.20 s in total",
    ]


def test_queues_that_are_alike_are_no_slow_link(run: Builder) -> None:
    assert in_turn(run, {f"e{port}": 12 for port in range(4)}, {}).diagnosis().healthy


def test_the_target_of_an_incast_has_no_slow_link(run: Builder) -> None:
    assert in_turn(run, {"e2": 12}, {"e2": 3000}).diagnosis().healthy


def test_a_link_that_is_slow_by_its_rate(run: Builder) -> None:
    one = run.group(6, 5.0).sends(6, {"leaf2:e2": 1600}, {}).diagnosis()
    assert found(one) == ("slow-link", [2], "leaf2:e2 - n2:eth1")
    assert one.finding.evidence[0] == (S, "leaf2:e2: it sends for 5.00 s, the others for 1.00 s")


def test_a_host_that_sends_slowly(run: Builder) -> None:
    one = run.group(6, 5.0).sends(6, {"n2:eth1": 1600}, {}).diagnosis()
    assert found(one) == ("slow-link", [2], "leaf2:e2 - n2:eth1")
    assert one.finding.evidence[0] == (S, "n2:eth1: it sends for 5.00 s, the others for 1.00 s")


def test_a_slow_link_that_is_idle_is_not_why(run: Builder) -> None:
    assert run.group(21, 20.0).sends(21, {"n2:eth1": 1600}, {}).diagnosis().healthy


def test_a_link_between_switches_that_is_full(run: Builder) -> None:
    one = run.group(4, 2.1).sends(4, 8000, {"leaf1:up": 2000}).diagnosis()
    assert found(one) == ("congested-link", [], "leaf1:up - leaf2:up")
    assert one.finding.since == 1.9 * S
    assert one.finding.text == (
        "all wait for the link leaf1:up - leaf2:up: it sends for 2.00 s, no NIC for more than 1.00 s"
    )
    assert one.finding.evidence[0] == (1.9 * S, "leaf1:up sends 2000 bytes: 2.00 s of 2.10 s in collectives")


def test_a_link_behind_a_full_one_is_not_named(run: Builder) -> None:
    for node, port, peer in (
        ("leaf1", "s", "agg:p1"),
        ("agg", "p1", "leaf1:s"),
        ("agg", "p2", "leaf2:s"),
        ("leaf2", "s", "agg:p2"),
    ):
        run.topology["interfaces"].append(interface(node, "switch", port, peer, ""))
    one = run.group(4, 2.1).sends(4, 8000, {"leaf1:s": 2000, "agg:p2": 2000}).diagnosis()
    assert found(one) == ("congested-link", [], "agg:p1 - leaf1:s")
    assert " (and " not in one.finding.text


def test_a_link_between_switches_that_is_as_full_as_the_nics_is_no_finding(run: Builder) -> None:
    sent = {f"n{number}:eth1": 1600 for number in range(4)}
    assert run.group(4, 2.1).sends(4, 8000, {"leaf1:up": 2000, **sent}).diagnosis().healthy


def test_a_link_between_switches_that_is_idle_for_half_of_the_time_is_no_finding(run: Builder) -> None:
    assert run.group(6, 4.1).sends(6, 8000, {"leaf1:up": 2000}).diagnosis().healthy


INCAST = {"leaf2:e2": 4000}


def test_a_port_to_which_all_send_and_which_drops(run: Builder) -> None:
    run.group(6, 4.1).sends(6, 8000, INCAST, n1={"completer_retry_err": 5})
    run.counted[-1]["counters"]["leaf2"]["e2"]["SAI_QUEUE_STAT_DROPPED_PACKETS:0"] = 90
    one = run.diagnosis()
    assert found(one) == ("congested-link", [2], "leaf2:e2 - n2:eth1")
    assert [text for _, text in one.finding.evidence] == [
        "leaf2:e2 sends 4000 bytes, the ports to other ranks 1000",
        "leaf2:e2: SAI_QUEUE_STAT_DROPPED_PACKETS:0 90",
        "n1-eth1: completer_retry_err 5",
    ]


def test_a_port_to_which_all_send_without_a_loss_is_a_remark(run: Builder) -> None:
    one = run.group(6, 4.1).sends(6, 8000, INCAST).diagnosis()
    assert one.healthy
    assert [text for _, text in one.remarks] == [
        "all send to rank 2 on n2 over its link leaf2:e2 - n2:eth1: "
        "leaf2:e2 sends 4000 bytes, the ports to other ranks 1000"
    ]


def test_a_rank_that_dies_of_a_full_queue(run: Builder) -> None:
    run.group(6, 4.1, ok=False, finished_s=4 * [None], rank=1, peer=2, status="RETRY_EXC_ERR")
    run.sends(6, 8000, INCAST, n1={"completer_retry_err": 5})
    run.counted[-1]["counters"]["leaf2"]["e2"]["SAI_QUEUE_STAT_DROPPED_PACKETS:0"] = 90
    assert found(run.diagnosis()) == ("congested-link", [2], "leaf2:e2 - n2:eth1")


def parallel(run: Builder) -> Builder:
    """With two links between the leaves beside the one that there is."""
    for port in ("p1", "p2"):
        for near, far in (("leaf1", "leaf2"), ("leaf2", "leaf1")):
            run.topology["interfaces"].append(interface(near, "switch", port, f"{far}:{port}", ""))
    return run


def test_flows_that_meet_on_one_of_parallel_links(run: Builder) -> None:
    one = parallel(run).group(4, 2.1).sends(4, 8000, {"leaf1:up": 500, "leaf1:p1": 900, "leaf1:p2": 100}).diagnosis()
    assert found(one) == ("uneven-links", [], "leaf1:p1 - leaf2:p1")
    assert one.finding.text == (
        "flows meet on the link leaf1:p1 - leaf2:p1, while leaf1:p2 - leaf2:p2 beside it carries less than a third of "
        "its bytes"
    )


def test_parallel_links_that_are_about_even_are_healthy(run: Builder) -> None:
    sent = {f"{leaf}:{port}": count for leaf in ("leaf1", "leaf2") for port, count in (("up", 400), ("p1", 900))}
    sent |= {"leaf1:p2": 500, "leaf2:p2": 500}
    assert parallel(run).group(4, 2.1).sends(4, 8000, sent).diagnosis().healthy


def test_uneven_links_for_which_nobody_waits_are_healthy(run: Builder) -> None:
    sent = {"leaf1:up": 500, "leaf1:p1": 900, "leaf1:p2": 100}
    assert parallel(run).group(4, 1.3).sends(4, 8000, sent).diagnosis().healthy


def test_a_link_whose_rate_is_half_that_of_the_others(run: Builder) -> None:
    one = run.group(3, 2.0).sends(3, {"leaf2:e2": 4000}, {}).diagnosis()
    assert found(one) == ("slow-link", [2], "leaf2:e2 - n2:eth1")
    assert one.finding.evidence[0][1] == "leaf2:e2: its rate is 0.004 Mbit/s, that of the others 0.008 Mbit/s"


def test_a_slower_link_that_is_idle_is_no_finding(run: Builder) -> None:
    assert run.group(21, 20.0).sends(21, {"leaf2:e2": 4000}, {}).diagnosis().healthy
