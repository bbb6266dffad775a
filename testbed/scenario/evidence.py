"""Evidence of a lab beside its events: the switches' tables and the counters over time, the counters at the end."""

import contextlib
import json
from collections.abc import Iterator, Mapping

from testbed.kernel.rxe_devices import counters_of
from testbed.lab import HostInterface, Lab
from testbed.protocol import COUNTERS, TABLES, Event, events
from testbed.scenario.event_log import EventLog

COUNTED = {
    kind.name for kind in (events.COLLECTIVE, events.JOB, events.JOB_STEP, events.JOB_STALLED, events.JOB_RESUMED)
}
Places = dict[str, dict[str, int]]
"""The counters of a node, by the name of an interface or RDMA device and their own names."""


def changes(before: Mapping[str, Places], now: Mapping[str, Places]) -> dict[str, Places]:
    """Return the counters of `now` by their nodes that differ from `before`; one that is missing there was 0."""
    found: dict[str, Places] = {}
    for node, places in now.items():
        for place, counters in places.items():
            known = before.get(node, {}).get(place, {})
            if changed := {name: value for name, value in counters.items() if value != known.get(name, 0)}:
                found.setdefault(node, {})[place] = changed
    return found


class Evidence:
    """The files of a lab in the run directory. `count` and `save` return what could not be read, and never raise,
    because the lab may be in any state and the error that ended the run must not be hidden."""

    def __init__(self, lab: Lab, log: EventLog) -> None:
        self._lab = lab
        self._log = log
        self._counted: dict[str, Places] = {}
        """The counters in the last lines of counters.jsonl."""

    def save(self, text: str) -> list[str]:
        """Save the switch tables and the counters; these go into counters.json too."""
        missing: list[str] = []
        with _noting("switch tables", missing):
            self.save_tables(text)
        with _noting("counters", missing):
            found = counters(self._lab, missing)
            if found:
                self._lab.file("counters.json").write_text(json.dumps(found, indent=1))
            self._append(text, found)
        return missing

    def save_tables(self, text: str) -> None:
        """Append each switch's tables to tables.jsonl."""
        with self._lab.file(TABLES).open("a") as file:
            for switch in self._lab.switches():
                row = {"t": self._log.now, "after": text, "switch": switch.name, **switch.tables()}
                file.write(json.dumps(row) + "\n")

    def count(self, text: str) -> list[str]:
        """Append the counters that have changed since the last call to counters.jsonl."""
        missing: list[str] = []
        with _noting("counters", missing):
            self._append(text, counters(self._lab, missing))
        return missing

    def on_event(self, event: Event) -> None:
        """Append counters when a job begins, stalls, goes on or ends, and when a collective has ended."""
        if event["kind"] in COUNTED:
            self.count(event["text"])

    def sample(self) -> None:
        """Append the counters and fill levels of queues to counters.jsonl: those of links with a rate, a delay or a
        loss, and the ports of lossless links."""
        found: dict[str, dict[str, Places]] = {}
        for node in self._lab.nodes.values():
            if queues := {end.name: counted for end in node.interfaces.values() if (counted := end.queue_counters())}:
                found[node.name] = {"interfaces": queues, "rdma": {}}
        self._append("a sample", found)

    def _append(self, text: str, found: Mapping[str, Mapping[str, Places]]) -> None:
        now = {node: {**kinds["interfaces"], **kinds["rdma"]} for node, kinds in found.items()}
        changed = changes(self._counted, now)
        line = json.dumps({"t": self._log.now, "after": text, "counters": changed}, separators=(",", ":"))
        with self._lab.file(COUNTERS).open("a") as file:
            file.write(line + "\n")
        for node, places in changed.items():
            for place, counters in places.items():
                self._counted.setdefault(node, {}).setdefault(place, {}).update(counters)


def counters(lab: Lab, missing: list[str]) -> dict[str, dict[str, Places]]:
    """Return the counters of all interfaces and RDMA devices by their nodes; `missing` gets what cannot be read."""
    found: dict[str, dict[str, Places]] = {}
    devices: dict[str, list[HostInterface]] = {}
    for node in lab.nodes.values():
        ends = node.interfaces.values()
        with _noting(f"counters of {node}", missing):
            known = node.kernel.all_statistics()
            interfaces = {end.name: known[end.index] | end.queue_counters() for end in ends if end.index in known}
            found[node.name] = {"interfaces": interfaces, "rdma": {}}
            if own := [end for end in ends if isinstance(end, HostInterface) and end.rdma]:
                devices[node.namespace] = own
    with _noting("counters of RDMA devices", missing):
        names = {place: [end.device for end in ends] for place, ends in devices.items()}
        counted = counters_of(names) if names else {}
        for node in lab.nodes.values():
            for end in devices.get(node.namespace, ()):
                if end.device in counted:
                    found[node.name]["rdma"][end.device] = end.named(counted[end.device])
    return found


@contextlib.contextmanager
def _noting(what: str, missing: list[str]) -> Iterator[None]:
    """Turn an error of the block into a line of `missing`."""
    try:
        yield
    except Exception as error:
        missing.append(f"there are no {what}: {error}")
