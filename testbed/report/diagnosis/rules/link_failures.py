"""The ends of links: times when they were down, their names, the ranks that use them; and the rules for these."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from testbed.protocol import Event, events
from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.observations import at
from testbed.report.diagnosis.rules.facts import (
    BEHIND_NS,
    Finding,
    evidence,
    hits,
    of_the_network,
    retries,
    stalls,
    stopped,
)

AT_ONCE_NS = 1_000_000_000
"""Time within which links go down at once: switches need it to find that a carrier is gone."""


@dataclass(frozen=True)
class Down:
    """A time in which one end of a link was down. `until` is None where it stayed so to the end of the job."""

    node: str
    interface: str
    since: int
    until: int | None
    why: str
    carrier: bool = False
    """Whether it found that the other end is gone."""

    def lasts(self, t: int) -> bool:
        return self.since <= t and (self.until is None or t < self.until)

    def beside(self, other: "Down") -> bool:
        """Return whether another end was down at the same time; at the end of the job, if this one was."""
        if self.until is None or other.until is None:
            return other.until is None and (self.until is None or other.since < self.until)
        return other.since < self.until and self.since < other.until


def downs(case: Case) -> list[Down]:
    """Return the ends of links that were down while the job ran, in the order of time."""
    begun: dict[tuple[str, str], Event] = {}
    found: list[Down] = []
    for event, data in case.seen.of(events.Data):
        match data:
            case events.Link(interface=interface, state="up" | "down" as state):
                end, up = (event["node"], interface), state == "up"
            # In a lab the other end itself says so.
            case events.Link(interface=interface, carrier=bool(up)) if not case.seen.whole:
                end = event["node"], interface
            case events.Port(port=port):
                end, up = (event["node"], port), data.kind is events.PORT_ENABLED
            case _:
                continue
        if not up:
            begun.setdefault(end, event)
        elif end in begun:
            first = begun.pop(end)
            if at(event) > case.job.began and at(first) < case.job.ended:
                until = at(event) if at(event) < case.job.ended else None
                found.append(Down(*end, at(first), until, first["text"], _no_carrier(first)))
    left = [
        Down(*end, at(first), None, first["text"], _no_carrier(first))
        for end, first in begun.items()
        if at(first) < case.job.ended
    ]
    return sorted([*found, *left], key=lambda one: one.since)


def _no_carrier(event: Event) -> bool:
    return event["data"].get("carrier") is False


def goes_on(case: Case, down: Down, every: Sequence[Down]) -> str:
    """Return the bond that goes on by other members without a link, empty if there is none. A NIC of a rank that is
    itself a member is lost, and soft-RoCE's queue pairs end with the active member of a bond."""
    end, seen = (down.node, down.interface), case.seen
    if any(one in case.ports and one in seen.bonds for one in (end, seen.peers.get(end))):
        return ""
    bonds = sorted(one for one in seen.along(end) if one in seen.members)
    gone = {(one.node, one.interface) for one in every if down.beside(one)} if bonds else set()
    for bond in bonds:
        left = [one for one in seen.members[bond] if gone.isdisjoint(_needed(case, one))]
        if left and not (seen.whole and seen.rows[bond].get("mode") == "active-backup"):
            return f"{bond[0]}:{bond[1]}"
    return ""


def _needed(case: Case, member: tuple[str, str]) -> set[tuple[str, str]]:
    """Return what must be up for a member of a bond to carry anything: both ends, and their bonds."""
    ends = {member, case.seen.peers.get(member, member)}
    return ends | {case.seen.bonds[one] for one in ends if one in case.seen.bonds}


def link_name(case: Case, node: str, interface: str) -> str:
    """Return the same name of a link from either end, the switch's end first: ``leaf2:e2 - n3:eth1``."""
    first, peer = (node, interface), case.seen.peers.get((node, interface))
    if peer is None:
        return f"{node}:{interface}"
    if first[0] not in case.seen.gateways or (peer[0] in case.seen.gateways and peer < first):
        first, peer = peer, first
    return f"{first[0]}:{first[1]} - {peer[0]}:{peer[1]}"


