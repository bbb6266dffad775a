"""Elastic jobs of torchrun: after a rank or a host was lost the agents that are there begin another round."""

from pathlib import Path

import pytest

from testbed.errors import DeadlineError, InputError
from testbed.faults import HostCrash, RankKilled, injected
from testbed.topology.fabrics import leaf_spine
from testbed.workload.jobs.elastic_job import ElasticJob
from testbed.workload.traffic import Traffic

PROGRAM = Path(__file__).with_name("programs") / "elastic.py"
ROUND_S = 120
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Without it a round after the first does not always meet: issue 135712 of PyTorch."""
pytestmark = pytest.mark.topology(leaf_spine(2, 1, 2, management=True).topology())


@pytest.fixture
def nics(lab):
    return [lab.host(f"host{number}")["eth1"] for number in (1, 2, 3, 4)]


def broken(job, fault, lab):
    """The first round, broken after seven steps, and its end."""
    first = job.next_round(ROUND_S)
    assert lab.scheduler.wait(lambda: first.steps_done() >= 7, ROUND_S, pause=0.01)
    return first, injected(lab, fault)


def words(one):
    """What each rank printed first, but warnings."""
    return [next(line for line in one.output(rank.number).splitlines() if "goes on" in line) for rank in one.ranks]


def test_a_job_without_trouble_has_one_round_on_the_data_network(lab, nics):
    sent = Traffic(nics[3])
    job = ElasticJob(lab, nics, PROGRAM)
    only = job.next_round(ROUND_S)
    assert [str(rank) for rank in only.ranks] == [f"rank {number} on host{number + 1}" for number in range(4)]
    assert only.wait(ROUND_S) is None
    assert (only.steps_done(), job.succeeded, job.next_round(ROUND_S)) == (30, True, None)
    assert sent.bytes()["tcp_out"] > 30 * 64 * 65 * 4, "the gradients are on the data network"


def test_a_rank_that_is_killed_begins_another_round(lab, nics):
    job = ElasticJob(lab, nics, PROGRAM, restarts=1, environment=OWN_STORE)
    first, fault = broken(job, RankKilled(rank=2), lab)
    with fault:
        assert str(first.wait(ROUND_S)) == "rank 2 on host3: ended by signal 9"
    second = job.next_round(ROUND_S)
    assert second.wait(ROUND_S) is None
    assert words(second) == [f"rank {rank} of 4 goes on after 5 steps" for rank in range(4)]
    assert [path.name for path in sorted(second.directory.glob("flight*"))] == ["flight.jsonl"]
    assert job.succeeded


def test_a_job_goes_on_without_a_host_and_takes_it_back(lab, nics):
    """The others hear of its end when their packets are answered again, by a host that knows of no connection."""
    job = ElasticJob(lab, nics, PROGRAM, at_least=3, restarts=2, environment=OWN_STORE)
    first, fault = broken(job, HostCrash(host="host3"), lab)
    with fault:
        lab.scheduler.sleep(20)
        assert first.running, "a host without power closes no connection"
    assert str(first.wait(ROUND_S)) == "rank 2 on host3: its torchrun was killed"
    last = job.next_round(ROUND_S)
    while (failure := last.wait(ROUND_S)) and (following := job.next_round(ROUND_S)):
        last = following
    assert failure is None
    assert {line.partition(" goes ")[2] for line in words(last)} == {"on after 5 steps"}


def test_a_job_that_may_not_begin_again_fails(lab, nics):
    job = ElasticJob(lab, nics, PROGRAM)
    first, fault = broken(job, RankKilled(rank=0), lab)
    with fault:
        assert str(first.wait(ROUND_S)) == "rank 0 on host1: ended by signal 9"
    assert job.next_round(ROUND_S) is None
    assert not job.succeeded


def test_the_agents_store_does_not_outlast_a_restart(lab, nics):
    """PyTorch's own trouble (issue 135712): ranks look in the store by the restarts of their own agent, and an agent
    whose rank did not fail counts none."""
    job = ElasticJob(lab, nics, PROGRAM, restarts=1)
    first, fault = broken(job, RankKilled(rank=2), lab)
    with fault:
        first.wait(ROUND_S)
    second = job.next_round(ROUND_S)
    with pytest.raises(DeadlineError, match="connectFullMesh failed"):
        second.wait(30)


def test_what_cannot_be_started_is_said_before(lab, nics):
    with pytest.raises(InputError, match="a host is given twice"):
        ElasticJob(lab, [nics[0], nics[0]], PROGRAM)
    with pytest.raises(InputError, match="at least two ranks"):
        ElasticJob(lab, nics[:1], PROGRAM)
    with pytest.raises(InputError, match="a round needs 5 hosts, and the job has 4"):
        ElasticJob(lab, nics, PROGRAM, at_least=5)
    with pytest.raises(InputError, match="does not exist"):
        ElasticJob(lab, nics, "none.py")
    assert not lab.file("job").exists()
