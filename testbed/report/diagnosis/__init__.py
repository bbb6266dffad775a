"""The diagnosis of jobs from a run's files: the rank that stalled first, on which link, since when, and why.

`observations` reads the observations of a real cluster, and nothing else: no rule can know the injected fault. `jobs`
finds the jobs, `case` where one stalled, `rules` why.
"""

from pathlib import Path

from testbed.records.bundle import Bundle
from testbed.report.diagnosis import collected
from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.observations import Observations
from testbed.report.diagnosis.observed_jobs import jobs
from testbed.report.diagnosis.rules import Diagnosis, conclude


def diagnose(directory: Path) -> list[Diagnosis]:
    """Return the diagnosis of each job of a variant's directory. InputError for files that are missing or damaged."""
    return _of(Observations.read(directory))


def diagnose_bundle(bundle: Bundle) -> list[Diagnosis]:
    """Return the diagnosis of each job of a real cluster."""
    return _of(collected.observations(bundle))


def _of(seen: Observations) -> list[Diagnosis]:
    return [conclude(Case(seen, job)) for job in jobs(seen)]
