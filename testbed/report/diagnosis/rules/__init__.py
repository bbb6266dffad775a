"""Rules that find the causes of a job's trouble: each looks for one cause, the first that fits is the first finding.

A module has the rules for one group of causes; this one has their order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.records.counter_names import find
from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.rules.congestion_control import ecn_unanswered, unanswered
from testbed.report.diagnosis.rules.facts import (
    HEALTHY,
    MOST_FACTS,
    UNKNOWN,
    Finding,
    evidence,
    hits,
    lagging,
    losses,
    refused,
    reported,
    retries,
    stalls,
    stopped,
    symptoms,
)
from testbed.report.diagnosis.rules.forwarding import (
    asic_differs,
    duplicate_ip,
    no_path,
    no_route,
    stale_neighbour,
    unresolved,
    wrong_port,
)
from testbed.report.diagnosis.rules.link_failures import (
    downs,
    goes_on,
    host_down,
    link_down,
    link_flap,
    link_name,
    nic_down,
    ranks_at,
    silent_link,
    switch_down,
)
from testbed.report.diagnosis.rules.lost_packets import (
    corruption,
    large_packets_end,
    late_by_a_loss,
    lossy_link,
    lost_beside,
    mtu_mismatch,
    silent_drop,
    small_packets_only,
)
from testbed.report.diagnosis.rules.overload import congested_link, slow_link, target_of_all, uneven_links
from testbed.report.diagnosis.rules.pauses import lossless_drop, pauses, watchdog
from testbed.report.diagnosis.rules.probed import long_link, lost_probes
from testbed.report.diagnosis.rules.routes import route_missing
from testbed.report.diagnosis.rules.slow_ranks import metadata_network, rank_died, slow_rank, unrouted_gid, wrong_gid
from testbed.report.diagnosis.rules.waits import collective_mismatch, deadlock, rank_hangs

Rule = Callable[[Case], Finding | None]


def healthy(case: Case) -> Finding:
    count = len(case.collectives)
    done = f"; {count} collectives" if count else ""
    return Finding(HEALTHY, case.job.began, f"all {len(case.job.hosts)} ranks end well{done}")


def remarks(case: Case) -> Iterator[tuple[int, str]]:
    """Yield the troubles that a job survived."""
    yield from ((t, text) for _, t, text in were_down(case))
    for one in case.pauses:
        yield one.began, f"{one} took {one.lasted / 1e9:.1f} s"
    yield from case.routes[:MOST_FACTS]
    if target := target_of_all(case):
        whose = case.ranks(ranks_at(case, *target.end))
        yield case.counted_at, f"all send to {whose} over its link {link_name(case, *target.end)}: {target.text}"
    yield from ((found.since, found.text) for found in unanswered(case))
    for t, text in retries(case):
        yield t, f"packets were sent again: {text}"


def were_down(case: Case) -> Iterator[tuple[list[int], int, str]]:
    """Yield the links that were down, with their ranks."""
    every = downs(case)
    for down in every:
        lasted = f"for {(down.until - down.since) / 1e9:.1f} s" if down.until else "to the end"
        ranks = ranks_at(case, down.node, down.interface)
        whose = f", that of {case.ranks(ranks)}," if ranks else ""
        bond = goes_on(case, down, every)
        more = f"; {bond} goes on by its other links" if bond else ""
        yield ranks, down.since, f"the link {link_name(case, down.node, down.interface)}{whose} was down {lasted}{more}"


def unknown(case: Case) -> Finding:
    """Return the nearest facts when no rule fits."""
    counted = [
        (case.counted_at, f"{node}: {place}: {name} {count}")
        for (node, place, name), count in sorted(case.growth.items())
        if find(name).meaning == "error"
    ]
    ranks = [case.job.rank] if case.job.rank is not None else []
    links = ((t, text) for ranks_there, t, text in were_down(case) if ranks_there)
    said = (links, refused(case), reported(case), lagging(case), stalls(case), hits(case), retries(case), losses(case))
    facts = [*evidence(*said), *counted]
    text = f"no known cause; the job {case.ending}" if case.job.ok is None else f"no known cause; {case.ending}"
    return Finding(UNKNOWN, stopped(case), text, ranks, evidence=list(dict.fromkeys(facts))[:MOST_FACTS])


OF_AN_END_WITHOUT_SUCCESS: Sequence[Rule] = (
    rank_died, wrong_gid, unrouted_gid, switch_down, host_down, nic_down, link_down, link_flap, silent_link,
    duplicate_ip, stale_neighbour, wrong_port, route_missing, mtu_mismatch, watchdog, ecn_unanswered, pauses,
    collective_mismatch, asic_differs, no_path, unresolved, no_route, large_packets_end, small_packets_only,
    lossless_drop, congested_link, lossy_link, corruption, metadata_network, deadlock, rank_hangs, lost_probes,
    silent_drop,
)  # fmt: skip
"""Rules for a job that did not end well."""
OF_SUCCESS: Sequence[Rule] = (
    collective_mismatch, slow_rank, watchdog, ecn_unanswered, pauses, lossless_drop, congested_link, silent_link,
    lossy_link, corruption, late_by_a_loss, slow_link, uneven_links, long_link, lost_probes, silent_drop, lost_beside,
)  # fmt: skip
"""Rules for a job that ended well."""
BESIDE: Sequence[Rule] = (
    switch_down, host_down, nic_down, link_down, duplicate_ip, stale_neighbour, wrong_port, mtu_mismatch, watchdog,
    pauses, collective_mismatch, lossless_drop, lossy_link, corruption, lost_beside,
)  # fmt: skip
"""Rules whose findings stand beside another one: what they rest on is no consequence of it."""
FOLLOWS: Mapping[Rule, frozenset[str]] = {
    link_down: frozenset({"switch-down"}),
    host_down: frozenset({"switch-down"}),
    corruption: frozenset({"no-route"}),
    lost_beside: frozenset(
        {"lossless-drop", "congested-link", "lossy-link", "corruption", "paused", "pause-storm", "pfc-deadlock",
         "mtu-mismatch", "switch-down", "slow-link", "uneven-links"}
    ),
}  # fmt: skip
"""Causes of which the finding of a rule is a consequence."""


@dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of a job: `findings`, of which the first explains the most, `healthy` for a job that ended well at
    its pace. `unexplained` are its troubles that no finding explains, `remarks` those that it survived."""

    case: Case
    findings: Sequence[Finding]
    unexplained: Sequence[tuple[int, str]] = field(default_factory=list)
    remarks: Sequence[tuple[int, str]] = field(default_factory=list)

    @property
    def finding(self) -> Finding:
        return self.findings[0]

    @property
    def healthy(self) -> bool:
        return self.finding.cause == HEALTHY

    def json(self) -> dict[str, Any]:
        job, stuck = self.case.job, self.case.stuck
        return {
            "job": job.name,
            "healthy": self.healthy,
            **self._json(self.finding),
            "began": job.began,
            "ended": job.ended,
            "end": self.case.ending,
            "stopped": stuck.json() if stuck and not self.healthy else None,
            "also": [self._json(one) for one in self.findings[1:]],
            "unexplained": _json(self.unexplained),
            "remarks": _json(self.remarks),
            "epoch": self.case.seen.epoch,
            "not_known": list(self.case.seen.remarks),
        }

    def _json(self, found: Finding) -> dict[str, Any]:
        return {
            "cause": found.cause,
            "since": found.since,
            "text": found.text,
            "ranks": [{"rank": number, "host": self.case.job.hosts[number]} for number in found.ranks],
            "link": found.link,
            "flows": [list(pair) for pair in self.case.over(found.link)],
            "address": found.address,
            "evidence": _json(found.evidence),
        }


