"""Kinds of events: one definition, which emitters and readers use; what is in a file is checked when it is read."""

import ast
import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.protocol import Event, events
from testbed.protocol.events import KINDS

TOP = Path(__file__).parents[3]
PACKAGE = TOP / "testbed"
PAGE = TOP / "tests" / "docs" / "events.py"
FAMILIES = {name.partition(".")[0] + "." for name in KINDS if "." in name}
NAMING = {"emit", "events", "find", "of"}
"""Functions whose first argument may be the name of a kind."""


def literals(tree: ast.AST) -> Iterator[str]:
    """Names of kinds that stand in code: those with a dot anywhere, others where they can only be one."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if text in KINDS and "." in text:
                yield text
            case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) if text in FAMILIES:
                yield text
            case ast.Call(func=ast.Attribute(attr=name), args=[ast.Constant(value=str(text)), *_]) if name in NAMING:
                yield text
            case ast.Compare(left=left, comparators=[right]) if "kind" in map(key, (left, right)):
                yield from (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and one.value in KINDS)
            case ast.Match(subject=subject, cases=cases) if key(subject) == "kind":
                patterns = (part for case in cases for part in ast.walk(case.pattern))
                yield from (part.value for part in patterns if isinstance(part, ast.Constant) and part.value in KINDS)


def key(node: ast.expr) -> object:
    match node:
        case ast.Subscript(slice=ast.Constant(value=name)) | ast.Attribute(attr=name):
            return name
    return None


def event(kind: str, **data: Any) -> Event:
    return {"t": 1, "kind": kind, "node": "leaf", "text": "", "data": data}


@pytest.mark.parametrize(
    "text",
    [
        'x = "arp.learned"',
        'self.emit(f"arp.{what}")',
        'log.emit("step", "", text)',
        'if event["kind"] == "step": pass',
        'if event["kind"] in ("step", "lab"): pass',
        'match moment.kind:\n    case "step": pass',
        'match event["kind"]:\n    case "step" | "lab": pass',
    ],
)
def test_a_literal_is_found(text: str) -> None:
    assert list(literals(ast.parse(text)))


def test_no_kind_is_a_literal_but_in_its_definition() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "protocol" / "events.py"]
    known = KINDS.keys() | FAMILIES
    found = {path.name: names for path in files if (names := {*literals(ast.parse(path.read_text()))} & known)}
    assert found == {}


@pytest.mark.parametrize("path", sorted(TOP.glob("scenarios/*/scenario.py")), ids=lambda path: path.parent.name)
def test_a_scenario_looks_for_kinds_that_there_are(path: Path) -> None:
    assert {name for name in literals(ast.parse(path.read_text())) if name not in FAMILIES} - {"storm"} <= KINDS.keys()


def test_what_real_gear_shows_is_for_kinds_that_there_are() -> None:
    entries = yaml.safe_load((PACKAGE / "report" / "gear.yml").read_text())
    dotted = {kind for entry in entries for kind in entry["kinds"] if "." in kind}
    assert {kind for kind in dotted if not kind.endswith(".wrong")} <= KINDS.keys()


def test_the_words_of_a_switch_have_fields_of_their_kind_only() -> None:
    for kind in KINDS.values():
        for text in (kind.about, *kind.special.values()):
            words = {name for _, name, _, _ in string.Formatter().parse(text) if name}
            assert words <= {name for base in kind.fields.__mro__ for name in getattr(base, "__annotations__", ())}


def test_the_words_are_those_of_the_protocol_and_the_reason() -> None:
    entry = {"ip": "10.0.0.1", "mac": "02:00", "old_mac": "02:01", "port": "e1", "old_port": "e2"}
    assert events.named("nd.updated", {**entry, "reason": "na"}).sentence() == "ND 10.0.0.1 moves from 02:01 to 02:00"
    moved = events.UPDATED(mac="02:00", port="e1", old_port="e2", reason="port-changed", ip="10.0.0.1")
    assert moved.sentence() == "ARP 10.0.0.1 at 02:00 moves from port e2 to e1"
    lost = events.ROUTE_INSTALLED(to="10.0.0.0/24", ports=["e1", "e2"])
    assert lost.sentence() == "10.0.0.0/24 is reached by e1, e2"
    alone = events.EVPN_SEGMENT(port="po1", esi="03:01", others=[])
    assert alone.sentence() == "po1 gets the floods of other switches (03:01, also on none)"


def test_data_are_what_was_given_in_its_order() -> None:
    assert list(vars(events.LINK(state="down", interface="e1")).items()) == [("state", "down"), ("interface", "e1")]
    assert events.LINK(interface="e1").mtu is None


def test_an_event_is_read_as_what_its_emitter_made() -> None:
    made = events.COMPLETION(opcode="SEND", status="SUCCESS", elapsed_s=0, near=("10.0.0.1", 17), far=None)
    found = events.read(event("completion", **vars(made) | {"near": ["10.0.0.1", 17]}, later="unknown"))
    assert isinstance(found, events.Completion)
    assert (found.kind, found.status, found.near, found.to) == (events.COMPLETION, "SUCCESS", ["10.0.0.1", 17], None)
    assert events.COMPLETION.of(event("connect", error="")) is None


def test_a_kind_of_nd_is_that_of_arp() -> None:
    found = events.read(event("nd.aged", mac="02:00", vlan=1, ip="fd00::1"))
    assert found
    assert (found.kind, found.kind_name) == (events.AGED, "nd.aged")


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("mine", {}),
        ("arp.aged", {"ip": "10.0.0.1"}),
        ("arp.aged", {"mac": 5}),
        ("arp.aged", {"mac": "02:00", "vlan": True}),
        ("sleep", {"seconds": float("nan")}),
        ("sleep", {"seconds": -1}),
        ("sleep", {"seconds": 10**400}),
        ("pfc.paused", {"interface": "e1", "priority": 3, "lasted_ns": 1 << 63, "frames": 1}),
        ("link", {"interface": "e1", "state": []}),
        ("job", {"name": "job", "hosts": ["n0", 1]}),
        ("completion", {"opcode": "SEND", "status": "SUCCESS", "elapsed_s": 1, "near": ["10.0.0.1"]}),
        ("job.stalled", {"name": "job", "since_ns": 1, "waiting": [], "queue_pairs": {"n0": {"RC RTS": "2"}}}),
    ],
)
def test_what_does_not_fit_is_not_read(kind: str, data: dict[str, Any]) -> None:
    assert events.read(event(kind, **data)) is None


def test_no_field_of_a_users_event_is_in_the_way() -> None:
    found = events.read({**event("evidence"), "data": {"self": 1, "kind": 2, "kind_name": 3, "fields": 4}})
    assert found
    assert found.kind is events.EVIDENCE


def test_the_page_of_events_says_what_their_definitions_say() -> None:
    done = subprocess.run([sys.executable, str(PAGE), "--check"], cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_kind_is_emitted_by_some_module() -> None:
    rows = [line.split("|") for line in (TOP / "docs" / "events.md").read_text().splitlines() if line.startswith("|")]
    emitted = {
        row[1].strip(" `"): row[3].strip() for row in rows if row[1].strip(" `") in KINDS and "`testbed/" in row[3]
    }
    assert emitted.keys() == {kind.name for kind in KINDS.values()}