def own_link(case: Case, rank: int) -> str:
    return next((link_name(case, *end) for end, ranks in case.ports.items() if rank in ranks), "")


def ranks_at(case: Case, node: str, interface: str) -> list[int]:
    """Return the ranks that use this link alone: those whose NIC is an end of it; without a device those of the host.
    Other interfaces of a real host are not those of ranks whose NIC is known."""
    ends = [(node, interface), case.seen.peers.get((node, interface), ("", ""))]
    bonds = sorted(case.seen.along(ends[0]).difference(ends))
    found = [rank for end in (*ends, *bonds) for rank in case.ports.get(end, ())]
    known = set() if case.seen.whole else {rank for ranks in case.nics.values() for rank in ranks}
    others = (rank for end, _ in ends if end not in case.seen.gateways for rank in case.ranks_on(end))
    return found or [rank for rank in others if rank not in known]


def host_down(case: Case) -> Finding | None:
    """Find a host with ranks whose links, two or more, went down at once."""
    by_end: dict[tuple[str, str], Down] = {}
    for down in downs(case):
        own = down.node, down.interface
        for end in own, case.seen.peers.get(own, own):
            by_end.setdefault(end, down)
    for host in dict.fromkeys(case.job.hosts):
        links = [end for end in case.seen.wires if end[0] == host]
        if _are_one(case, links) or not all(end in by_end for end in links):
            continue
        found = sorted((by_end[end] for end in links), key=lambda down: down.since)
        if found[-1].since - found[0].since > AT_ONCE_NS:
            continue
        ranks, since = case.ranks_on(host), found[0].since
        up = min((down.until for down in found if down.until is not None), default=None)
        after = f", and came up after {(up - since) / 1e9:.1f} s" if up else ""
        text = f"{case.ranks(ranks)} stalled first: all links of {host} went down at once{after}"
        facts = [(down.since, f"{down.node}: {down.why}") for down in found]
        shown = evidence(iter(facts), stalls(case), hits(case), retries(case))
        return Finding("host-down", since, text, ranks, own_link(case, ranks[0]), evidence=shown)
    return None


def _are_one(case: Case, links: Iterable[tuple[str, str]]) -> bool:
    """Return whether links are fewer than two, or those of one bond."""
    return len({case.seen.bonds.get(end, end) for end in links}) < 2


def nic_down(case: Case) -> Finding | None:
    """Find a host's own end of a link that is down."""
    return _down(case, "nic-down", lambda down: not _of_switch(case, down), "its own NIC {link} is down")


def switch_down(case: Case) -> Finding | None:
    """Find a switch whose links are all down, and ranks that use them."""
    ends: dict[tuple[str, str], Down] = {}
    every = downs(case)
    for down in every:
        if down.until is None:
            own = down.node, down.interface
            ends |= {own: down, case.seen.peers.get(own, own): down}
    for switch in sorted(case.seen.gateways):
        links = [end for end in case.seen.wires if end[0] == switch]
        if _are_one(case, links) or not all(end in ends for end in links):
            continue
        cut = [end for end in links if not goes_on(case, ends[end], every)]
        ranks = sorted({rank for end in cut for rank in ranks_at(case, *end)})
        if not ranks:
            continue
        since = min(ends[end].since for end in links)
        text = f"{case.ranks(ranks)} stalled first: all links of {switch} are down"
        facts = [(ends[end].since, f"{ends[end].node}: {ends[end].why}") for end in links]
        return Finding("switch-down", since, text, ranks, evidence=evidence(iter(facts), stalls(case), hits(case)))
    return None


def link_down(case: Case) -> Finding | None:
    """Find a switch's end of a rank's link, or of one between switches, that is down."""
    return _down(case, "link-down", lambda down: _of_switch(case, down), "its link {link} is down")


def _of_switch(case: Case, down: Down) -> bool:
    """Return whether a host's own end is not what is down."""
    return down.carrier or down.node in case.seen.gateways


