"""Queue pairs of a scenario: each is a job of two hosts where no others are."""

from diagnosis_runs import IPS, OLD, Builder, S, found

from testbed.report.diagnosis import diagnose


def write(run: Builder, t: float, far: str = "n3", status: str = "SUCCESS", number: int = 17) -> Builder:
    """A WRITE of 0.2 s from n0 to another host, which ends at a time."""
    near, to = [IPS["n0"], number], [IPS[far], number]
    return run.event(t, "completion", "n0", "", opcode="RDMA_WRITE", status=status, elapsed_s=0.2, near=near, far=to)


def test_what_succeeds_is_healthy(run: Builder) -> None:
    one = write(write(run, 1), 2).diagnosis()
    assert one.healthy
    assert (one.case.job.name, one.case.job.began, one.case.job.ended) == ("n0 to n3", 0.8 * S, 2 * S)
    assert list(one.case.job.devices) == ["n0-eth1", "n3-eth1"]


def test_each_queue_pair_has_its_cause(run: Builder) -> None:
    run.event(1.5, "arp.learned", "leaf1", "", vlan=10, ip=IPS["n3"], mac=OLD, port="up", reason="garp")
    first, second = diagnose(write(write(run, 1), 2, status="RETRY_EXC_ERR", number=18).write())
    assert first.healthy
    assert found(second) == ("stale-neighbour", [1], "leaf2:e3 - n3:eth1")
    assert second.case.ending == "rank 0 on n0 ends first: RETRY_EXC_ERR"


def test_the_host_is_the_one_that_had_the_address_then(run: Builder) -> None:
    run.event(1, "address", "n3", "", interface="eth1", ip=IPS["n3"], has=False)
    run.event(1, "address", "old", "", interface="eth1", ip=IPS["n3"], has=True)
    first, second = diagnose(write(write(run, 0.9), 2, number=18).write())
    assert [one.case.job.hosts[1] for one in (first, second)] == ["n3", "old"]


def test_losses_beside_it_are_not_held_against_one_that_ends_well(run: Builder) -> None:
    lost = {"leaf2": {"e3": {"queue_dropped": 40}}, "n0": {"n0-eth1": {"completer_retry_err": 3}}}
    assert write(run, 1).counters(2, **lost).diagnosis().healthy
    _, one = diagnose(write(run, 1.5, status="RETRY_EXC_ERR", number=18).write())
    assert found(one) == ("lossy-link", [1], "leaf2:e3 - n3:eth1")


def test_beside_a_job_it_is_none(run: Builder) -> None:
    assert write(run.starts(), 1.5).ends(3, ok=True).diagnosis().case.job.name == "job"


def test_one_to_an_address_that_nobody_has_is_a_job_too(run: Builder) -> None:
    how = {
        "opcode": "RDMA_WRITE",
        "status": "RETRY_EXC_ERR",
        "elapsed_s": 0.2,
        "near": [IPS["n0"], 17],
        "far": ["10.9.9.9", 17],
    }
    one = run.event(1, "completion", "n0", "", **how).diagnosis()
    assert found(one) == ("unknown", [0], "")
    assert one.case.job.name == "n0 to 10.9.9.9"


def test_a_counter_is_cited_at_the_time_of_its_reading(run: Builder) -> None:
    write(run, 1.5, status="RETRY_EXC_ERR")
    one = run.counters(4, leaf2={"e3": {"queue_dropped": 40}}, n0={"n0-eth1": {"completer_retry_err": 3}}).diagnosis()
    when = {text: t for t, text in one.finding.evidence}
    assert {t for text, t in when.items() if "queue_dropped" in text or "retry_err" in text} == {4 * S}
