"""The scenario of an incident: a job trains, something goes wrong, and the lab is handed over until the answer."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

from pydantic import Field

from testbed.errors import TestbedError
from testbed.faults.catalogue import KINDS
from testbed.faults.fault import make
from testbed.faults.secret import SecretInjection
from testbed.lab import Lab
from testbed.protocol import GRADE, HANDOVER, IncidentArea, IncidentGrade, events
from testbed.scenario.incident.desk import Desk, desk, open_desk
from testbed.scenario.incident.drawing import Incident, draw
from testbed.scenario.incident.kinds import RANKS, Trouble
from testbed.scenario.model import Parameters, Scenario
from testbed.scenario.run import Run, Variant
from testbed.workload import Job, mpirun
from testbed.workload.jobs.mpi import STARTS

FILES = Path(__file__).parent / "lab"
PROGRAM = FILES / "job.py"
RING = {"coll_tuned_use_dynamic_rules": "1", "coll_tuned_allreduce_algorithm": "4"}
STEP = re.compile(r"^(?P<time>[\d-]{10} [\d:]{8}) step (?P<number>\d+) took (?P<seconds>[\d.]+) s$", re.MULTILINE)
RESTART_S = 10.0
"""Seconds after which the job's controller starts it again."""
BEGUN = 4
"""The steps that the job has done when something can go wrong."""
BEGIN_S, SHOWN_S = 60.0, 300.0
"""The longest wait for the job's first steps, and for the first symptom."""
WATCHED_S = 30.0
"""Seconds from the first symptom to the ticket."""
STANDS_S = 6.0
"""Seconds without a step after which the job stands; it computes for one of them."""
SLOW = 1.5
"""A step is slow that lasts for so many usual ones."""
HEALED_S, HEALS_S = 40.0, 180.0
"""Seconds in which the job has to be well after the answer, and how long that may take to begin."""
BYSTANDERS = "store1", "store2"


class Settings(Parameters):
    number: int = Field(1, ge=0, description="the number of the incident")
    area: IncidentArea | None = Field(None, description="what it is about; null: drawn")


class Incidents(Scenario[Settings]):
    """The scenario of incidents."""

    tags = ("training",)
    topology = "routed.clab.yml"
    training = True
    variants = (Variant("incident", "healthy", "the cause is found, or the job is well again"),)

    @classmethod
    def prepare(cls, lab: Lab) -> tuple[Job, Flow]:
        job, flow = start(lab), Flow(lab)
        if not lab.scheduler.wait(lambda: len(steps(job)) >= BEGUN, BEGIN_S, pause=0.5):
            raise TestbedError(f"the job does not begin: {job.output(0)[-500:]}")
        return job, flow

    def run(self, run: Run, p: Settings) -> None:
        incident = draw(p.number, p.area)
        job, flow = run.prepared
        with run.step("a job trains"):
            wait(run, lambda: len(steps(job)) >= incident.after, BEGIN_S)
            usual = median(one.seconds for one in steps(job)[1:])
        with run.step("something goes wrong"):
            cause(run, incident.trouble)
            before = len(steps(job))
            seen = wait(run, lambda: bool(symptom(job, before, usual)), SHOWN_S)
            if not seen:
                raise TestbedError(f"incident {p.number} shows nothing: its steps go on")
            run.lab.scheduler.sleep(WATCHED_S)
            told = symptom(job, before, usual)
        hints = [*incident.trouble.hints, f"It is: {incident.trouble.causes[0]}."]
        open_desk(Desk(ticket(incident, job, told, usual), hints))
        lost, handed_over = flow.lost(), run.now
        with run.step(HANDOVER):
            pass
        grade(run, incident, job, flow, usual, lost, handed_over)


@dataclass(frozen=True)
class Step:
    """A step that rank 0 has told: when it ended by the cluster's clock, and how long it took."""

    at: datetime
    number: int
    seconds: float

    @property
    def ago_s(self) -> float:
        return (datetime.now() - self.at).total_seconds()


def start(lab: Lab) -> Job:
    hosts = [lab.host(name) for name in RANKS]
    return mpirun(lab, hosts, PROGRAM, launcher=lab.host("launcher"), mca=RING, restart_s=RESTART_S)


def steps(job: Job) -> list[Step]:
    """Return the steps that rank 0 has told; of a job that was started again from the first one on."""
    return [
        Step(datetime.fromisoformat(found["time"]), int(found["number"]), float(found["seconds"]))
        for found in STEP.finditer(job.output(0))
    ]


def wait(run: Run, condition: Callable[[], bool], within: float) -> bool:
    return run.lab.scheduler.wait(condition, within, pause=0.5)


