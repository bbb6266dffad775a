"""The rules by which the cause of a job's trouble is found, the first that fits: each looks for one cause."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from testbed.protocol import Event
from testbed.records.tables import ASKING, SET, UNANSWERED
from testbed.report.counters import matters
from testbed.report.diagnosis.jobs import Case, Collective
from testbed.report.diagnosis.observations import at

HEALTHY, UNKNOWN = "healthy", "unknown"
OF_THE_NETWORK = re.compile(
    r"unhandled timeout error|unreachable|Endpoint timeout|No route to host|Connection (reset|closed)|[Tt]imed out"
)
DIED = re.compile(r"ended (by|with|without) |called MPI_Abort|[\w.]+(Error|Exception|Interrupt)\b")
"""The end of a rank in the words of its launcher, or a Python exception."""
NO_ROUTE = re.compile(r"Destination is unreachable|Network is unreachable|No route to host")
"""Words of UCX and of the kernel."""
LOST = 3
"""Packets that a sound link may lose while its ends are read one after the other."""
BEHIND_NS = 1_000_000_000
"""A rank that is so late for a collective, when the job ends, is not on its way."""
SLOWER = 3.0
"""A slow rank takes so many times what the median of the others takes from one collective to the next,"""
SHARE = 0.2
"""and this costs so much of the job's time in collectives and between them."""
FEWEST = 5
"""Collectives by which the pace of ranks is judged."""
MOST_FACTS = 8


@dataclass(frozen=True)
class Finding:
    """A cause. `ranks` are those that it hit first, `since` is a virtual time in nanoseconds."""

    cause: str
    since: int
    text: str
    ranks: Sequence[int] = ()
    link: str = ""
    address: str = ""
    evidence: Sequence[tuple[int, str]] = ()
    """Facts, each with its time."""


@dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of a job; `cause` is `healthy` for one that ended well at its pace. `remarks` are what it
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
            "job": job.name, "healthy": self.healthy, "cause": found.cause, "since": found.since, "text": found.text,
            "ranks": [{"rank": number, "host": job.hosts[number]} for number in found.ranks],
            "link": found.link, "address": found.address, "began": job.began, "ended": job.ended,
            "end": ending(self.case), "stopped": stuck.json() if stuck and not self.healthy else None,
            "evidence": [{"t": t, "text": text} for t, text in found.evidence],
            "remarks": [{"t": t, "text": text} for t, text in self.remarks],
        }  # fmt: skip


Rule = Callable[[Case], Finding | None]


def conclude(case: Case) -> Diagnosis:
    """The finding of the first rule that fits; each job has one."""
    rules = OF_AN_END_WITHOUT_SUCCESS if not case.job.ok else OF_SUCCESS
    finding = next(found for rule in rules if (found := rule(case)))
    return Diagnosis(case, finding, sorted(remarks(case)) if finding.cause == HEALTHY else [])


def ending(case: Case) -> str:
    """How the job ended, in words."""
    job = case.job
    if job.ok:
        return "ends well"
    who = f"{case.rank(job.rank)} ends first" if job.rank is not None else ""
    how = ": ".join(part for part in (job.status, job.failure) if part)
    said = f"{who}: {how}" if who and how else who or how
    if job.late or job.ok is None:
        return f"still runs when it is ended{f'; {said}' if said else ''}"
    return said or "ends without success"


# Facts that several rules use


@dataclass(frozen=True)
class Down:
    """A time in which one end of a link was down. `until` is None where it stayed so to the end of the job."""

    node: str
    interface: str
    since: int
    until: int | None
    why: str

    def lasts(self, t: int) -> bool:
        return self.since <= t and (self.until is None or t < self.until)


