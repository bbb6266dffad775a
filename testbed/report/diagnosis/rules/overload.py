"""Rules for links that have more to carry than they can, or are slow to carry it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.rules.facts import LOST, SHARE, SLOWER, Finding, evidence, lost_packets, retries
from testbed.report.diagnosis.rules.link_failures import link_name, ranks_at

End = tuple[str, str]
"""An end of a link: node and interface."""
FULL = 0.6
"""Minimum share of the time in collectives for which a full link sends."""
MORE = 1.5
"""A link carries more than others if it carries so many times as much."""
ALIKE = 0.9
"""Links are alike if one sends for at least this share of the other's sending time."""
WAITS = 1.0
"""Packets that wait on average at the end of a slow link, while the job runs."""


def congested_link(case: Case) -> Finding | None:
    """Find a link over which several ranks send at once: one between switches is full while no NIC is, or the port to a
    rank drops packets that all others send there."""
    return _between_switches(case) or _to_one_rank(case)


def _between_switches(case: Case) -> Finding | None:
    busy, peers, switches = case.busy, case.seen.peers, case.seen.gateways
    nics = [end for own in case.ports for end in (own, peers.get(own, own)) if end in busy]
    shared = [end for end in busy if {end[0], peers[end][0]} <= switches]
    if not nics or not shared or not case.collectives:
        return None
    nic, fullest = max(nics, key=lambda end: busy[end]), max(busy[end] for end in shared)
    full = sorted(end for end in shared if busy[end] >= ALIKE * fullest)
    # A link behind a full one is as full; packets wait where no link fills this one alone.
    ends = [end for end in full if all(busy[into] < ALIKE * busy[end] for into in _into(case, end))] or full
    dropped = {end for end, count, _ in lost_packets(case) if count >= LOST}
    waited_for = fullest >= FULL * case.lasted / 1e9 if case.job.ok else ends[0] in dropped
    if fullest < MORE * busy[nic] or not waited_for:
        return None
    name, *others = dict.fromkeys(link_name(case, *end) for end in ends)
    more = f" (and {others[0]}{f' and {len(others) - 1} more' if others[1:] else ''})" if others else ""
    text = f"all wait for the link {name}{more}: it sends for {fullest:.2f} s, no NIC for more than {busy[nic]:.2f} s"
    since = max(case.collectives, key=lambda one: one.lasted).began
    beside = sorted(end for end in shared if end[0] == ends[0][0] and end not in ends)
    facts = [(since, _sends(case, end)) for end in (ends[0], *beside, nic)]
    return Finding("congested-link", since, text, (), name, evidence=evidence(iter(facts), retries(case)))


def uneven_links(case: Case) -> Finding | None:
    """Find uneven parallel links between two switches: collectives take far longer than any NIC sends, and one link
    carries several times as much as another. Flows meet on it, in one message or another."""
    busy = case.busy
    nics = [end for own in case.ports for end in (own, case.seen.peers.get(own, own)) if end in busy]
    if not nics or not case.collectives:
        return None
    nic = max(nics, key=lambda end: busy[end])
    if case.lasted / 1e9 < MORE * busy[nic]:
        return None
    found = []
    for parallel in _parallel_links(case):
        carried = {end: case.growth.get((*end, "tx_bytes"), 0) for end in parallel}
        most, least = (of(parallel, key=lambda end: carried[end]) for of in (max, min))
        if carried[most] >= SLOWER * max(carried[least], 1):
            found.append((carried[most] / max(carried[least], 1), most, least))
    if not found:
        return None
    _, most, least = max(found)
    since = max(case.collectives, key=lambda one: one.lasted).began
    name, other = (link_name(case, *end) for end in (most, least))
    text = f"flows meet on the link {name}, while {other} beside it carries less than a third of its bytes"
    facts = [(since, _sends(case, end)) for end in (most, least, nic)]
    return Finding("uneven-links", since, text, (), name, evidence=evidence(iter(facts)))


def _parallel_links(case: Case) -> list[list[End]]:
    """Return the ends that send from one switch to another, where there are several."""
    found: dict[tuple[str, str], list[End]] = defaultdict(list)
    for end, peer in sorted(case.seen.wires.items()):
        if {end[0], peer[0]} <= case.seen.gateways:
            found[end[0], peer[0]].append(end)
    return [ends for ends in found.values() if len(ends) > 1]


def _into(case: Case, end: End) -> list[End]:
    """Return the ends that send to the node of this one, without the other end of its link."""
    return [other for other, to in case.seen.peers.items() if to[0] == end[0] and to != end and other in case.busy]


def _sends(case: Case, end: End) -> str:
    count = case.growth.get((*end, "tx_bytes"), 0)
    return f"{end[0]}:{end[1]} sends {count} bytes: {case.busy[end]:.2f} s of {case.lasted / 1e9:.2f} s in collectives"