def cause(run: Run, trouble: Trouble) -> None:
    """Do what is wrong then, without a word in the log of events."""
    with run.log.withheld():
        for name, parameters in trouble.faults:
            SecretInjection(run.lab, make(KINDS, name, dict(parameters))).inject()
        for node, *command in trouble.commands:
            run.lab.nodes[node].run(*command, check=False)
        run.lab.scheduler.catch_up()


def symptom(job: Job, before: int, usual: float) -> list[str]:
    """Return what users see of the job after its first steps, as sentences; nothing while it is well."""
    every = steps(job)
    last, found = every[-1], every[before:]
    died = (job.directory / STARTS).read_text().count("\n") - 1
    slow = [one.seconds for one in found if one.seconds > SLOW * usual]
    texts = []
    if died:
        words = next(filter(None, (f"{rank} says {said!r}" for rank in job.ranks if (said := job.seen_by(rank)))), "")
        texts.append(f"It has died {died} time{'s'[: died > 1]}, and was started again{f': {words}' if words else ''}.")
    if last.ago_s > STANDS_S + usual:
        texts.append(f"It stands since {last.at:%H:%M:%S}: step {last.number} was the last one.")
    if slow:
        since = f"{len(slow)} of {len(found)} steps since {found[0].at:%H:%M:%S}"
        texts.append(f"{since} took {min(slow):.1f} s to {max(slow):.1f} s.")
    return texts


def ticket(incident: Incident, job: Job, told: Sequence[str], usual: float) -> str:
    """Return the ticket."""
    where = ", ".join(f"rank {rank.number} on {rank.host}" for rank in job.ranks)
    lines = [
        f"Ticket {incident.number}, {time.strftime('%H:%M:%S')} by the cluster's clock",
        "",
        f"Our training job has trouble. It has four ranks: {where}.",
        *told,
        f"Before that each step took {usual:.1f} s. We changed nothing. Please find out what it is, or get it going.",
        "",
        f"The ticket is closed when the job's steps take what they took for {HEALED_S:g} s, and nothing else suffers:",
        f"{BYSTANDERS[0]} and {BYSTANDERS[1]} serve others.",
    ]
    return "\n".join(lines)


class Flow:
    """Traffic of others: pings between the storage nodes, each second."""

    def __init__(self, lab: Lab) -> None:
        near, far = (lab.host(name) for name in BYSTANDERS)
        self._ping = near.launch("ping", "-n", "-i", "1", "-W", "1", str(far["eth1"].address().ip))

    def lost(self) -> int:
        """Return the number of pings without an answer so far."""
        numbers = [int(found) for found in re.findall(r"icmp_seq=(\d+) ttl", self._ping.output)]
        return sum(later - earlier - 1 for earlier, later in pairwise([0, *numbers]))

    def stop(self) -> None:
        self._ping.stop()


def grade(run: Run, incident: Incident, job: Job, flow: Flow, usual: float, lost: int, handed_over: float) -> None:
    """Judge the answer, and write the grade."""
    found = desk()
    given = found.answer
    answered = run.now if not found.answered_ns else (found.answered_ns - run.log.zero_ns) / 1e9
    changed = [
        event["data"]["command"]
        for event in run.log.find(events.TYPED.name)
        if event["t"] / 1e9 >= handed_over and not event["data"]["command"].startswith("incident ")
    ]
    with run.step("the job is watched"):
        well = watched(run, job, usual)
        suffered = flow.lost() - lost
        flow.stop()
    trouble = incident.trouble
    right_cause = bool(given and given.cause in trouble.causes)
    right_place = bool(given and given.place in trouble.places)
    points = 30 * right_cause + 30 * right_place + 30 * well + 10 * (well and not suffered) - 10 * found.told
    row: IncidentGrade = {
        "number": incident.number,
        "area": incident.area,
        "cause": right_cause,
        "place": right_place,
        "mitigated": well,
        "seconds": round(answered - handed_over, 3),
        "commands": changed,
        "suffered": suffered,
        "hints": found.told,
        "points": max(0, points),
        "solution": {
            "cause": trouble.causes[0],
            "places": list(trouble.places),
            "story": trouble.story,
            "mend": list(trouble.mend),
        },
    }
    run.lab.file(GRADE).write_text(json.dumps(row, indent=1) + "\n")
    run.note(points=row["points"])
    job.close()
    run.observe("healthy" if right_cause or well else "fault", f"the incident has its answer: {row['points']} points")


def watched(run: Run, job: Job, usual: float) -> bool:
    """Return whether the job becomes well, and stays so."""

    def well() -> bool:
        recent = [one for one in steps(job) if one.ago_s <= HEALED_S]
        enough = len(recent) >= HEALED_S / usual * 0.9
        return enough and all(one.seconds <= SLOW * usual for one in recent)

    return wait(run, well, HEALS_S + HEALED_S)
