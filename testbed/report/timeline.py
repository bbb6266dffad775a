"""The lanes of a run's time line: what lasts as bars, what happens as points, both in virtual nanoseconds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.protocol import Event
from testbed.report.owners import Owned, Owners

Level = str
"""plain, good, bad or note: how bars and points look."""
GROUPS = (
    "Steps", "Faults", "Addresses", "ARP and ND", "MAC table", "Queue pairs", "Completions", "Links", "Pauses",
    "Routes", "Pods", "Jobs and programs", "Evidence",
)  # fmt: skip
ENTRY_ENDS = {"aged", "cleared", "evicted", "refused", "failed", "flushed"}
BAD = {"arp.failed", "arp.refused", "arp.evicted", "arp.limited", "nd.failed", "nd.refused", "nd.evicted", "nd.limited",
       "lossless.blocked", "port.disabled", "route.lost", "connect"}  # fmt: skip
NOTES = {"arp.miss", "arp.ignored", "nd.miss", "nd.ignored", "fdb.moved", "arp.updated", "nd.updated", "garp", "na"}
QP_LEVEL = {"RTS": "good", "ERR": "bad", "SQE": "bad"}
SHORTEST_NS = 1_000_000
"""A step or an operation shorter than this is drawn as long."""


@dataclass(slots=True)
class Bar:
    """`event` is the number of the event that began it, -1 for none."""

    start: int
    end: int
    text: str
    level: Level = "plain"
    event: int = -1


@dataclass(slots=True)
class Point:
    t: int
    level: Level
    event: int


@dataclass(slots=True)
class Lane:
    group: str
    name: str
    bars: list[Bar] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)

    @property
    def weight(self) -> tuple[int, int]:
        """What makes a lane worth to be seen: what is wrong in it, and what changes."""
        levels = [*(bar.level for bar in self.bars), *(point.level for point in self.points)]
        return levels.count("bad"), len(levels)


class Timeline:
    """Lanes in the order of GROUPS, and in a group in the order in which they began."""

    def __init__(self, events: Sequence[Event], owners: Owners, end: int) -> None:
        self._events = events
        self._owners = owners
        self.end = end
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._open: dict[object, tuple[Lane, Bar]] = {}
        self._macs: dict[str, tuple[str, str]] = {}
        """The switch and the MAC of each lane of MAC tables."""
        self._slots: dict[tuple[str, Any], int] = {}
        """Of each queue pair that is open the number of its lane among those of its interface."""
        for number, event in enumerate(events):
            self._follow(number, event)
        for _, bar in self._open.values():
            bar.end = end
        self._mark_wrong()

    @property
    def lanes(self) -> list[Lane]:
        """All that have something in them."""
        order = {group: number for number, group in enumerate(GROUPS)}
        return sorted(self._lanes.values(), key=lambda lane: order[lane.group])

    def _lane(self, group: str, name: str) -> Lane:
        if (group, name) not in self._lanes:
            self._lanes[group, name] = Lane(group, name)
        return self._lanes[group, name]

    def _begin(self, key: object, lane: Lane, bar: Bar) -> None:
        self._finish(key, bar.start)
        lane.bars.append(bar)
        self._open[key] = lane, bar

    def _finish(self, key: object, t: int) -> None:
        if found := self._open.pop(key, None):
            found[1].end = max(t, found[1].start)

    def _point(self, number: int, group: str, name: str, level: Level = "") -> None:
        event = self._events[number]
        chosen = level or ("bad" if event["kind"] in BAD else "note" if event["kind"] in NOTES else "plain")
        self._lane(group, name).points.append(Point(event["t"], chosen, number))

    def _follow(self, number: int, event: Event) -> None:
        family, _, what = event["kind"].partition(".")
        if follow := FOLLOW.get(family):
            follow(self, number, event, what)

    def _step(self, number: int, event: Event, _: str) -> None:
        self._begin("step", self._lane("Steps", "steps"), self._bar(number, event["text"]))

    def _sleep(self, number: int, event: Event, _: str) -> None:
        seconds = event["data"].get("seconds")
        lasts = round(seconds * 1e9) if isinstance(seconds, int | float) and 0 <= seconds < 1e9 else SHORTEST_NS
        bar = self._bar(number, event["text"])
        bar.end = min(bar.start + lasts, self.end)
        self._lane("Steps", "waits").bars.append(bar)

    def _fault(self, number: int, event: Event, what: str) -> None:
        data = {key: value for key, value in event["data"].items() if key not in ("verified", "hits")}
        key = "fault", repr(sorted(data.items(), key=str))
        if what == "injected":
            text = event["text"].partition(" injected")[0]
            self._begin(key, self._lane("Faults", text), self._bar(number, text, "bad"))
            return
        if key in self._open and (what == "lost" or event["data"].get("hits") == 0):
            self._open[key][1].text += ", no longer in place then" if what == "lost" else ", no effect seen"
        self._finish(key, event["t"])

    def _neighbour(self, number: int, event: Event, what: str) -> None:
        """The entry of an address on a switch, a bar for each MAC."""
        data = event["data"]
        ip, switch = data.get("ip"), event["node"]
        if not isinstance(ip, str):
            self._point(number, "ARP and ND", switch)
            return
        name = f"{switch}: {ip}"
        key = "neighbour", switch, data.get("vlan"), ip
        if what in ("learned", "updated") and isinstance(mac := data.get("mac"), str):
            self._begin(key, self._lane("ARP and ND", name), self._bar(number, self._named(mac)))
        elif what in ENTRY_ENDS:
            self._finish(key, event["t"])
        self._point(number, "ARP and ND", name)

    def _fdb(self, number: int, event: Event, what: str) -> None:
        data = event["data"]
        mac, port, switch = str(data.get("mac")), str(data.get("port")), event["node"]
        key = "fdb", switch, data.get("vlan"), mac
        vlan = f", VLAN {data['vlan']}" if "vlan" in data else ""
        lane = self._lane("MAC table", f"{switch}: {self._named(mac)}{vlan}")
        self._macs[lane.name] = switch, mac
        if what in ("learned", "moved"):
            self._begin(key, lane, self._bar(number, port))
        elif what in ENTRY_ENDS:
            self._finish(key, event["t"])
        lane.points.append(Point(event["t"], "note" if what == "moved" else "plain", number))

    def _qp(self, number: int, event: Event, _: str) -> None:
        """The states of a queue pair, in the first lane of its interface that no other one has now."""
        data = event["data"]
        end, qpn, state = f"{event['node']}:{data.get('interface')}", data.get("qpn"), str(data.get("state"))
        key = end, qpn
        if state == "closed":
            self._finish(key, event["t"])
            self._slots.pop(key, None)
            return
        taken = {slot for (other, _), slot in self._slots.items() if other == end}
        slot = self._slots.setdefault(key, next(slot for slot in itertools.count(1) if slot not in taken))
        lane = self._lane("Queue pairs", end if slot == 1 else f"{end}, beside it {slot}")
        peer = f", to {data['peer']}" if state == "RTS" and data.get("peer") else ""
        self._begin(key, lane, self._bar(number, f"QP {qpn} {state}{peer}", QP_LEVEL.get(state, "plain")))

    def _completion(self, number: int, event: Event, _: str) -> None:
        data = event["data"]
        t = data.get("happened_ns", event["t"])
        elapsed, status = data.get("elapsed_s"), str(data.get("status"))
        t = t if isinstance(t, int) else event["t"]
        lasted = round(elapsed * 1e9) if isinstance(elapsed, int | float) and 0 <= elapsed < 1e9 else 0
        level = "good" if status == "SUCCESS" else "bad"
        lane = self._lane("Completions", event["node"])
        lane.bars.append(Bar(max(0, t - lasted), t, f"{data.get('opcode')} {status}", level, number))
        lane.points.append(Point(t, level, number))

    def _connect(self, number: int, event: Event, _: str) -> None:
        self._point(number, "Completions", event["node"])

    def _link(self, number: int, event: Event, _: str) -> None:
        data = event["data"]
        interface = f"{event['node']}:{data.get('interface')}"
        if data.get("state") == "down":
            self._begin(("link", interface), self._lane("Links", interface), self._bar(number, "down", "bad"))
        elif data.get("state") == "up":
            self._finish(("link", interface), event["t"])
        self._point(number, "Links", interface)

    def _port(self, number: int, event: Event, what: str) -> None:
        port = f"{event['node']}:{event['data'].get('port')}"
        if what == "disabled":
            self._begin(("port", port), self._lane("Links", port), self._bar(number, "disabled", "bad"))
        else:
            self._finish(("port", port), event["t"])
        self._point(number, "Links", port)

    def _pod(self, number: int, event: Event, what: str) -> None:
        if what == "refused":
            self._point(number, "Pods", event["node"], "bad")
        elif event["text"].startswith(("deleted", "lost")):
            self._finish(("pod", event["node"]), event["t"])
        else:
            on = f"on {event['data'].get('host')}"
            self._begin(("pod", event["node"]), self._lane("Pods", event["node"]), self._bar(number, on))

    def _cni(self, number: int, event: Event, _: str) -> None:
        self._point(number, "Pods", event["node"], "bad" if "error" in event["data"] else "plain")

    def _job(self, number: int, event: Event, what: str) -> None:
        name, ok = str(event["data"].get("name")), event["data"].get("ok")
        if what:
            self._point(number, "Jobs and programs", name, "bad" if what == "stalled" else "note")
            return
        if ok is None:
            self._begin(("job", name), self._lane("Jobs and programs", name), self._bar(number, name))
            return
        if found := self._open.get(("job", name)):
            found[1].level = "good" if ok else "bad"
        self._finish(("job", name), event["t"])
        self._point(number, "Jobs and programs", name, "good" if ok else "bad")

    def _program(self, number: int, event: Event, _: str) -> None:
        self._point(number, "Jobs and programs", event["node"])

    def _route(self, number: int, event: Event, _: str) -> None:
        self._point(number, "Routes", event["node"] or "all switches")

    def _announced(self, number: int, event: Event, _: str) -> None:
        self._point(number, "Addresses", str(event["data"].get("ip")), "note")

    def _expect(self, number: int, event: Event, _: str) -> None:
        self._point(number, "Evidence", "expectations", "good" if event["data"].get("met") else "bad")

    def _evidence(self, number: int, event: Event, _: str) -> None:
        observed = event["data"].get("observed")
        level = {"fault": "bad", "healthy": "good"}.get(str(observed), "plain")
        self._point(number, "Evidence", "what users see", level)

    def _lost(self, number: int, event: Event, _: str) -> None:
        self._point(number, "Evidence", "what was lost", "bad")

    def _lossless(self, number: int, event: Event, _: str) -> None:
        self._point(number, "ARP and ND", f"{event['node']}: {event['data'].get('ip')}")

    def _pause(self, number: int, event: Event, _: str) -> None:
        """A time in which a port was told to stop again and again: the event comes when it is over."""
        lasted = event["data"].get("lasted_ns")
        frames, priority = event["data"].get("frames"), event["data"].get("priority")
        bar = self._bar(number, f"{frames} frames", "note")
        bar.end = min(bar.start + (lasted if isinstance(lasted, int) and lasted >= 0 else 0), self.end)
        self._lane("Pauses", f"{event['node']}:{event['data'].get('interface')}, priority {priority}").bars.append(bar)

    def _bar(self, number: int, text: str, level: Level = "plain") -> Bar:
        t = self._events[number]["t"]
        return Bar(t, t, text, level, number)

    def _named(self, mac: str) -> str:
        """A MAC with its owner's name before it."""
        return f"{name} {mac}" if (name := self._owners.name(mac)) else mac

    def _mark_wrong(self) -> None:
        """Adds a lane for each address that changes its owner or has two, and splits the bars of neighbour entries
        where what they say begins to be wrong, or ceases to be."""
        for ip, owned in self._owners.of_address.items():
            moves = len({(one.node, one.mac) for one in owned}) > 1 or any(one.since for one in owned)
            if moves or ("Addresses", ip) in self._lanes:
                lane = self._lane("Addresses", ip)
                for one in owned:
                    lane.bars.append(
                        Bar(one.since, self.end if one.until is None else one.until, f"{one.node} {one.mac}")
                    )
        for lane in self._lanes.values():
            if lane.group == "ARP and ND":
                owned = self._owners.of_address.get(lane.name.partition(": ")[2], [])
                lane.bars = [part for bar in lane.bars for part in split(bar, owned, not_the_owners)]
            elif lane.group == "MAC table":
                lane.bars = [part for bar in lane.bars for part in self._judged_port(lane, bar)]

    def _judged_port(self, lane: Lane, bar: Bar) -> list[Bar]:
        """A bar of a MAC table. It is wrong while the one interface that has an address by this MAC is at another port
        of the same switch."""
        switch, mac = self._macs[lane.name]

        def wrong(bar: Bar, now: Sequence[Owned]) -> bool:
            ports = {self._owners.port(one.node, one.interface, switch) for one in now}
            return len(ports) == 1 and "" not in ports and bar.text not in ports

        return split(bar, self._owners.of_mac(mac), wrong)


