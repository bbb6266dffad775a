"""A variant is as expected when users saw what it expects and every expectation held; None never holds."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from testbed.errors import InputError
from testbed.faults import Injection, LinkDown
from testbed.protocol import Event, VariantOutcome
from testbed.scenario.event_log import EventLog
from testbed.scenario.evidence import Evidence, changes
from testbed.scenario.run import NOT_CHOSEN, Run, Variant

TRIES = 5


class FakeLab:
    """A lab without nodes in which a wait asks its condition a few times, and a switch's tables can be read."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.waits: list[float] = []
        self.slept: list[float] = []
        self.scheduler = self
        self.nodes: dict[str, Any] = {}
        self.injections: list[Injection] = []

    def wait(self, condition: Callable[[], bool], within: float) -> bool:
        self.waits.append(within)
        return any(condition() for _ in range(TRIES))

    def catch_up(self) -> None: ...

    def one_by_one(self, act: Callable[[], None]) -> None:
        act()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def file(self, name: str) -> Path:
        return self.directory / name

    def switches(self) -> list[Any]:
        return [SimpleNamespace(name="leaf", tables=lambda: {"arp": {"10.0.0.1": "02:00"}})]


class FakeNode(SimpleNamespace):
    """A node with an interface `e1`, which has these counters."""

    def __init__(self, name: str, counted: dict[str, int], queue: Mapping[str, int] = MappingProxyType({})) -> None:
        end = SimpleNamespace(name="e1", index=2, queue_counters=lambda: queue)
        kernel = SimpleNamespace(all_statistics=lambda: {1: {"rx_bytes": 7}, 2: dict(counted)})
        super().__init__(name=name, namespace=name, interfaces={"e1": end}, kernel=kernel)


@pytest.fixture
def lab(tmp_path: Path) -> FakeLab:
    return FakeLab(tmp_path)


@pytest.fixture
def run(lab: FakeLab) -> Run:
    """Of a variant that expects `healthy`."""
    return Run(lab, EventLog(lambda _: None), Variant("fixed", "healthy", "it works"))  # type: ignore[arg-type]


def values(*found: Any) -> Callable[[], Any]:
    """A probe that finds one value after the other, and the last for ever."""
    left: Iterable[Any] = iter(found[:-1])
    return lambda: next(left, found[-1])


def verdict(run: Run, tmp_path: Path) -> VariantOutcome:
    return run.outcome(tmp_path)


# Expectations


@pytest.mark.parametrize(
    ("actual", "expected"),
    [(0, 0), ("", ""), (False, False), ([], []), ("SUCCESS", "SUCCESS"), (7, lambda n: n > 3), ([], lambda x: not x)],
)
def test_an_expectation_that_holds_is_reported_and_no_failure(run: Run, actual: Any, expected: Any) -> None:
    assert run.expect("it is so", actual, expected) is True
    assert run.failures == []
    (event,) = run.log.find("expect", met=True)
    assert (event["text"], event["data"]["actual"]) == ("it is so", actual)


@pytest.mark.parametrize(
    ("actual", "expected", "failure"),
    [
        ("RETRY_EXC_ERR", "SUCCESS", "it is so: it was 'RETRY_EXC_ERR', not 'SUCCESS'"),
        (2, 3, "it is so: it was 2, not 3"),
        (2, lambda n: n > 3, "it is so: it was 2"),
        (1, None, "it is so: it was 1, not None"),
    ],
)
def test_an_expectation_that_does_not_hold_says_what_was_and_what_was_wanted(
    run: Run, actual: Any, expected: Any, failure: str
) -> None:
    assert run.expect("it is so", actual, expected) is False
    assert run.failures == [failure]
    assert len(run.log.find("expect", met=False)) == 1


@pytest.mark.parametrize("expected", [None, lambda _: True, lambda value: value is None])
def test_no_data_never_passes(run: Run, expected: Any) -> None:
    assert run.expect("there is an entry", None, expected) is False
    assert run.failures[0].startswith("there is an entry: it was None")


def test_a_test_s_answer_need_not_be_a_bool(run: Run) -> None:
    assert run.expect("frames were seen", 3, lambda frames: [frames]) is True
    assert run.expect("frames were seen", 0, lambda _: []) is False


