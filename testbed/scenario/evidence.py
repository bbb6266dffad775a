"""What is kept of a lab beside its events: the switches' tables over time, the counters at the end."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from testbed.kernel.devices import counters
from testbed.lab import HostInterface, Lab
from testbed.protocol import TABLES
from testbed.scenario.events import EventLog


def save(lab: Lab, log: EventLog, text: str) -> list[str]:
    """Saves the switch tables and the counters. Returns what could not be read, and never raises, because the lab may
    be in any state and what ended the run must not be hidden."""
    missing: list[str] = []
    with _noting("switch tables", missing):
        save_tables(lab, log, text)
    with _noting("counters", missing):
        _save_counters(lab, missing)
    return missing


def save_tables(lab: Lab, log: EventLog, text: str) -> None:
    """Appends each switch's tables to tables.jsonl."""
    with lab.file(TABLES).open("a") as file:
        for switch in lab.switches():
            file.write(json.dumps({"t": log.now, "after": text, "switch": switch.name, **switch.tables()}) + "\n")


def _save_counters(lab: Lab, missing: list[str]) -> None:
    """Writes the counters of all interfaces and RDMA devices to counters.json; `missing` gets the unreadable."""
    found: dict[str, Any] = {}
    for node in lab.nodes.values():
        ends = node.interfaces.values()
        devices = [end.rdma for end in ends if isinstance(end, HostInterface) and end.rdma]
        with _noting(f"counters of {node}", missing):
            found[node.name] = {
                "interfaces": {end.name: end.counters() for end in ends},
                "rdma": {device: counters(device, node.namespace) for device in devices},
            }
    if found:
        lab.file("counters.json").write_text(json.dumps(found, indent=1))


@contextlib.contextmanager
def _noting(what: str, missing: list[str]) -> Iterator[None]:
    """Turns an error of the block into a line of `missing`."""
    try:
        yield
    except Exception as error:
        missing.append(f"there are no {what}: {error}")