def downs(case: Case) -> list[Down]:
    """The ends of links that were down while the job ran, in the order of time."""
    begun: dict[tuple[str, str], Event] = {}
    found: list[Down] = []
    for event in case.seen.of("link", "port"):
        end = event["node"], str(event["data"].get("interface") or event["data"].get("port"))
        match event["kind"], event["data"]:
            case ("link", {"state": "down"}) | ("port.disabled", _):
                begun.setdefault(end, event)
            case ("link", {"state": "up"}) | ("port.enabled", _) if end in begun:
                first = begun.pop(end)
                if at(event) > case.job.began and at(first) < case.job.ended:
                    until = at(event) if at(event) < case.job.ended else None
                    found.append(Down(*end, at(first), until, first["text"]))
    left = [Down(*end, at(first), None, first["text"]) for end, first in begun.items() if at(first) < case.job.ended]
    return sorted([*found, *left], key=lambda one: one.since)


def link_name(case: Case, node: str, interface: str) -> str:
    """The same name of a link from whichever end, the switch's end first: ``leaf2:e2 - n3:eth1``."""
    first, peer = (node, interface), case.seen.peers.get((node, interface))
    if peer is None:
        return f"{node}:{interface}"
    if first[0] not in case.seen.gateways or (peer[0] in case.seen.gateways and peer < first):
        first, peer = peer, first
    return f"{first[0]}:{first[1]} - {peer[0]}:{peer[1]}"


def own_link(case: Case, rank: int) -> str:
    """The link of a rank's NIC."""
    return next((link_name(case, *end) for end, ranks in case.ports.items() if rank in ranks), "")


def ranks_at(case: Case, node: str, interface: str) -> list[int]:
    """The ranks that use this link alone: those whose NIC is one of its ends; of a link without a device those of the
    host."""
    ends = [(node, interface), case.seen.peers.get((node, interface), ("", ""))]
    found = [rank for end in ends for rank in case.ports.get(end, ())]
    return found or [rank for end, _ in ends if end not in case.seen.gateways for rank in case.ranks_on(end)]


def retries(case: Case) -> Iterator[tuple[int, str]]:
    """The errors that the RDMA devices of the ranks counted."""
    found: dict[str, list[str]] = {}
    for (node, place, name), count in sorted(case.growth.items()):
        if (node, place) in case.seen.devices and name in ERRORS and case.ranks_on(node):
            found.setdefault(place, []).append(f"{name} {count}")
    yield from ((case.job.ended, f"{place}: {', '.join(counts)}") for place, counts in found.items())


ERRORS = ("completer_retry_err", "retry_exceeded_err", "retry_rnr_exceeded_err", "rcvd_seq_err", "out_of_seq_request")
"""Counters of soft-RoCE."""


def stalls(case: Case) -> Iterator[tuple[int, str]]:
    """The last time at which no rank went on, with the states of connected queue pairs."""
    found = [event for event in case.seen.of("job.stalled") if event["data"].get("name") == case.job.name]
    for event in found[-1:]:
        pairs = event["data"].get("queue_pairs")
        states: Counter[str] = Counter()
        for kinds in pairs.values() if isinstance(pairs, dict) else ():
            for state, count in kinds.items() if isinstance(kinds, dict) else ():
                states[state] += count if isinstance(count, int) and state.startswith("RC ") else 0
        counted = ", ".join(
            f"{count} in {state.removeprefix('RC ')}" for state, count in sorted(states.items()) if count
        )
        yield at(event), f"no rank goes on{f'; RC queue pairs: {counted}' if counted else ''}"


def hits(case: Case) -> Iterator[tuple[int, str]]:
    """The end of the job, and the peers that did not answer."""
    for ip, ranks in case.unanswered.items():
        owner = f", {_ranks(case, case.addresses[ip].ranks)}" if ip in case.addresses else ""
        who = " and ".join(case.rank(rank) for rank in ranks[:3])
        yield case.job.ended, f"{ip}{owner}, does not answer {who}"


def evidence(*facts: tuple[int, str] | Iterator[tuple[int, str]]) -> list[tuple[int, str]]:
    """Facts in the order of time."""
    found: list[tuple[int, str]] = []
    for fact in facts:
        found += [fact] if isinstance(fact, tuple) else fact
    return sorted(found, key=lambda one: one[0])


def stopped(case: Case) -> int:
    """When the job stopped: at the beginning of the collective in which it ended, or at its end."""
    return case.stuck.began if case.stuck else case.job.ended


