"""What is kept of a lab that lives, in its run directory: events as they come, what it was made of, what was asked of
it, and in the end its result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.machine import qemu, snapshot
from testbed.protocol import EVENTS, RESULT, TOPOLOGY
from testbed.version import version

SESSION = "session.jsonl"


class Kept:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: dict[str, Any] = {}
        self._end: dict[str, Any] = {}
        self._touched = False
        directory.mkdir(parents=True, exist_ok=True)

    def _append(self, name: str, record: Mapping[str, Any]) -> None:
        with (self._directory / name).open("a") as file:
            file.write(json.dumps(record, separators=(",", ":"), ensure_ascii=False) + "\n")

    def take(self, record: dict[str, Any]) -> None:
        """A report of the lab's."""
        match record:
            case {"event": dict(event)}:
                self._append(EVENTS, event)
            case {"made": {"topology": dict(topology)} as made}:
                self._made = made
                (self._directory / TOPOLOGY).write_text(json.dumps(topology, indent=1) + "\n")
            case {"trace": str(), "virtual_s": float() | int()}:
                self._end = record

    def note(self, request: Mapping[str, Any], *, resting: bool) -> None:
        """A request of the user's. On the virtual clock the same requests give the same events, but for those that did
        not find the machine resting."""
        self._append(SESSION, {"request": request, **({} if resting else {"meanwhile": True})})

    def end(self, lab: Mapping[str, Any], image: str | None) -> None:
        """Writes result.json; without an `image` of a lab that died."""
        found = {
            **lab,
            "trace": self._end.get("trace", ""),
            "virtual_s": self._end.get("virtual_s"),
            "epoch": self._made.get("epoch"),
            "made_from": {
                "testbed": version(),
                "code": snapshot.code_digest(),
                "image": image,
                "qemu": qemu.release(),
            },
        }
        (self._directory / RESULT).write_text(json.dumps(found, indent=1) + "\n")
