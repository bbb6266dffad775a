"""The counters of a part: those at the end that are not 0, and what became of each from moment to moment."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.protocol import COUNTERS

MATTERS = re.compile(r"(?:^|_)(?:err|drop|retry|nak|out_of_seq|exceeded|miss|lost|dup|rnr)")
"""Beginnings of words in the names of counters that are to be 0 in a sound network; `ack_deferred` has none."""
BYTES = "rx_bytes", "tx_bytes"
TRAFFIC = (*BYTES, "rx_packets", "tx_packets")
SHOWN = 8
"""Plots that a report begins with, at most."""
LEVELS = re.compile(r"^queue_(?:waiting|marked)$|^rp_rate_bps:|^SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES:")
"""How full a queue is, and how fast a queue pair."""
BAD, QUEUES, BUSY, RDMA, OTHER = range(5)
"""Groups of counters: those to be 0, queues, traffic of interfaces, others of RDMA devices, others of interfaces."""


def at_the_end(found: Any) -> Iterator[tuple[str, str, str, int, bool]]:
    """Node, interface or device, counter, value, and whether it should be 0: of those that are not 0."""
    for node, kinds in found.items() if isinstance(found, dict) else ():
        for places in kinds.values() if isinstance(kinds, dict) else ():
            for place, name, value in _values(places):
                if value:
                    yield node, place, name, value, matters(name)


@dataclass
class Row:
    """A counter. `values` has its value from the moment of this number on; before the first it is 0."""

    node: str
    place: str
    name: str
    values: dict[int, int] = field(default_factory=dict)

    @property
    def group(self) -> int:
        if matters(self.name):
            return BAD
        if self.name.startswith("queue_") or LEVELS.match(self.name):
            return QUEUES
        if self.name in TRAFFIC:
            return BUSY
        return OTHER if self.name.startswith(("rx_", "tx_")) or self.name in ("multicast", "collisions") else RDMA

    def growth(self, moments: int) -> int:
        """Return by how much it grew since the first moment, which has what the bring-up of the lab counted; if there
        is no other, since the beginning."""
        known = [0, *self.values.values()]
        since = 1 if moments > 1 and 0 in self.values else 0
        return sum(max(0, after - before) for before, after in itertools.pairwise(known[since:]))

    def json(self) -> list[Any]:
        return [self.node, self.place, self.name, self.group, [*itertools.chain(*self.values.items())]]


def over_time(directory: Path) -> dict[str, Any] | None:
    """The moments at which the counters of a directory are known, each counter that was ever above 0, and the numbers
    of those to show first. None if there is no such file, or no line in it."""
    lines = list(_lines(directory / COUNTERS))
    if not lines:
        return None
    rows: dict[tuple[str, str, str], Row] = {}
    for number, line in enumerate(lines):
        for node, places in line["counters"].items():
            for key in _values(places):
                place, name, value = key
                rows.setdefault((node, place, name), Row(node, place, name)).values[number] = value
    growth = {key: row.growth(len(lines)) for key, row in rows.items()}
    order = sorted(rows, key=lambda key: (rows[key].group, -growth[key]))
    grown = [number for number, key in enumerate(order) if growth[key]]
    bad = [number for number in grown if rows[order[number]].group == BAD or LEVELS.match(rows[order[number]].name)]
    busy = [number for number in grown if rows[order[number]].name in BYTES]
    return {
        "t": [line["t"] for line in lines], "after": [line["after"] for line in lines],
        "rows": [rows[key].json() for key in order], "shown": (bad or busy)[:SHOWN],
    }  # fmt: skip


def _lines(file: Path) -> Iterator[Mapping[str, Any]]:
    """The lines of counters.jsonl. One that is damaged, as the last one of a machine that was killed may be, is left
    out."""
    for line in file.read_text(errors="replace").splitlines() if file.is_file() else ():
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        match found:
            case {"t": int(), "after": str(), "counters": dict()}:
                yield found


def _values(places: Any) -> Iterator[tuple[str, str, int]]:
    """Interface or device, counter and value."""
    for place, counters in places.items() if isinstance(places, dict) else ():
        for name, value in counters.items() if isinstance(counters, dict) else ():
            if isinstance(value, int):
                yield place, name, value


def matters(name: str) -> bool:
    """Whether a counter is to be 0 in a sound network."""
    return MATTERS.search(name) is not None
