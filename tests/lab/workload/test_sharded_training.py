"""FSDP, DTensor and pipelines of PyTorch over MPI, and the collectives that they are made of."""

import json
from pathlib import Path

import pytest

from testbed.topology.fabrics import single
from testbed.workload import Job, Traffic, mpirun

PROGRAMS = Path(__file__).with_name("programs")
JOB_S = 300
FOUR = pytest.mark.topology(single(4, management=True).topology())


def start(lab, program: str, *arguments: str, ranks: int = 4) -> Job:
    hosts = [lab.host(f"host{number + 1}") for number in range(ranks)]
    return mpirun(lab, hosts, PROGRAMS / program, *arguments, launcher=lab.host("launcher"))


@FOUR
def test_each_collective_of_torch_has_its_result_in_each_type(lab):
    job = start(lab, "group_methods.py")
    job.check(JOB_S)
    assert "all as they must be" in job.output(0)


def losses(job: Job, rank: int) -> list[float]:
    return [json.loads(line)["loss"] for line in job.output(rank).splitlines() if line.startswith('{"step"')]


@FOUR
@pytest.mark.parametrize(
    ("how", "near", "calls"),
    [
        ("fsdp", 1e-5, {"Reduce_scatter_block", "Allgather"}),
        ("fsdp2", 1e-5, {"Reduce_scatter_block", "Allgather"}),
        ("mixed", 1e-2, {"Reduce_scatter_block", "Allgather"}),
        ("hybrid", 1e-5, {"Reduce_scatter_block", "Allgather", "Allreduce"}),
        ("tensor", 1e-5, {"Allreduce"}),
        ("pipeline", 1e-5, {"Isend", "Irecv"}),
    ],
)
def test_a_sharded_model_trains_as_one_process_does(lab, how, near, calls):
    ranks = 2 if how == "pipeline" else 4
    sent = Traffic(lab.host("host1")["eth1"])
    job = start(lab, "sharded.py", how, ranks=ranks)
    job.check(JOB_S)
    alone = Job.alone(lab, lab.host("launcher"), PROGRAMS / "sharded.py", "alone", name="one-process")
    alone.check(JOB_S)
    wanted, last = losses(alone, 0), ranks - 1
    assert len(set(wanted)) == 4
    assert losses(job, last) == pytest.approx(wanted, rel=near)
    made = [json.loads(line)["operation"] for line in (job.directory / "flight.jsonl").read_text().splitlines()]
    assert calls <= set(made)
    assert sent.bytes()["roce_out"] > 10_000