def _json(facts: Sequence[tuple[int, str]]) -> list[dict[str, Any]]:
    return [{"t": t, "text": text} for t, text in facts]


def conclude(case: Case) -> Diagnosis:
    """Return the findings of the rules that fit, the first one first; each job has one."""
    if case.job.ok:
        found = _independent(case, OF_SUCCESS) or [healthy(case)]
    else:
        found = _independent(case, (*OF_AN_END_WITHOUT_SUCCESS, *OF_SUCCESS)) or [unknown(case)]
    if found[0].cause == HEALTHY:
        return Diagnosis(case, found, remarks=sorted(remarks(case)))
    left = [] if found[0].cause == UNKNOWN else [(one.since, one.text) for one in symptoms(case) if not one.by(found)]
    return Diagnosis(case, found, left)


def _independent(case: Case, rules: Sequence[Rule]) -> list[Finding]:
    """Return the first finding, and those beside it that are about another link, address and rank."""
    kept: list[Finding] = []
    for rule in rules:
        if kept and rule not in BESIDE:
            continue
        one = rule(case)
        causes = FOLLOWS.get(rule, frozenset())
        if one and not any(_same(one, other) or other.cause in causes for other in kept):
            kept.append(one)
    return kept


def _same(one: Finding, other: Finding) -> bool:
    return (
        one.cause == other.cause
        or (one.link != "" and one.link == other.link)
        or (one.address != "" and one.address == other.address)
        or not {*one.ranks}.isdisjoint(other.ranks)
    )
