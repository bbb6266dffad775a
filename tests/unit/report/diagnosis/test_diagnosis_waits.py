"""Programs whose ranks wait for each other: other collectives, circles of receives, ranks outside of MPI."""

from typing import Any

import pytest
from diagnosis_runs import DIED, HOSTS, Builder, S, found


def calls(run: Builder, rank: int, *made: tuple[str, int | None, float, float | None]) -> Builder:
    """The calls of a rank between two ranks: operation, peer, begin and end."""
    for operation, peer, began, ended in made:
        number = sum(call["rank"] == rank for call in run.calls) + 1
        run.calls.append(
            {
                "rank": rank, "host": HOSTS[rank], "call": number, "operation": operation, "communicator": "0-3",
                "sequence": 0, "bytes": 4096, "peer": peer, "began": round(began * S),
                "ended": None if ended is None else round(ended * S),
            }
        )  # fmt: skip
    return run


def change(run: Builder, sequence: int, rank: int, **values: Any) -> None:
    (call,) = [call for call in run.calls if (call["sequence"], call["rank"]) == (sequence, rank)]
    call |= values


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            {"operation": "Bcast", "bytes": 40, "peer": 2},
            "Allreduce of 33000 bytes by ranks 0, 1, 3; Bcast of 40 bytes, root 2 by rank 2",
        ),
        ({"bytes": 16_500}, "Allreduce of 33000 bytes by ranks 0, 1, 3; Allreduce of 16500 bytes by rank 2"),
    ],
)
@pytest.mark.parametrize("ok", [True, False])
def test_a_rank_that_calls_another_collective(run: Builder, other: dict[str, Any], said: str, ok: bool) -> None:
    run.starts().paces()
    for number in (11, 12):
        run.collective(number, *((2.0, 2.1 if ok else None),) * 4)
    change(run, 11, 2, **other)
    one = run.ends(9, ok=ok, late=not ok).diagnosis()
    assert found(one) == ("collective-mismatch", [2], "")
    assert one.finding.text == f"ranks call different collectives as number 11 of ranks 0-3: {said}"
    assert [text.partition(":")[0] for _, text in one.finding.evidence] == [
        "ranks 0, 1, 3 on n0, n1, n3",
        "rank 2 on n2",
    ]
    if not ok:
        assert one.json()["stopped"]["calls"][1]["ranks"] == [2]


def test_two_against_two_have_no_rank_to_blame(run: Builder) -> None:
    run.starts().paces().collective(11, *((2.0, None),) * 4)
    for rank in (1, 2):
        change(run, 11, rank, operation="Barrier", bytes=0)
    assert run.ends(9, late=True).diagnosis().finding.ranks == []


def test_what_each_rank_gives_may_differ_where_mpi_allows_it(run: Builder) -> None:
    run.starts().paces()
    for rank in range(4):
        change(run, 10, rank, operation="Alltoallv", bytes=1000 * rank)
    assert run.ends(3, ok=True).diagnosis().healthy


def test_receive_against_receive(run: Builder) -> None:
    calls(calls(run.starts(), 0, ("Recv", 1, 2.0, None)), 1, ("Recv", 0, 2.5, None))
    one = run.ends(60, late=True).diagnosis()
    assert found(one) == ("deadlock", [0, 1], "")
    assert one.finding.since == 2.5 * S
    assert one.finding.text == (
        "rank 0 on n0 and rank 1 on n1 wait for each other: rank 0 waits in Recv of 4096 bytes from rank 1; "
        "rank 1 waits in Recv of 4096 bytes from rank 0"
    )


def test_a_message_that_was_sent_is_not_the_program_s_to_wait_for(run: Builder) -> None:
    """Both have sent, and both wait for what the network has."""
    for rank, peer in (0, 1), (1, 0):
        calls(run, rank, ("Send", peer, 1.5, 1.6), ("Recv", peer, 2.0, None))
    one = run.starts().ends(60, late=True).diagnosis()
    assert one.finding.cause == "unknown"


def test_a_receive_and_a_collective_that_wait_for_each_other(run: Builder) -> None:
    calls(run.starts().collective(1, (2.0, None)), 1, ("Recv", 0, 2.5, None))
    one = run.ends(60, late=True).diagnosis()
    assert found(one)[:2] == ("deadlock", [0, 1])
    assert (
        "rank 0 waits in collective 1 (Allreduce of 33000 bytes) of ranks 0-3, without ranks 1, 2, 3"
        in one.finding.text
    )


@pytest.mark.parametrize("waits", [("Recv", 1), ("Ssend", 1)])
def test_a_rank_outside_of_mpi_for_which_another_waits_with_a_message(run: Builder, waits: tuple[str, int]) -> None:
    calls(calls(run.starts(), 0, (*waits, 2.0, None)), 1, ("Send", 2, 1.0, 1.5))
    one = run.ends(60, late=True).diagnosis()
    assert found(one) == ("rank-hangs", [1], "")
    assert "since its call of Send it is outside of MPI, and rank 0 waits in" in one.finding.text


def test_ranks_that_are_all_outside_of_mpi(run: Builder) -> None:
    one = run.starts().paces().ends(60, late=True).diagnosis()
    assert found(one) == ("rank-hangs", [0, 1, 2, 3], "")
    assert one.finding.text == "no rank waits in MPI: all of them compute, or wait for something else"


def test_a_pipeline_that_waits_says_in_which_calls(run: Builder) -> None:
    again = {"n1": {"n1-eth1": {"completer_retry_err": 6}}}
    calls(calls(run.starts().counters(1.01), 1, ("Recv", 0, 2.0, None)), 0, ("Send", 1, 1.5, None))
    one = run.link(1.6, "leaf1", "e0", "down").counters(9, **again).ends(9, **DIED).diagnosis()
    assert found(one) == ("link-down", [0], "leaf1:e0 - n0:eth1")
    assert [str(wait) for wait in one.case.waits] == [
        "rank 0 waits in Send of 4096 bytes to rank 1",
        "rank 1 waits in Recv of 4096 bytes from rank 0",
    ]
