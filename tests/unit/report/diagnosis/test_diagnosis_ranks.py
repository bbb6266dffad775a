"""Ranks that died, that hang, that are slow, or that use a wrong GID."""

import pytest
from diagnosis_runs import SILENT, Builder, found, interface


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


@pytest.mark.parametrize(("often", "cause"), [(4, "healthy"), (1, "slow-rank")])
def test_a_rank_that_saves_a_checkpoint_now_and_then_is_not_slow(run: Builder, often: int, cause: str) -> None:
    """Its pauses outside of MPI are as long in total as those of a rank that is slow all the time."""
    run.starts()
    left = 1.0
    for number in range(1, 17):
        late = 0.03 * often if number % often == 0 else 0.0
        enter = [left + 0.01 + (late if rank == 2 else 0.0) for rank in range(4)]
        left = max(enter) + 0.002
        run.collective(number, *((began, left) for began in enter))
    assert run.ends(left + 0.1, ok=True).diagnosis().finding.cause == cause


@pytest.mark.parametrize(
    ("up", "cause", "said"), [(3.0, "link-flap", "was down for 2.5 s"), (None, "link-down", "is down")]
)
def test_a_rank_whose_link_is_down_when_it_begins_has_no_wrong_gid(
    up: float | None, cause: str, said: str, run: Builder
) -> None:
    run.link(0.5, "leaf2", "e2", "down").starts()
    if up:
        run.link(up, "leaf2", "e2", "up")
    one = run.log(2, "network device 'n2-eth1:1' is not available, please use").ends(9, **SILENT).diagnosis()
    assert found(one) == (cause, [2], "leaf2:e2 - n2:eth1")
    assert one.finding.text == f"rank 2 on n2 cannot use its RDMA device: its link leaf2:e2 - n2:eth1 {said}"


@pytest.mark.parametrize(
    ("address", "cause"), [("192.168.77.3", "wrong-gid"), ("10.0.0.3", "unknown"), ("", "unknown"), ("x", "unknown")]
)
def test_a_rank_whose_gid_is_of_an_address_that_nothing_routes(run: Builder, address: str, cause: str) -> None:
    used = ["10.0.0.1", "10.0.0.2", address, "10.0.0.4"]
    run.starts().event(5, "job.stalled", "", "", name="job", since_ns=0, waiting=[], queue_pairs={}, addresses=used)
    one = run.ends(31, **SILENT).diagnosis()
    assert one.finding.cause == cause
    if address:
        assert cause == "unknown" or found(one) == ("wrong-gid", [2], "leaf2:e2 - n2:eth1")


@pytest.mark.parametrize(("again", "cause"), [(0, "metadata-network"), (6, "silent-drop")])
def test_a_launcher_that_lost_a_rank_whose_network_is_well(run: Builder, again: int, cause: str) -> None:
    run.topology["interfaces"] += [
        interface("mgmt", "bridge", "p3", "n3:mgmt0", ""), interface("n3", "host", "mgmt0", "mgmt:p3", "")
    ]  # fmt: skip
    counted = {"n2": {"n2-eth1": {"completer_retry_err": again}}}
    how = {"rank": 3, "host": "n3", "status": "", "failure": "mpirun lost contact with it"}
    one = run.starts().counters(1.01).paces().counters(900, **counted).ends(900, **how).diagnosis()
    assert one.finding.cause == cause
    if not again:
        assert found(one) == ("metadata-network", [3], "mgmt:p3 - n3:mgmt0")
        assert "the launcher lost contact with rank 3 on n3" in one.finding.text


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            "torch.distributed.DistNetworkError: The server socket has failed to bind: Address already in use",
            "rank-died",
        ),
        ("torch.distributed.DistNetworkError: Connection reset by peer", "unknown"),
    ],
)
def test_a_port_that_is_taken_is_no_trouble_of_the_network(said: str, cause: str, run: Builder) -> None:
    one = run.starts().ends(3, rank=2, host="n2", status="", failure=said).diagnosis()
    assert one.finding.cause == cause
