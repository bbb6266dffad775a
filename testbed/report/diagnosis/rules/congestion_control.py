"""Rules for marks that nobody answers: congestion notifications (CNPs) that are not sent, are lost, or are ignored."""

from collections.abc import Iterator

from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.rules.facts import SHARE, Finding, evidence, retries
from testbed.report.diagnosis.rules.link_failures import own_link
from testbed.report.diagnosis.rules.pauses import dropped_in_lossless, measured_s, paused

MARKS = 20
"""Minimum of marked packets, or CNPs, that have to have an answer. A NIC sends one CNP in a while for many marks."""
LOST = 0.5
"""Maximum share of CNPs that arrive where they are lost."""

NOTIFICATIONS = ("np_ecn_marked_roce_packets", "np_cnp_sent", "rp_cnp_handled", "rp_cnp_ignored")
"""Counters of marked packets, of CNPs sent, and of those that came."""


def ecn_unanswered(case: Case) -> Finding | None:
    """Find marks without an answer, where queues pause others for long, or drop in a class that must not."""
    long = any(one.seconds >= SHARE * measured_s(case) for one in paused(case))
    if not long and not dropped_in_lossless(case):
        return None
    return next(unanswered(case), None)


def unanswered(case: Case) -> Iterator[Finding]:
    """Yield marks of the job's packets without an answer, whatever they cost."""
    marked, sent, handled, ignored = (
        {rank: count for rank, nic in _nics(case) if (count := case.growth.get((*nic, name), 0))}
        for name in NOTIFICATIONS
    )
    since = next((one.began for one in case.pauses), case.job.began)
    for rank, count in marked.items():
        if count >= MARKS and rank not in sent:
            text = f"{case.rank(rank)} gets {count} marked packets, and its NIC sends no CNP: its senders go on"
            yield _finding(case, since, text, rank)
    for rank, count in ignored.items():
        if count >= MARKS and count > handled.get(rank, 0):
            text = f"{case.rank(rank)} gets {count} CNPs, and its NIC does not slow down"
            yield _finding(case, since, text, rank)
    all_sent, arrived = sum(sent.values()), sum(handled.values()) + sum(ignored.values())
    if all_sent >= MARKS and arrived < LOST * all_sent and _all_counted(case):
        rank = max(sent, key=lambda one: sent[one])
        text = f"CNPs are lost on the way: the NICs of the job send {all_sent}, and {arrived} arrive"
        yield _finding(case, since, f"{text}; most are from {case.rank(rank)}", rank)


def _all_counted(case: Case) -> bool:
    """Return whether the CNPs that come to each rank are known."""
    known = {rank for nic, ranks in case.nics.items() if (*nic, "rp_cnp_handled") in case.counters for rank in ranks}
    return case.seen.whole or len(known) == len(case.job.hosts)


def _nics(case: Case) -> Iterator[tuple[int, tuple[str, str]]]:
    return ((ranks[0], nic) for nic, ranks in case.nics.items())


def _finding(case: Case, since: int, text: str, rank: int) -> Finding:
    counted = [
        (case.counted_at, f"{node}:{interface}: {name} {case.growth[node, interface, name]}")
        for _, (node, interface) in _nics(case)
        for name in NOTIFICATIONS
        if (node, interface, name) in case.growth
    ]
    pauses = ((one.since, str(one)) for one in paused(case)[:2])
    facts = evidence(iter(counted[:5]), pauses, retries(case))
    return Finding("ecn-unanswered", since, text, [rank], own_link(case, rank), evidence=facts)
