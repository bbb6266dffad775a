"""FSDP, DTensor and pipelines of PyTorch over MPI, and the collectives that they are made of."""

import json
from pathlib import Path

import pytest

from testbed.faults import LinkDown, injected
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


def model_of(job: Job) -> str:
    """The digest of the whole model, which all ranks print."""
    [digest] = {job.output(rank.number).splitlines()[-1] for rank in job.ranks}
    assert digest.startswith("model ")
    return digest


@FOUR
def test_a_sharded_gpt_survives_a_flap_and_resumes_to_the_bit(lab, tmp_path):
    hosts = [lab.host(f"host{number + 1}") for number in range(4)]

    def run(name: str, directory: Path, steps: int, *more: str) -> Job:
        arguments = [str(directory), str(steps), *more]
        program = PROGRAMS / "resumes.py"
        return mpirun(lab, hosts, program, *arguments, launcher=lab.host("launcher"), name=name, ranks_per_host=2)

    whole = run("whole", tmp_path / "one", 6)
    lab.scheduler.wait(lambda: "step 3" in whole.output(0), JOB_S, pause=0.05)
    with injected(lab, LinkDown(end="leaf1:e2")):
        lab.scheduler.sleep(1.5)
    whole.check(JOB_S)
    slowest = max(call.seconds for call in whole.calls(0, "Allgather"))
    assert 1.5 < slowest < 6

    dying = run("dying", tmp_path / "two", 6, "5")
    failure = dying.wait(JOB_S)
    assert failure
    assert str(failure) == "rank 5 on host3: ended by signal 9"
    resumed = run("resumed", tmp_path / "two", 6)
    resumed.check(JOB_S)
    assert "step 4 of 6" not in resumed.output(0)
    assert model_of(resumed) == model_of(whole)


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
