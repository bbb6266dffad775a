"""Comments on packets: the event that a frame belongs to (`rules`), and the role of a frame in its conversation."""

from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from testbed.protocol import Event, InterfaceRow, PlanRows
from testbed.protocol.events import CNI, STEP, Claim, Cni, Fdb, Neighbour, read
from testbed.records.event_reader import happened_ns
from testbed.records.frame_decoder import CNP, Frame
from testbed.records.rules import BEGINNINGS, BY_KIND, NEAR_NS, Key, keys_of, mac

Place = tuple[str, str]
"""A node and its interface."""
FOREVER = 1 << 63
"""Nanoseconds beyond any time."""
REMEMBERED = 8192
"""Requests of a capture among which a repeated one is found."""
CANDIDATES = 64
"""Events among which those of a frame are searched, the first to be over: this bounds the cost of a frame."""
KEPT_COMMENTS = 20
"""Maximum of comments on one packet."""


@dataclass
class Wanted:
    """A frame to find, between two times. `captures` are the numbers of the captures that may have it."""

    begin: int
    end: int
    pick: str
    captures: frozenset[int]
    event: Event
    text: str
    found: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Number of matches, number and time of the chosen frame, by capture."""

    def match(self, capture: int, number: int, t: int) -> None:
        if capture in self.captures and self.begin <= t <= self.end:
            count, *chosen = self.found.get(capture, (0, number, t))
            if self.pick == "last":
                chosen = [number, t]
            self.found[capture] = (count + 1, chosen[0], chosen[1])

    def chosen(self) -> Iterator[tuple[int, int, int]]:
        """Yield capture, number and time of the frames that the event belongs to."""
        if self.pick == "earliest":
            first = min(self.found.items(), key=lambda one: one[1][2], default=None)
            if first:
                yield first[0], *first[1][1:]
            return
        for capture, (count, number, t) in self.found.items():
            if count == 1 or self.pick != "only":
                yield capture, number, t


class Matching:
    """Search for the frames of events. Call `look` for all packets, then `comments` for the results."""

    def __init__(self, events: Iterable[Event], places: Sequence[Place | None], plan: PlanRows) -> None:
        self._places = places
        self._macs: dict[str, set[bytes]] = defaultdict(set)
        self._peers: dict[Place, Place] = {}
        for row in rows(plan):
            here = row["node"], row["interface"]
            self._macs[row["node"]].add(mac(row["mac"]) or b"")
            node, colon, interface = row["peer"].partition(":")
            if colon:
                self._peers[here] = node, interface
        self._everywhere = frozenset(range(len(places)))
        ordered = sorted(events, key=lambda event: event["t"])
        self._by_key: dict[Key, list[Wanted]] = defaultdict(list)
        for key, wanted in (*self._of_rules(ordered), *self._of_gone_macs(ordered)):
            self._by_key[key].append(wanted)
        self._index = {}
        for key, found in self._by_key.items():
            found.sort(key=lambda wanted: wanted.end)
            longest = max(wanted.end - wanted.begin for wanted in found)
            self._index[key] = [wanted.end for wanted in found], longest, found
        self._beginnings = list(_beginnings(ordered, self._everywhere))

    def _of_rules(self, events: Sequence[Event]) -> Iterator[tuple[Key, Wanted]]:
        last: dict[tuple[object, ...], int] = {}
        for event in events:
            if (data := read(event)) is None:
                continue
            entry = data.mac if isinstance(data, Fdb) else data.ip if isinstance(data, Neighbour) else ""
            about = data.kind_name.partition(".")[0], event["node"], entry
            before, last[about] = last.get(about), event["t"]
            rule = BY_KIND.get(data.kind)
            if rule is None or (rule.fresh and before is not None and event["t"] - before <= NEAR_NS):
                continue
            t = happened_ns(event)
            port = data.port if rule.where == "port" and isinstance(data, Claim | Fdb) else None
            captures = self._everywhere if rule.where == "anywhere" else self._at(event["node"], port)
            wanted = Wanted(t - rule.before(data), t + rule.after, rule.pick, captures, event, "")
            yield from ((key, wanted) for key in rule.keys(data, self._macs[event["node"]]) if None not in key)

    def _at(self, node: str, port: str | None) -> frozenset[int]:
        """Return the captures at a port of a node, or at any of its interfaces, and at the other ends."""

        def fits(place: Place | None) -> bool:
            return place is not None and place[0] == node and port in (None, place[1])

        return frozenset(
            number
            for number, place in enumerate(self._places)
            if place and (fits(place) or fits(self._peers.get(place)))
        )

    def _of_gone_macs(self, events: Sequence[Event]) -> Iterator[tuple[Key, Wanted]]:
        """Yield the first frame to a pod's MAC between the DEL of its network and its next ADD."""
        owned: dict[Place, bytes] = {}
        gone: dict[bytes, Wanted] = {}
        for event in events:
            if (data := CNI.of(event)) is None:
                continue
            pod = event["node"], str(data.interface)
            match data:
                case Cni(command="ADD", result={"interfaces": [*interfaces]}):
                    for one in interfaces:
                        if isinstance(one, dict) and one.get("sandbox") and (found := mac(one.get("mac"))):
                            owned[pod] = found
                            if found in gone:
                                gone.pop(found).end = event["t"]
                case Cni(command="DEL") if pod in owned:
                    found = owned.pop(pod)
                    text = f"mac.gone: the first frame to {found.hex(':')} since {event['node']} lost this MAC"
                    gone[found] = Wanted(event["t"], FOREVER, "earliest", self._everywhere, event, text)
                    yield ("is sent to", found), gone[found]

    def look(self, capture: int, packets: Iterable[tuple[int, Frame | None]]) -> None:
        """Look at all packets of a capture: their times, on the clock of the events, and their contents."""
        next_beginning = 0
        for number, (t, frame) in enumerate(packets):
            while next_beginning < len(self._beginnings) and self._beginnings[next_beginning].begin <= t:
                self._beginnings[next_beginning].match(capture, number, t)
                next_beginning += 1
            for key in keys_of(frame) if frame else ():
                if key in self._index:
                    ends, longest, found = self._index[key]
                    first = bisect_left(ends, t)
                    for wanted in found[first : first + CANDIDATES]:
                        if wanted.end - longest > t:
                            break
                        wanted.match(capture, number, t)

    def comments(self) -> dict[tuple[int, int], list[str]]:
        """Return the comments on packets, by capture and number."""
        unique = {id(one): one for found in self._by_key.values() for one in found}
        comments: dict[tuple[int, int], list[str]] = defaultdict(list)
        for wanted in sorted((*unique.values(), *self._beginnings), key=lambda one: one.event["t"]):
            for capture, number, t in wanted.chosen():
                of_packet = comments[capture, number]
                if len(of_packet) < KEPT_COMMENTS:
                    of_packet.append(wanted.text or sentence(wanted.event, t))
        return comments


