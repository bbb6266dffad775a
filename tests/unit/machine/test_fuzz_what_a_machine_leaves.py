"""A machine ran the user's code: whatever it reports and leaves is a result or one clear error.

What once was another exception, or could be, is in ../corpus and tried again each time.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.cli import catalogue, console, matrix, topology
from testbed.cli.progress import PlainConsole
from testbed.cli.words import plain_lines
from testbed.errors import InputError, MachineError, TestbedError
from testbed.machine import local, runs, scenarios
from testbed.machine.record import Identity
from testbed.machine.runs import RunResult, Settings, Telling
from testbed.machine.scenarios import Source
from testbed.protocol import CniAnswer, Event, FaultInfo, PlanInfo, VariantInfo

CORPUS = Path(__file__).parents[1] / "corpus"
SOURCE = Source("mine", Path("mine/scenario.py"))
VARIANT: VariantInfo = {"name": "as-is", "expected": "fault", "text": "", "settings": {}}
TELLING = Telling("mine", "as-is", VARIANT)
IDENTITY = Identity("vm", "1", "c0de")
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -(10**400), 1e308])
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
TEXTS = st.text(max_size=8) | st.sampled_from(["\x1b[2J", "\x9b31m", "\ud800", "\0", "\u202e", "a\r\nb"])


EVENT = {"event": {"t": 1, "kind": "observed", "node": "leaf", "text": "it breaks", "data": {"observed": "fault"}}}
EVIDENCE = {"t": 1, "kind": "evidence", "node": "", "text": "", "data": {"aged_s": 4.0, "completion": "RETRY_EXC_ERR"}}
INTERFACE = {
    "node": "a", "kind": "host", "interface": "eth1", "peer": "leaf:e1", "mac": "02:00:00:00:00:01",
    "address": "10.0.0.1/24", "address6": "", "gateway": "", "gateway6": "", "vlan": 10, "trunk": [20], "routed": False,
    "rdma": None,
}  # fmt: skip
PARAMETERS = {"properties": {"x": {"default": 1, "description": "a number", "type": "integer", "enum": [1, 2]}}}
ANSWERS: dict[str, Any] = {
    "outcome.json": {
        "observed": "fault", "as_expected": False, "evidence": {"aged_s": 4.0, "mac": "02:…"}, "failures": ["x"],
        "trace": "c0ffee", "virtual_s": 14400.5,
    },
    "info.json": {
        "name": "mine", "title": "Mine", "text": "What happens.", "tags": ["arp"], "parameters": PARAMETERS,
        "variants": [{"name": "as-is", "expected": "fault", "text": "it breaks", "settings": {"x": 2}}],
        "compared": "as-is", "limit_s": 600.0, "busy_limit_s": 60.0, "training": False, "packages": [], "notes": [],
    },
    "topology.json": {"name": "pair", "interfaces": [INTERFACE]},
    "faults.json": [{"name": "link-down", "title": "a link", "text": "It is down.", "parameters": PARAMETERS}],
    "cni.json": {"result": {"cniVersion": "1.0.0"}, "kept": ["an address"]},
    "refusal.json": {"message": "no", "where": "x:1", "hint": "", "also": [["x:2", "no"]], "status": 2},
}  # fmt: skip
"""What is right, under the names of the files."""


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


class Heard(runs.Listener):
    def __init__(self) -> None:
        self.events: list[Event] = []

    def event(self, telling: Telling, event: Event) -> None:
        self.events.append(event)


def follow(line: bytes) -> None:
    """What becomes of a line of progress. MachineError if it is no event."""
    heard = Heard()
    runs.Shown(TELLING, Path("out"), heard).listen(local.record(line))
    if not heard.events:
        return
    [event] = heard.events
    shown(lambda to: to.print(console.event_line(event)))
    shown(lambda to: to.print(console.event_rows(event)))
    console.logged(event)
    running = console.Running("mine")
    running.add(event)
    shown(lambda to: to.print(running.render(3)))
    json.dumps(event)


def follow_any(line: bytes) -> None:
    try:
        follow(line)
    except MachineError as error:
        refusal = str(error)
        shown(lambda to: to.print(plain_lines(refusal), soft_wrap=True))


def take(name: str, out: Path) -> None:
    """Does with a file of a job what the commands do with it."""
    match name:
        case "outcome.json":
            result = runs.result_of(scenarios.left_json(out, name), TELLING, 1.0)
            whole = RunResult(
                "mine", Settings(0, "virtual", 1), IDENTITY, "scenario.py", {}, Path("out"), 1.0, [result]
            )
            json.dumps(whole.json())
            for width in 60, 200:
                shown(lambda to: console.report(to, [whole], 1.0), width)
        case "info.json":
            info = scenarios.info_of(out, SOURCE)
            json.dumps(info)
            for telling in runs.choose(info, []):
                assert (Path("out") / telling.label).parent == Path("out")
            properties = info["parameters"].get("properties", {})
            shown(lambda to: to.print(catalogue.parameters(properties)))
            shown(lambda to: to.print(catalogue.variants(info)))
            for key in properties:
                with contextlib.suppress(InputError):
                    matrix.values_over(key, info)
        case "topology.json":
            plan: PlanInfo = scenarios.result_of(out, name, SOURCE, PlanInfo)
            shown(lambda to: to.print(topology.table(plan)))
        case "faults.json":
            faults: list[FaultInfo] = scenarios.result_of(out, name, SOURCE, list[FaultInfo])
            for fault in faults:
                shown(lambda to, fault=fault: to.print(catalogue.parameters(fault["parameters"].get("properties", {}))))
        case "cni.json":
            cni: CniAnswer = scenarios.result_of(out, name, SOURCE, CniAnswer)
            assert isinstance("; ".join(cni["kept"]), str)
        case "refusal.json":
            scenarios.raise_refusal(out, SOURCE)


def take_any(name: str, data: bytes, out: Path) -> None:
    """The file is a result, or one error that a terminal can show, with a status of the errors' tree."""
    (out / name).write_bytes(data)
    try:
        take(name, out)
    except TestbedError as error:
        refusal, status = str(error), error.exit_status
        shown(lambda to: to.print(plain_lines(refusal), soft_wrap=True))
        assert {status} <= {1, 2, 3}