def test_values_of_any_type_are_reported_as_json_can_hold_them(run: Run) -> None:
    run.expect("routes", {IPv4Address("10.0.0.1"): (IPv4Address("10.0.0.2"), {"via": {1}})}, lambda _: True)
    reported = run.log.events[0]["data"]["actual"]
    assert json.loads(json.dumps(reported)) == reported == {"10.0.0.1": ["10.0.0.2", {"via": "{1}"}]}


# What comes true in time


def test_what_comes_true_in_time_holds(run: Run, lab: FakeLab) -> None:
    assert run.eventually("the entry is there", values(None, "02:00", "02:01"), "02:01", within=30) is True
    assert (run.failures, lab.waits) == ([], [30])
    assert len(run.log.find("expect", met=True)) == 1


def test_what_does_not_come_true_is_one_failure_with_the_last_value(run: Run) -> None:
    assert run.eventually("the entry is there", values("02:00", "02:07"), "02:01", within=30) is False
    assert run.failures == ["the entry is there: it was '02:07', not '02:01'"]


def test_a_predicate_is_asked_of_data_only(run: Run) -> None:
    asked = []

    def many(count: int) -> bool:
        asked.append(count)
        return count > 3

    assert run.eventually("frames come", values(None, 1, 4), many, within=1) is True
    assert None not in asked
    assert run.eventually("there is none", values(None), lambda _: True, within=1) is False


# The verdict


def test_a_variant_is_as_expected_when_users_saw_it_and_all_held(run: Run, tmp_path: Path) -> None:
    run.expect("it works", 1, 1)
    run.observe("healthy", "the client reaches pod B")
    found = verdict(run, tmp_path)
    assert (found["observed"], found["failures"]) == ("healthy", [])
    assert run.log.events[-1]["text"] == "as expected"


def test_without_an_observation_it_is_unexpected(run: Run, tmp_path: Path) -> None:
    run.expect("it works", 1, 1)
    found = verdict(run, tmp_path)
    assert found["observed"] is None
    assert found["failures"] == ["the scenario ended without an observation"]
    assert run.log.events[-1]["text"] == "unexpected"


def test_the_wrong_observation_is_unexpected(run: Run, tmp_path: Path) -> None:
    run.observe("fault", "the client waits")
    found = verdict(run, tmp_path)
    assert found["observed"] == "fault"
    assert found["failures"] == ["users saw fault where healthy was expected"]


def test_the_right_observation_for_the_wrong_reason_is_unexpected(run: Run, tmp_path: Path) -> None:
    run.expect("the switch has pod B's MAC", "02:00", "02:01")
    run.observe("healthy", "the client reaches pod B")
    found = verdict(run, tmp_path)
    assert found["observed"] == "healthy"
    assert len(found["failures"]) == 1


def test_a_fault_that_is_expected_is_as_expected(lab: FakeLab, tmp_path: Path) -> None:
    run = Run(lab, EventLog(lambda _: None), Variant("as-is", "fault", "it breaks"))  # type: ignore[arg-type]
    run.observe("fault", "the work request dies")
    assert verdict(run, tmp_path)["failures"] == []


@pytest.mark.parametrize("second", ["healthy", "fault"])
def test_a_run_observes_once(run: Run, second: Any) -> None:
    run.observe("healthy", "the client reaches pod B")
    with pytest.raises(InputError, match=f"observed healthy before it observed {second}"):
        run.observe(second, "again")
    assert run.observed == "healthy"


def test_the_outcome_has_evidence_and_the_fingerprint_of_the_log(run: Run, tmp_path: Path) -> None:
    run.note(completion="SUCCESS", tries=1)
    run.note(tries=2)
    run.observe("healthy", "in the end")
    found = json.loads(json.dumps(verdict(run, tmp_path)))
    assert found["evidence"] == {"completion": "SUCCESS", "tries": 2}
    assert found["trace"] == hashlib.sha256((tmp_path / "events.jsonl").read_bytes()).hexdigest()
    last = json.loads((tmp_path / "events.jsonl").read_text().splitlines()[-1])
    assert (last["kind"], last["data"]) == ("verdict", {"failures": []})


# The run


