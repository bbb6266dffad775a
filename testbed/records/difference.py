"""The first event in which two event logs differ, and the events around it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from testbed.errors import InputError
from testbed.protocol import EVENTS, Event
from testbed.protocol.events import COMPLETION, ROUTING_CONVERGED
from testbed.records.event_reader import Log

MEASURED = {COMPLETION.name: ("elapsed_s",), ROUTING_CONVERGED.name: ("seconds",)}
"""Data of events, by kind, that is measured time: it differs as the times of events do, also in the text."""
TIMES = ("happened_ns", "took_s")
"""Measured data of any event, which is not in its text."""
ALIGNED = 200
"""Events of each side behind the first difference in which common events are searched."""
Pair = tuple[int | None, int | None]
"""Numbers of an event that both have, or of one that one side has."""


def content(event: Event) -> str:
    """Return an event without its times, for comparison."""
    measured = MEASURED.get(event["kind"], ())
    data = {key: value for key, value in event["data"].items() if key not in (*measured, *TIMES)}
    text = "" if measured else event["text"]
    return json.dumps([event["kind"], event["node"], text, data], sort_keys=True)


@dataclass(frozen=True)
class Difference:
    """How two logs differ. `content` is the number of the first event that differs in more than its time, or that only
    one of them has; `time` of the first that has another time, if that comes before."""

    content: int | None
    time: int | None

    @property
    def first(self) -> int:
        """The number of the event to look at."""
        found = self.time if self.content is None else self.content
        assert found is not None
        return found


def compare(one: Log, other: Log) -> Difference | None:
    """Return the difference of two logs; None for the same events at the same times."""
    time = None
    for number, (left, right) in enumerate(zip(one.lines, other.lines, strict=False)):
        if left == right:
            continue
        if not _same_but_for_time(left, right) and content(one.event(number)) != content(other.event(number)):
            return Difference(number, time)
        if time is None and one.event(number) != other.event(number):
            time = number
    shorter = min(len(one.lines), len(other.lines))
    if len(one.lines) != len(other.lines):
        return Difference(shorter, time)
    return None if time is None else Difference(None, time)


def _same_but_for_time(left: bytes, right: bytes) -> bool:
    """Return whether two lines are the same behind `t`, which comes first: most need not be parsed."""
    return left.startswith(b'{"t":') and left.partition(b",")[2] == right.partition(b",")[2] != b""


def around(one: Log, other: Log, first: int, context: int) -> list[Pair]:
    """Return the last `context` events before `first`, and those from there on, aligned: until `context` of each side
    have come, or both have ended."""
    pairs: list[Pair] = [(number, number) for number in range(max(0, first - context), first)]
    left, right = (range(first, min(len(log.lines), first + ALIGNED)) for log in (one, other))
    contents = [content(one.event(number)) for number in left], [content(other.event(number)) for number in right]
    shown = [0, 0]
    for tag, a, b, c, d in SequenceMatcher(None, *contents, autojunk=False).get_opcodes():
        found: list[Pair] = (
            [*zip(left[a:b], right[c:d], strict=True)]
            if tag == "equal"
            else _by_time(one, other, left[a:b], right[c:d])
        )
        for pair in found:
            wanted = [number is not None and count < context for number, count in zip(pair, shown, strict=True)]
            if any(wanted):
                pairs.append(pair)
                shown = [count + (number is not None) for number, count in zip(pair, shown, strict=True)]
    return pairs


def _by_time(one: Log, other: Log, left: Sequence[int], right: Sequence[int]) -> list[Pair]:
    found: list[tuple[int, Pair]] = [(one.event(number)["t"], (number, None)) for number in left]
    found += [(other.event(number)["t"], (None, number)) for number in right]
    return [pair for _, pair in sorted(found, key=lambda row: row[0])]


def variants(directory: Path) -> dict[str, Path]:
    """Return the directories with events: `directory` itself, by its name, or those below it. Else InputError."""
    if not directory.is_dir():
        raise InputError("no such directory", where=str(directory), hint=_there(directory.parent))
    if (directory / EVENTS).is_file():
        return {directory.resolve().name: directory}
    found = {path.name: path for path in sorted(directory.iterdir()) if (path / EVENTS).is_file()}
    if not found:
        raise InputError(f"has no {EVENTS}, and no directory with one", where=str(directory), hint=_there(directory))
    return found


def _there(directory: Path) -> str:
    """Return the hint for a wrong directory, from its contents."""
    if directory.is_dir() and (found := [path for path in sorted(directory.iterdir()) if (path / EVENTS).is_file()]):
        return f"It contains: {', '.join(path.name for path in found)}."
    if (directory / "latest").is_dir():
        return f"Did you mean {directory / 'latest'}?"
    return "Run directories are runs/<scenario>/<time>, with a directory for each variant."
