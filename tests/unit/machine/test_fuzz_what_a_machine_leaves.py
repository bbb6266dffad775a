"""A machine ran the user's code: whatever it reports and answers is a result or one clear error.

What once was another exception, or could be, is in ../corpus and tried again each time.
"""

import contextlib
import copy
import io
import json
import re
import struct
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.cli import console, junit, scenario_list, summary, topology_command
from testbed.cli.progress import PlainConsole
from testbed.cli.sweep import matrix, planning
from testbed.cli.words import plain_lines
from testbed.errors import InputError, TestbedError
from testbed.machine import pytests, runs, scenarios
from testbed.machine.jobs import Job
from testbed.machine.record import Origin, RunResult
from testbed.machine.runs import VariantRun
from testbed.machine.scenarios import Source
from testbed.protocol import EVENTS, Event, LabInfo, Made, VariantInfo, messages, requests
from testbed.records import event_reader, merged_captures, run_readme, switch_tables

CORPUS = Path(__file__).parents[1] / "corpus"
SOURCE = Source("mine", Path("mine/scenario.py"))
LAB: LabInfo = {"topology": "lab.clab.yml", "profiles": {"leaf": {"arp_age": 60}}}
VARIANT: VariantInfo = {"name": "as-is", "expected": "fault", "text": "", "settings": {}, "lab": LAB}
VARIANT_RUN = VariantRun("mine", "as-is", VARIANT)
ORIGIN = Origin("vm", "1.0", "c0de", "ef", "10.0", "tcg", None, None, file="scenario.py", files={})
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 1e308])
CAPTURE = struct.pack("<IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1)
CAPTURE += struct.pack("<IIII", 0, 7, 42, 42) + b"\xff" * 6 + b"\x02\x00\x02\x00\x00\x01" + b"\x08\x06" + bytes(28)
"""An ARP packet, at the seventh nanosecond."""
MADE: Made = {
    "topology": {"name": "pair", "interfaces": []},
    "epoch": {"realtime_ns": 0, "monotonic_ns": 0, "kernel_ns": None},
}
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
TEXTS = st.text(max_size=8) | st.sampled_from(["\x1b[2J", "\x9b31m", "\ud800", "\0", "\u202e", "a\r\nb"])


PROGRESS: list[dict[str, Any]] = [
    {"event": {"t": 1, "kind": "observed", "node": "leaf", "text": "it breaks", "data": {"observed": "fault"}}},
    {"event": {"t": 1, "kind": "evidence", "node": "", "text": "", "data": {"aged_s": 4.0, "completion": "SUCCESS"}}},
    {
        "event": {
            "t": 1,
            "kind": "completion",
            "node": "a",
            "text": "",
            "data": {"status": "RETRY_EXC_ERR", "elapsed_s": 4.0, "happened_ns": 5},
        }
    },
    {"settled": 5},
    {"made": {"topology": {"name": "pair"}, "epoch": {"realtime_ns": 1, "monotonic_ns": 2, "kernel_ns": 3}}},
    {"parameters": {"x": 1}},
    {"write": "\x1b[31mFAILED"},
    {"running": "test_a.py::test"},
    {"result": {"test": "test_a.py::test", "outcome": "failed", "virtual_s": 1.0, "directory": "", "text": "no"}},
    {"report": {"file": "reports/junitxml/report.xml", "given": "report.xml"}},
]
"""Lines that are right: of a variant, and from "write" on of pytest."""
INTERFACE = {
    "node": "a",
    "kind": "host",
    "interface": "eth1",
    "peer": "leaf:e1",
    "mac": "02:00:00:00:00:01",
    "address": "10.0.0.1/24",
    "address6": "",
    "gateway": "",
    "gateway6": "",
    "vlan": 10,
    "trunk": [20],
    "routed": False,
    "rdma": None,
}
NOTE = {"key": "mgmt", "where": "x.yml:1", "text": "has no effect", "lines": [1, 2]}
PARAMETERS = {"properties": {"x": {"default": 1, "description": "a number", "type": "integer", "enum": [1, 2]}}}
ANSWERS: dict[str, Any] = {
    "outcome.json": {
        "observed": "fault",
        "evidence": {"aged_s": 4.0, "mac": "02:…"},
        "failures": ["x"],
        "warnings": ["y"],
        "trace": "c0ffee",
        "virtual_s": 14400.5,
    },
    "info.json": {
        "name": "mine",
        "title": "Mine",
        "text": "What happens.",
        "tags": ["arp"],
        "parameters": PARAMETERS,
        "variants": [{"name": "as-is", "expected": "fault", "text": "it breaks", "settings": {"x": 2}, "lab": LAB}],
        "compared": "as-is",
        "limit_s": 600.0,
        "busy_limit_s": 300.0,
        "training": False,
        "packages": [],
        "images": [],
        "notes": [NOTE],
    },
    "topology.json": {
        "name": "pair",
        "interfaces": [INTERFACE],
        "notes": [NOTE],
        "images": ["i:1"],
        "binds": {"a": "a"},
    },
    "faults.json": [{"name": "link-down", "title": "a link", "text": "It is down.", "parameters": PARAMETERS}],
    "cni.json": {"result": {"cniVersion": "1.0.0"}, "kept": ["an address"]},
    "refusal.json": {
        "message": "no",
        "where": "x:1",
        "hint": "",
        "also": [{"where": "x:2", "message": "no"}],
        "status": 2,
    },
}
"""What is right, under the names that the corpus has."""
REQUESTS = {
    "outcome.json": requests.Variant(scenario="scenario.py", lab=LAB),
    "info.json": requests.Describe(name="mine", scenario="scenario.py", settings={}, named=[]),
    "topology.json": requests.Plan(file="x.yml"),
    "faults.json": requests.Faults(),
    "cni.json": requests.Cni(command="add", conflist="x.conflist"),
    "refusal.json": requests.Schema(),
}
"""What each answers; that of `refusal.json` is an error."""


@st.composite
def damaged(draw: st.DrawFn, right: Any) -> Any:
    """What is right with up to two of its values replaced or left out."""
    whole = {"": copy.deepcopy(right)}
    for _ in range(draw(st.integers(0, 2))):
        place, key = draw(st.sampled_from([*places(whole)]))
        if draw(st.booleans()):
            place[key] = draw(TEXTS | VALUES)
        elif place is not whole:
            del place[key]
    return whole[""]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every value in `value`: what it is in, and its key there."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    for key in keys:
        yield value, key
        yield from places(value[key])


def shown(draw: Callable[[PlainConsole], None], width: int = 80) -> str:
    """What a terminal gets: nothing in it is obeyed."""
    file = io.StringIO()
    draw(PlainConsole(file=file, width=width))
    said = file.getvalue()
    assert {c for c in said if unicodedata.category(c) in ("Cc", "Cf", "Cs")} <= {"\n"}
    return said


class Drawing(runs.Listener):
    """Draws each event in every way there is."""

    def event(self, variant_run: VariantRun, event: Event) -> None:
        shown(lambda to: to.print(console.event_line(event)))
        shown(lambda to: to.print(console.event_rows(event)))
        console.logged(event)
        running = console.Running("mine")
        running.add(event)
        shown(lambda to: to.print(running.render(3)))


def follow(line: bytes, out: Path) -> None:
    """What becomes of a line of progress. MachineError if it is no event."""
    progress = runs.Shown(VARIANT_RUN, out, Drawing())
    try:
        of_job("outcome.json", progress.listen).receive(messages.load(line))
    finally:
        progress.keep()
        for event in event_reader.read(out / EVENTS):
            matrix.outage([event, event], None)
        (out / "a-eth1.pcap").write_bytes(CAPTURE)
        merged_captures.write(out, progress.made or MADE, progress.events)
        run_readme.explain(out, "What it left")
        if progress.events:
            switch_tables.after(out, event_reader.Log.read(out), [0])
        for file in out.iterdir():
            file.unlink()


def follow_tests(line: bytes, out: Path) -> None:
    """The same of a line of pytest's."""
    recorder = pytests.SessionRecorder(out, shown_as_is)
    of_job("outcome.json", recorder.listen).receive(messages.load(line))
    recorder.cut_short()
    recorder.deliver(["x"])
    junit.write_session(pytests.ended(out), None, junit.identity(1, "virtual", ORIGIN, out), out / "junit.xml")
    ElementTree.parse(out / "junit.xml")  # noqa: S314  # our own file


def of_job(name: str, listen: Callable[[dict[str, Any]], None] = lambda _: None) -> Job[Any]:
    return Job([REQUESTS[name]], limit_s=60, listen=listen)


def report(record: bytes) -> bytes:
    return b'{"id": 0, "report": ' + record + b"}"


def shown_as_is(text: str) -> None:
    """Colours are the user's; nothing else of what a terminal obeys is there, and it can be written."""
    text.encode()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert {c for c in plain if unicodedata.category(c) == "Cc"} <= set("\n\t\r\b")


def refused_or(do: Callable[[], None]) -> None:
    """Does it, or shows the one error that it raises."""
    try:
        do()
    except TestbedError as error:
        refusal, status = str(error), error.exit_status
        shown(lambda to: to.print(plain_lines(refusal), soft_wrap=True))
        assert {status} <= {1, 2, 3}


def take(name: str, data: bytes) -> None:
    """Does with an answer what the commands do with it."""
    job = of_job(name)
    kind = b"error" if name == "refusal.json" else b"response"
    job.receive(messages.load(b'{"id": 0, "' + kind + b'": ' + data + b"}"))
    answer = job.answer(about=SOURCE.file, place=SOURCE.place)
    match name:
        case "outcome.json":
            result = runs.result_of(VARIANT_RUN, runs.verdict(job, SOURCE), 1.0)
            whole = RunResult.of("mine", 0, "virtual", 1.0, Path("out"), [result], ORIGIN)
            json.dumps(whole.json())
            for width in 60, 200:
                shown(lambda to: summary.report(to, [whole], 1.0), width)
        case "info.json":
            info = scenarios.info_of(answer, SOURCE)
            json.dumps(info)
            for variant_run in runs.choose(info, []):
                assert (Path("out") / variant_run.label).parent == Path("out")
            properties = info["parameters"].get("properties", {})
            shown(lambda to: to.print(scenario_list.parameters(properties)))
            shown(lambda to: to.print(scenario_list.variants(info)))
            for key in properties:
                with contextlib.suppress(InputError):
                    planning.values_over(key, info)
        case "topology.json":
            shown(lambda to: to.print(topology_command.table(answer)))
        case "faults.json":
            for fault in answer:
                shown(
                    lambda to, fault=fault: to.print(
                        scenario_list.parameters(fault["parameters"].get("properties", {}))
                    )
                )
        case "cni.json":
            assert isinstance("; ".join(answer["kept"]), str)


@pytest.mark.parametrize("right", PROGRESS, ids=lambda record: next(iter(record)))
def test_any_line_of_progress(right: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    out = tmp_path_factory.mktemp("out")

    @given(damaged(right).map(json.dumps).map(str.encode).map(report) | st.binary(max_size=60))
    def check(line: bytes) -> None:
        refused_or(lambda: follow(line, out))
        refused_or(lambda: follow_tests(line, out))

    check()


@pytest.mark.parametrize("right", [*ANSWERS.values(), None], ids=[*ANSWERS, "none"])
def test_any_message(right: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Damaged around its content, too."""
    out = tmp_path_factory.mktemp("out")

    @given(damaged({"id": 0, "response": right, "report": {"event": right}, "error": right, "crash": "x"}))
    def check(message: Any) -> None:
        refused_or(lambda: follow(json.dumps(message).encode(), out))

    check()


@pytest.mark.parametrize("name", ANSWERS)
def test_any_answer(name: str) -> None:
    @given(damaged(ANSWERS[name]).map(json.dumps).map(str.encode) | st.binary(max_size=30))
    def check(data: bytes) -> None:
        refused_or(lambda: take(name, data))

    check()


def test_what_is_right_is_taken(tmp_path: Path) -> None:
    """Without this the tests above could not fail where everything is refused."""
    for record in PROGRESS:
        line = report(json.dumps(record).encode())
        (follow if {*record} & {"event", "settled", "made", "parameters"} else follow_tests)(line, tmp_path)
    for name, right in ANSWERS.items():
        if name != "refusal.json":
            take(name, json.dumps(right).encode())
    with pytest.raises(TestbedError, match="no") as refused:
        take("refusal.json", json.dumps(ANSWERS["refusal.json"]).encode())
    assert (refused.value.exit_status, refused.value.also) == (2, (("mine/x:2", "no"),))


@pytest.mark.parametrize("file", sorted((CORPUS / "progress").iterdir()), ids=lambda file: file.stem)
def test_progress_that_once_broke_something(file: Path, tmp_path: Path) -> None:
    for line in file.read_bytes(), report(file.read_bytes().strip()):
        refused_or(lambda line=line: follow(line, tmp_path))  # type: ignore[misc]
        refused_or(lambda line=line: follow_tests(line, tmp_path))  # type: ignore[misc]


@pytest.mark.parametrize("file", sorted((CORPUS / "answers").iterdir()), ids=lambda file: file.name)
def test_answers_that_once_broke_something(file: Path) -> None:
    refused_or(lambda: take(".".join(file.name.split(".")[:2]), file.read_bytes()))
