"""Who answered ARP and neighbour discovery: a host, a switch for an address of its own, or the fabric for a host.

A fabric with ARP suppression answers with the host's MAC, so that its reply looks like the host's own. The two differ
in what the host's link carried, which only a capture there shows, and in what the leaf knew. What a run does not show
is unknown.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from testbed.protocol import Event, PlanRows
from testbed.report.exchanges import Exchange, Times, exchanges
from testbed.report.learned import Learned
from testbed.report.links import Link, Links, Place, has_all, places, watches
from testbed.report.owners import Owners
from testbed.report.packet_rows import Captured
from testbed.report.timeline import Bar, Lane

NO_REPLY_NS = 1_000_000_000
"""The time in which there is no reply: hosts repeat a request after a second (RFC 4861, RetransTimer)."""
MOST_ROWS = 200
UNKNOWN = "unknown"
NOBODY = "nobody"


@dataclass(slots=True)
class Answer:
    """Exchanges that are alike. `why` is how it is known who answered; times are virtual ns."""

    t: int
    last: int
    count: int
    asker: str
    ip: str
    mac: str
    by: str
    why: str
    level: str


@dataclass(slots=True)
class Answers:
    rows: list[Answer]
    left_out: int = 0
    """Rows that are not shown, because nothing in them is remarkable."""
    undecided: int = 0
    """Requests without a captured reply whose asker's links were not captured long enough to say that there is none."""

    def json(self) -> dict[str, Any]:
        return asdict(self)

    def lanes(self) -> list[Lane]:
        """Return a lane for each address that somebody asked for."""
        lanes: dict[str, Lane] = {}
        for row in self.rows:
            name = f"{row.asker} asks for {row.ip}"
            said = f"{row.mac} answered by {row.by}: {row.why}" if row.mac else f"{row.by} answered: {row.why}"
            lane = lanes.setdefault(name, Lane("Answers", name))
            lane.bars.append(Bar(row.t, row.last, said, row.level))
        return list(lanes.values())


def answers(
    captured: Sequence[Captured], plan: PlanRows | None, found: Sequence[Event], owners: Owners
) -> Answers | None:
    """Return who answered; None if nothing was asked where it was captured."""
    judge = _Judge(captured, plan, found, owners)
    rows: dict[tuple[str, ...], Answer] = {}
    undecided = 0
    for exchange in exchanges(one for one in captured if one.file in judge.places):
        verdicts = [(min(times.values()), mac, *judge.reply(exchange, mac)) for mac, times in exchange.replies.items()]
        if not verdicts and not exchange.probe:
            if judge.unanswered(exchange):
                verdicts = [(exchange.since, "", NOBODY, "no reply on the asker's link", "note")]
            else:
                undecided += 1
        for t, mac, by, why, level in verdicts:
            key = judge.name(exchange.asker, t), exchange.ip, mac, by, why, level
            if row := rows.get(key):
                row.last, row.count = t, row.count + 1
            else:
                rows[key] = Answer(t, t, 1, *key)
    if not rows and not undecided:
        return None
    shown = sorted(rows.values(), key=lambda row: ({"bad": 0, "note": 1}.get(row.level, 2), row.t))[:MOST_ROWS]
    return Answers(sorted(shown, key=lambda row: row.t), len(rows) - len(shown), undecided)


