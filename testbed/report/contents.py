"""The contents of a report as JSON, which the page draws. Times are virtual nanoseconds."""

import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from testbed.protocol import Event, PlanRows
from testbed.protocol.events import COLLECTIVE, JOB_PATHS, OBSERVED, PROBED, PROFILE, TYPED
from testbed.report import answers, counters, gear, packet_rows
from testbed.report.owners import Owners
from testbed.report.run_model import Part, Run, read_events, read_json, read_plan
from testbed.report.timeline import Bar, Lane, Timeline, in_order

Draw = Callable[[PlanRows], str]
"""Function that draws a plan as SVG."""
MOST_FILES = 200
LEAST_NS = 500_000_000
MOST = 80
"""Maximum of folds of a time line."""
ALIKE = 3
"""Maximum ratio of the longest to the shortest of gaps that are folded together."""
KEPT = 0.02
"""Maximum share of a gap that stays at each of its ends, so that nothing stands on the edge of a fold."""


class Drawings:
    """Cache of drawings: each plan is drawn once."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._numbers: dict[str, int] = {}
        self.all: list[str] = []

    def number(self, plan: PlanRows) -> int:
        key = repr(plan)
        if key not in self._numbers:
            self._numbers[key] = len(self.all)
            self.all.append(self._draw(plan))
        return self._numbers[key]


def contents(runs: Sequence[Run], draw: Draw, base: Path) -> dict[str, Any]:
    """Return all contents of a report; links lead from the directory `base`. Parts of several runs have their run's
    name."""
    drawings = Drawings(draw)
    parts = [
        {"label": _label(run, part, runs), "run": number, **_part(part, drawings, base)}
        for number, run in enumerate(runs)
        for part in run.parts
    ]
    heads = [
        {
            "name": run.name,
            "place": run.place,
            "title": run.title,
            "text": run.text,
            "facts": run.facts,
            "as_expected": run.as_expected,
        }
        for run in runs
    ]
    return {"runs": heads, "parts": parts, "drawings": drawings.all}


def _label(run: Run, part: Part, runs: Sequence[Run]) -> str:
    if len(runs) == 1:
        return part.name
    alike = sum(other.name == run.name for other in runs) > 1
    return " ".join((run.name, run.place, part.name) if alike else (run.name, part.name))


def _part(part: Part, drawings: Drawings, base: Path) -> dict[str, Any]:
    events = read_events(part.directory)
    end = max([round(part.virtual_s * 1e9), *(event["t"] for event in events[-1:])])
    plan = read_plan(part.directory)
    rows = plan["interfaces"] if plan else []
    owners = Owners(rows, events)
    captured = [] if part.realtime_ns is None else list(packet_rows.captures(part.directory, part.realtime_ns, owners))
    answered = answers.answers(captured, plan, events, owners)
    lanes = in_order((*Timeline(events, owners, end).lanes, *(answered.lanes() if answered else ())))
    counted = counters.over_time(part.directory)
    at_the_end = list(counters.at_the_end(read_json(part.directory / "counters.json")))
    times = (
        *(t for lane in lanes for t in _times(lane)),
        *(row.t for one in captured for row in one.rows),
        *(counted["t"] if counted else ()),
    )
    return {
        "name": part.name,
        "text": part.text,
        "expected": part.expected,
        "observed": part.observed,
        "as_expected": part.as_expected,
        "failures": part.failures,
        "warnings": part.warnings,
        "evidence": _evidence(part.evidence),
        "settings": _evidence(part.settings),
        "trace": part.trace,
        "virtual_s": part.virtual_s,
        "wall_s": part.wall_s,
        "end": end,
        "drawing": drawings.number(plan) if plan else None,
        "switches": list(switches(plan, events)) if plan else [],
        "marks": [asdict(mark) for mark in marks(lanes, events, {row["node"] for row in rows}, owners.hosts)],
        "lanes": [_lane(lane) for lane in lanes],
        "folds": folds(times, end),
        "events": _events(events),
        "typed": list(typed(events)),
        "observations": [number for number, event in enumerate(events) if event["kind"] == OBSERVED.name],
        "captures": [one.json() for one in captured],
        "answers": answered.json() if answered else None,
        "gear": gear.on_real_gear(lanes, events, at_the_end),
        "counters": at_the_end,
        "meanings": counters.meanings(name for _, _, name, _ in at_the_end),
        "counted": counted,
        "matrices": list(matrices(events)),
        "probes": list(meshes(events)),
        "paths": list(paths(events)),
        "files": list(_files(part.directory, base)),
        "directory": os.path.relpath(part.directory, base),
    }


def _evidence(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name.replace("_", " "), str(value)) for name, value in found.items()]


def typed(events: Sequence[Event]) -> Iterator[tuple[int, str, int | None, str]]:
    """Yield the commands that a user gave in a lab: time, words, exit status, and what came back."""
    for event in events:
        if data := TYPED.of(event):
            yield event["t"], data.command, data.status, data.back


def switches(plan: PlanRows, events: Sequence[Event]) -> Iterator[dict[str, Any]]:
    """Yield the profiles of switches: names of switches that are alike, and rows of name, value and quality at the
    start. `set` are the values that `testbed profile set` gave later: time, name and value."""
    alike: dict[str, list[str]] = {}
    rows = plan.get("switches", {})
    later: dict[str, list[tuple[int, str, str]]] = {}
    for event in events:
        if event["kind"] == PROFILE.name:
            found = [(event["t"], name, setting(value)) for name, value in event["data"].items()]
            later.setdefault(event["node"], []).extend(found)
    for name, row in rows.items():
        alike.setdefault(json.dumps([row, later.get(name)], sort_keys=True), []).append(name)
    for names in alike.values():
        row = rows[names[0]]
        values = [
            (name, f"{setting(one['value'])} {one['unit']}".rstrip(), one["quality"])
            for name, one in row["values"].items()
        ]
        yield {"names": names, "profile": row["profile"], "values": values, "set": later.get(names[0], [])}


def setting(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.10g}"
    return value if isinstance(value, str) else json.dumps(value)


def _times(lane: Lane) -> Iterator[int]:
    for bar in lane.bars:
        if lane.group != "Steps" or lane.name != "waits":
            yield from (bar.start, bar.end)
    for point in lane.points:
        yield point.t


def _lane(lane: Lane) -> dict[str, Any]:
    """Return a lane; its bars and points are lists, because there are many."""
    return {
        "group": lane.group,
        "name": lane.name,
        "weight": lane.weight,
        "bars": [(bar.start, bar.end, bar.text, bar.level, bar.event) for bar in lane.bars],
        "points": [(point.t, point.level, point.event) for point in lane.points],
    }


def _events(events: Sequence[Event]) -> dict[str, Any]:
    """Return events in columns. Kinds and nodes, which are few, are numbers."""
    kinds = {kind: number for number, kind in enumerate(dict.fromkeys(event["kind"] for event in events))}
    nodes = {node: number for number, node in enumerate(dict.fromkeys(event["node"] for event in events))}
    return {
        "kinds": list(kinds),
        "nodes": list(nodes),
        "t": [event["t"] for event in events],
        "kind": [kinds[event["kind"]] for event in events],
        "node": [nodes[event["node"]] for event in events],
        "text": [event["text"] for event in events],
    }


def _files(directory: Path, base: Path) -> Iterator[tuple[str, str, int]]:
    """Yield name, link and size of the files of a directory."""
    number = 0
    for root, directories, names in os.walk(directory):
        directories.sort()
        for name in sorted(names):
            path = Path(root, name)
            if path.is_file() and not path.is_symlink() and number < MOST_FILES:
                number += 1
                yield str(path.relative_to(directory)), os.path.relpath(path, base), path.stat().st_size


def folds(times: Iterable[int], end: int) -> list[tuple[int, int]]:
    """Return the parts of 0 to `end` to fold, in order. A few gaps without events are folded as long as they are a
    third of the rest: hours between two tries, not the even pauses of a thousand packets."""
    inside = sorted({0, end, *(t for t in times if 0 <= t <= end)})
    gaps = sorted(((after - before, before, after) for before, after in itertools.pairwise(inside)))
    left = end
    folded: list[tuple[int, int, int]] = []
    while gaps and gaps[-1][0] >= LEAST_NS:
        longest = gaps[-1][0]
        alike = [gap for gap in gaps if gap[0] * ALIKE >= longest]
        length = sum(gap[0] for gap in alike)
        if 3 * length < left or len(folded) + len(alike) > MOST:
            break
        folded += alike
        left -= length
        gaps = gaps[: len(gaps) - len(alike)]
    edges = (
        (before, after, round(min(KEPT * (after - before), left / (50 + 20 * len(folded)))))
        for _, before, after in folded
    )
    return sorted((before + edge, after - edge) for before, after, edge in edges)


def matrices(events: Sequence[Event]) -> Iterator[dict[str, Any]]:
    """Yield a matrix for each group of ranks, with the bytes of all its collectives that ended well."""
    found: dict[tuple[str, ...], Counter[tuple[int, int]]] = {}
    collectives: Counter[tuple[str, ...]] = Counter()
    for event in events:
        if (data := COLLECTIVE.of(event)) and data.matrix is not None:
            group = tuple(data.hosts)
            collectives[group] += 1
            of_group = found.setdefault(group, Counter())
            for sender, receiver, size in data.matrix:
                of_group[sender, receiver] += size
    for group, sizes in found.items():
        cells = [(*pair, size) for pair, size in sorted(sizes.items()) if size]
        yield {"ranks": group, "collectives": collectives[group], "cells": cells}


def meshes(events: Sequence[Event]) -> Iterator[dict[str, Any]]:
    """Yield the probes between all pairs of NICs, with their times; none whose tables do not fit its NICs."""
    for event in events:
        if data := PROBED.of(event):
            tables: tuple[Sequence[Sequence[Any]], ...] = (data.sent, data.arrived, data.median_us)
            if all([*map(len, table)] == [len(data.nics)] * len(data.nics) for table in tables):
                yield {"t": event["t"], **vars(data)}


def paths(events: Sequence[Event]) -> Iterator[dict[str, Any]]:
    """Yield the paths of the flows between the ranks of each job: sender, receiver, UDP source port, interfaces."""
    for event in events:
        if data := JOB_PATHS.of(event):
            flows = [flow for flow in data.flows if len(flow) == 4 and isinstance(flow[3], list)]
            yield {"t": event["t"], "name": data.name, "flows": flows, "unknown": data.unknown}


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
