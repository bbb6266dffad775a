"""Rules for links: an end that is down, packets that are lost, MTUs that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from testbed.report.diagnosis.jobs import Case
from testbed.report.diagnosis.observations import at
from testbed.report.diagnosis.rules.ends import Down, downs, link_name, ranks_at
from testbed.report.diagnosis.rules.facts import (
    BEHIND_NS,
    LOST,
    MOST_FACTS,
    OF_THE_NETWORK,
    evidence,
    hits,
    losses,
    lost_packets,
    retries,
    stalls,
    stopped,
)
from testbed.report.diagnosis.rules.finding import Finding


def nic_down(case: Case) -> Finding | None:
    """A host's own end of a link is down."""
    return _down(case, "nic-down", lambda down: down.node not in case.seen.gateways, "its own NIC {link} is down")


def link_down(case: Case) -> Finding | None:
    """A switch's end of a rank's link, or of one between switches, is down."""
    return _down(case, "link-down", lambda down: down.node in case.seen.gateways, "its link {link} is down")


def _down(case: Case, cause: str, which: Callable[[Down], bool], words: str) -> Finding | None:
    when = stopped(case) + BEHIND_NS if case.stuck else case.job.ended
    found = [down for down in downs(case) if which(down) and down.until is None and _carries(case, down)]
    if not found:
        return None
    down = min(found, key=lambda one: (one.since > when, not _of_a_rank(case, one), one.since))
    ranks = ranks_at(case, down.node, down.interface)
    name = link_name(case, down.node, down.interface)
    whose = words.format(link=name)
    text = f"{case.ranks(ranks)} stalled first: {whose}" if ranks else f"the link {name} is down"
    facts = evidence((down.since, f"{down.node}: {down.why}"), stalls(case), hits(case), retries(case))
    return Finding(cause, down.since, text, ranks, name, evidence=facts)


def _carries(case: Case, down: Down) -> bool:
    """Whether a link may carry what the job sends: a rank's, or one between switches if the job died of the network."""
    if ranks_at(case, down.node, down.interface):
        return True
    peer = case.seen.peers.get((down.node, down.interface), ("", ""))[0]
    of_switches = {down.node, peer} <= case.seen.gateways
    return of_switches and bool(case.job.status or case.job.late or OF_THE_NETWORK.search(case.job.failure))


def _of_a_rank(case: Case, down: Down) -> bool:
    ends = (down.node, down.interface), case.seen.peers.get((down.node, down.interface), ("", ""))
    return any(end in case.ports for end in ends)


def lossy_link(case: Case) -> Finding | None:
    """A link loses packets, or its queue drops them, while no end of it was down."""
    was_down = {link_name(case, down.node, down.interface) for down in downs(case)}
    lost: Counter[str] = Counter()
    facts: dict[str, list[tuple[int, str]]] = {}
    ends = {}
    for (node, interface), count, text in lost_packets(case):
        name = link_name(case, node, interface)
        if name in was_down or count < LOST:
            continue
        lost[name] += count
        ends[name] = node, interface
        facts.setdefault(name, []).append((case.job.ended, text))
    if not lost or not any(True for _ in retries(case)):
        return None
    [(name, count)] = lost.most_common(1)
    ranks = ranks_at(case, *ends[name])
    text = f"the link {name} loses packets: {count}{f'; it is that of {case.ranks(ranks)}' if ranks else ''}"
    since = next((one.began for one in case.pauses), case.job.began)
    return Finding("lossy-link", since, text, ranks, name, evidence=[*facts[name], *retries(case)][:MOST_FACTS])


def mtu_mismatch(case: Case) -> Finding | None:
    """One end of a rank's link got another MTU than the other end has."""
    known: dict[tuple[str, str], tuple[int, int]] = {}
    for event in case.seen.of("link"):
        if isinstance(mtu := event["data"].get("mtu"), int) and at(event) <= case.job.ended:
            known[event["node"], str(event["data"].get("interface"))] = mtu, at(event)
    for end, (mtu, since) in known.items():
        other = known.get(case.seen.peers.get(end, ("", "")))
        if (other and other[0] == mtu) or not (ranks := ranks_at(case, *end)):
            continue
        name = link_name(case, *end)
        text = f"{case.ranks(ranks)}: the ends of its link {name} have not the same MTU: {end[0]}:{end[1]} has {mtu}"
        facts = evidence((since, f"{end[0]}: {end[1]} has MTU {mtu}"), hits(case), retries(case), losses(case))
        return Finding("mtu-mismatch", since, text, ranks, name, evidence=facts)
    return None
