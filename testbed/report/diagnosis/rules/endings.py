"""The findings of jobs that no other rule explains, and the troubles that a healthy one survived."""

from collections.abc import Iterator

from testbed.records.counter_names import find
from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.rules.facts import MOST_FACTS, evidence, hits, losses, retries, stalls, stopped
from testbed.report.diagnosis.rules.finding import HEALTHY, UNKNOWN, Finding
from testbed.report.diagnosis.rules.link_ends import downs, link_name, ranks_at
from testbed.report.diagnosis.rules.overload import target_of_all


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
        yield case.job.ended, f"all send to {whose} over its link {link_name(case, *target.end)}: {target.text}"
    for t, text in retries(case):
        yield t, f"packets were sent again: {text}"


def unknown(case: Case) -> Finding:
    """Return the nearest facts when no rule fits."""
    counted = [
        (case.job.ended, f"{node}: {place}: {name} {count}")
        for (node, place, name), count in sorted(case.growth.items())
        if find(name).meaning == "error"
    ]
    ranks = [case.job.rank] if case.job.rank is not None else []
    facts = [*evidence(stalls(case), hits(case), retries(case), losses(case)), *counted]
    text = f"no known cause; the job {case.ending}" if case.job.ok is None else f"no known cause; {case.ending}"
    return Finding(UNKNOWN, stopped(case), text, ranks, evidence=list(dict.fromkeys(facts))[:MOST_FACTS])