# Rules for jobs that did not end well


def rank_died(case: Case) -> Finding | None:
    """A rank ended, and its words are not those of the network."""
    job = case.job
    if job.rank is None or job.status or OF_THE_NETWORK.search(job.failure) or not DIED.match(job.failure):
        return None
    calls = [call for call in case.calls if call.rank == job.rank]
    last = max((call.ended or call.began for call in calls), default=job.ended)
    where = f"its last call of MPI is {calls[-1].operation}" if calls else "it made no call of MPI"
    text = f"{case.rank(job.rank)} died: {job.failure}"
    return Finding("rank-died", last, text, [job.rank], evidence=[(last, f"{case.rank(job.rank)}: {where}")])


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
    text = f"{_ranks(case, ranks)} stalled first: {whose}" if ranks else f"the link {name} is down"
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


def _ranks(case: Case, ranks: Sequence[int]) -> str:
    return " and ".join(case.rank(rank) for rank in ranks[:2]) + (f" and {len(ranks) - 2} more" if ranks[2:] else "")


def stale_neighbour(case: Case) -> Finding | None:
    """A switch has a MAC for a rank's address that is not its NIC's."""
    for (switch, table, _vlan, ip), text in sorted(case.seen.tables_at(case.job.ended).items()):
        if ip not in case.addresses or table not in ("arp", "nd"):
            continue
        mac, ranks = case.addresses[ip].owner.mac, case.addresses[ip].ranks
        known = text.split()[0] if text else ""
        if known in ("", mac) or known.count(":") != 5:
            continue
        learned, owned = _learned(case, switch, ip, known), _owned_since(case, ip)
        whose = case.seen.owners.name(known)
        other = f"{known}{f', the MAC of {whose}' if whose else ''}"
        since = max(learned or 0, owned)
        said = f"{_ranks(case, ranks)} stalled first: {switch} has {other}, for its address {ip}"
        facts = evidence(
            *([(learned, f"{switch}: {table.upper()} {ip} is at {known}")] if learned is not None else []),
            *([(owned, f"{case.job.hosts[ranks[0]]} has {ip}, with {mac}")] if owned else []),
            stalls(case), hits(case), retries(case),
        )  # fmt: skip
        return Finding("stale-neighbour", since, said, ranks, own_link(case, ranks[0]), ip, facts)
    return None


def _learned(case: Case, switch: str, ip: str, mac: str) -> int | None:
    """When a switch wrote an entry."""
    found = [
        at(event)
        for event in case.seen.of("arp", "nd")
        if event["node"] == switch and event["data"].get("ip") == ip and event["data"].get("mac") == mac
        if event["kind"].partition(".")[2] in SET and at(event) <= case.job.ended
    ]
    return found[-1] if found else None


def _owned_since(case: Case, ip: str) -> int:
    return max((one.since for one in case.seen.owners.owners(ip, case.job.ended)), default=0)


def wrong_port(case: Case) -> Finding | None:
    """A switch has the MAC of a rank's NIC on another port than the one to which the NIC leads."""
    for (switch, table, _vlan, mac), text in sorted(case.seen.tables_at(case.job.ended).items()):
        if table != "fdb":
            continue
        here = text.removeprefix("on ")
        for ip, address in case.addresses.items():
            port = case.seen.owners.port(address.owner.node, address.owner.interface, switch)
            if address.owner.mac == mac and port and here != port:
                ranks = address.ranks
                said = f"{_ranks(case, ranks)} stalled first: {switch} has its MAC {mac} on {here}; it is at {port}"
                since = max((at(e) for e in case.seen.of("fdb") if _writes(e, switch, mac)), default=case.job.began)
                facts = evidence((since, f"{switch}: FDB {mac} is on {here}"), hits(case), retries(case))
                return Finding("wrong-port", since, said, ranks, own_link(case, ranks[0]), ip, facts)
    return None


