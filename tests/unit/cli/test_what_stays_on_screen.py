"""The story of a single variant on a terminal, evidence in its words, and the output of a user's tests."""

import asyncio
import io
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from testbed.cli import console, options
from testbed.cli.main import invoke
from testbed.machine import pytests, scenarios
from testbed.machine.local import LocalMachine
from testbed.protocol import Event
from testbed.protocol.requests import Pytest


def shown(event: Event, width: int) -> list[str]:
    file = io.StringIO()
    Console(file=file, width=width).print(console.event_rows(event))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_a_long_text_goes_on_below_itself() -> None:
    event: Event = {"t": 0, "kind": "arp.learned", "node": "leaf", "text": "word " * 12, "data": {}}
    first, second = shown(event, 60)
    begin = " 0:00:00.000  leaf      "
    assert first.startswith(f"{begin}word word")
    assert second.startswith(" " * len(begin) + "word")


def test_a_step_has_no_column_for_a_node() -> None:
    event: Event = {"t": 10**9, "kind": "step", "node": "", "text": "pod A is deleted", "data": {}}
    assert shown(event, 80) == [" 0:00:01.000  pod A is deleted"]


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        ({"switch_arp": "pod A's MAC", "retries": 3}, "switch arp pod A's MAC, retries 3"),
        ({"aged_after_s": 14400}, "aged after 4 h 00 min 00 s"),
        ({"waited_s": 0.085, "why_s": "unknown"}, "waited 85 ms, why s unknown"),
        ({"mbit_per_s": 46.8}, "mbit per s 46.8"),
        ({}, ""),
    ],
)
def test_evidence_is_said_alike_in_the_story_and_in_the_table(evidence: dict[str, Any], said: str) -> None:
    event: Event = {"t": 0, "kind": "evidence", "node": "", "text": "switch_arp …", "data": evidence}
    assert console.words_of(event) == said
    assert console.evidence_text(evidence).plain == said


@pytest.mark.parametrize(
    ("kind", "data", "logged"),
    [
        ("fault.lost", {}, True),
        ("fault.recovered", {"hits": 0}, True),
        ("fault.recovered", {"hits": 3}, False),
        ("fault.recovered", {}, False),
        ("fault.injected", {"hits": 0}, False),
    ],
)
def test_a_log_has_faults_without_effect_and_those_that_did_not_hold(
    kind: str, data: dict[str, Any], logged: bool
) -> None:
    given = {"fault": "arp-drop", "verified": {}, **data}
    event: Event = {"t": 0, "kind": kind, "node": "", "text": "arp-drop end=leaf:e2", "data": given}
    assert console.logged(event) == logged
    assert ("bold" in console.style_of(event)) == logged


def test_a_scenario_is_described_however_many_files_are_open(tiny: Path) -> None:
    """A shell may take only one digit for a file descriptor."""
    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(Path("/dev/null").open())
        [info] = asyncio.run(scenarios.describe([(scenarios.resolve(str(tiny)), {})]))
    assert info["title"] == "Tiny"


@pytest.mark.parametrize(("words", "passed"), [([], ["--color=no"]), (["--", "-x"], ["--color=no", "-x"])])
def test_the_output_of_tests_has_no_colours_in_a_log(
    words: list[str], passed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Sequence[str]] = []

    async def run(tests: Sequence[Path], asked: Pytest, **_: object) -> int:
        given.append(asked.arguments)
        return 0

    monkeypatch.setattr(pytests, "run", run)
    monkeypatch.setattr(options, "choose", lambda *_: LocalMachine())
    assert invoke(["pytest", str(tmp_path), "--out", str(tmp_path / "runs"), *words]) == 0
    assert given == [passed]


def test_a_plan_s_table_is_not_cut_in_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = "n" * 40
    file = tmp_path / "pair.clab.yml"
    file.write_text(
        f"{{name: pair, topology: {{nodes: {{{long}: {{kind: host}}, b: {{kind: host}}}}, "
        f'links: [{{endpoints: ["{long}:eth1", "b:eth1"]}}]}}}}'
    )
    assert invoke(["topology", "check", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"{long}:eth1" in lines[1]
    assert lines[1].endswith(f"{long}-eth1")
    assert lines[2].endswith("b-eth1")