def test_a_step_is_reported_at_its_begin_and_leaves_the_switch_tables_at_its_end(run: Run, tmp_path: Path) -> None:
    tables = tmp_path / "tables.jsonl"
    for text in ("pod A serves", "pod A is deleted"):
        before = tables.read_text() if tables.exists() else ""
        with run.step(text):
            assert run.log.events[-1]["text"] == text
            assert (tables.read_text() if tables.exists() else "") == before
    lines = [json.loads(line) for line in tables.read_text().splitlines()]
    assert [(line["after"], line["switch"]) for line in lines] == [
        ("pod A serves", "leaf"),
        ("pod A is deleted", "leaf"),
    ]
    assert lines[0]["arp"] == {"10.0.0.1": "02:00"}


def test_a_step_leaves_what_changed_of_the_counters(run: Run, lab: FakeLab, tmp_path: Path) -> None:
    counted = {"rx_bytes": 0, "rx_errors": 0}
    lab.nodes = {"leaf": FakeNode("leaf", counted, {"queue_waiting": 3, "queue_dropped": 0})}
    for text, received in (("pod A serves", 60), ("nothing happens", 60), ("pod A is deleted", 90)):
        with run.step(text):
            counted["rx_bytes"] = received
    lines = [json.loads(line) for line in (tmp_path / "counters.jsonl").read_text().splitlines()]
    assert [(line["after"], line["counters"]) for line in lines] == [
        ("pod A serves", {"leaf": {"e1": {"rx_bytes": 60, "queue_waiting": 3}}}),
        ("nothing happens", {}),
        ("pod A is deleted", {"leaf": {"e1": {"rx_bytes": 90}}}),
    ]
    assert [line["t"] for line in lines] == sorted(line["t"] for line in lines)


def test_the_end_has_all_counters_in_one_file_and_the_last_changes_in_the_other(
    run: Run, lab: FakeLab, tmp_path: Path
) -> None:
    lab.nodes = {"leaf": FakeNode("leaf", {"rx_bytes": 60, "rx_errors": 0})}
    assert Evidence(lab, run.log).save("the end") == []  # type: ignore[arg-type]
    whole = json.loads((tmp_path / "counters.json").read_text())
    assert whole == {"leaf": {"interfaces": {"e1": {"rx_bytes": 60, "rx_errors": 0}}, "rdma": {}}}
    last = json.loads((tmp_path / "counters.jsonl").read_text())
    assert (last["after"], last["counters"]) == ("the end", {"leaf": {"e1": {"rx_bytes": 60}}})


def test_counters_that_cannot_be_read_fail_the_run_and_do_not_end_it(run: Run, lab: FakeLab, tmp_path: Path) -> None:
    lab.nodes = {"broken": FakeNode("broken", {}), "leaf": FakeNode("leaf", {"rx_bytes": 60})}
    lab.nodes["broken"].kernel = SimpleNamespace(all_statistics=lambda: 1 / 0)
    for text in ("pod A serves", "pod A is deleted"):
        with run.step(text):
            pass
    (failure,) = run.failures
    assert failure.startswith("there are no counters of")
    assert failure.endswith("division by zero")
    first, _ = (json.loads(line) for line in (tmp_path / "counters.jsonl").read_text().splitlines())
    assert first["counters"] == {"leaf": {"e1": {"rx_bytes": 60}}}


def test_counters_that_cannot_be_written_are_reported_only(run: Run, lab: FakeLab, tmp_path: Path) -> None:
    lab.directory = tmp_path / "gone"
    (missing,) = Evidence(lab, run.log).count("pod A serves")  # type: ignore[arg-type]
    assert missing.startswith("there are no counters: ")


@pytest.mark.parametrize(
    ("before", "now", "changed"),
    [
        ({}, {"n": {"e1": {"a": 0}}}, {}),
        ({}, {"n": {"e1": {"a": 1, "b": 0}}}, {"n": {"e1": {"a": 1}}}),
        ({"n": {"e1": {"a": 1}}}, {"n": {"e1": {"a": 1}}}, {}),
        ({"n": {"e1": {"a": 1}}}, {"n": {"e1": {"a": 0}}}, {"n": {"e1": {"a": 0}}}),
        ({"n": {"e1": {"a": 1}}}, {}, {}),
        (
            {"n": {"e1": {"a": 1}}},
            {"m": {"e1": {"a": 1}}, "n": {"e2": {"a": 2}}},
            {"m": {"e1": {"a": 1}}, "n": {"e2": {"a": 2}}},
        ),
    ],
    ids=["zero", "the first time", "the same", "a new device of the name", "gone", "another node and place"],
)
def test_only_what_changed_is_written(before: Any, now: Any, changed: Any) -> None:
    assert changes(before, now) == changed


