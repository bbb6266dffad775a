"""Rules that find the cause of a job's trouble: each looks for one cause, the first that fits wins.

A module has the rules for one group of causes; this one has their order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.rules.endings import healthy, remarks, unknown
from testbed.report.diagnosis.rules.finding import HEALTHY, Finding
from testbed.report.diagnosis.rules.forwarding import no_route, stale_neighbour, unresolved, wrong_port
from testbed.report.diagnosis.rules.link_failures import link_down, link_flap, nic_down, switch_down
from testbed.report.diagnosis.rules.lost_packets import late_by_a_loss, lossy_link, mtu_mismatch, small_packets_only
from testbed.report.diagnosis.rules.overload import congested_link, slow_link, uneven_links
from testbed.report.diagnosis.rules.slow_ranks import rank_died, rank_hangs, slow_rank, wrong_gid

Rule = Callable[[Case], Finding | None]
OF_AN_END_WITHOUT_SUCCESS: Sequence[Rule] = (
    rank_died, wrong_gid, nic_down, switch_down, link_down, link_flap, stale_neighbour, wrong_port, mtu_mismatch,
    small_packets_only, unresolved, no_route, congested_link, lossy_link, rank_hangs, unknown,
)  # fmt: skip
"""Rules for a job that did not end well."""
OF_SUCCESS: Sequence[Rule] = (slow_rank, congested_link, lossy_link, late_by_a_loss, slow_link, uneven_links, healthy)
"""Rules for a job that ended well. The last rule always fits."""


@dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of a job; `cause` is `healthy` for one that ended well at its pace. `remarks` are troubles that it
    survived."""

    case: Case
    finding: Finding
    remarks: Sequence[tuple[int, str]] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        return self.finding.cause == HEALTHY

    def json(self) -> dict[str, Any]:
        found, job, stuck = self.finding, self.case.job, self.case.stuck
        return {
            "job": job.name,
            "healthy": self.healthy,
            "cause": found.cause,
            "since": found.since,
            "text": found.text,
            "ranks": [{"rank": number, "host": job.hosts[number]} for number in found.ranks],
            "link": found.link,
            "address": found.address,
            "began": job.began,
            "ended": job.ended,
            "end": self.case.ending,
            "stopped": stuck.json() if stuck and not self.healthy else None,
            "evidence": [{"t": t, "text": text} for t, text in found.evidence],
            "remarks": [{"t": t, "text": text} for t, text in self.remarks],
        }


def conclude(case: Case) -> Diagnosis:
    """Return the finding of the first rule that fits; each job has one."""
    rules = OF_AN_END_WITHOUT_SUCCESS if not case.job.ok else OF_SUCCESS
    finding = next(found for rule in rules if (found := rule(case)))
    return Diagnosis(case, finding, sorted(remarks(case)) if finding.cause == HEALTHY else [])
