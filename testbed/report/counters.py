"""The counters of a part: those at the end that are not 0, and the changes of each over time."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.records.counter_names import Counter, Meaning, find, known
from testbed.records.counter_series import lines, values

SHOWN = 8
"""Maximum of plots that a report begins with."""
MEANINGS: Mapping[Meaning, str] = {
    "error": "should be 0",
    "level": "queues and rates",
    "congestion": "congestion",
    "peak": "peaks",
    "unknown": "unknown",
}


def group(counter: Counter) -> str:
    """Return the group of a counter: its meaning, or for traffic its owner."""
    return MEANINGS.get(counter.meaning) or f"traffic of {counter.owner}s"


def groups() -> list[str]:
    """Return the groups in their order."""
    *first, unknown = MEANINGS.values()
    return list(dict.fromkeys([*first, *map(group, known()), unknown]))


def at_the_end(found: Any) -> Iterator[tuple[str, str, str, int]]:
    """Yield node, interface or device, counter and value of those that are not 0."""
    for node, kinds in found.items() if isinstance(found, dict) else ():
        for places in kinds.values() if isinstance(kinds, dict) else ():
            for place, name, value in values(places):
                if value:
                    yield node, place, name, value


def meanings(names: Iterable[str]) -> dict[str, tuple[bool, str, str, str]]:
    """Return for each counter whether it should be 0, its unit, its owner and its meaning."""
    found = {name: find(name) for name in names}
    return {name: (one.meaning == "error", one.unit, one.owner, one.text) for name, one in found.items()}


def over_time(directory: Path) -> dict[str, Any] | None:
    """Return the moments at which the counters of a directory are known, each counter that was ever above 0, and the
    numbers of those to show first. None if there is no such file, or no line in it."""
    moments = list(lines(directory))
    if not moments:
        return None
    rows: dict[tuple[str, str, str], dict[int, int]] = {}
    """Values of a counter from the moment of this number on; before the first it is 0."""
    for number, line in enumerate(moments):
        for node, places in line["counters"].items():
            for place, name, value in values(places):
                rows.setdefault((node, place, name), {})[number] = value
    names = groups()
    placed = {key: names.index(group(find(key[2]))) for key in rows}
    growth = {key: _growth(own, len(moments)) for key, own in rows.items()}
    order = sorted(rows, key=lambda key: (placed[key], -growth[key]))
    grown = [(number, find(key[2])) for number, key in enumerate(order) if growth[key]]
    first = [number for number, one in grown if one.meaning in ("error", "level", "congestion")]
    busy = [number for number, one in grown if (one.owner, one.unit) == ("interface", "bytes")]
    return {
        "t": [line["t"] for line in moments],
        "after": [line["after"] for line in moments],
        "groups": names,
        "rows": [[*key, placed[key], [*itertools.chain(*rows[key].items())]] for key in order],
        "shown": (first or busy)[:SHOWN],
    }


def _growth(own: Mapping[int, int], moments: int) -> int:
    """Return by how much a counter grew since the first moment, which has the counts of the lab's bring-up; if there is
    no other, since the beginning."""
    every = [0, *own.values()]
    since = 1 if moments > 1 and 0 in own else 0
    return sum(max(0, after - before) for before, after in itertools.pairwise(every[since:]))
