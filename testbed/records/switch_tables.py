"""The ARP, ND and MAC tables of the switches at a moment of a run: the last saved ones, and the events since."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import InputError
from testbed.protocol import TABLES, Event, events
from testbed.records import json_files
from testbed.records.event_reader import Log

NAMES = ("arp", "nd", "fdb")
OF_TABLES = re.compile(rb'"kind": ?"(?:arp|nd|fdb)[.]')
"""Pattern in the line of an event of a table."""
ENTRY = re.compile(
    rb'"kind": ?"(\w+)[.]\w+", ?"node": ?"([^"]*)".*"data": ?{"vlan": ?([0-9]+), ?"(?:ip|mac)": ?"([^"]*)"'
)
"""Pattern in such a line that starts its data with an entry."""
ASKING, UNANSWERED = "asking", "no answer"
SET = (events.LEARNED, events.UPDATED, events.FDB_LEARNED, events.FDB_MOVED)
LEFT: dict[events.AnyKind, str | None] = {
    **dict.fromkeys((events.AGED, events.EVICTED, events.CLEARED, events.FDB_AGED, events.FDB_FLUSHED), None),
    events.MISS: ASKING,
    events.FAILED: UNANSWERED,
}
"""Text of an entry after events that do not write it."""
Key = tuple[str, str, int, str]
"""Switch, table, VLAN, and the IP address, or the MAC in the `fdb`."""
Tables = dict[Key, str]
"""Entries in words, such as `02:00:00:00:00:01 on e1`."""


@dataclass(frozen=True)
class Change:
    """The new text of an entry after the event `number`; None if it is gone."""

    number: int
    t: int
    key: Key
    text: str | None


def after(directory: Path, log: Log, numbers: Sequence[int]) -> list[Tables]:
    """Return the tables in a variant's directory after each of these events of its log, the earliest first; -1 is
    before all events. InputError for damaged files."""
    rows = list(_saved(directory / TABLES))
    times = [log.event(number)["t"] if number >= 0 else -1 for number in numbers]
    saved = [{str(row["switch"]): row for row in rows if row["t"] <= time} for time in times]
    since = min((row["t"] for row in saved[0].values()), default=None)
    changes = _changes(log, numbers[0], numbers[-1], since)
    return [_tables(base, changes, number) for base, number in zip(saved, numbers, strict=True)]


def _tables(saved: Mapping[str, Mapping[str, Any]], changes: Sequence[Change], number: int) -> Tables:
    entries = {key: text for row in saved.values() for key, text in _entries(row)}
    times = {switch: row["t"] for switch, row in saved.items()}
    for change in changes:
        if change.number > number:
            break
        if change.t <= times.get(change.key[0], -1):
            continue
        if change.text is None:
            entries.pop(change.key, None)
        else:
            entries[change.key] = change.text
    return entries


def _saved(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of tables.jsonl, oldest first."""
    for number, row in json_files.lines(file):
        match row:
            case {"t": int(), "switch": str()}:
                yield row
            case _:
                raise InputError("is not a line of switch tables", where=f"{file}:{number}")


def _entries(row: Mapping[str, Any]) -> Iterator[tuple[Key, str]]:
    for table in NAMES:
        found = row.get(table)
        for entry in found if isinstance(found, list) else ():
            match entry:
                case {"vlan": int(vlan), "ip": str(ip), "mac": mac, "port": port, "state": state}:
                    text = _text(mac, port) if mac else UNANSWERED if state in ("held", "failed") else str(state)
                    yield (row["switch"], table, vlan, ip), text
                case {"vlan": int(vlan), "mac": str(mac), "port": port}:
                    yield (row["switch"], table, vlan, mac), _text("", port)


def _changes(log: Log, first: int, last: int, since: int | None) -> list[Change]:
    """Return the changes up to the event `last`, without those at `since` and before, oldest first. Up to the event
    `first` the last one of each entry is enough: most lines need not be parsed."""
    found = []
    changed: set[tuple[bytes, ...]] = set()
    for number in range(last, -1, -1):
        line = log.lines[number]
        if not OF_TABLES.search(line):
            continue
        entry = ENTRY.search(line)
        if entry and entry.groups() in changed:
            continue
        event = log.event(number)
        if since is not None and event["t"] <= since:
            break
        if change := _change(number, event):
            found.append(change)
            if entry and number <= first:
                changed.add(entry.groups())
    return found[::-1]


def _change(number: int, event: Event) -> Change | None:
    match data := events.read(event):
        case events.Fdb(vlan=vlan, mac=name, port=port):
            written = _text("", port)
        case events.Neighbour(vlan=int(vlan), ip=str(name)):
            written = _text(data.mac, data.port) if isinstance(data, events.Claim) else ""
        case _:
            return None
    if data.kind not in SET and data.kind not in LEFT:
        return None
    table = data.kind_name.partition(".")[0]
    text = written if data.kind in SET else LEFT[data.kind]
    return Change(number, event["t"], (event["node"], table, vlan, name), text)


def _text(mac: object, port: object) -> str:
    return " ".join(filter(None, (str(mac or ""), f"on {port}" if port else "")))


def differing(one: Tables, other: Tables) -> list[tuple[Key, str, str]]:
    """Return the entries that differ, empty where one side has none."""
    keys = sorted(one.keys() | other.keys())
    return [(key, one.get(key, ""), other.get(key, "")) for key in keys if one.get(key) != other.get(key)]
