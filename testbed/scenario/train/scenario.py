"""A training script of the user's, as `testbed train` runs it."""

import json
import re
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from testbed.documents.json import value_of
from testbed.errors import DeadlineError, TestbedError
from testbed.faults import Fault
from testbed.faults.catalogue import KINDS
from testbed.faults.fault import make
from testbed.lab import Host, HostInterface, Lab
from testbed.protocol import GIVEN_PROGRAM, RANKS, JobRow, RankRow
from testbed.protocol.events import FAULT_INJECTED, JOB_STEP
from testbed.scenario.model import Parameters, Scenario
from testbed.scenario.run import Run, Variant
from testbed.workload import Failure, Job, Traffic, mpirun
from testbed.workload.jobs.elastic_job import ElasticJob
from testbed.workload.jobs.job_paths import emit_paths

FILES = Path(__file__).parent / GIVEN_PROGRAM
CARRIED = "carried"
"""The directory of what earlier attempts of a job wrote."""
OURS = re.compile(r"rank-\d+\.(log|env)|steps-\d+\.jsonl|flight.*|agent|ranks\.hosts|.*\.env|.*\.log")
"""Files of a job that its program did not write."""
LATE = re.compile(r"^still running after [\d.e+-]+ s")
"""A job's words when its last seconds are over."""
OFTEN_S, SELDOM_S = 0.02, 5.0
"""Seconds between two checks of the steps that are done: before a fault, which comes in the next one, and later."""
NONE_DONE = "the job ended before its first step; without a torch optimizer steps are unknown: give a time, after 2s"


