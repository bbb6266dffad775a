"""
Whatever a topology file has in it, it is a plan or one InputError: bytes, words of the format in any order, and real
files with something in them replaced.

What was once wrong is in the directory `fuzz`, and is read again by each run.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.documents.yaml import parse
from testbed.errors import InputError
from testbed.faults import problem
from testbed.switch.profile import load_profiles
from testbed.topology import Topology
from testbed.topology.graph import STYLES

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
CORPUS = sorted((HERE / "fuzz").iterdir())
REAL = [*sorted(ROOT.glob("scenarios/*/topology.clab.yml")), *sorted((HERE / "containerlab").glob("[!r]*.clab.yml"))]
"""Files that are planned."""
PLAIN = [file for file in REAL if "${" not in file.read_text()]
"""Those that are YAML as they are: the others have variables, which are expanded before."""
PROFILES = load_profiles()
FUZZ = settings(derandomize=True, deadline=None, database=None, max_examples=40)
"""The same examples in every run."""

WORDS = (
    "name",
    "topology",
    "nodes",
    "links",
    "kinds",
    "groups",
    "defaults",
    "faults",
    "routing",
    "kind",
    "host",
    "switch",
    "bridge",
    "linux",
    "exec",
    "env",
    "vlans",
    "routes",
    "endpoints",
    "a:eth1",
    "type",
    "mtu",
    "labels",
    "sysctls",
    ": ",
    ":",
    "- ",
    "-",
    "\n",
    "\n  ",
    "\n    ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    "&x ",
    "*x",
    "<<",
    "? ",
    "| ",
    "> ",
    "!",
    "!!str ",
    "'",
    '"',
    "#",
    "{{",
    "${",
    "%",
    "@",
    "`",
    "---\n",
    "...\n",
    "\t",
    "\r",
    "\ufeff",
    "\x85",
    "\u2028",
    "null",
    "true",
    "0x1",
    "1e999",
    "-0",
    "08",
    "1" * 19,
    "10.0.0.1/24",
    "fd00::1/64",
    "\U0001f600",
    "\x00",
    "e\u0301",
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=70),
        st.sampled_from(WORDS),
        st.sampled_from(
            ["10.0.0.1/24", "10.0.0.0/33", "fd00::1/64", "fe80::1", "1000000gbit", "1us", "02:00:00:00:00:01"]
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.text(max_size=8), st.sampled_from(WORDS), st.integers()), inner, max_size=4),
    ),
    max_leaves=6,
)


def plan_or_refusal(text: str) -> None:
    """Reads a text as `testbed topology check` and `graph` do, up to their output."""
    try:
        topology = Topology.parse(text, source="fuzz")
        plan = topology.plan(profiles=PROFILES, check_fault=problem)
    except InputError as error:
        said = str(error)
    else:
        json.dumps([note.text for note in topology.notes])
        said = "fuzz:" if all(style(plan) for style in STYLES.values()) else ""
    assert said.startswith("fuzz:")


def load_or_refusal(data: bytes, file: Path) -> None:
    file.write_bytes(data)
    try:
        Topology.load(file).plan()
    except InputError as error:
        said = str(error)
    else:
        said = str(file)
    assert said.startswith(str(file))


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: file.name)
def test_what_was_once_wrong(file: Path, tmp_path: Path) -> None:
    load_or_refusal(file.read_bytes(), tmp_path / "fuzz.yml")
    plan_or_refusal(file.read_text(errors="replace"))


@FUZZ
@given(st.binary(max_size=300))
def test_bytes(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    load_or_refusal(data, tmp_path_factory.getbasetemp() / "fuzz.yml")


@FUZZ
@given(st.lists(st.sampled_from(WORDS), max_size=60).map("".join))
def test_words_of_the_format(text: str) -> None:
    plan_or_refusal(text)


@FUZZ
@given(VALUES)
def test_any_value(value: Any) -> None:
    plan_or_refusal(dumped(value))
    plan_or_refusal(dumped({"name": "lab", "topology": value}))
    plan_or_refusal(dumped({"name": "lab", "topology": {"nodes": {"a": value, "b": {"kind": "host"}}}}))


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A real file with one to three of its parts replaced, left out, said twice or given another key."""
    value = parse(draw(st.sampled_from(PLAIN)).read_text(), "real", "a topology")[0].value()
    for _ in range(draw(st.integers(1, 3))):
        whole, where = inner(draw, value)
        act: Callable[[Any, Any], None] = draw(st.sampled_from([replace, leave_out, repeat, rename]))
        if whole:
            act(draw, (whole, where))
    return value


def inner(draw: st.DrawFn, value: Any) -> tuple[Any, Any]:
    """A mapping or list somewhere in the value, and a key or index of it."""
    whole, where = value, None
    while True:
        keys = list(whole) if isinstance(whole, dict) else list(range(len(whole)))
        if not keys:
            return None, None
        where = draw(st.sampled_from(keys))
        child = whole[where]
        if not isinstance(child, dict | list) or not child or draw(st.integers(0, 4)) == 0:
            return whole, where
        whole = child


def replace(draw: Any, place: tuple[Any, Any]) -> None:
    place[0][place[1]] = draw(VALUES)


def leave_out(_: Any, place: tuple[Any, Any]) -> None:
    del place[0][place[1]]


def repeat(draw: Any, place: tuple[Any, Any]) -> None:
    whole, where = place
    if isinstance(whole, list):
        whole.insert(draw(st.integers(0, len(whole))), whole[where])
    else:
        whole[draw(st.sampled_from(WORDS))] = whole[where]


def rename(draw: Any, place: tuple[Any, Any]) -> None:
    whole, where = place
    if isinstance(whole, dict):
        whole[draw(st.sampled_from(WORDS))] = whole.pop(where)
    else:
        whole.reverse()


def dumped(value: Any) -> str:
    """YAML by way of JSON, in which no text has a meaning of its own."""
    return json.dumps(value, ensure_ascii=False, default=str)


@settings(FUZZ, max_examples=80)
@given(mutated())
def test_real_files_with_something_else_in_them(value: Any) -> None:
    plan_or_refusal(dumped(value))