class _Judge:
    def __init__(
        self, captured: Sequence[Captured], plan: PlanRows | None, found: Sequence[Event], owners: Owners
    ) -> None:
        self._owners = owners
        self._links = Links(plan["interfaces"] if plan else (), owners.hosts)
        switches = plan.get("switches", {}) if plan else {}
        self._vteps = {row["vtep"]: name for name, row in switches.items() if "vtep" in row}
        self.places = places(found)
        self._watches = watches(captured, found)
        self._learned = Learned(found)

    def name(self, mac: str, t: int) -> str:
        return _either(node for node, _ in self._holders(mac, t)) or self._owners.name(mac) or mac

    def unanswered(self, exchange: Exchange) -> bool:
        """Return whether the asker's links were captured, had the request, and had no reply to it."""
        until = min(exchange.since + NO_REPLY_NS, exchange.until or exchange.since + NO_REPLY_NS)
        links = self._of(self._holders(exchange.asker, exchange.since))
        asked = self._at(exchange.asked)
        return any(link & asked for link in links) and self._covered(exchange, links, until)

    def reply(self, exchange: Exchange, mac: str) -> tuple[str, str, str]:
        """Return who answered, how that is known, and its level."""
        t = min(exchange.replies[mac].values())
        holders, gateways = self._holders(mac, t), self._owners.gateways
        switches = [node for node, _ in holders if node in gateways]
        hosts = [one for one in holders if one[0] not in gateways]
        level = "bad" if self._owners.wrong_claim(exchange.ip, mac, t) else "plain"
        seen = self._at(exchange.replies[mac])
        if sent := [one for one in hosts if any(link & seen for link in self._of([one]))]:
            return _either(node for node, _ in sent), "the reply was on its link", level
        leaves, learned = self._stand_ins(exchange, mac, t)
        if switches and (not leaves or self._beside(exchange, t, switches)):
            return _either(switches), self._why_itself(exchange, mac, t, switches), level
        named = _either(node for node, _ in holders)
        if holders and not self._covered(exchange, self._of(holders), t):
            if leaves:
                return UNKNOWN, f"{named}, or {leaves} in its place: its link was not captured", level
            return named, "it has the MAC; its link was not captured", level
        nothing = f"nothing came from {named}" if holders else "nobody has this MAC"
        if leaves:
            stale = level == "bad" or not holders
            return leaves, f"suppression: {learned}; {nothing}", "bad" if stale else "note"
        return UNKNOWN, nothing, level

    def _holders(self, mac: str, t: int) -> list[Place]:
        return [*self._owners.holders(mac, t), *((node, "") for node in self._learned.masters(mac, t))]

    def _of(self, holders: Iterable[Place]) -> list[Link]:
        return [link for one in holders for link in self._links.of(*one)]

    def _at(self, times: Times) -> set[Place]:
        return {self.places[file] for file in times}

    def _covered(self, exchange: Exchange, links: Sequence[Link], until: int) -> bool:
        """Return whether captures have all packets of the protocol on the links, from the request on."""
        watched = [
            watch.place
            for watch in self._watches
            if watch.begin <= exchange.since and until <= watch.end and has_all(watch.filter, exchange.protocol)
        ]
        return bool(links) and all(any(place in link for place in watched) for link in links)

    def _beside(self, exchange: Exchange, t: int, nodes: Sequence[str]) -> list[str]:
        """Return those of the nodes that are at the other ends of the asker's links."""
        near = {node for link in self._of(self._holders(exchange.asker, t)) for node, _ in link}
        return [node for node in nodes if node in near]

    def _stand_ins(self, exchange: Exchange, mac: str, t: int) -> tuple[str, str]:
        """Return the switches that knew the MAC by EVPN, those beside the asker if there are any, and from whom."""
        known = self._learned.remote(exchange.ip, mac, t)
        leaves = self._beside(exchange, t, [*known]) or [*known]
        vteps = dict.fromkeys(vtep for leaf in leaves for vtep in known[leaf])
        return _either(leaves), f"learned from {_either(self._vteps.get(vtep, vtep) for vtep in vteps)}"

    def _why_itself(self, exchange: Exchange, mac: str, t: int, switches: Sequence[str]) -> str:
        if len({*switches}) > 1:
            return "each of them has the MAC"
        if self._learned.proxied(switches[0], exchange.ip, exchange.asker, t):
            return "proxy"
        if any(one.node == switches[0] for one in self._owners.owners(exchange.ip, t)):
            return "its own address"
        return "VRRP master" if switches[0] in self._learned.masters(mac, t) else "it has the MAC"


def _either(names: Iterable[str]) -> str:
    return " or ".join(dict.fromkeys(names))
