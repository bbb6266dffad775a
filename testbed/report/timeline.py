"""The lanes of a run's time line: bars for periods, points for moments, both in virtual nanoseconds."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from testbed.protocol import Event, events
from testbed.protocol.events import KINDS
from testbed.records.event_reader import happened_ns
from testbed.report.owners import Owned, Owners

Level = str
"""Look of bars and points: plain, good, bad or note."""
GROUPS = (
    "Steps", "What was typed", "Faults", "Addresses", "ARP and ND", "Answers", "MAC table", "Queue pairs",
    "Completions", "Links", "Pauses", "Routes", "Pods", "Jobs and programs", "Captures", "Evidence",
)  # fmt: skip
ENTRY_ENDS = (
    events.AGED,
    events.CLEARED,
    events.EVICTED,
    events.REFUSED,
    events.FAILED,
    events.FDB_AGED,
    events.FDB_FLUSHED,
)
BAD = (
    events.FAILED, events.REFUSED, events.EVICTED, events.LIMITED, events.UNASKED, events.BLOCKED, events.PORT_DISABLED,
    events.ROUTE_LOST, events.CONNECT, events.JOB_STALLED, events.POD_REFUSED, events.LOST,
)  # fmt: skip
NOTES = (
    events.MISS, events.IGNORED, events.UPDATED, events.FDB_MOVED, events.GARP, events.NA, events.JOB_STEP,
    events.JOB_RESUMED,
)  # fmt: skip
POINTS = {
    events.EXEC: ("Jobs and programs", ""), events.PROGRAM_ENDED: ("Jobs and programs", ""),
    events.TYPED: ("What was typed", "commands"),
    events.JOB_STEP: ("Jobs and programs", "steps"),
    events.POD_REFUSED: ("Pods", ""), events.CONNECT: ("Completions", ""), events.ROUTE_INSTALLED: ("Routes", ""),
    events.ROUTE_LOST: ("Routes", ""), events.ROUTING_CONVERGED: ("Routes", "all switches"),
    events.EVIDENCE: ("Evidence", "what users see"), events.VERDICT: ("Evidence", "what users see"),
    events.LOST: ("Evidence", "what was lost"),
}  # fmt: skip
"""The group of a kind that is a point only, and its lane; the node's if there is no name."""
QP_LEVEL = {"RTS": "good", "ERR": "bad", "SQE": "bad"}


@dataclass(slots=True)
class Bar:
    """A period. `event` is the number of the event that began it, -1 for none."""

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
        """The importance of a lane: the number of faults in it, and of changes."""
        levels = [*(bar.level for bar in self.bars), *(point.level for point in self.points)]
        return levels.count("bad"), len(levels)


def in_order(lanes: Iterable[Lane]) -> list[Lane]:
    order = {group: number for number, group in enumerate(GROUPS)}
    return sorted(lanes, key=lambda lane: order[lane.group])


