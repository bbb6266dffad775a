"""Rules for lossless classes: who pauses whom first, pauses without end, drops in a class that must not drop."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from testbed.protocol import events
from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.observations import at
from testbed.report.diagnosis.rules.facts import SHARE, Finding, evidence, hits, retries, stalls, stopped
from testbed.report.diagnosis.rules.link_failures import link_name, ranks_at

End = tuple[str, str]
PAUSED_US = re.compile(r"SAI_PORT_STAT_PFC_(\d)_RX_PAUSE_DURATION_US|rx_prio(\d)_pause_duration")
FRAMES = re.compile(r"SAI_PORT_STAT_PFC_(\d)_RX_PKTS|rx_prio(\d)_pause")
RESUMED = re.compile(r"SAI_PORT_STAT_PFC_(\d)_ON2OFF_RX_PKTS")
SENT = re.compile(r"SAI_PORT_STAT_PFC_(\d)_TX_PKTS|tx_prio(\d)_pause")
WATCHED = re.compile(r"PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED:(\d)")
DROPPED = re.compile(r"SAI_QUEUE_STAT_DROPPED_PACKETS:(\d)|rx_prio(\d)_discards")
GROUP = re.compile(r"SAI_INGRESS_PRIORITY_GROUP_STAT_\w+:(\d)")
BEHIND = 0.5
"""A port is paused because of another one of its node if that is paused for this share of its time."""
STORM_FRAMES = 3
"""Pause frames without an end of the pause between them: a port that fills and drains sends both."""
MOST_SHOWN = 5


@dataclass(frozen=True)
class Paused:
    """An end of a link that its peer has stopped, in a priority. `resumed` are the ends of pauses that the peer sent,
    None where nothing counts them."""

    end: End
    peer: End
    priority: str
    seconds: float
    frames: int
    resumed: int | None
    since: int

    def __str__(self) -> str:
        times = f"{self.frames} pause frames, {self.seconds:.2f} s"
        return f"{self.peer[0]} pauses {self.end[0]}:{self.end[1]} in priority {self.priority}: {times}"


def paused(case: Case) -> list[Paused]:
    """Return the ends that were paused while the job ran, the longest first."""
    found = []
    seconds, frames, resumed = (_counted(case.growth, names) for names in (PAUSED_US, FRAMES, RESUMED))
    begun = _begun(case)
    for (end, priority), microseconds in seconds.items():
        peer = case.seen.peers.get(end)
        if peer is None:
            continue
        ends = resumed.get((end, priority), 0) if end[0] in case.seen.gateways else None
        since = begun.get((end, priority), case.counted_at)
        found.append(Paused(end, peer, priority, microseconds / 1e6, frames.get((end, priority), 0), ends, since))
    return sorted(found, key=lambda one: (-one.seconds, one.end))


def _counted(growth: Mapping[tuple[str, str, str], int], names: re.Pattern[str]) -> dict[tuple[End, str], int]:
    """Return the growth of the counters with these names, by the end and the priority."""
    found = {}
    for (node, place, name), count in growth.items():
        if match := names.fullmatch(name):
            found[(node, place), next(filter(None, match.groups()))] = count
    return found


def _begun(case: Case) -> dict[tuple[End, str], int]:
    """Return when the longest pause of each end and priority began."""
    longest: dict[tuple[End, str], tuple[int, int]] = {}
    for event, data in case.seen.of(events.Pause):
        if at(event) < case.job.ended and at(event) + data.lasted_ns > case.job.began:
            key = (event["node"], data.interface), str(data.priority)
            longest[key] = max(longest.get(key, (0, 0)), (data.lasted_ns, at(event)))
    return {key: began for key, (_, began) in longest.items()}


def pauses(case: Case) -> Finding | None:
    """Find the first one of those that pause each other, where pauses cost the job a fifth of its time."""
    stops = [one for one in paused(case) if one.seconds >= SHARE * measured_s(case)]
    if not stops:
        return None
    chain = _chain(stops, stops[0])
    root = chain[-1]
    if root in chain[:-1]:
        return _circle(case, chain[chain.index(root) :])
    shown = [*chain[::-1], *(one for one in stops if one not in chain)][:MOST_SHOWN]
    said = ((one.since, str(one)) for one in shown)
    facts = evidence(said, _watched(case), stalls(case), hits(case), retries(case))
    port = f"{root.end[0]}:{root.end[1]}"
    stopped_by = ", ".join(f"{one.end[0]}:{one.end[1]}" for one in chain[-2::-1])
    behind = f"; and so these stop, one after the other: {stopped_by}" if stopped_by else ""
    link, whose = link_name(case, *root.end), ranks_at(case, *root.end)
    if root.peer[0] not in case.seen.gateways:
        storm = root.resumed == 0 and root.frames >= STORM_FRAMES
        how = "without end" if storm else f"for {root.seconds:.2f} s"
        text = f"{case.ranks(whose) or root.peer[0]} pauses first: its NIC stops {port} {how}{behind}"
        return Finding("pause-storm" if storm else "paused", root.since, text, whose, link, evidence=facts)
    if full := _full_end(case, root.peer[0]):
        link, whose = link_name(case, *full), ranks_at(case, *full)
        to = f", that of {case.ranks(whose)}," if whose else ""
        text = f"all wait for the link {link}{to} whose queue fills {root.peer[0]}, which pauses {port}{behind}"
        return Finding("congested-link", root.since, text, whose, link, evidence=facts)
    text = f"{root.peer[0]} pauses first: it stops {port}, though none of its own ports is full or paused{behind}"
    return Finding("paused", root.since, text, [], link, evidence=facts)


def measured_s(case: Case) -> float:
    """Return the seconds by which pauses are measured: those of a job in collectives, or since it stopped, as far as
    counters were read."""
    whole = case.job.ended - case.job.began
    time = (case.lasted if case.job.ok else case.job.ended - stopped(case)) or whole
    return (time if case.seen.measured_ns is None else min(time, case.seen.measured_ns)) / 1e9


def _chain(stops: Sequence[Paused], first: Paused) -> list[Paused]:
    """Return a paused end and those by which its peer, and the peer's peer, are stopped themselves, up to the one whose
    peer no one stops; or up to one that is in it already."""
    chain = [first]
    while True:
        last = chain[-1]
        next_ = next(
            (
                one
                for one in stops
                if one.end[0] == last.peer[0] and one.end != last.peer and one.priority == last.priority
                and one.seconds >= BEHIND * last.seconds
            ),
            None,
        )  # fmt: skip
        if next_ is None:
            return chain
        chain.append(next_)
        if next_ in chain[:-1]:
            return chain


def _circle(case: Case, circle: Sequence[Paused]) -> Finding:
    ends = ", ".join(f"{one.end[0]}:{one.end[1]}" for one in circle[:-1])
    facts = evidence(iter([(one.since, str(one)) for one in circle[:-1]]), stalls(case), hits(case))
    first = min(circle, key=lambda one: one.since)
    text = f"pauses go round in a circle, and nothing moves: {ends}"
    return Finding("pfc-deadlock", first.since, text, [], link_name(case, *first.end), evidence=facts)


def _full_end(case: Case, switch: str) -> End | None:
    """Return the port of a switch that sends all the time."""
    ends = [end for end in case.busy if end[0] == switch]
    most = max(ends, key=lambda end: case.busy[end], default=None)
    return most if most and case.busy[most] >= BEHIND * measured_s(case) else None


def _watched(case: Case) -> Iterator[tuple[int, str]]:
    """Yield the ports at which a watchdog has found a storm."""
    for (end, priority), count in _counted(case.growth, WATCHED).items():
        yield case.counted_at, f"{end[0]}:{end[1]}: the PFC watchdog of priority {priority} has found {count} storms"


def watchdog(case: Case) -> Finding | None:
    """Find a port at which a watchdog found a storm: it drops the packets of the class."""
    found = _counted(case.growth, WATCHED)
    if not found:
        return None
    end, _ = max(found, key=lambda key: found[key])
    whose = ranks_at(case, *end)
    who = case.ranks(whose) if whose else case.seen.peers.get(end, ("its peer", ""))[0]
    text = f"{who} pauses without end: the PFC watchdog of {end[0]}:{end[1]} has found a storm, and drops packets"
    facts = evidence(_watched(case), stalls(case), hits(case), retries(case))
    since = min((one.since for one in paused(case) if one.end == end), default=case.counted_at)
    return Finding("pause-storm", since, text, whose, link_name(case, *end), evidence=facts)


def dropped_in_lossless(case: Case) -> dict[tuple[End, str], int]:
    """Return the packets that ends dropped in priorities that must not drop: those with a buffer of their own."""
    lossless = {(node, match[1]) for node, _, name in case.counters if (match := GROUP.fullmatch(name))}
    return {
        (end, priority): count
        for (end, priority), count in _counted(case.growth, DROPPED).items()
        if (end[0], priority) in lossless
    }


def lossless_drop(case: Case) -> Finding | None:
    """Find drops in a class that must not drop, and why it dropped as far as pause frames tell."""
    dropped = dropped_in_lossless(case)
    if not dropped:
        return None
    (end, priority), count = max(dropped.items(), key=lambda one: (one[1], one[0]))
    node, name = end[0], link_name(case, *end)
    why, facts = _why_dropped(case, node, priority)
    text = f"{node} drops packets of priority {priority}, which must not drop: {count} to {end[0]}:{end[1]}; {why}"
    more = [(case.counted_at, f"{e[0]}:{e[1]}: {n} packets of priority {p} dropped") for (e, p), n in dropped.items()]
    since = next((one.began for one in case.pauses), case.job.began)
    return Finding(
        "lossless-drop",
        since,
        text,
        ranks_at(case, *end),
        name,
        evidence=evidence(iter(more), iter(facts), retries(case)),
    )


def _why_dropped(case: Case, switch: str, priority: str) -> tuple[str, list[tuple[int, str]]]:
    """Return what the pause frames of a switch that dropped tell, with the facts."""
    sent = {end: n for (end, of), n in _counted(case.growth, SENT).items() if end[0] == switch and of == priority}
    came = {end: case.growth[*end, "rx_bytes"] for end in case.seen.peers if (*end, "rx_bytes") in case.growth}
    frames = [f"{end[0]}:{end[1]} sends {n} pause frames" for end, n in sent.items()]
    frames += [
        f"{end[0]}:{end[1]} sends no pause frame, and {size} bytes came in"
        for end, size in came.items()
        if end[0] == switch and end not in sent
    ]
    facts = [(case.counted_at, text) for text in frames]
    if not sent:
        return "it sends no pause frame on any port", facts
    stopped_us = _counted(case.growth, PAUSED_US)
    for peer in (case.seen.peers[end] for end in sent if end in case.seen.peers):
        if not stopped_us.get((peer, priority)):
            return f"{peer[0]}:{peer[1]} gets pause frames and does not stop", facts
    why = "it pauses its peers, and more comes in: they stop late or not at all, or the headroom is too small"
    return why, facts