def link_flap(case: Case) -> Finding | None:
    """Find a link that was down when the job stopped, and came back too late: the retries were used up."""
    stuck = case.stuck
    if stuck is None or case.job.status != "RETRY_EXC_ERR":
        return None
    every = downs(case)
    for down in every:
        if down.until is None or down.until <= stuck.began or not _carries(case, down) or goes_on(case, down, every):
            continue
        ranks, name = ranks_at(case, down.node, down.interface), link_name(case, down.node, down.interface)
        seconds = (down.until - down.since) / 1e9
        lasted = f"the link {name} was down for {seconds:.1f} s, and up again after the last retry"
        text = f"{case.ranks(ranks)} stalled first: {lasted}" if ranks else lasted
        facts = evidence(
            (down.since, f"{down.node}: {down.why}"),
            (down.until, f"{down.node}: {down.interface} is up again"),
            stalls(case),
            hits(case),
            retries(case),
        )
        return Finding("link-flap", down.since, text, ranks, name, evidence=facts)
    return None


def silent_link(case: Case) -> Finding | None:
    """Find a link between switches that carries nothing though its carrier is up: BFD heard nothing for too long, while
    the job stood or waited."""
    for event, session in case.seen.of(events.Bfd):
        t, end = at(event), (event["node"], session.port)
        peer = case.seen.peers.get(end)
        waits = not case.job.ok or any(one.began <= t <= one.ended for one in case.pauses)
        expired = session.state == "down" and "expired" in session.reason and case.job.began < t < case.job.ended
        if not expired or not waits or peer is None:
            continue
        if any((down.node, down.interface) in (end, peer) and down.lasts(t) for down in downs(case)):
            continue
        link = link_name(case, *end)
        text = f"the link {link} carries nothing, and its carrier is up: {session.reason} (BFD)"
        facts = evidence((t, f"{event['node']}: {event['text']}"), iter(case.routes[:3]), stalls(case), hits(case))
        return Finding("lossy-link", t, text, [], link, evidence=evidence(iter(facts), retries(case)))
    return None


def _down(case: Case, cause: str, which: Callable[[Down], bool], words: str) -> Finding | None:
    when = stopped(case) + BEHIND_NS if case.stuck else case.job.ended
    every = [down for down in downs(case) if down.until is None]
    ends = {(down.node, down.interface) for down in every}
    found = [
        down
        for down in every
        if which(down) and _carries(case, down) and not goes_on(case, down, every)
        # Its members are the place.
        if ends.isdisjoint(case.seen.members.get((down.node, down.interface), ()))
    ]
    if not found:
        return None
    down = min(found, key=lambda one: (one.since > when, not _of_a_rank(case, one), one.since))
    ranks = ranks_at(case, down.node, down.interface)
    name = link_name(case, down.node, down.interface)
    bonds = sorted(one for one in case.seen.along((down.node, down.interface)) if one in case.ports)
    beside = [one for one in every if (one.node, one.interface) in case.seen.members.get(bonds[0], ())] if bonds else []
    whose = words.format(link=name) + (f", and with it all links of {':'.join(bonds[0])}" if beside[1:] else "")
    text = f"{case.ranks(ranks)} stalled first: {whose}" if ranks else f"the link {name} is down"
    shown = dict.fromkeys((one.since, f"{one.node}: {one.why}") for one in (down, *beside))
    facts = evidence(iter(shown), stalls(case), hits(case), retries(case))
    return Finding(cause, down.since, text, ranks, name, evidence=facts)


def _carries(case: Case, down: Down) -> bool:
    """Return whether a link may carry the job: a rank's, or one between switches if the job died of the network."""
    if ranks_at(case, down.node, down.interface):
        return True
    peer = case.seen.peers.get((down.node, down.interface), ("", ""))[0]
    of_switches = {down.node, peer} <= case.seen.gateways
    return of_switches and bool(case.job.status or case.job.late or of_the_network(case.job.failure))


def _of_a_rank(case: Case, down: Down) -> bool:
    return not case.seen.along((down.node, down.interface)).isdisjoint(case.ports)
