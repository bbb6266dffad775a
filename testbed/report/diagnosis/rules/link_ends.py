"""The ends of links: times when they were down, their names, and the ranks that use them."""

from dataclasses import dataclass

from testbed.protocol import Event, events
from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.observations import at


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
    """Return the ends of links that were down while the job ran, in the order of time."""
    begun: dict[tuple[str, str], Event] = {}
    found: list[Down] = []
    for event, data in case.seen.of(events.Data):
        match data:
            case events.Link(interface=interface, state="up" | "down" as state):
                end, up = (event["node"], interface), state == "up"
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
                found.append(Down(*end, at(first), until, first["text"]))
    left = [Down(*end, at(first), None, first["text"]) for end, first in begun.items() if at(first) < case.job.ended]
    return sorted([*found, *left], key=lambda one: one.since)


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
    """Return the ranks that use this link alone: those whose NIC is an end of it; without a device those of the
    host."""
    ends = [(node, interface), case.seen.peers.get((node, interface), ("", ""))]
    found = [rank for end in ends for rank in case.ports.get(end, ())]
    return found or [rank for end, _ in ends if end not in case.seen.gateways for rank in case.ranks_on(end)]
