"""Rules that find the cause of a job's trouble: each looks for one cause, the first that fits wins.

A module has the rules for one group of causes; this one has their order.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.records.counter_names import find
from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.rules.facts import (
    HEALTHY,
    MOST_FACTS,
    UNKNOWN,
    Finding,
    evidence,
    hits,
    losses,
    retries,
    stalls,
    stopped,
)
from testbed.report.diagnosis.rules.forwarding import no_route, stale_neighbour, unresolved, wrong_port
from testbed.report.diagnosis.rules.link_failures import (
    downs,
    link_down,
    link_flap,
    link_name,
    nic_down,
    ranks_at,
    switch_down,
)
from testbed.report.diagnosis.rules.lost_packets import late_by_a_loss, lossy_link, mtu_mismatch, small_packets_only
from testbed.report.diagnosis.rules.overload import congested_link, slow_link, target_of_all, uneven_links
from testbed.report.diagnosis.rules.slow_ranks import rank_died, rank_hangs, slow_rank, wrong_gid

Rule = Callable[[Case], Finding | None]


def healthy(case: Case) -> Finding:
    count = len(case.collectives)
    done = f"; {count} collectives" if count else ""
    return Finding(HEALTHY, case.job.began, f"all {len(case.job.hosts)} ranks end well{done}")


def remarks(case: Case) -> Iterator[tuple[int, str]]:
    """Yield the troubles that a job survived."""
    for down in downs(case):
        lasted = f"for {(down.until - down.since) / 1e9:.1f} s" if down.until else "to the end"
        ranks = ranks_at(case, down.node, down.interface)
        whose = f", that of {case.ranks(ranks)}," if ranks else ""
        yield down.since, f"the link {link_name(case, down.node, down.interface)}{whose} was down {lasted}"
    for one in case.pauses:
        yield one.began, f"{one} took {one.lasted / 1e9:.1f} s"
    if target := target_of_all(case):
        whose = case.ranks(ranks_at(case, *target.end))
        yield case.counted_at, f"all send to {whose} over its link {link_name(case, *target.end)}: {target.text}"
    for t, text in retries(case):
        yield t, f"packets were sent again: {text}"


def unknown(case: Case) -> Finding:
    """Return the nearest facts when no rule fits."""
    counted = [
        (case.counted_at, f"{node}: {place}: {name} {count}")
        for (node, place, name), count in sorted(case.growth.items())
        if find(name).meaning == "error"
    ]
    ranks = [case.job.rank] if case.job.rank is not None else []
    facts = [*evidence(stalls(case), hits(case), retries(case), losses(case)), *counted]
    text = f"no known cause; the job {case.ending}" if case.job.ok is None else f"no known cause; {case.ending}"
    return Finding(UNKNOWN, stopped(case), text, ranks, evidence=list(dict.fromkeys(facts))[:MOST_FACTS])


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