@given(damaged(EVENT).map(json.dumps).map(str.encode) | st.binary(max_size=60))
def test_any_line_of_progress(line: bytes) -> None:
    follow_any(line)


@pytest.mark.parametrize("name", ANSWERS)
def test_any_file(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    out = tmp_path_factory.mktemp("out")

    @given(damaged(ANSWERS[name]).map(json.dumps).map(str.encode) | st.binary(max_size=30))
    def check(data: bytes) -> None:
        take_any(name, data, out)

    check()


def test_what_is_right_is_taken(tmp_path: Path) -> None:
    """Without this the tests above could not fail where everything is refused."""
    for event in EVENT["event"], EVIDENCE:
        follow(json.dumps({"event": event}).encode())
    for name, right in ANSWERS.items():
        (tmp_path / name).write_text(json.dumps(right))
        if name != "refusal.json":
            take(name, tmp_path)
    with pytest.raises(TestbedError, match="no") as refused:
        take("refusal.json", tmp_path)
    assert refused.value.exit_status == 2


@pytest.mark.parametrize("file", sorted((CORPUS / "progress").iterdir()), ids=lambda file: file.stem)
def test_progress_that_once_broke_something(file: Path) -> None:
    follow_any(file.read_bytes())


@pytest.mark.parametrize("file", sorted((CORPUS / "answers").iterdir()), ids=lambda file: file.name)
def test_files_that_once_broke_something(file: Path, tmp_path: Path) -> None:
    take_any(".".join(file.name.split(".")[:2]), file.read_bytes(), tmp_path)


def test_what_is_no_file_is_damaged_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "refusal.json")
    with pytest.raises(MachineError, match=r"left a refusal\.json that is no file"):
        scenarios.raise_refusal(tmp_path, SOURCE)
    (tmp_path / "outcome.json").symlink_to("outcome.json")
    with pytest.raises(MachineError, match=r"left a outcome\.json that cannot be read"):
        scenarios.left_json(tmp_path, "outcome.json")


def test_a_file_too_large_to_be_read_is_damaged(tmp_path: Path) -> None:
    with (tmp_path / "outcome.json").open("wb") as file:
        file.truncate(scenarios.LARGEST + 1)
    with pytest.raises(MachineError, match=r"left a outcome\.json of more than 64 MiB"):
        scenarios.left_json(tmp_path, "outcome.json")
