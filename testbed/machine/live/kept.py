"""The run directory of a running lab: events as they come, its plan, the messages of commands, finally its result."""

import contextlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from testbed.machine import emulator, snapshot
from testbed.protocol import EVENTS, RESULT, SESSION, TOPOLOGY, Made
from testbed.records import merged_captures, run_readme
from testbed.records.event_reader import read
from testbed.version import version

LATEST = "latest"


class Kept:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: dict[str, Any] = {}
        self._end: dict[str, Any] = {}
        directory.mkdir(parents=True, exist_ok=True)

    def _append(self, name: str, record: Mapping[str, Any]) -> None:
        with (self._directory / name).open("a", errors="replace") as file:  # arguments may be no UTF-8
            file.write(json.dumps(record, separators=(",", ":"), ensure_ascii=False) + "\n")

    def record(self, record: dict[str, Any]) -> None:
        match record:
            case {"event": dict(event)}:
                self._append(EVENTS, event)
            case {"made": {"topology": dict(topology)} as made}:
                self._made = made
                (self._directory / TOPOLOGY).write_text(json.dumps(topology, indent=1) + "\n")
            case {"trace": str(), "virtual_s": float() | int()}:
                self._end = record

    def note(self, message: Mapping[str, Any]) -> None:
        self._append(SESSION, message)

    def prepare(self) -> None:
        """Collect the data of `end` about this machine and this version in advance: a user would wait for them."""
        emulator.release()
        snapshot.code_digest()

    def end(self, lab: Mapping[str, Any], image: str | None) -> None:
        """Write result.json; `image` is None for a lab that died."""
        found = {
            **lab,
            "trace": self._end.get("trace", ""),
            "virtual_s": self._end.get("virtual_s"),
            "epoch": self._made.get("epoch"),
            "made_from": {
                "testbed": version(),
                "code": snapshot.code_digest(),
                "image": image,
                "qemu": emulator.release(),
            },
        }
        (self._directory / RESULT).write_text(json.dumps(found, indent=1) + "\n")
        if self._made:
            merged_captures.write(self._directory, cast("Made", self._made), list(read(self._directory / EVENTS)))
        run_readme.remove_empty(self._directory)
        explain(self._directory, str(lab["name"]))


def explain(directory: Path, name: str) -> None:
    """Write README.txt for the files that are there now."""
    run_readme.explain_lab(directory, name)


def discard(directory: Path) -> None:
    """Remove the run directory of a lab that never came up."""
    shutil.rmtree(directory, ignore_errors=True)
    latest = directory.parent / LATEST
    with contextlib.suppress(OSError):
        if latest.readlink().name == directory.name:
            latest.unlink()
        directory.parent.rmdir()