def not_the_owners(bar: Bar, now: Sequence[Owned]) -> bool:
    """Whether the MAC at the end of a bar's text is of none of those that own the address now."""
    return bool(now) and not any(bar.text.endswith(one.mac) for one in now)


def split(bar: Bar, owned: Sequence[Owned], wrong: Callable[[Bar, Sequence[Owned]], bool]) -> list[Bar]:
    """A table entry's bar in parts: bad while it is wrong for those that own the address then."""
    times = {one.since for one in owned} | {one.until for one in owned if one.until is not None}
    edges = [bar.start, *sorted(t for t in times if bar.start < t < bar.end), bar.end]
    parts: list[Bar] = []
    for start, end in itertools.pairwise(edges):
        level = "bad" if wrong(bar, [one for one in owned if one.at(start)]) else bar.level
        if parts and parts[-1].level == level:
            parts[-1].end = end
        else:
            parts.append(Bar(start, end, bar.text, level, bar.event))
    return parts


Follow = Callable[[Timeline, int, Event, str], None]
FOLLOW: dict[str, Any] = {
    "step": Timeline._step, "sleep": Timeline._sleep, "fault": Timeline._fault, "arp": Timeline._neighbour,
    "nd": Timeline._neighbour, "fdb": Timeline._fdb, "qp": Timeline._qp, "completion": Timeline._completion,
    "connect": Timeline._connect, "link": Timeline._link, "port": Timeline._port, "pod": Timeline._pod,
    "cni": Timeline._cni, "job": Timeline._job, "exec": Timeline._program, "route": Timeline._route,
    "routing": Timeline._route, "garp": Timeline._announced, "na": Timeline._announced, "expect": Timeline._expect,
    "evidence": Timeline._evidence, "observed": Timeline._evidence, "verdict": Timeline._evidence,
    "lossless": Timeline._lossless, "pfc": Timeline._pause, "lost": Timeline._lost,
}  # fmt: skip
"""By the first part of an event's kind. Others are in the list of events only."""