def _writes(event: Event, switch: str, mac: str) -> bool:
    return event["node"] == switch and event["data"].get("mac") == mac and event["kind"].partition(".")[2] in SET


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
        text = f"{_ranks(case, ranks)}: the ends of its link {name} have not the same MTU: {end[0]}:{end[1]} has {mtu}"
        facts = evidence((since, f"{end[0]}: {end[1]} has MTU {mtu}"), hits(case), retries(case), losses(case))
        return Finding("mtu-mismatch", since, text, ranks, name, evidence=facts)
    return None


def unresolved(case: Case) -> Finding | None:
    """A switch asks for the MAC of a rank's address, and nobody answers."""
    for (switch, table, _vlan, ip), text in sorted(case.seen.tables_at(case.job.ended).items()):
        if table in ("arp", "nd") and ip in case.addresses and text in (ASKING, UNANSWERED):
            ranks = case.addresses[ip].ranks
            asked = [at(e) for e in case.seen.of(table) if e["node"] == switch and e["data"].get("ip") == ip]
            said = f"{_ranks(case, ranks)} stalled first: {switch} asks for its address {ip} and gets no answer"
            since = asked[0] if asked else case.job.began
            facts = evidence((since, f"{switch}: {table.upper()} {ip}: {text}"), hits(case), retries(case))
            return Finding("unresolved", since, said, ranks, own_link(case, ranks[0]), ip, facts)
    return None


def no_route(case: Case) -> Finding | None:
    """A rank has no way to a peer."""
    found = [rank for rank in range(len(case.job.hosts)) if NO_ROUTE.search(_log(case, rank))]
    if not found and not NO_ROUTE.search(case.job.failure):
        return None
    ranks = found[:1] or [rank for rank in (case.job.rank,) if rank is not None]
    gone = [(at(event), f"{event['node']}: {event['text']}") for event in case.seen.of("route", "routing")]
    text = f"{_ranks(case, ranks) or 'a rank'} has no route to a peer: {case.job.failure}"
    return Finding("no-route", stopped(case), text, ranks, evidence=evidence(iter(gone[-3:]), stalls(case), hits(case)))


def _log(case: Case, rank: int) -> str:
    return case.seen.logs.get((case.job.name, rank), "")


def lossy_link(case: Case) -> Finding | None:
    """A link loses packets, or its queue drops them, while no end of it was down."""
    was_down = {link_name(case, down.node, down.interface) for down in downs(case)}
    lost: Counter[str] = Counter()
    facts: dict[str, list[tuple[int, str]]] = {}
    ends = {}
    for (node, interface), count, text in _losses(case):
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
    text = f"the link {name} loses packets: {count}{f'; it is that of {_ranks(case, ranks)}' if ranks else ''}"
    since = next((one.began for one in case.pauses), case.job.began)
    return Finding("lossy-link", since, text, ranks, name, evidence=[*facts[name], *retries(case)][:MOST_FACTS])


def _losses(case: Case) -> Iterator[tuple[tuple[str, str], int, str]]:
    """Where packets were lost, by the end of a link from which they went: dropped by its queue, or not received at the
    other end."""
    growth = case.growth
    for node, interface in case.seen.peers:
        if dropped := growth.get((node, interface, "queue_dropped"), 0):
            yield (node, interface), dropped, f"{node}:{interface}: queue_dropped {dropped}"
        sent = growth.get((node, interface, "tx_packets"), 0)
        peer = case.seen.peers[node, interface]
        received = growth.get((*peer, "rx_packets"), 0)
        if sent - received >= LOST:
            missing = sent - received
            yield (node, interface), missing, f"{node}:{interface} sent {sent}, {peer[0]}:{peer[1]} received {received}"


def losses(case: Case) -> Iterator[tuple[int, str]]:
    return ((case.job.ended, text) for _, count, text in _losses(case) if count >= LOST)


