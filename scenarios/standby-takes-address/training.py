"""A training with checkpoints that is started, interrupted by a node's death, and started again."""

import json
from array import array
from collections.abc import Sequence
from pathlib import Path

from testbed import Host, Run
from testbed.faults import LinkDown
from testbed.workload import Job, mpirun

PROGRAM = Path(__file__).with_name("train.py")
JOB_S = 3600.0
"""mpirun waits minutes for a daemon that is silent."""
RATE = "--rate=0.1"


def start(
    run: Run, hosts: Sequence[Host], name: str, steps: int, checkpoints: Path | None = None, every: int = 1
) -> Job:
    """A job of one rank a host that trains up to so many steps, from the last of the checkpoints on."""
    arguments = [f"--steps={steps}", RATE]
    arguments += [f"--checkpoints={checkpoints}", f"--every={every}"] if checkpoints else []
    return mpirun(run.lab, hosts, PROGRAM, *arguments, launcher=run.lab.host("launcher"), name=name)


def lose_power(run: Run, job: Job, host: Host, after: int) -> None:
    """Takes the cables of a host away when every rank has done so many steps, expects that a rank ends of unanswered
    retries, and notes when."""
    begun = run.lab.scheduler.wait(lambda: job.steps_done() >= after or not job.running, JOB_S, pause=0.05)
    run.expect("the job trains", begun and job.running, True)
    for interface in host.interfaces.values():
        run.inject(LinkDown(end=str(interface.peer)), may_outlast_run=True)
    died_at = run.now
    run.eventually("a rank ends of unanswered retries", lambda: first_words(job), is_retry, within=60)
    rank_ended = run.now
    failure = job.wait(JOB_S)
    run.expect("mpirun names its end", failure and failure.status, "RETRY_EXC_ERR")
    run.note(rank_ended_after_s=round(rank_ended - died_at, 1), mpirun_ended_after_s=round(run.now - died_at))


def first_words(job: Job) -> str:
    """What the first rank that says anything of its end says."""
    return next(filter(None, map(job.seen_by, job.ranks)), "")


def is_retry(words: str) -> bool:
    return words.startswith("RETRY_EXC_ERR")


def saved_steps(checkpoints: Path) -> int:
    """The number of steps that the last checkpoint has."""
    return max((int(path.stem.removeprefix("step-")) for path in checkpoints.glob("step-*.pt")), default=0)


def first_step(job: Job) -> int:
    return int(json.loads(next(line for line in job.output(0).splitlines() if line.startswith('{"step"')))["step"])


def parameters(job: Job, name: str) -> "array[float]":
    values = array("f")
    values.frombytes((job.directory / f"parameters-{name}.f32").read_bytes())
    return values
