"""Rules for links that are up and do not carry packets as they should: some are lost, are slow, or are too large."""

from __future__ import annotations

from collections import Counter
from statistics import median

from testbed.report.diagnosis.jobs import Case
from testbed.report.diagnosis.observations import at
from testbed.report.diagnosis.rules.ends import downs, link_name, ranks_at
from testbed.report.diagnosis.rules.facts import (
    LOST,
    MOST_FACTS,
    SHARE,
    SLOWER,
    evidence,
    hits,
    losses,
    lost_packets,
    retries,
)
from testbed.report.diagnosis.rules.finding import Finding

WAITS = 1.0
"""Packets that wait on average at the switch port of a slow link, while the job runs,"""
MORE = 1.5
"""which carries at most so many times what the ports of the others carry; one with more is the target of an incast."""

SMALLER = 2.0
"""Packets are small where others have so many times the bytes, on average."""


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


def slow_link(case: Case) -> Finding | None:
    """Packets for a rank wait at its switch port, which carries no more than those of the others: the link is slow, and
    all wait in collectives for it."""
    began = min((one.began for one in case.collectives), default=0)
    whole = max((call.ended or call.began for call in case.calls), default=0) - began
    lasted = sum(one.ended - one.began for one in case.collectives[1:])  # ranks that start wait in the first
    ports = [case.seen.peers[end] for end in case.ports if case.seen.peers.get(end, ("", ""))[0] in case.seen.gateways]
    if len(ports) < 2 or lasted < SHARE * whole:
        return None
    waiting = {port: case.waiting.get(port, 0.0) for port in ports}
    slow = max(ports, key=lambda port: waiting[port])
    others = [port for port in ports if port != slow]
    usual = median(waiting[port] for port in others)
    carried = {port: case.growth.get((*port, "tx_bytes"), 0) for port in ports}
    if waiting[slow] < max(WAITS, SLOWER * usual) or carried[slow] > MORE * median(carried[port] for port in others):
        return None
    ranks, name = ranks_at(case, *slow), link_name(case, *slow)
    since = next((one.began for one in case.collectives[1:]), began)
    facts = [
        (since, f"{slow[0]}:{slow[1]}: {waiting[slow]:.1f} packets wait on average, at the others {usual:.1f}"),
        (
            since,
            f"{slow[0]}:{slow[1]} sends {carried[slow]} bytes, the others {median(carried[p] for p in others):.0f}",
        ),
        (since, f"{lasted / whole:.0%} of the time is spent in {len(case.collectives) - 1} collectives"),
    ]
    text = f"the link {name} is slow and sets everybody's pace; it is that of {case.ranks(ranks)}"
    return Finding("slow-link", since, text, ranks, name, evidence=facts)


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


def small_packets_only(case: Case) -> Finding | None:
    """Collectives of few bytes are done and the first of more is not, while only small packets came to a rank."""
    stuck, done = case.stuck, [one.calls[0].bytes for one in case.collectives if not one.waiting and not one.absent]
    if stuck is None or case.job.status != "RETRY_EXC_ERR" or not done or max(done) >= stuck.calls[0].bytes:
        return None
    sizes = {
        end: case.growth.get((*end, "rx_bytes"), 0) / packets
        for end in case.ports
        if (packets := case.growth.get((*end, "rx_packets"), 0))
    }
    if len(sizes) < 2:
        return None
    small = min(sizes, key=lambda end: sizes[end])
    others = median(size for end, size in sizes.items() if end != small)
    if SMALLER * sizes[small] > others:
        return None
    ranks, name = case.ports[small], link_name(case, *small)
    text = f"{case.ranks(ranks)}: small packets pass its link {name}, large ones do not: an MTU on the way is too small"
    facts = evidence(
        (stuck.began, f"collectives of {max(done)} bytes are done, none of {stuck.calls[0].bytes}"), hits(case),
        (case.job.ended, f"{small[0]}:{small[1]} receives {sizes[small]:.0f} bytes a packet, the others {others:.0f}"),
        retries(case),
    )  # fmt: skip
    return Finding("mtu-mismatch", stuck.began, text, ranks, name, evidence=facts)
