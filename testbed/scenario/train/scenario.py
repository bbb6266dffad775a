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
from testbed.errors import DeadlineError
from testbed.faults import Fault
from testbed.faults.catalogue import KINDS
from testbed.faults.fault import make
from testbed.lab import Host
from testbed.protocol import GIVEN_PROGRAM, RANKS, JobRow, RankRow
from testbed.protocol.events import FAULT_INJECTED, JOB_STEP
from testbed.scenario.model import Parameters, Scenario
from testbed.scenario.run import Run, Variant
from testbed.workload import Failure, Job, Traffic, mpirun
from testbed.workload.jobs.job_paths import emit_paths

FILES = Path(__file__).parent / GIVEN_PROGRAM
CARRIED = "carried"
"""The directory of what earlier attempts of a job wrote."""
OURS = re.compile(r"rank-\d+\.(log|env)|steps-\d+\.jsonl|flight.*|agent|ranks\.hosts|.*\.env|.*\.log")
"""Files of a job that its program did not write."""
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
    data: str = Field("eth1", description="the hosts' interface of the data network")
    launcher: str = Field("launcher", description="the host that launches the job")
    management: str = Field("mgmt0", description="the interface of the management network")
    environment: dict[str, str] = Field({}, description="environment variables of the ranks, such as settings of UCX")
    of_ranks: dict[int, dict[str, str]] = Field({}, description="environment variables of single ranks")
    faults: list[Planned] = Field([], description="faults, and when they are injected")
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

    mpirun starts the script, unchanged, as the ranks of a job with Open MPI and UCX over RoCE. Faults come when every
    rank has done so many steps, or after a time. A step is a step() of an optimizer of torch.
    """

    tags = ("training",)
    topology = ""  # always given
    training = True
    variants = (Variant("job", "healthy", "the job completes on all ranks"),)

    def run(self, run: Run, p: Settings) -> None:
        hosts = [run.lab.host(name) for name in p.hosts]
        sent = {host: Traffic(host[p.data]) for host in dict.fromkeys(hosts)}
        missed: list[str] = []
        earlier: list[str] = []
        began, carried = run.now, run.lab.file(CARRIED)
        carried.mkdir()
        while True:
            again = " again" if earlier else ""
            with run.step(f"{p.script} is started{again} as {len(hosts)} ranks"):
                until = run.now + p.limit
                job = self.start(run, hosts, p, f"job-{len(earlier) + 1}" if earlier else "job", carried)
            progress = Progress(run, job)
            with run.step("the job runs"):
                if not earlier:
                    missed = break_network(run, job, progress, p.faults, until)
                progress.wait(lambda: False, until, SELDOM_S)
                failure, hung = wait(job, until - run.now)
            ended = run.now
            if not (failure or hung) or len(earlier) == p.restarts:
                break
            off = [host for host in sent if host.off]
            if not booted(run, off, until):
                break
            sent |= {host: Traffic(host[p.data]) for host in off}
            earlier.append(hung or str(failure))
            carry(job.directory, carried)
        if not any(carried.iterdir()):
            carried.rmdir()
        flows = emit_paths(job)
        came = run.log.find(FAULT_INJECTED.name)
        row: JobRow = {
            "failure": hung or (str(failure) if failure else ""),
            "earlier": earlier,
            "job_s": ended - began,
            "fault_s": came[0]["t"] / 1e9 - began if came else None,
            "missed": missed,
            "flows": dict(sorted(flows.items())),
            "ranks": list(rows(run, job, failure, hung)),
        }
        run.lab.file(RANKS).write_text(json.dumps(row, indent=1) + "\n")
        report(run, row, missed)
        if len(sent) > 1 and not row["failure"]:
            bytes_sent = sum(traffic.bytes()["roce_out"] for traffic in sent.values())
            run.note(roce_MB=round(bytes_sent / 1e6, 3))
            what = (
                f"the ranks of {p.script} exchange data over RoCE: a training job calls "
                'torch.distributed.init_process_group("mpi"), or imports mpi4py.MPI'
            )
            run.expect(what, bytes_sent, lambda count: count > 0)

    def start(self, run: Run, hosts: Sequence[Host], p: Settings, name: str, carried: Path) -> Job:
        return mpirun(
            run.lab,
            hosts,
            FILES / p.script,
            *p.arguments,
            launcher=run.lab.host(p.launcher),
            name=name,
            data=p.data,
            management_interface=p.management,
            environment=p.environment,
            of_ranks=p.of_ranks,
            beside=[carried, FILES],
        )


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
        while self._done < self._job.steps_done():
            self._done += 1
            times = [self._job.steps(rank.number)[self._done - 1].seconds for rank in self._job.ranks]
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


def wait(job: Job, within: float) -> tuple[Failure | None, str]:
    """Wait for the end of the job. Return its failure, and the reason if it hung."""
    try:
        return job.wait(max(within, 0.0)), ""
    except DeadlineError as error:
        return None, error.message.partition(": ")[2]


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
