"""The counters of a variant or a live lab over time: counters.jsonl, which has their changes."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from testbed.protocol import COUNTERS
from testbed.records import json_files
from testbed.records.counter_names import find

SAMPLE = "a sample"
"""The moments that have only counters and fill levels of queues; others have all counters."""


class Sample(NamedTuple):
    """A counter, or a fill level, that had another value than before. `change` and `per_s` are None for a level and for
    the first value of the lab's begin; `per_s` is the mean since the value before was known."""

    t_s: float
    after: str
    node: str
    place: str
    """The interface or RDMA device."""
    counter: str
    value: int
    change: int | None
    per_s: float | None
    unit: str
    meaning: str


def lines(directory: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the lines of counters.jsonl without damaged ones, such as the last one of a killed machine."""
    for _, found in json_files.lines(directory / COUNTERS):
        match found:
            case {"t": int(), "after": str(), "counters": dict()}:
                yield found


def values(places: Any) -> Iterator[tuple[str, str, int]]:
    """Yield interface or device, counter and value."""
    for place, counters in places.items() if isinstance(places, dict) else ():
        for name, value in counters.items() if isinstance(counters, dict) else ():
            if isinstance(value, int):
                yield place, name, value


def samples(directory: Path) -> Iterator[Sample]:
    """Yield the changes of all counters in the order of time."""
    before: dict[tuple[str, str, str], tuple[int, int]] = {}
    """Value and time at which each was known."""
    all_known = -1
    for line in lines(directory):
        for node, places in line["counters"].items():
            for place, name, value in values(places):
                key, counter = (node, place, name), find(name)
                was, known = before.get(key, (0, all_known))
                since = max(known, all_known)
                change = None if counter.meaning in ("level", "peak") or since < 0 else value - was
                elapsed = (line["t"] - since) / 1e9
                per_s = change / elapsed if change is not None and elapsed > 0 else None
                yield Sample(line["t"] / 1e9, line["after"], *key, value, change, per_s, counter.unit, counter.meaning)
                before[key] = value, line["t"]
        if line["after"] != SAMPLE:
            all_known = line["t"]
