import re
from pathlib import Path
from typing import Literal

from testbed import Field, Parameters, Run, Scenario, Variant
from testbed.faults import LinkDown
from testbed.workload import Job, mpirun

PROGRAM = Path(__file__).with_name("train.py")
STEPS, TORN = 12, 8
DOWN_S, FAST_S, SLOW_S = 3.0, 0.5, 20.0
RESTART_S = 60.0
JOB_S = 120.0
HASTY = {"UCX_RC_VERBS_TIMEOUT": "100ms", "UCX_RC_VERBS_RETRY_COUNT": "2"}
PATIENT = {"UCX_RC_VERBS_TIMEOUT": "1s", "UCX_RC_VERBS_RETRY_COUNT": "6"}


class Settings(Parameters):
    layout: Literal["in-place", "latest-first", "latest-last"] = Field(
        "in-place", description="how the ranks save their parts: see train.py"
    )
    patient: bool = Field(False, description="retries of UCX that outlast the outage")


class TornCheckpoint(Scenario[Settings]):
    """A port flaps while a slow rank still saves: the others' retries end, and the job dies with half a checkpoint.

    A sharded job saves in parts, one a rank. Rank 3's part is long on its way to the storage, and the others already
    wait for it in the next all-gather. Its port is down for three seconds. Their packets are not acknowledged, they end
    with RETRY_EXC_ERR, and mpirun kills rank 3 in the middle. Step 8 is in three parts, step 4 in the fourth.

    If each part replaces the one before, the job starts again without a word: it trains to the end on parts of two
    steps, and the model is another one. If rank 0 names a checkpoint as the latest when its own part is there, the job
    cannot start again: rank 3 has no part. If it names it when all have saved, the job goes on from step 4, and its
    model is that of a job without the flap, to the bit.

    On real gear: the switch logs one flap of three seconds, NCCL or UCX a transport retry counter that is exceeded on
    the ranks that did nothing wrong. The training's loss jumps after the restart, or a shard is not found.

    The fixes: a checkpoint counts when all its parts are there, as torch.distributed.checkpoint has it, which writes
    .metadata last; a sum over the step numbers of all parts before the first step; retries that outlast a flap.
    """

    tags = ("training", "link")
    training = True
    variants = (
        Variant("as-is", "fault", "each part replaces the one before"),
        Variant("latest-first", "fault", "the latest is named before all have saved", {"layout": "latest-first"}),
        Variant("latest-last", "healthy", "the latest is named when all have saved", {"layout": "latest-last"}),
        Variant("patient", "healthy", "the retries outlast the flap", {"patient": True}),
    )

    def run(self, run: Run, p: Settings) -> None:
        with run.step("a job trains without trouble, to compare"):
            whole = start(run, p, "whole", FAST_S)
            whole.check(JOB_S)
        with run.step("a job trains, and rank 3 is slow to save"):
            job = start(run, p, "job", SLOW_S)
            saves = f"rank 3 saves step {TORN}"
            begun = run.lab.scheduler.wait(lambda: saves in job.output(3) or not job.running, JOB_S, pause=0.02)
            run.expect("rank 3 saves", begun and job.running, True)
        with run.step("its port flaps, and the others wait for it in the next all-gather"):
            run.inject(LinkDown(end="leaf2:e2"), lasting=DOWN_S)
            failure = job.wait(JOB_S)
        last = job
        if failure:
            run.note(died=str(failure))
            run.expect("a rank that waits dies of its retries", failure.status, "RETRY_EXC_ERR")
            with run.step("the port is up, and the job starts again"):
                run.lab.scheduler.sleep(RESTART_S)
                last = start(run, p, "again", FAST_S, "job")
                failure = last.wait(JOB_S)
            run.note(parts_of_step=[int(step) for step in parts(last)])
        run.expect("the patient job needs no restart", last is job, p.patient)
        if failure:
            run.observe("fault", f"the job does not start again: {failure}")
            run.expect("a part is missing", "part-3.pt" in failure.text, True)
        elif digests(last) == digests(whole):
            run.observe("healthy", "the model is that of a job without trouble, to the bit")
        else:
            run.observe("fault", "the job trains to the end, and its model is another one")
            run.expect("its parts were of two steps", parts(last), ["8", "8", "8", "4"])


def start(run: Run, p: Settings, name: str, slow: float, storage: str = "") -> Job:
    """Start a job with a storage of its own, or another one's."""
    directory = run.lab.file(f"storage-{storage or name}")
    directory.mkdir(exist_ok=True)
    hosts = [run.lab.host(f"n{number}") for number in range(4)]
    words = str(directory), p.layout, str(STEPS), str(slow)
    settings = PATIENT if p.patient else HASTY
    return mpirun(run.lab, hosts, PROGRAM, *words, launcher=run.lab.host("launcher"), name=name, environment=settings)


def parts(job: Job) -> list[str]:
    """The steps of the parts that the ranks have loaded."""
    return [step for rank in range(4) for step in re.findall(r"has the part of step (\d+)", job.output(rank))]


def digests(job: Job) -> list[str]:
    return [line for rank in range(4) for line in job.output(rank).splitlines() if line.startswith("part ")]
