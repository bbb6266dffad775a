"""The events of a variant, from its events.jsonl."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from testbed.protocol import Event

LATEST_NS = 1 << 63
"""Times of events are less: the kernel's nanoseconds are no more."""


def read(file: Path) -> Iterator[Event]:
    """The events of a file, none if it cannot be read. What is no event is left out."""
    with contextlib.suppress(OSError):
        for line in file.read_bytes().split(b"\n"):
            if event := parsed(line):
                yield event


def parsed(line: bytes) -> Event | None:
    """The event of a line, None if it is none."""
    with contextlib.suppress(ValueError, RecursionError):
        return checked(json.loads(line))
    return None


def checked(found: object) -> Event | None:
    """What was reported as an event, None if it is none: the user's code runs beside those who report them."""
    match found:
        case {"t": int(t), "kind": str(), "node": str(), "text": str(), "data": dict()} if abs(t) < LATEST_NS:
            return cast(Event, found)
    return None


def happened_ns(event: Event) -> int:
    """The time of what an event reports, which may be before that of the report."""
    found = event["data"].get("happened_ns")
    return found if isinstance(found, int) and abs(found) < LATEST_NS else event["t"]