class Timeline:
    """Lanes in the order of GROUPS, and in a group in the order of their beginnings."""

    def __init__(self, found: Sequence[Event], owners: Owners, end: int) -> None:
        self._events = found
        self._owners = owners
        self.end = end
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._open: dict[object, tuple[Lane, Bar]] = {}
        self._macs: dict[str, tuple[str, str]] = {}
        """The switch and the MAC of each lane of MAC tables."""
        self._slots: dict[tuple[str, Any], int] = {}
        """The number of the lane of each open queue pair among those of its interface."""
        for number, event in enumerate(found):
            self._follow(number, event)
        for _, bar in self._open.values():
            bar.end = end
        self._mark_wrong()

    @property
    def lanes(self) -> list[Lane]:
        """All lanes with contents."""
        return in_order(self._lanes.values())

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
        kind = KINDS.get(event["kind"])
        chosen = level or ("bad" if kind in BAD else "note" if kind in NOTES else "plain")
        self._lane(group, name).points.append(Point(event["t"], chosen, number))

    def _follow(self, number: int, event: Event) -> None:  # noqa: PLR0912 as many as there are lanes
        node = event["node"]
        match data := events.read(event):
            case None:
                return
            case events.Fault():
                self._fault(number, event, data)
            case events.Neighbour():
                self._neighbour(number, event, data)
            case events.Fdb():
                self._fdb(number, event, data)
            case events.QueuePair():
                self._qp(number, event, data)
            case events.Completion():
                self._completion(number, event, data)
            case events.Link():
                self._end(number, event, data.interface, {"up": "", "down": "down"}.get(data.state or ""))
            case events.Port():
                self._end(number, event, data.port, "disabled" if data.kind is events.PORT_DISABLED else "")
            case events.Pod():
                self._pod(number, event, data)
            case events.Job():
                self._job(number, event, data)
            case events.Capture():
                self._capture(number, event, data)
            case events.Pause():
                self._pause(number, event, data)
            case events.Cni():
                self._point(number, "Pods", node, "bad" if data.error is not None else "plain")
            case events.Resumed():
                self._point(number, "Jobs and programs", data.name)
            case events.Announcement():
                self._point(number, "Addresses", data.ip)
            case events.Expectation():
                self._point(number, "Evidence", "expectations", "good" if data.met else "bad")
            case events.Observation():
                level = {"fault": "bad", "healthy": "good"}[data.observed]
                self._point(number, "Evidence", "what users see", level)
            case events.Lossless():
                self._point(number, "ARP and ND", f"{node}: {data.ip}")
            case _ if data.kind is events.STEP:
                self._begin("step", self._lane("Steps", "steps"), self._bar(number, event["text"]))
            case events.Sleep():
                self._lane("Steps", "waits").bars.append(self._bar(number, event["text"], lasts=data.seconds))
            case events.Exec() | events.Typed():
                group, name = POINTS[data.kind]
                self._point(number, group, name or node, "bad" if data.status else "")
            case _ if data.kind in POINTS:
                group, name = POINTS[data.kind]
                self._point(number, group, name or node)

    def _fault(self, number: int, event: Event, data: events.Fault) -> None:
        parameters = {key: value for key, value in vars(data).items() if key not in ("verified", "hits")}
        key = "fault", repr(sorted(parameters.items(), key=str))
        if data.kind is events.FAULT_INJECTED:
            text = event["text"].partition(" injected")[0]
            self._begin(key, self._lane("Faults", text), self._bar(number, text, "bad"))
            return
        lost = data.kind is events.FAULT_LOST
        if key in self._open and (lost or data.hits == 0):
            self._open[key][1].text += ", no longer in place then" if lost else ", no effect seen"
        self._finish(key, event["t"])

    def _neighbour(self, number: int, event: Event, data: events.Neighbour) -> None:
        """Follow the entry of an address on a switch, a bar for each MAC."""
        switch = event["node"]
        if data.ip is None:
            self._point(number, "ARP and ND", switch)
            return
        name = f"{switch}: {data.ip}"
        key = "neighbour", switch, data.vlan, data.ip
        if isinstance(data, events.Claim) and data.kind is not events.IGNORED:
            self._begin(key, self._lane("ARP and ND", name), self._bar(number, self._named(data.mac)))
        elif data.kind in ENTRY_ENDS:
            self._finish(key, event["t"])
        self._point(number, "ARP and ND", name)

    def _fdb(self, number: int, event: Event, data: events.Fdb) -> None:
        switch = event["node"]
        key = "fdb", switch, data.vlan, data.mac
        lane = self._lane("MAC table", f"{switch}: {self._named(data.mac)}, VLAN {data.vlan}")
        self._macs[lane.name] = switch, data.mac
        if data.kind in ENTRY_ENDS:
            self._finish(key, event["t"])
        else:
            self._begin(key, lane, self._bar(number, data.port))
        self._point(number, lane.group, lane.name)

    def _qp(self, number: int, event: Event, data: events.QueuePair) -> None:
        """Follow the states of a queue pair, in the first lane of its interface that no other one has now."""
        end = f"{event['node']}:{data.interface}"
        key = end, data.qpn
        if data.state == "closed":
            self._finish(key, event["t"])
            self._slots.pop(key, None)
            return
        taken = {slot for (other, _), slot in self._slots.items() if other == end}
        slot = self._slots.setdefault(key, next(slot for slot in itertools.count(1) if slot not in taken))
        lane = self._lane("Queue pairs", end if slot == 1 else f"{end}, beside it {slot}")
        peer = f", to {data.peer}" if data.state == "RTS" and data.peer else ""
        text = f"QP {data.qpn} {data.state}{peer}"
        self._begin(key, lane, self._bar(number, text, QP_LEVEL.get(data.state, "plain")))

    def _completion(self, number: int, event: Event, data: events.Completion) -> None:
        t = happened_ns(event)
        level = "good" if data.status == "SUCCESS" else "bad"
        lane = self._lane("Completions", event["node"])
        start = max(0, t - round(data.elapsed_s * 1e9))
        lane.bars.append(Bar(start, t, f"{data.opcode} {data.status}", level, number))
        lane.points.append(Point(t, level, number))

    def _end(self, number: int, event: Event, interface: str, why: str | None) -> None:
        """Follow an end of a link: down for a reason, up again with an empty one, unchanged with None."""
        end = f"{event['node']}:{interface}"
        key = event["kind"].partition(".")[0], end
        if why:
            self._begin(key, self._lane("Links", end), self._bar(number, why, "bad"))
        elif why is not None:
            self._finish(key, event["t"])
        self._point(number, "Links", end)

    def _pod(self, number: int, event: Event, data: events.Pod) -> None:
        key = "pod", event["node"]
        if event["text"].startswith(("deleted", "lost")):
            self._finish(key, event["t"])
        else:
            self._begin(key, self._lane("Pods", event["node"]), self._bar(number, f"on {data.host}"))

    def _job(self, number: int, event: Event, data: events.Job) -> None:
        key, lane = ("job", data.name), self._lane("Jobs and programs", data.name)
        if data.ok is None:
            self._begin(key, lane, self._bar(number, data.name))
            return
        level = "good" if data.ok else "bad"
        if found := self._open.get(key):
            found[1].level = level
        self._finish(key, event["t"])
        self._point(number, lane.group, lane.name, level)

    def _capture(self, number: int, event: Event, data: events.Capture) -> None:
        key = "capture", data.file
        if not data.running:
            self._finish(key, happened_ns(event))
            return
        lane = self._lane("Captures", f"{event['node']}:{data.interface}, {data.file}")
        self._begin(key, lane, self._bar(number, data.filter or "all frames"))

    def _pause(self, number: int, event: Event, data: events.Pause) -> None:
        """Add a time in which a port was paused again and again: the event comes when it is over."""
        lane = self._lane("Pauses", f"{event['node']}:{data.interface}, priority {data.priority}")
        lane.bars.append(self._bar(number, f"{data.frames} frames", "note", lasts=data.lasted_ns / 1e9))

    def _bar(self, number: int, text: str, level: Level = "plain", *, lasts: float = 0.0) -> Bar:
        t = self._events[number]["t"]
        return Bar(t, max(t, min(t + round(lasts * 1e9), self.end)), text, level, number)

    def _named(self, mac: str) -> str:
        return f"{name} {mac}" if (name := self._owners.name(mac)) else mac

    def _mark_wrong(self) -> None:
        """Add a lane for each address that changes its owner or has two, and split the bars of neighbour entries where
        their contents begin or cease to be wrong."""
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
        """Split a bar of a MAC table. It is wrong while the one interface that has an address by this MAC is at another
        port of the same switch."""
        switch, mac = self._macs[lane.name]

        def wrong(bar: Bar, now: Sequence[Owned]) -> bool:
            ports = {self._owners.port(one.node, one.interface, switch) for one in now}
            return len(ports) == 1 and "" not in ports and bar.text not in ports

        return split(bar, self._owners.of_mac(mac), wrong)


def not_the_owners(bar: Bar, now: Sequence[Owned]) -> bool:
    """Return whether the MAC at the end of a bar's text is of none of the address's owners now."""
    return bool(now) and not any(bar.text.endswith(one.mac) for one in now)


def split(bar: Bar, owned: Sequence[Owned], wrong: Callable[[Bar, Sequence[Owned]], bool]) -> list[Bar]:
    """Return a table entry's bar in parts: bad while it is wrong for the address's owners at the time."""
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