class Planned(BaseModel):
    """A fault, and when it comes: when every rank has done so many steps, or so many seconds after the job's start."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    parameters: dict[str, str]
    after_step: int | None = None
    after_s: float = 0.0
    lasting_s: float | None = None

    def made(self) -> Fault:
        return make(KINDS, self.name, {key: value_of(value) for key, value in self.parameters.items()})


class Settings(Parameters):
    script: str = Field("train.py", description="the script; its directory was copied along")
    arguments: list[str] = Field([], description="of the script")
    hosts: list[str] = Field([], description="the host of each rank")
    nics: list[str] = Field([], description="the interface of the data network of each rank")
    launcher: str = Field("launcher", description="the host that launches the job")
    management: str = Field("mgmt0", description="the interface of the management network")
    environment: dict[str, str] = Field({}, description="environment variables of the ranks, such as settings of UCX")
    of_ranks: dict[int, dict[str, str]] = Field({}, description="environment variables of single ranks")
    faults: list[Planned] = Field([], description="faults, and when they are injected")
    torchrun: bool = Field(False, description="start the job by torchrun, with gloo over TCP")
    at_least: int = Field(0, ge=0, description="the fewest hosts of a round of torchrun; 0 for all")
    restarts: int = Field(0, ge=0, description="how often a job that fails is started again")
    limit: float = Field(3600.0, gt=0, description="seconds after which a job counts as hung")

    @field_validator("faults")
    @classmethod
    def _faults_are_known(cls, faults: list[Planned]) -> list[Planned]:
        for fault in faults:
            fault.made()
        return faults


class Train(Scenario[Settings]):
    """A training job of your own script.

    mpirun starts the script, unchanged, as the ranks of a job with Open MPI and UCX over RoCE; torchrun with gloo over
    TCP. Faults come when every rank has done so many steps, or after a time. A step is a step() of an optimizer of
    torch.
    """

    tags = ("training",)
    topology = ""  # always given
    training = True
    variants = (Variant("job", "healthy", "the job completes on all ranks"),)

    def run(self, run: Run, p: Settings) -> None:
        missed: list[str] = []
        earlier: list[str] = []
        began, until = run.now, run.now + p.limit
        starts = Torchrun(run, p) if p.torchrun else Mpirun(run, p)
        job = starts.first(until)
        while True:
            progress = Progress(run, job)
            with run.step("the job runs"):
                if not earlier:
                    missed = break_network(run, job, progress, p.faults, until)
                progress.wait(lambda: False, until, SELDOM_S)
                failure, hung = wait(job, until - run.now, p.limit)
            ended = run.now
            following = starts.following(job, until) if failure or hung else None
            if following is None:
                break
            earlier.append(hung or str(failure))
            job = following
        came = run.log.find(FAULT_INJECTED.name)
        row: JobRow = {
            "failure": hung or (str(failure) if failure else ""),
            "earlier": earlier,
            "job_s": ended - began,
            "fault_s": came[0]["t"] / 1e9 - began if came else None,
            "missed": missed,
            "flows": starts.flows(job),
            "ranks": list(rows(run, job, failure, hung)),
        }
        run.lab.file(RANKS).write_text(json.dumps(row, indent=1) + "\n")
        report(run, row, missed)
        starts.check(row)


class Mpirun:
    """Starts a job by mpirun, and again with what it wrote."""

    def __init__(self, run: Run, p: Settings) -> None:
        self._run, self._p = run, p
        self._carried = run.lab.file(CARRIED)
        self._carried.mkdir()
        self._jobs = 0
        self._sent: dict[str, tuple[int, Traffic]] = {}
        """By NIC, with the boots of its host, which loses the counters at each."""

    def first(self, until: float) -> Job:
        with self._run.step(f"{self._p.script} is started as {len(self._p.hosts)} ranks"):
            return self._start()

    def following(self, failed: Job, until: float) -> Job | None:
        run, p = self._run, self._p
        off = [host for host in dict.fromkeys(map(run.lab.host, p.hosts)) if host.off]
        if self._jobs > p.restarts or not booted(run, off, until):
            return None
        carry(failed.directory, self._carried)
        with run.step(f"{p.script} is started again as {len(p.hosts)} ranks"):
            return self._start()

    def _start(self) -> Job:
        lab, p = self._run.lab, self._p
        self._jobs += 1
        for nic in places(lab, p):
            if self._sent.get(str(nic), (None,))[0] != nic.node.boots:
                self._sent[str(nic)] = nic.node.boots, Traffic(nic)
        return mpirun(
            lab,
            places(lab, p),
            FILES / p.script,
            *p.arguments,
            launcher=lab.host(p.launcher),
            name=f"job-{self._jobs}" if self._jobs > 1 else "job",
            management_interface=p.management,
            environment=p.environment,
            of_ranks=p.of_ranks,
            beside=[self._carried, FILES],
        )

    def flows(self, job: Job) -> dict[str, int]:
        return dict(sorted(emit_paths(job).items()))

    def check(self, row: JobRow) -> None:
        """Expect RoCE traffic of a job that ended well."""
        if not any(self._carried.iterdir()):
            self._carried.rmdir()
        if len(set(self._p.hosts)) < 2 or row["failure"]:
            return
        bytes_sent = sum(traffic.bytes()["roce_out"] for _, traffic in self._sent.values())
        self._run.note(roce_MB=round(bytes_sent / 1e6, 3))
        what = (
            f"the ranks of {self._p.script} exchange data over RoCE: a training job calls "
            'torch.distributed.init_process_group("mpi"), or imports mpi4py.MPI'
        )
        self._run.expect(what, bytes_sent, lambda count: count > 0)


class Torchrun:
    """Starts a job by torchrun, whose agents begin the rounds after the first."""

    def __init__(self, run: Run, p: Settings) -> None:
        self._run, self._p = run, p
        self._job: ElasticJob | None = None

    def first(self, until: float) -> Job:
        run, p = self._run, self._p
        of_host = {str(nic.node): nic for nic in places(run.lab, p)}
        with run.step(f"{p.script} is started as {len(p.hosts)} ranks by torchrun"):
            self._job = ElasticJob(
                run.lab,
                list(of_host.values()),
                FILES / p.script,
                *p.arguments,
                at_least=p.at_least,
                restarts=p.restarts,
                ranks_per_host=len(p.hosts) // len(of_host),
                management_interface=p.management,
                environment=p.environment,
                beside=[FILES],
            )
            job = self._job.next_round(until - run.now)
        if job is None:
            raise TestbedError("torchrun started no ranks", hint=self._job.output().strip()[-500:])
        return job

    def following(self, failed: Job, until: float) -> Job | None:
        assert self._job is not None
        with self._run.step("torchrun's agents meet again"):
            return self._job.next_round(max(until - self._run.now, 0.0))

    def flows(self, job: Job) -> dict[str, int]:
        return {}

    def check(self, row: JobRow) -> None:
        """Expect nothing: gloo sends over TCP."""


def places(lab: Lab, p: Settings) -> list[HostInterface]:
    """Return the NIC of each rank."""
    return [lab.host(host)[nic] for host, nic in zip(p.hosts, p.nics, strict=True)]


def booted(run: Run, hosts: Sequence[Host], until: float) -> bool:
    """Wait until hosts have booted; return whether they have."""
    if not hosts:
        return True
    with run.step(f"the job waits for {', '.join(map(str, hosts))} to boot"):
        return run.lab.scheduler.wait(lambda: not any(host.off for host in hosts), max(until - run.now, 0.0))


def carry(directory: Path, carried: Path) -> None:
    """Move what the program wrote into a job's directory to where the next job finds it."""
    for path in directory.iterdir():
        if OURS.fullmatch(path.name) or path.is_symlink():
            continue
        place = carried / path.name
        if place.is_dir():
            shutil.rmtree(place)
        path.replace(place)