def _to_one_rank(case: Case) -> Finding | None:
    target = target_of_all(case, share=0.0)  # timeouts after its drops take longer than it sends
    if target is None or not any(True for _ in retries(case)):
        return None
    dropped = [
        (case.counted_at, text) for end, count, text in lost_packets(case) if end == target.end and count >= LOST
    ]
    if not dropped:
        return None
    ranks, name = ranks_at(case, *target.end), link_name(case, *target.end)
    text = f"all send to {case.ranks(ranks)} at once, and the queue of its link {name} overflows"
    since = max(case.collectives, key=lambda one: one.lasted).began if case.collectives else case.job.began
    facts = evidence((since, target.text), iter(dropped), retries(case))
    return Finding("congested-link", since, text, ranks, name, evidence=facts)


@dataclass(frozen=True)
class Target:
    """The switch port to a rank that carries far more than those to the other ranks."""

    end: End
    text: str


def target_of_all(case: Case, share: float = SHARE) -> Target | None:
    """Return the rank to which all others send, for at least a share of the time in collectives; None if ranks receive
    about as much."""
    ports = _ports_to_ranks(case)
    carried = {port: case.growth.get((*port, "tx_bytes"), 0) for port in ports}
    if len(ports) <= 2:
        return None
    most = max(ports, key=lambda port: carried[port])
    usual = median(carried[port] for port in ports if port != most)
    if not carried[most] or carried[most] < SLOWER * usual or case.busy.get(most, 0.0) < share * case.lasted / 1e9:
        return None
    return Target(most, f"{most[0]}:{most[1]} sends {carried[most]} bytes, the ports to other ranks {usual:.0f}")


def _ports_to_ranks(case: Case) -> list[End]:
    found = [case.seen.peers[end] for end in case.ports if end in case.seen.peers]
    return [end for end in found if end[0] in case.seen.gateways]


def slow_link(case: Case) -> Finding | None:
    """Find the one link of a rank that carries no more than those of the others and takes far longer, or alone has
    waiting packets: all wait in collectives for it."""
    if not case.done:
        return None
    whole = max(call.ended or call.began for call in case.calls) - case.collectives[0].began
    if case.lasted < SHARE * whole:
        return None
    to_ranks = _ports_to_ranks(case)
    from_ranks = [case.seen.peers[end] for end in to_ranks]
    for ends in to_ranks, from_ranks:
        if slow := _slowest(case, ends, case.busy, FULL * case.lasted / 1e9):
            end, usual = slow
            return _slow(case, end, f"it sends for {case.busy[end]:.2f} s, the others for {usual:.2f} s")
        if slow := _slower_by_rate(case, ends):
            end, usual = slow
            return _slow(case, end, f"its rate is {_bits(case.rates[end])}, that of the others {_bits(usual)}")
    if slow := _slowest(case, to_ranks, case.waiting, WAITS):
        end, usual = slow
        return _slow(case, end, f"{case.waiting[end]:.1f} packets wait on average, at the others {usual:.1f}")
    return None


def _slowest(case: Case, ends: Sequence[End], found: Mapping[End, float], least: float) -> tuple[End, float] | None:
    """Return the end with a far higher value than the others, though it carries no more, and the others' median."""
    if len(ends) < 2:
        return None
    slow = max(ends, key=lambda end: found.get(end, 0.0))
    others = [end for end in ends if end != slow]
    usual = median(found.get(end, 0.0) for end in others)
    carried = median(case.growth.get((*end, "tx_bytes"), 0) for end in others)
    if found.get(slow, 0.0) < max(least, SLOWER * usual) or case.growth.get((*slow, "tx_bytes"), 0) > MORE * carried:
        return None
    return slow, usual


def _slower_by_rate(case: Case, ends: Sequence[End]) -> tuple[End, float] | None:
    """Return the end with a lower rate than the others, if it sends most of the time in collectives, and the others'
    median rate."""
    known = {end: case.rates[end] for end in ends if case.rates.get(end)}
    if len(known) < 2:
        return None
    slow = min(known, key=lambda end: known[end])
    usual = median(rate for end, rate in known.items() if end != slow)
    if known[slow] > ALIKE * usual or case.busy.get(slow, 0.0) < FULL * case.lasted / 1e9:
        return None
    return slow, usual


def _bits(rate: float) -> str:
    return f"{rate / 1e9:g} Gbit/s" if rate >= 1e9 else f"{rate / 1e6:g} Mbit/s"


def _slow(case: Case, end: End, how: str) -> Finding:
    ranks, name, since = ranks_at(case, *end), link_name(case, *end), case.done[0].began
    count = case.growth.get((*end, "tx_bytes"), 0)
    facts = [
        (since, f"{end[0]}:{end[1]}: {how}"),
        (since, f"{end[0]}:{end[1]} sends {count} bytes, not more than the others"),
        (since, f"{len(case.done)} collectives take {case.lasted / 1e9:.2f} s in total"),
    ]
    text = f"the link {name} of {case.ranks(ranks)} is slow and slows all ranks down"
    return Finding("slow-link", since, text, ranks, name, evidence=facts)
