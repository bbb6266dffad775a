"""Findings, and facts that several rules use."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from testbed.protocol.events import Stalled
from testbed.records.counter_names import find
from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.observations import at

HEALTHY, UNKNOWN = "healthy", "unknown"
"""Causes of a job without trouble, and of one that no rule explains."""


@dataclass(frozen=True)
class Finding:
    """A cause. `ranks` are the first ones that it hit, `since` is a virtual time in nanoseconds."""

    cause: str
    since: int
    text: str
    ranks: Sequence[int] = ()
    link: str = ""
    address: str = ""
    evidence: Sequence[tuple[int, str]] = ()
    """Facts, each with its time."""


OF_PROGRAMS = frozenset({"rank-died", "rank-hangs", "deadlock", "collective-mismatch", "slow-rank"})
"""Causes for which the network sends nothing again."""


@dataclass(frozen=True)
class Symptom:
    """A trouble of a job, to be explained. `of_network`: packets were sent again."""

    since: int
    until: int
    text: str
    of_network: bool = False

    def by(self, found: Iterable[Finding]) -> bool:
        """Return whether a finding may explain it: one that had begun before it was over."""
        return any(one.since <= self.until and not (self.of_network and one.cause in OF_PROGRAMS) for one in found)


PORT_EVENT = re.compile(
    r"NET/IB ?: Unable to open device [\w.-]{1,64}|NET/IB ?: [\w.-]{1,64}:\d+ "
    r"(?:(?:Got (?:non-fatal )?async|async fatal) event.{0,80}?: ?[\w ()]{1,60}|GID table changed)"
)
"""NCCL's words for an event of a port, a queue pair or a device."""
BEHIND_NS = 1_000_000_000
"""Minimum delay of a rank that will not enter a collective, when the job ends."""
MOST_FACTS = 8
MOST_COUNTS = 4
OF_THE_NETWORK = re.compile(
    r"unhandled timeout error|unreachable|Endpoint timeout|No route to host|Connection (reset|closed)|[Tt]imed out"
    r"|Dist(Backend|Store|Network)Error|nccl\w*Error|NCCL [Ee]rror|ProcessGroupNCCL|remote process exited"
)
OWN = re.compile(r"Address already in use|EADDRINUSE")
"""An error of the host itself, whoever raises it."""
LOST = 3
"""Packets that a sound link may lose while its ends are read one after the other."""
SLOWER = 3.0
"""Minimum ratio of a slow rank's or link's time to the median of the others."""
SHARE = 0.2
"""Minimum share of the job's time in and between collectives that a slow rank or link costs."""


def of_the_network(text: str) -> bool:
    """Return whether the end of a rank may be that of the network, by its words."""
    return bool(OF_THE_NETWORK.search(text)) and not OWN.search(text)


def stopped(case: Case) -> int:
    """Return when the job stopped: at the beginning of the collective in which it ended, or when the last of its ranks
    began to wait for a message; else at its end."""
    if case.stuck:
        return case.stuck.began
    return case.waits[-1].call.began if case.waits else case.job.ended


def symptoms(case: Case) -> Iterator[Symptom]:
    """Yield the troubles of a job: its end, its pauses, and what was sent again between two readings of counters."""
    if not case.job.ok:
        yield Symptom(stopped(case), case.job.ended, f"the job {case.ending}")
    for one in case.pauses:
        yield Symptom(one.began, one.ended, f"{one} took {one.lasted / 1e9:.1f} s")
    times = [t for t, _ in case.seen.counted if case.job.began <= t]
    for since, until in itertools.pairwise(times):
        if since < case.job.ended:
            grew = case.seen.growth(since, until)
            for (node, place, name), count in sorted(grew.items()):
                if (node, place) in case.seen.devices and find(name).role == "retry" and case.ranks_on(node):
                    yield Symptom(since, until, f"{place}: {name} {count}", of_network=True)