def test_evidence_may_have_any_name_and_any_value(run: Run) -> None:
    run.note(kind="GARP", text="none", peer=IPv4Address("10.0.0.1"))
    assert run.evidence == {"kind": "GARP", "text": "none", "peer": "10.0.0.1"}


def test_users_see_one_of_two_things(run: Run) -> None:
    with pytest.raises(InputError, match="users see 'fault' or 'healthy', not 'broken'"):
        run.observe("broken", "it is so")  # type: ignore[arg-type]


def test_evidence_that_cannot_be_read_hides_nothing(run: Run, lab: FakeLab, tmp_path: Path) -> None:
    """A node of which the counters cannot be read."""
    lab.nodes = {"leaf": FakeNode("leaf", {})}
    lab.nodes["leaf"].kernel = SimpleNamespace(all_statistics=lambda: 1 / 0)
    (missing,) = Evidence(lab, run.log).save("the run was cut short")  # type: ignore[arg-type]
    assert missing.endswith(": division by zero")
    assert json.loads((tmp_path / "tables.jsonl").read_text())["after"] == "the run was cut short"
    assert not (tmp_path / "counters.json").exists()


def test_a_sleep_is_part_of_the_run(run: Run, lab: FakeLab) -> None:
    run.sleep(1600, "the address rests")
    assert lab.slept == [1600]
    assert [event["text"] for event in run.log.find("sleep", seconds=1600)] == ["1600 s: the address rests"]


def test_a_completion_is_reported_when_it_happened(run: Run) -> None:
    zero = run.log.zero_ns
    ends = {"near": ("10.0.10.2", 17), "far": ("10.0.20.100", 18)}
    completion = SimpleNamespace(opcode="RDMA_WRITE", status="RETRY_EXC_ERR", elapsed_s=0.2684, t_ns=zero + 77, **ends)
    near: Any = SimpleNamespace(node=SimpleNamespace(name="client"))
    assert run.completed(near, completion) is completion  # type: ignore[arg-type]
    (event,) = run.log.find("completion", status="RETRY_EXC_ERR")
    assert (event["t"], event["node"]) == (77, "client")
    assert event["text"] == "RDMA_WRITE ends with RETRY_EXC_ERR after 268.4 ms"
    assert (event["data"]["near"], event["data"]["far"]) == (["10.0.10.2", 17], ["10.0.20.100", 18])


def test_a_fault_that_is_left_out_is_reported_and_is_no_failure(lab: FakeLab) -> None:
    """It is never injected: this lab cannot have it."""
    lab.injections = []  # type: ignore[attr-defined]
    events: list[Event] = []
    variant = Variant("fixed", "healthy", "it works")
    run = Run(lab, EventLog(events.append), NOT_CHOSEN)  # type: ignore[arg-type]
    run.begin(variant, [1, 2])
    with run.fault(LinkDown(end="a:e1")) as injection:
        assert not injection.active
    run.inject(LinkDown(end="b:e1"), after=3, lasting=1).recover()
    run.observe("healthy", "all is well")
    assert run.outcome(lab.directory)["failures"] == []
    left_out = [event["data"] for event in events if event["kind"] == "left-out"]
    assert left_out == [{"number": 1, "fault": "link-down end=a:e1"}, {"number": 2, "fault": "link-down end=b:e1"}]


def test_faults_are_numbered_as_they_are_injected(lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    injected: list[str] = []
    monkeypatch.setattr(Injection, "inject_after", lambda self, *_: injected.append(self.fault.end))
    run = Run(lab, EventLog(lambda _: None), NOT_CHOSEN)  # type: ignore[arg-type]
    run.begin(Variant("fixed", "healthy", "it works"), [2, 4])
    for end in "a:e1", "b:e1", "c:e1", "d:e1", "e:e1":
        run.inject(LinkDown(end=end))
    assert injected == ["a:e1", "c:e1", "e:e1"]