class Progress:
    """A source of an event for each step that every rank has done."""

    def __init__(self, run: Run, job: Job) -> None:
        self._run = run
        self._job = job
        self._done = 0

    def look(self) -> None:
        of_ranks = [self._job.steps(rank.number) for rank in self._job.ranks]
        for steps in list(zip(*of_ranks, strict=False))[self._done :]:
            self._done += 1
            times = [step.seconds for step in steps]
            text = f"step {self._done} is done on all ranks: {min(times):.3f} to {max(times):.3f} s"
            self._run.lab.emit(JOB_STEP(name=self._job.name, number=self._done, seconds=times), "", text)

    def wait(self, condition: Callable[[], bool], until: float, pause: float) -> None:
        """Wait for a condition or the job's end. A step that a rank writes down wakes it, but for one that is written
        in the moment of another: that is found after `pause` seconds at most."""
        within = max(until - self._run.now, 0.0)

        def over() -> bool:
            self.look()
            return condition() or not self._job.running

        self._run.lab.scheduler.wait(over, within, pause=pause)


def break_network(run: Run, job: Job, progress: Progress, faults: Sequence[Planned], until: float) -> list[str]:
    """Inject the faults when their time comes. Return those whose step never came, and why."""
    missed: list[str] = []
    for planned in faults:
        if planned.after_step is None:
            run.inject(planned.made(), after=planned.after_s, lasting=planned.lasting_s, may_outlast_run=True)
    by_step = [planned for planned in faults if planned.after_step is not None]
    for planned in sorted(by_step, key=lambda one: one.after_step or 0):
        number = planned.after_step or 0
        progress.wait(partial(reached, job, number), until, OFTEN_S)
        done = job.steps_done()
        if done >= number and job.running:
            run.inject(planned.made(), lasting=planned.lasting_s, may_outlast_run=True)
        else:
            why = f"every rank had done {done} of {number} steps when the job ended" if done else NONE_DONE
            missed.append(f"fault {planned.made()} was never injected: {why}")
    return missed


def reached(job: Job, step: int) -> bool:
    return job.steps_done() >= step


def wait(job: Job, within: float, limit: float) -> tuple[Failure | None, str]:
    """Wait for the end of the job. Return its failure, and the reason if it hung."""
    try:
        return job.wait(max(within, 0.0)), ""
    except DeadlineError as error:
        return None, LATE.sub(f"still running after {limit:g} s", error.message.partition(": ")[2])


def rows(run: Run, job: Job, failure: Failure | None, hung: str) -> Iterator[RankRow]:
    """Yield the facts of each rank."""
    zero = time.monotonic_ns() - run.log.now
    for rank in job.ranks:
        steps = job.steps(rank.number)
        first, later = steps[:1], steps[1:]
        slowest = max(later, key=lambda step: step.seconds, default=None)
        if failure is None and not hung:
            saw = "completed"
        elif failure and failure.rank == rank:
            saw = ": ".join(filter(None, (failure.status, failure.text)))
        else:
            saw = job.seen_by(rank) or ("was still running" if hung else "ended with the job")
        yield {
            "rank": rank.number,
            "host": rank.host.name,
            "device": rank.device,
            "steps": len(steps),
            "first_s": first[0].seconds if first else None,
            "median_s": statistics.median(step.seconds for step in later) if later else None,
            "slowest_s": slowest.seconds if slowest else None,
            "slowest_step": slowest.number if slowest else None,
            "slowest_at_s": (slowest.began_ns - zero) / 1e9 if slowest else None,
            "saw": saw,
        }


def report(run: Run, row: JobRow, missed: list[str]) -> None:
    """Observe the end of the job."""
    done = [rank["steps"] for rank in row["ranks"]]
    run.note(steps=min(done), job_s=round(row["job_s"], 3))
    if row["failure"]:
        run.observe("fault", f"the job fails: {row['failure']}")
    else:
        run.observe("healthy", f"all {len(done)} ranks complete")
    run.failures += missed