def rows(plan: PlanRows) -> Iterator[InterfaceRow]:
    """Yield the complete rows of a plan: the user's code ran beside the code that reported it."""
    found: object = plan.get("interfaces")
    for row in found if isinstance(found, list) else ():
        match row:
            case {"node": str(), "interface": str(), "mac": str(), "peer": str()}:
                yield row


def _beginnings(events: Sequence[Event], captures: frozenset[int]) -> Iterator[Wanted]:
    """Yield a wanted frame for each event of BEGINNINGS. A step ends where the next one begins."""
    step: Wanted | None = None
    for event in events:
        if event["kind"] in BEGINNINGS:
            wanted = Wanted(event["t"], FOREVER, "earliest", captures, event, "")
            if event["kind"] == STEP.name:
                if step:
                    step.end = event["t"]
                step = wanted
            yield wanted


def sentence(event: Event, t: int) -> str:
    """Return an event as the comment on a frame at the time `t`."""
    late = event["t"] - t
    node = f" at {event['node']}" if event["node"] else ""
    return f"{event['kind']}{node}, {span(abs(late))} {'earlier' if late < 0 else 'later'}: {event['text']}"


def span(nanoseconds: int) -> str:
    if nanoseconds < 10**9:
        return f"{nanoseconds / 1e6:.3f} ms"
    return f"{nanoseconds / 1e9:.3f} s"


class Conversations:
    """Comments on the frames of one capture, by themselves and after the frames before them."""

    def __init__(self) -> None:
        self._requests: OrderedDict[tuple[object, ...], int] = OrderedDict()

    def comments(self, frame: Frame, t: int) -> Iterator[str]:
        if (found := frame.resolution) and found.gratuitous:
            yield f"arp.gratuitous: {'.'.join(map(str, found.sender))} is claimed by {found.mac.hex(':')}"
        if not (frame.ip and (roce := frame.roce)):
            return
        if roce.nak:
            yield f"roce.nak: {roce.nak}"
        elif roce.opcode == CNP:
            yield "roce.cnp: congestion notification"
        elif roce.request:
            key = frame.src, frame.ip, roce.qp, roce.opcode, roce.psn
            if (before := self._requests.pop(key, None)) is not None:
                yield f"roce.repeated: PSN {roce.psn} again, {span(t - before)} after the last time"
            self._requests[key] = t
            if len(self._requests) > REMEMBERED:
                self._requests.popitem(last=False)
