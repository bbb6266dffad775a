"""Ranks that died, that hang, that are slow, or that use a wrong GID."""

import pytest
from diagnosis_runs import Builder, found


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("UCX WARN network device 'n2-eth1:1' is not available, please use", "the device has none at the given index"),
        (
            "ERROR ibv_create_ah(dlid=1 dgid=fe80::4 sgid_index=0) for UD failed: Network is unreachable",
            "the GID fe80::4 is link-local",
        ),
    ],
)
def test_a_rank_with_a_wrong_gid_index(run: Builder, said: str, why: str) -> None:
    one = run.starts().log(2, said).ends(3, rank=2, host="n2", status="", failure="Unknown error").diagnosis()
    assert found(one) == ("wrong-gid", [2], "leaf2:e2 - n2:eth1")
    assert one.finding.text == f"rank 2 on n2 has a wrong GID index for n2-eth1: {why}"


@pytest.mark.parametrize(
    "failure", ["ended by signal 9", "ended with status 3", "ValueError: the user's mistake", "called MPI_Abort"]
)
def test_a_rank_that_died(run: Builder, failure: str) -> None:
    run.starts().paces().collective(11, (2.0, None), (2.0, None), (2.0, None))
    run.link(2.5, "leaf2", "e3", "down")  # afterwards
    one = run.ends(3, rank=3, host="n3", status="", failure=failure).diagnosis()
    assert found(one) == ("rank-died", [3], "")
    assert one.finding.text == f"rank 3 on n3 died: {failure}"
    assert one.json()["stopped"]["absent"] == [3]


def test_a_rank_that_hangs_outside_of_mpi(run: Builder) -> None:
    run.starts().paces().collective(11, (2.0, None), (2.0, None), (2.0, None))
    one = run.ends(60, late=True).diagnosis()
    assert found(one) == ("rank-hangs", [3], "")
    assert "did not enter collective 11" in one.finding.text


def test_a_rank_that_sets_everybody_s_pace(run: Builder) -> None:
    one = run.starts().paces(slow=0.08).ends(3, ok=True).diagnosis()
    assert found(one) == ("slow-rank", [2], "leaf2:e2 - n2:eth1")
    assert "it takes 720 ms, the others 90 ms" in one.finding.text.replace("ranks ", "")


def test_a_rank_that_is_a_little_slower_is_no_finding(run: Builder) -> None:
    assert run.starts().paces(slow=0.025).ends(3, ok=True).diagnosis().healthy
