"""The places of faults in a topology: injected faults, wrong tables, links that are down."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.protocol import Event
from testbed.report.timeline import Bar, Lane


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark. `places` are nodes, each with the end of a link, such as `leaf:e2`, or nothing; times are virtual ns."""

    places: list[tuple[str, str]]
    text: str
    start: int
    end_t: int


def marks(lanes: Iterable[Lane], events: Sequence[Event], nodes: set[str], hosts: dict[str, str]) -> list[Mark]:
    """Return a mark for each lane with a fault at a place, from the first to the last time. `hosts` is by pod."""
    found = []
    for lane in lanes:
        bad = [bar for bar in lane.bars if bar.level == "bad"]
        if bad and lane.group in ("Faults", "ARP and ND", "MAC table", "Links"):
            places = _places(lane, bad[0], events, nodes, hosts)
            found.append(Mark(places, _text(lane, bad[0]), bad[0].start, max(bar.end for bar in bad)))
    return found


def _places(
    lane: Lane, bar: Bar, events: Sequence[Event], nodes: set[str], hosts: dict[str, str]
) -> list[tuple[str, str]]:
    """Return nodes, and ends of links such as `leaf:e2`."""
    if lane.group == "Links":
        node = lane.name.partition(":")[0]
        return [(hosts.get(node, node), lane.name)]
    if lane.group != "Faults":
        return [(lane.name.partition(":")[0], "")]
    data = {key: value for key, value in events[bar.event]["data"].items() if key not in ("fault", "verified", "hits")}
    named = list(dict.fromkeys(_texts(data)))
    ends = [text for text in named if ":" in text and text.partition(":")[0] in nodes]
    if ends:
        return [(end.partition(":")[0], end) for end in ends]
    return [(hosts.get(text, text), "") for text in named if hosts.get(text, text) in nodes]


def _text(lane: Lane, bar: Bar) -> str:
    if lane.group == "ARP and ND":
        return f"{lane.name} is at {bar.text}, which is not the owner's"
    if lane.group == "MAC table":
        return f"{lane.name} is on {bar.text}, which is not the owner's port"
    return lane.name if lane.group == "Faults" else f"{lane.name} {bar.text}"


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