def evidence(*facts: tuple[int, str] | Iterator[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return facts in the order of time."""
    found: list[tuple[int, str]] = []
    for fact in facts:
        found += [fact] if isinstance(fact, tuple) else fact
    return sorted(found, key=lambda one: one[0])


def stalls(case: Case) -> Iterator[tuple[int, str]]:
    """Yield the last time at which no rank went on, with the states of connected queue pairs."""
    found = [(event, stalled) for event, stalled in case.seen.of(Stalled) if stalled.name == case.job.name]
    for event, stalled in found[-1:]:
        states: Counter[str] = Counter()
        for pairs in stalled.queue_pairs.values():
            states.update({state: count for state, count in pairs.items() if state.startswith("RC ")})
        counted = ", ".join(
            f"{count} in {state.removeprefix('RC ')}" for state, count in sorted(states.items()) if count
        )
        yield at(event), f"no rank goes on{f'; RC queue pairs: {counted}' if counted else ''}"


def hits(case: Case) -> Iterator[tuple[int, str]]:
    """Yield the peers that did not answer."""
    for ip, ranks in case.unanswered.items():
        owner = f", {case.ranks(case.addresses[ip].ranks)}" if ip in case.addresses else ""
        who = " and ".join(case.rank(rank) for rank in ranks[:3])
        yield case.job.ended, f"{ip}{owner}, does not answer {who}"


def retries(case: Case) -> Iterator[tuple[int, str]]:
    """Yield the errors that the RDMA devices of the ranks counted."""
    found: dict[str, list[str]] = {}
    for (node, place, name), count in sorted(case.growth.items()):
        if (node, place) in case.seen.devices and find(name).role in ("retry", "gap") and case.ranks_on(node):
            found.setdefault(place, []).append(f"{name} {count}")
    yield from ((case.counted_at, f"{place}: {', '.join(counts)}") for place, counts in found.items())


def refused(case: Case) -> Iterator[tuple[int, str]]:
    """Yield what ICMP said of packets to ranks."""
    return ((one.t, f"{one.node}: {one}") for one in case.seen.refusals if one.ip in case.addresses)


def reported(case: Case) -> Iterator[tuple[int, str]]:
    """Yield what NCCL said in a rank's log of the ports of its devices."""
    for rank in range(len(case.job.hosts)):
        words = dict.fromkeys(found[0] for found in PORT_EVENT.finditer(case.log(rank)))
        yield from ((case.job.ended, f"{case.rank(rank)}: {text}") for text in list(words)[:2])


def lagging(case: Case) -> Iterator[tuple[int, str]]:
    """Yield the ranks that do not answer NCCL's RAS, and those that launched fewer operations than others."""
    ras = case.seen.ras.get(case.job.name)
    ranks = range(len(case.job.hosts))
    for rank, how in sorted(ras.missing.items()) if ras else ():
        if rank in ranks:
            yield case.job.ended, f"{case.rank(rank)} {how}"
    for rank, (what, count, most) in sorted(ras.behind().items()) if ras else ():
        if rank in ranks:
            yield case.job.ended, f"{case.rank(rank)} has launched {count} of {what}, another rank {most}"
    for what, counts in sorted(ras.counts.items()) if ras else ():
        if len(counts) > 1:
            each = ", ".join(f"{n} have launched {count}" for count, n in sorted(counts.items())[:MOST_COUNTS])
            yield case.job.ended, f"ranks, by NCCL's RAS: {each} of {what}"


def lost_packets(case: Case) -> Iterator[tuple[tuple[str, str], int, str]]:
    """Yield the places of lost packets, by the end of a link that sent them: dropped by its queue, or damaged, dropped
    or not received at the other end."""
    growth, links = case.growth, _counted_links(case)
    for (node, interface, name), lost in growth.items():
        if (node, interface) in links and find(name).role in ("damage", "drop"):
            sender = links[node, interface] if name.startswith("rx_") else (node, interface)
            yield sender, lost, f"{node}:{interface}: {name} {lost}"
    for (node, interface), peer in links.items():
        sent = growth.get((node, interface, "tx_packets"), 0)
        received = growth.get((*peer, "rx_packets"), 0)
        if sent - received >= LOST and (*peer, "rx_packets") in case.counters:
            missing = sent - received
            yield (node, interface), missing, f"{node}:{interface} sent {sent}, {peer[0]}:{peer[1]} received {received}"


def _counted_links(case: Case) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the links by their ends, without bonds of which a member is counted itself."""
    counted = {(node, place) for node, place, _ in case.counters}
    members = case.seen.members
    return {
        end: peer
        for end, peer in case.seen.peers.items()
        if counted.isdisjoint((*members.get(end, ()), *members.get(peer, ())))
    }


def losses(case: Case) -> Iterator[tuple[int, str]]:
    return ((case.counted_at, text) for _, count, text in lost_packets(case) if count >= LOST)
