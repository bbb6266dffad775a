"""Rules for links that are up but lose packets, or drop those that are too large."""

from collections import Counter
from statistics import median

from testbed.protocol.events import Link
from testbed.records.counter_names import find
from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.observations import at
from testbed.report.diagnosis.rules.facts import (
    LOST,
    MOST_FACTS,
    SHARE,
    Finding,
    evidence,
    hits,
    losses,
    lost_packets,
    retries,
)
from testbed.report.diagnosis.rules.link_failures import downs, link_name, own_link, ranks_at

SMALLER = 2.0
"""Packets are small where others have so many times the bytes, on average."""


def lossy_link(case: Case) -> Finding | None:
    """Find a link that loses packets, or whose queue drops them, while no end of it was down."""
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
        facts.setdefault(name, []).append((case.counted_at, text))
    if not lost or not any(True for _ in retries(case)):
        return None
    [(name, count)] = lost.most_common(1)
    ranks = ranks_at(case, *ends[name])
    text = f"the link {name} loses packets: {count}{f'; it is that of {case.ranks(ranks)}' if ranks else ''}"
    since = next((one.began for one in case.pauses), case.job.began)
    return Finding("lossy-link", since, text, ranks, name, evidence=[*facts[name], *retries(case)][:MOST_FACTS])


def late_by_a_loss(case: Case) -> Finding | None:
    """Find a collective of a group that took far longer than another of its kind, while a rank missed packets."""
    if not case.job.collectives or downs(case):
        return None
    for one in case.done:
        usual = min(other.lasted for other in case.done if other.calls[0].operation == one.calls[0].operation)
        if one.lasted - usual < SHARE * usual:
            continue
        growth = case.seen.growth(one.began, one.ended)
        gaps = {(node, place): count for (node, place, name), count in growth.items() if find(name).role == "gap"}
        devices = enumerate(zip(case.job.hosts, case.job.devices, strict=False))
        missed = {rank: gaps[device] for rank, device in devices if device in gaps}
        if not missed:
            continue
        rank = max(missed, key=lambda number: missed[number])
        late = f"{one} takes {one.lasted / 1e9:.2f} s, another {usual / 1e9:.2f} s"
        text = f"packets to {case.rank(rank)} are lost on the way, and all ranks wait for them: {late}"
        facts = evidence((one.began, late), retries(case))
        return Finding("lossy-link", one.began, text, [rank], own_link(case, rank), evidence=facts)
    return None


def mtu_mismatch(case: Case) -> Finding | None:
    """Find a rank's link of which one end got another MTU than the other end has."""
    known: dict[tuple[str, str], tuple[int, int]] = {}
    for event, link in case.seen.of(Link):
        if link.mtu is not None and at(event) <= case.job.ended:
            known[event["node"], link.interface] = link.mtu, at(event)
    for end, (mtu, since) in known.items():
        other = known.get(case.seen.peers.get(end, ("", "")))
        if (other and other[0] == mtu) or not (ranks := ranks_at(case, *end)):
            continue
        name = link_name(case, *end)
        text = f"{case.ranks(ranks)}: the ends of its link {name} have different MTUs: {end[0]}:{end[1]} has {mtu}"
        facts = evidence((since, f"{end[0]}: {end[1]} has MTU {mtu}"), hits(case), retries(case), losses(case))
        return Finding("mtu-mismatch", since, text, ranks, name, evidence=facts)
    return None


def small_packets_only(case: Case) -> Finding | None:
    """Find collectives of few bytes that are done and a larger one that is not, with only small packets at a rank."""
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
        (stuck.began, f"collectives of {max(done)} bytes are done, none of {stuck.calls[0].bytes}"),
        hits(case),
        (case.counted_at, f"{small[0]}:{small[1]} receives {sizes[small]:.0f} bytes a packet, the others {others:.0f}"),
        retries(case),
    )
    return Finding("mtu-mismatch", stuck.began, text, ranks, name, evidence=facts)
