"""What users see of the job of an incident: its steps, and what is wrong with them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median

from testbed.lab.scheduler import Scheduler
from testbed.workload import Job
from testbed.workload.jobs.mpi import STARTS

STEP = re.compile(r"^(?P<time>[\d-]{10} [\d:]{8}) step (?P<number>\d+) took (?P<seconds>[\d.]+) s$", re.MULTILINE)
STANDS_S = 6.0
"""Seconds without a step after which the job stands: several steps."""
SLOW = 1.5
"""A step is slow that lasts for so many usual ones."""
ENOUGH = 0.9
"""The part of the usual number of steps that a job which is well does."""


@dataclass(frozen=True)
class Step:
    """A step that rank 0 has told: when it ended by the cluster's clock, and how long it took."""

    at: datetime
    number: int
    seconds: float

    @property
    def ago_s(self) -> float:
        return (datetime.now() - self.at).total_seconds()


def steps(job: Job) -> list[Step]:
    """Return the steps that rank 0 has told, those of all starts of the job."""
    return [
        Step(datetime.fromisoformat(found["time"]), int(found["number"]), float(found["seconds"]))
        for found in STEP.finditer(job.output(0))
    ]


class Watch:
    """The job from a moment on at which it was well."""

    def __init__(self, job: Job, scheduler: Scheduler) -> None:
        self._job, self._scheduler = job, scheduler
        before = steps(job)
        self.usual_s = median(one.seconds for one in before[1:])
        self._before = len(before)

    @property
    def _since(self) -> list[Step]:
        return steps(self._job)[self._before :]

    @property
    def _died(self) -> int:
        return (self._job.directory / STARTS).read_text().count("\n") - 1

    def _slow(self, found: Sequence[Step]) -> list[Step]:
        return [one for one in found if one.seconds > SLOW * self.usual_s]

    def told(self) -> list[str]:
        """Return what users see since then, as sentences; nothing while the job is well."""
        every = steps(self._job)
        last, found = every[-1], every[self._before :]
        slow = self._slow(found)
        texts = []
        if died := self._died:
            said = ((rank, self._job.seen_by(rank)) for rank in self._job.ranks)
            words = next((f"{rank} says {text!r}" for rank, text in said if text), "")
            times = f"{died} times" if died > 1 else "once"
            texts.append(f"It has died {times}{f': {words}' if words else ''}. Its controller starts it again.")
        if last.ago_s > STANDS_S + self.usual_s:
            texts.append(f"It stands since {last.at:%H:%M:%S}: step {last.number} was the last one.")
        if slow:
            first = slow[0]
            most = max(one.seconds for one in slow)
            texts.append(f"{len(slow)} of {len(found)} steps since {first.at:%H:%M:%S} took up to {most:.1f} s.")
            if found[-1] not in slow and not died:
                texts.append("It went on by itself.")
        return texts

    @property
    def goes_on(self) -> bool:
        """Return whether the job was in trouble, and its last two steps were as before."""
        found = self._since
        return bool(self._slow(found)) and not self._slow(found[-2:]) and found[-1].ago_s < STANDS_S

    def well_for(self, seconds: float) -> bool:
        """Return whether all steps of the last so many seconds were as before."""
        recent = [one for one in steps(self._job) if one.ago_s <= seconds]
        return len(recent) >= ENOUGH * seconds / self.usual_s and not self._slow(recent)

    def becomes_well(self, within: float, lasting: float) -> bool:
        """Return whether the job becomes well for `lasting` seconds, which have to begin `within` so many."""
        return self._scheduler.wait(lambda: self.well_for(lasting), within + lasting, pause=0.5)

    def well_since_s(self) -> float:
        """Return for how many seconds the job, which is well, has been so."""
        every = steps(self._job)
        first = every[-1]
        for earlier, later in pairwise(reversed(every)):
            if (earlier.at - later.at).total_seconds() > SLOW * self.usual_s + 1:  # times have no fractions
                break
            first = later
        return first.ago_s
