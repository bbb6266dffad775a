"""Switch tables at a moment: those that were saved last, and what changed since."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from lab_traffic import SERVER, event, learned

from testbed.errors import InputError
from testbed.protocol import Event
from testbed.records import switch_tables
from testbed.records.event_reader import Log

ENTRY = ("leaf", "arp", 20, "10.0.20.100")
OTHER = "02:00:04:00:00:01"


@pytest.fixture
def kept(tmp_path: Path):
    """Write the files of a variant; the tables after each of its events."""

    def keep(events: Sequence[Event], saved: Sequence[dict[str, Any]] = ()) -> list[switch_tables.Tables]:
        (tmp_path / "events.jsonl").write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in events))
        (tmp_path / "tables.jsonl").write_text("".join(json.dumps(row) + "\n" for row in saved))
        log = Log.read(tmp_path)
        return [switch_tables.after(tmp_path, log, [number])[0] for number in range(len(events))]

    return keep


def change(t: int, kind: str, **data: Any) -> Event:
    return event(t, kind, "leaf", "", vlan=20, ip="10.0.20.100", **data)


def test_an_entry_is_what_its_last_event_made_of_it(kept) -> None:
    found = kept(
        [
            change(1, "arp.miss"),
            learned(2),
            change(3, "arp.refresh", mac=SERVER),
            change(4, "arp.updated", mac=OTHER, old_mac=SERVER, port="e3", reason="garp"),
            change(5, "arp.aged", mac=OTHER),
            change(6, "arp.failed", reason="no-answer"),
        ]
    )
    texts = ["asking", f"{SERVER} on e2", f"{SERVER} on e2", f"{OTHER} on e3", None, "no answer"]
    assert [one.get(ENTRY) for one in found] == texts


def test_macs_are_on_ports_until_they_age_or_move(kept) -> None:
    of_mac = {"vlan": 20, "mac": SERVER}
    found = kept(
        [
            event(1, "fdb.learned", "leaf", "", **of_mac, port="e2"),
            event(2, "fdb.moved", "leaf", "", **of_mac, port="e3", old_port="e2"),
            event(3, "fdb.flushed", "leaf", "", **of_mac, port="e3"),
        ]
    )
    assert [one.get(("leaf", "fdb", 20, SERVER)) for one in found] == ["on e2", "on e3", None]


def test_what_was_saved_counts_from_its_time_on_and_events_behind_it(kept) -> None:
    """Entries may be written by hand, and then there is no event of it."""
    row = {"vlan": 20, "ip": "10.0.20.100", "state": "resolved", "mac": OTHER, "port": "e9", "age": 1.0}
    saved = [{"t": 15, "after": "a step", "switch": "leaf", "arp": [row], "nd": [], "fdb": []}]
    events = [learned(10), event(20, "step", "", "next"), change(30, "arp.aged", mac=OTHER)]
    assert [one.get(ENTRY) for one in kept(events, saved)] == [f"{SERVER} on e2", f"{OTHER} on e9", None]


def test_each_switch_has_its_own(kept) -> None:
    saved = [{"t": 5, "switch": "leaf", "arp": [], "nd": [], "fdb": []}]
    events = [learned(10), {**learned(11), "node": "spine"}, change(12, "arp.cleared", mac=SERVER)]
    assert kept(events, saved)[-1] == {("spine", *ENTRY[1:]): f"{SERVER} on e2"}


def test_each_switch_is_saved_at_its_own_time(kept) -> None:
    row = {"vlan": 20, "ip": "10.0.20.100", "state": "resolved", "mac": OTHER, "port": "e9", "age": 1.0}
    saved = [{"t": 5, "switch": "leaf", "arp": []}, {"t": 15, "switch": "spine", "arp": [row]}]
    found = kept([learned(10), {**learned(10), "node": "spine"}, event(20, "step")], saved)[-1]
    assert found == {ENTRY: f"{SERVER} on e2", ("spine", *ENTRY[1:]): f"{OTHER} on e9"}


def test_two_moments_at_once_are_what_they_are_one_by_one(kept, tmp_path: Path) -> None:
    events = [
        learned(1),
        change(2, "arp.aged", mac=SERVER),
        learned(3),
        change(4, "arp.updated", mac=OTHER, port="e3", reason="garp"),
    ]
    one_by_one = kept(events)
    log = Log.read(tmp_path)
    for first in range(-1, 4):
        for last in range(max(first, 0), 4):
            assert switch_tables.after(tmp_path, log, [first, last]) == [
                one_by_one[first] if first >= 0 else {},
                one_by_one[last],
            ]


def test_only_what_is_not_the_same_differs() -> None:
    one, other = {ENTRY: "a", (*ENTRY[:3], "x"): "same"}, {(*ENTRY[:3], "x"): "same", (*ENTRY[:3], "y"): "b"}
    assert switch_tables.differing(one, other) == [(ENTRY, "a", ""), ((*ENTRY[:3], "y"), "", "b")]


@pytest.mark.parametrize("line", ["{", "7", '{"t": "x", "switch": "leaf"}', "[" * 100_000])
def test_a_damaged_file_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "events.jsonl").write_text(json.dumps(learned(1)) + "\n")
    (tmp_path / "tables.jsonl").write_text(f"\n{line}\n")
    with pytest.raises(InputError) as error:
        switch_tables.after(tmp_path, Log.read(tmp_path), [0])
    assert error.value.where == f"{tmp_path}/tables.jsonl:2"
