"""The event log of a variant: everything that happened, in virtual time. Its bytes are the run's fingerprint."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.protocol import Event


class EventLog:
    """Collects what the story and its lab tell; `listen` sees each event at once."""

    def __init__(self, listen: Callable[[Event], None]) -> None:
        self._listen = listen
        self._zero = time.monotonic_ns()
        self.events: list[Event] = []

    @property
    def now(self) -> int:
        """Virtual nanoseconds since the variant began."""
        return time.monotonic_ns() - self._zero

    def emit(self, kind: str, node: str, text: str, /, *, at_ns: int | None = None, **data: Any) -> None:
        """`at_ns` is a CLOCK_MONOTONIC time for what happened earlier than it is told."""
        at = self.now if at_ns is None else at_ns - self._zero
        event: Event = {"t": at, "kind": kind, "node": node, "text": text, "data": data}
        self.events.append(event)
        self._listen(event)

    def find(self, kind: str, **data: Any) -> list[Event]:
        """The events of a kind whose data contains all of `data`, oldest first."""
        return [e for e in self.events if e["kind"] == kind and all(e["data"].get(k) == v for k, v in data.items())]

    def write(self, path: Path) -> str:
        """Writes the log as JSON lines in the order of time; returns its SHA-256."""
        ordered = sorted(self.events, key=lambda event: event["t"])
        lines = (json.dumps(event, separators=(",", ":"), ensure_ascii=False) + "\n" for event in ordered)
        data = "".join(lines).encode(errors="backslashreplace")
        path.write_bytes(data)
        return hashlib.sha256(data).hexdigest()