def rank_hangs(case: Case) -> Finding | None:
    """Ranks wait in a collective that a rank, which made calls of MPI before, did not enter, and nothing was sent
    again."""
    stuck = case.stuck
    if stuck is None or not stuck.absent or any(True for _ in retries(case)):
        return None
    late = {rank: max((c.ended or 0 for c in case.calls if c.rank == rank), default=0) for rank in stuck.absent}
    rank = min(late, key=lambda one: (late[one], one))
    if not late[rank] or case.job.ended - late[rank] < BEHIND_NS:
        return None
    text = f"{case.rank(rank)} stalled first: it did not enter {named(stuck)}, in which the others wait"
    return Finding("rank-hangs", late[rank], text, [rank], evidence=[(late[rank], f"{case.rank(rank)} leaves MPI")])


def unknown(case: Case) -> Finding:
    """No rule fits: the facts that are nearest."""
    counted = [
        (case.job.ended, f"{node}: {place}: {name} {count}")
        for (node, place, name), count in sorted(case.growth.items())
        if matters(name)
    ]
    named_ = [case.job.rank] if case.job.rank is not None else []
    facts = [*evidence(stalls(case), hits(case), retries(case), losses(case)), *counted]
    text = f"no known cause; the job {ending(case)}" if case.job.ok is None else f"no known cause; {ending(case)}"
    return Finding(UNKNOWN, stopped(case), text, named_, evidence=list(dict.fromkeys(facts))[:MOST_FACTS])


# Rules for jobs that ended well


def slow_rank(case: Case) -> Finding | None:
    """A rank takes far longer than the others from one collective to the next: all wait for it."""
    paces = _paces(case)
    if len(paces) < 2:
        return None
    slow = max(paces, key=lambda rank: paces[rank])
    others = median(pace for rank, pace in paces.items() if rank != slow)
    whole = max(call.ended or call.began for call in case.calls) - min(call.began for call in case.calls)
    if paces[slow] < SLOWER * others or paces[slow] - others < SHARE * whole:
        return None
    since = min(call.began for call in case.calls)
    times = f"{paces[slow] / 1e6:.0f} ms, the others {others / 1e6:.0f} ms"
    text = f"{case.rank(slow)} sets everybody's pace: between collectives it takes {times}"
    return Finding(
        "slow-rank",
        since,
        text,
        [slow],
        own_link(case, slow),
        evidence=[(since, f"{len(case.collectives)} collectives")],
    )


def _paces(case: Case) -> dict[int, int]:
    """Nanoseconds that each rank was outside of MPI between its first call and its last one."""
    found: dict[int, int] = {}
    for rank in range(len(case.job.hosts)):
        calls = [call for call in case.calls if call.rank == rank and call.ended is not None]
        if sum(call.sequence > 0 for call in calls) >= FEWEST:
            found[rank] = sum(max(0, after.began - (before.ended or 0)) for before, after in itertools.pairwise(calls))
    return found


def healthy(case: Case) -> Finding:
    count = len(case.collectives)
    done = f"; {count} collectives" if count else ""
    return Finding(HEALTHY, case.job.began, f"all {len(case.job.hosts)} ranks end well{done}")


def remarks(case: Case) -> Iterator[tuple[int, str]]:
    """What a job survived."""
    for down in downs(case):
        lasted = f"for {(down.until - down.since) / 1e9:.1f} s" if down.until else "to the end"
        ranks = ranks_at(case, down.node, down.interface)
        whose = f", that of {_ranks(case, ranks)}," if ranks else ""
        yield down.since, f"the link {link_name(case, down.node, down.interface)}{whose} was down {lasted}"
    for one in case.pauses:
        lasted_s = (max(call.ended or 0 for call in one.calls) - one.began) / 1e9
        yield one.began, f"{named(one)} took {lasted_s:.1f} s"


def named(one: Collective) -> str:
    """A collective in words."""
    call = one.calls[0]
    size = f" of {call.bytes} bytes" if call.bytes else ""
    return f"collective {one.sequence} ({call.operation}{size}) of ranks {one.communicator}"


OF_AN_END_WITHOUT_SUCCESS: Sequence[Rule] = (
    rank_died, nic_down, link_down, stale_neighbour, wrong_port, mtu_mismatch, unresolved, no_route, lossy_link,
    rank_hangs, unknown,
)  # fmt: skip
OF_SUCCESS: Sequence[Rule] = (slow_rank, lossy_link, healthy)
