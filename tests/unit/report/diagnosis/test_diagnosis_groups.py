"""Groups of ranks with collectives over queue pairs: those of the same NICs are a job."""

import pytest
from diagnosis_runs import HOSTS, Builder, S, found

from testbed.report.diagnosis import diagnose

FAILED = {"ok": False, "late": False, "rank": 2, "peer": 3, "status": "RETRY_EXC_ERR"}


def test_the_collectives_of_a_group_are_one_job(run: Builder) -> None:
    one = run.group(2, 0.5).group(3, 0.5).diagnosis()
    assert one.healthy
    assert one.finding.text == "all 4 ranks end well; 2 collectives"
    assert (one.case.job.name, one.case.job.began, one.case.job.ended) == ("group-1", 1.5 * S, 3 * S)
    assert one.case.job.hosts == HOSTS


def test_other_ranks_are_another_group(run: Builder) -> None:
    run.group(2, 0.5).group(3, 0.5, hosts=HOSTS[::-1]).group(4, 0.5)
    assert [(one.case.job.name, len(one.case.collectives)) for one in diagnose(run.write())] == [
        ("group-2", 1),
        ("group-1", 2),
    ]


def test_a_collective_that_failed_ends_its_group(run: Builder) -> None:
    run.link(2, "leaf2", "e3", "down").group(1, 0.5).group(4, 3.0, finished_s=[1.0, *3 * [None]], **FAILED)
    failed, again = diagnose(run.link(5, "leaf2", "e3", "up").group(6, 0.5).write())
    assert found(failed) == ("link-down", [3], "leaf2:e3 - n3:eth1")
    assert failed.json()["stopped"] == {
        "operation": "a step",
        "communicator": "0-3",
        "number": 2,
        "bytes": 0,
        "since": S,
        "waiting": [1, 2, 3],
        "absent": [],
        "calls": [{"call": "a step", "ranks": [0, 1, 2, 3]}],
    }
    assert again.healthy


@pytest.mark.parametrize("wrong", [{"elapsed_s": "soon"}, {"finished_s": [None, -1]}, {"computed_s": ["long"]}])
def test_a_collective_with_a_time_that_is_none_is_left_out(run: Builder, wrong: dict[str, object]) -> None:
    assert run.group(2, 0.5).group(4, 0.5, **FAILED, **wrong).diagnosis().healthy


def test_a_rank_that_computes_for_longer_sets_the_pace(run: Builder) -> None:
    run.group(2, 1.0, computed_s=[0.1, 0.1, 0.9, 0.1]).group(3, 1.0, computed_s=[0.1, 0.1, 0.8, 0.1])
    one = run.diagnosis()
    assert found(one) == ("slow-rank", [2], "leaf2:e2 - n2:eth1")
    assert "it takes 1700 ms, the others 200 ms" in one.finding.text


def test_ranks_that_compute_for_as_long_are_none(run: Builder) -> None:
    assert run.group(2, 1.0, computed_s=4 * [0.9]).diagnosis().healthy


def late(run: Builder, took: float) -> Builder:
    """Two steps, of which the second one takes so long; in it rank 1 misses a packet."""
    run.group(2, 1.0).counters(2.01).group(5, took)
    return run.counters(5.01, n1={"n1-eth1": {"out_of_seq_request": 1}}, n0={"n0-eth1": {"completer_retry_err": 1}})


def test_a_packet_that_is_lost_and_for_which_all_wait(run: Builder) -> None:
    one = late(run, 1.5).diagnosis()
    assert found(one) == ("lossy-link", [1], "leaf1:e1 - n1:eth1")
    assert one.finding.since == 3.5 * S
    assert one.finding.evidence[0][1] == "collective 2 (a step) of ranks 0-3 takes 1.50 s, another 1.00 s"


def test_a_packet_that_is_lost_and_costs_little_is_a_remark(run: Builder) -> None:
    one = late(run, 1.05).diagnosis()
    assert one.healthy
    assert [text for _, text in one.remarks] == [
        "packets were sent again: n0-eth1: completer_retry_err 1",
        "packets were sent again: n1-eth1: out_of_seq_request 1",
    ]


def test_a_collective_of_another_kind_may_take_longer(run: Builder) -> None:
    run.group(2, 1.0, operation="a small step").counters(2.01).group(5, 1.5)
    assert run.counters(5.01, n1={"n1-eth1": {"out_of_seq_request": 1}}).diagnosis().healthy


def test_a_loss_in_another_collective_is_not_why(run: Builder) -> None:
    run.group(2, 1.0).counters(2.01, n1={"n1-eth1": {"out_of_seq_request": 1}}).group(5, 1.5).counters(5.01)
    assert run.diagnosis().healthy
