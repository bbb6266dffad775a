"""The events of a variant, from its events.jsonl."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from testbed.errors import InputError
from testbed.protocol import EVENTS, Event
from testbed.protocol.events import LATEST_NS
from testbed.records import json_files
from testbed.records.regular_files import contents, contents_if_any


def read(file: Path) -> Iterator[Event]:
    """Yield the events of a file, none if there is none. Damaged lines are left out. InputError if it cannot be
    read."""
    for line in (contents_if_any(file) or b"").split(b"\n"):
        if event := parsed(line):
            yield event


def parsed(line: bytes) -> Event | None:
    """Return the event of a line, None if it is none."""
    with contextlib.suppress(ValueError):
        return checked(json_files.parsed(line))
    return None


def checked(found: object) -> Event | None:
    """Return a reported event, None if it is none: the user's code runs beside the code that reports."""
    match found:
        case {"t": int(t), "kind": str(), "node": str(), "text": str(), "data": dict()} if abs(t) < LATEST_NS:
            return cast(Event, found)
    return None


def happened_ns(event: Event) -> int:
    """Return the time of the reported fact, which may be before that of the report."""
    found = event["data"].get("happened_ns")
    return found if isinstance(found, int) and abs(found) < LATEST_NS else event["t"]


@dataclass(frozen=True)
class Log:
    """The events of a variant, a line each. A line is parsed at its first use."""

    file: Path
    lines: Sequence[bytes]

    @classmethod
    def read(cls, directory: Path) -> Log:
        """Read the log of a directory. InputError if it has no events."""
        file = directory / EVENTS
        try:
            data = contents(file)
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(file)) from None
        if not data.strip():
            raise InputError("has no events", where=str(file))
        return cls(file, data.removesuffix(b"\n").split(b"\n"))

    def event(self, number: int) -> Event:
        """Return the event of the line `number`, counted from 0. InputError if it is none."""
        if found := parsed(self.lines[number]):
            return found
        raise InputError("is not an event", where=f"{self.file}:{number + 1}")

    def row(self, number: int | None) -> dict[str, Any] | None:
        """Return an event with its line in the file, None where there is none."""
        if number is None or number >= len(self.lines):
            return None
        return {"line": number + 1, **self.event(number)}
