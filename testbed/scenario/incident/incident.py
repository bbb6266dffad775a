"""The scenario of an incident: a job trains, something goes wrong, and the lab is handed over until the answer."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import Field

from testbed.errors import TestbedError
from testbed.lab import Lab
from testbed.protocol import GRADE, HANDOVER, IncidentArea, IncidentLevel, events
from testbed.scenario.incident import grading
from testbed.scenario.incident.desk import Desk, desk, open_desk
from testbed.scenario.incident.drawing import RETURNS, TRIED_BEFORE, Incident, draw
from testbed.scenario.incident.others import Others
from testbed.scenario.incident.scenes import SCENES, start
from testbed.scenario.incident.symptoms import Watch, steps
from testbed.scenario.incident.trouble import Act
from testbed.scenario.model import Parameters, Scenario
from testbed.scenario.run import Run, Variant
from testbed.workload import Job

FILES = Path(__file__).parent / "lab"
PROGRAM = FILES / "job.py"
RESTART_S = 30.0
"""Seconds after which the job's controller starts it again."""
BEGUN = 5
"""The steps that the job has done when something can go wrong."""
BEGIN_S, SHOWN_S = 60.0, 300.0
"""The longest wait for the job's first steps, and for the first symptom."""
WATCHED_S = 12.0
"""Seconds from the first symptom to the ticket."""
HEALS_S = 100.0
"""The longest wait after the answer until the job is well."""
HEALED_S, HEALED_RETURNING_S = 30.0, 70.0
"""Seconds for which it has to be so: longer than what comes back is away."""


class Settings(Parameters):
    number: int = Field(1, ge=0, description="the number of the incident")
    area: IncidentArea | None = Field(None, description="what it is about; null: drawn")
    level: IncidentLevel | None = Field(None, description="how hard it is; null: drawn")

    @property
    def incident(self) -> Incident:
        return draw(self.number, self.area, self.level)


@dataclass(frozen=True)
class Prepared:
    job: Job
    others: Others


class Incidents(Scenario[Settings]):
    """The scenario of incidents."""

    tags = ("training",)
    topology = "cluster.clab.yml"
    training = True
    sealed = True
    variants = (Variant("incident", "healthy", "the cause is found, or the job is well again"),)

    def topology_for(self, parameters: Settings) -> str:
        return SCENES[parameters.incident.scene].topology

    @classmethod
    def prepare(cls, lab: Lab) -> Prepared:
        scene = SCENES[lab.plan.name]
        job, others = start(scene, lab, str(PROGRAM), RESTART_S), Others(lab, scene.flows)
        if not lab.scheduler.wait(lambda: len(steps(job)) >= BEGUN, BEGIN_S, pause=0.5):
            raise TestbedError(f"the job does not begin: {job.output(0)[-500:]}")
        return Prepared(job, others)

    def run(self, run: Run, p: Settings) -> None:
        incident, prepared = p.incident, run.prepared
        job, others = prepared.job, prepared.others
        scheduler = run.lab.scheduler
        tried = incident.traces if incident.level == TRIED_BEFORE else []
        with run.step("a job trains"):  # and no step says when it went wrong
            scheduler.wait(lambda: len(steps(job)) >= incident.after, BEGIN_S, pause=0.5)
            watch = Watch(job, scheduler)
            if not tried:
                done(run, [act for trace in incident.traces for act in trace.acts])
            began_s = run.now
            others.mark()
            done(run, [act for trouble in incident.troubles for act in trouble.acts])
            shown = (lambda: watch.goes_on) if incident.returns else (lambda: bool(watch.told()))
            if not scheduler.wait(shown, SHOWN_S, pause=0.5):
                raise TestbedError(f"incident {p.number} shows nothing: the job's steps go on")
            done(run, [act for trace in tried for act in trace.acts])
            scheduler.sleep(0 if incident.returns else WATCHED_S)
        hints = [*incident.troubles[0].hints, f"It is: {' and '.join(one.causes[0] for one in incident.troubles)}."]
        open_desk(Desk(ticket(incident, job, watch), hints))
        others.begin()
        handed_over = run.now
        with run.step(HANDOVER):
            pass
        judge(run, incident, watch, others, began_s, handed_over)
        job.close()


def done(run: Run, acts: Sequence[Act]) -> None:
    """Do what goes wrong, or went before, without a word in the log of events."""
    with run.log.withheld():
        for act in acts:
            act.do(run.lab)
        run.lab.scheduler.catch_up()


def ticket(incident: Incident, job: Job, watch: Watch) -> str:
    where = ", ".join(f"rank {rank.number} on {rank.host}" for rank in job.ranks)
    lasting = HEALED_RETURNING_S if incident.returns else HEALED_S
    again = ["We are afraid that it comes back."] if incident.level == RETURNS else []
    lines = [
        f"Ticket {incident.number}, {time.strftime(grading.CLOCK)} by the cluster's clock",
        "",
        f"Our training job has trouble. It has four ranks: {where}.",
        *watch.told(),
        *again,
        f"Before that each step took {watch.usual_s:.1f} s.",
        *(trace.text for trace in incident.traces),
        "Please find out what it is, or get it going.",
        "",
        f"The ticket is closed when the job's steps take what they took for {lasting:g} s, and nothing else suffers:",
        SCENES[incident.scene].serves,
    ]
    return "\n".join(lines)


def judge(run: Run, incident: Incident, watch: Watch, others: Others, began_s: float, handed_over: float) -> None:
    """Watch the job after the answer, and write the grade."""
    found = desk()
    given = found.answer
    answered = run.now if given is None else (found.answered_ns - run.log.zero_ns) / 1e9
    commands = [
        event["data"]["command"]
        for event in run.log.find(events.TYPED.name)
        if event["t"] / 1e9 >= handed_over and not event["data"]["command"].startswith("incident ")
    ]
    lasting = HEALED_RETURNING_S if incident.returns else HEALED_S
    with run.step("the job is watched"):
        well = not (given and given.gives_up) and watch.becomes_well(HEALS_S, lasting)
        mitigated = max(0.0, run.now - handed_over - watch.well_since_s()) if well else None
        suffered = others.suffered()
        others.stop()
    now = datetime.now()
    row = grading.grade(
        incident,
        causes=given.causes if given else [],
        places=given.places if given else [],
        since_s=grading.seconds_since(given.since, now, run.now) if given and given.since else None,
        began_s=began_s,
        began=(now - timedelta(seconds=run.now - began_s)).strftime(grading.CLOCK),
        mitigated_s=mitigated,
        answered_s=answered - handed_over,
        commands=commands,
        suffered=suffered,
        hints=found.told,
    )
    run.lab.file(GRADE).write_text(json.dumps(row, indent=1) + "\n")
    solution = row["solution"]
    run.note(points=row["points"], cause=", ".join(solution["causes"]), since=f"{began_s:.1f} s")
    run.note(story="; ".join(solution["stories"]))
    solved = well or row["cause"] == 1
    run.observe("healthy" if solved else "fault", f"the incident has its answer: {row['points']} points")
