"""The event log: what happened in the order of virtual time. Its bytes are the run's fingerprint."""

import hashlib
import json
import math
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from testbed.protocol import Event
from testbed.scenario.event_log import EventLog

START = 1_000_000_000


def log_of(clock: Any, *told: tuple[int, str]) -> EventLog:
    """A log in which each text was told after so many nanoseconds."""
    clock.ns = START
    log = EventLog(lambda _: None)
    for t, text in told:
        clock.ns = START + t
        log.emit("step", "leaf", text)
    return log


def test_time_begins_with_the_log(clock: Any) -> None:
    log = EventLog(lambda _: None)
    assert log.now == 0
    clock.ns += 1_500_000_000
    log.emit("step", "", "pod A is deleted")
    assert log.now == log.events[0]["t"] == 1_500_000_000


def test_a_listener_hears_each_event_at_once_and_as_it_was_told(clock: Any) -> None:
    heard: list[Event] = []
    log = EventLog(heard.append)
    log.emit("arp.learned", "leaf", "learned", mac="02:00", port="e2")
    assert heard == [
        {"t": 0, "kind": "arp.learned", "node": "leaf", "text": "learned", "data": {"mac": "02:00", "port": "e2"}}
    ]
    log.emit("step", "", "next")
    assert [event["text"] for event in heard] == ["learned", "next"]


def test_what_is_told_late_has_the_time_at_which_it_happened(clock: Any, tmp_path: Path) -> None:
    log = EventLog(lambda _: None)
    clock.ns += 100
    log.emit("sleep", "", "told first")
    log.emit("arp.aged", "leaf", "happened first", at_ns=START + 40)
    log.write(tmp_path / "events.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [(line["t"], line["text"]) for line in lines] == [(40, "happened first"), (100, "told first")]


def test_a_settled_log_says_up_to_when_no_event_can_come(clock: Any) -> None:
    """What the switches did comes late, and before the log is settled."""
    heard: list[Any] = []
    log = EventLog(lambda event: heard.append(event["text"]), heard.append)
    clock.ns += 100
    log.emit("step", "", "step")

    def drain() -> None:
        clock.ns += 50
        log.emit("arp.learned", "leaf", "learned", at_ns=START + 40)

    log.settle(drain)
    assert heard == ["step", "learned", 100]


def test_what_comes_after_its_moment_was_settled_has_the_time_of_its_report(clock: Any, tmp_path: Path) -> None:
    """Else it would be before events that were shown already."""
    log = EventLog(lambda _: None)
    clock.ns += 100
    log.emit("step", "", "step")
    log.settle(lambda: None)
    clock.ns += 100
    log.emit("completion", "client", "collected late", at_ns=START + 40, status="SUCCESS")
    log.write(tmp_path / "events.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [(line["t"], line["text"]) for line in lines] == [(100, "step"), (200, "collected late")]
    assert lines[1]["data"] == {"status": "SUCCESS", "happened_ns": 40}


def test_data_of_an_event_is_what_json_holds_whatever_a_scenario_gives(clock: Any, tmp_path: Path) -> None:
    log = EventLog(lambda _: None)
    log.emit("note", "", "text", ip=IPv4Address("10.0.0.1"), path=Path("a"), found={1: {2}}, some=(1, None))
    log.write(tmp_path / "events.jsonl")
    found = json.loads((tmp_path / "events.jsonl").read_text())["data"]
    assert found == {"ip": "10.0.0.1", "path": "a", "found": {"1": "{2}"}, "some": [1, None]}


def test_what_json_and_utf8_cannot_hold_is_text(clock: Any, tmp_path: Path) -> None:
    log = EventLog(lambda _: None)
    data: dict[str, Any] = {"number": math.nan, "most": -math.inf, "name": "b\udcff", "key\udcff": [math.inf]}
    log.emit("mine", "a", "text \udcff", **data)
    log.write(tmp_path / "events.jsonl")
    event = json.loads((tmp_path / "events.jsonl").read_text(), parse_constant=pytest.fail)
    assert event["text"] == "text ?"
    assert event["data"] == {"number": "nan", "most": "-inf", "name": "b?", "key?": ["inf"]}


def test_events_of_one_moment_keep_the_order_in_which_they_were_told(clock: Any, tmp_path: Path) -> None:
    log_of(clock, (5, "z"), (5, "a"), (5, "m")).write(tmp_path / "events.jsonl")
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["z", "a", "m"]


def test_a_digest_is_that_of_the_file(clock: Any, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    digest = log_of(clock, (1, "4 µs ✓"), (2, "a\nb")).write(path)
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert path.read_bytes().splitlines()[0] == (
        '{"t":1,"kind":"step","node":"leaf","text":"4 µs ✓","data":{}}'.encode()
    )
    assert path.read_bytes().count(b"\n") == 2


def test_the_same_story_has_the_same_digest_and_any_other_a_different_one(clock: Any, tmp_path: Path) -> None:
    story = (1, "a"), (2, "b")
    others = [((1, "a"), (3, "b")), ((1, "a"), (2, "c")), ((1, "a"),), ((2, "b"), (2, "a")), ()]
    digests = [log_of(clock, *told).write(tmp_path / "log") for told in (story, story, *others)]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 1 + len(others)


def test_events_are_found_by_kind_and_data(clock: Any) -> None:
    log = EventLog(lambda _: None)
    for mac, port in (("02:00", "e2"), ("02:01", "e3"), ("02:00", "e3")):
        log.emit("arp.learned", "leaf", f"{mac} on {port}", mac=mac, port=port)
    log.emit("arp.aged", "leaf", "aged", mac="02:00")
    assert [event["data"]["port"] for event in log.find("arp.learned", mac="02:00")] == ["e2", "e3"]
    assert [event["text"] for event in log.find("arp.learned", mac="02:00", port="e3")] == ["02:00 on e3"]
    assert len(log.find("arp.learned")) == 3
    assert log.find("arp.learned", vlan=1) == log.find("arp") == []
