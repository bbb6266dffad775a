"""The diagnosis of jobs from what a run left: who stalled first, on which link, since when, and why.

`observations` reads what a real cluster shows, and nothing else: no rule can know the fault that a scenario injected.
`jobs` finds the jobs, `case` where one stalled, `rules` why.
"""

from __future__ import annotations

from pathlib import Path

from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.jobs import jobs
from testbed.report.diagnosis.observations import Observations
from testbed.report.diagnosis.rules import Diagnosis, conclude


def diagnose(directory: Path) -> list[Diagnosis]:
    """The diagnosis of each job of a variant's directory. InputError for files that are missing or damaged."""
    seen = Observations.read(directory)
    return [conclude(Case(seen, job)) for job in jobs(seen)]
