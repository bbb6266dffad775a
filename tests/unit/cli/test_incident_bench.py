"""The benchmark of incidents: agents' answers, its result file and its table."""

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.cli.incident import bench_table
from testbed.cli.incident.agents import BASELINES
from testbed.cli.incident.bench import key_of, read
from testbed.cli.incident.bench_table import wilson
from testbed.cli.incident.playing import Command, Round, agent_of, read_answer
from testbed.cli.mcp.lab_calls import LabCalls
from testbed.errors import InputError, TestbedError
from testbed.machine.live.labs import Lab
from testbed.protocol import IncidentGrade, IncidentSolution
from testbed.protocol.live import IncidentAnswer

HALF = 50


def lab(tmp_path: Path) -> LabCalls:
    return LabCalls(Lab.starting("one", "incident incident", "virtual", 1, tmp_path, ""), "")


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("{}", IncidentAnswer()),
        ('{"causes": ["a", "b"], "places": ["leaf1"]}', IncidentAnswer(causes=["a", "b"], places=["leaf1"])),
        ('{"since": "00:01:12"}', IncidentAnswer(since="00:01:12")),
    ],
)
def test_a_line_is_an_answer(line: str, answer: IncidentAnswer) -> None:
    assert read_answer(line) == answer


@pytest.mark.parametrize("line", ["", "done", "[]", '{"cause": "a"}', '{"causes": 1}', '{"gives_up": true}'])
def test_another_line_is_none(line: str) -> None:
    with pytest.raises(InputError, match="last line is no answer"):
        read_answer(line)


def test_an_agent_gets_the_ticket_and_the_lab(tmp_path: Path) -> None:
    line = r"""read t; printf '{"causes": ["%s"], "places": ["%s", "%s"]}' "$t" $TESTBED_LAB $TESTBED_SEED"""
    given = agent_of(line, 60)(lab(tmp_path), "ticket", 7)
    assert given == IncidentAnswer(causes=["ticket"], places=["one", "7"])


def test_an_agent_that_fails_or_does_not_end_has_no_answer(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="ended with status 3"):
        Command("exit 3", 60)(lab(tmp_path), "ticket", 1)
    with pytest.raises(TestbedError, match=r"was ended after 0\.2 s"):
        Command("sleep 1000 & sleep 1000", 0.2)(lab(tmp_path), "ticket", 1)


def test_baselines_have_names_and_no_command_is_empty() -> None:
    assert agent_of("runbook", 1) is BASELINES["runbook"]
    with pytest.raises(InputError, match="--agent is empty"):
        agent_of(" ", 1)


def a_round(agent: str, number: int, points: int, area: Any = "arp", level: Any = 1) -> Round:
    solution = IncidentSolution(
        causes=[], places=[], since_s=1.0, since="00:00:20", stories=[], traces=[], mend=[], wrong=[]
    )
    grade = IncidentGrade(
        number=number, area=area, level=level, cause=1.0, place=1.0, since=True, mitigated=points > HALF,
        mitigated_s=None, answered_s=1.0, commands=[], suffered=[], hints=0, points=points, solution=solution,
    )  # fmt: skip
    return Round(agent=agent, number=number, area=None, level=None, grade=grade, error="", wall_s=1.0)


def test_a_table_has_areas_levels_and_all() -> None:
    rounds: list[Round] = [
        a_round("a", 1, 100),
        a_round("a", 2, 0, "cni", 2),
        a_round("b", 1, 40),
        {**a_round("a", 3, 9), "grade": None},
    ]
    rows = {(row.agent, row.group): row for row in bench_table.rows(rounds)}
    assert list(rows) == [
        ("a", "arp"), ("a", "cni"), ("a", "level 1"), ("a", "level 2"), ("a", "all"),
        ("b", "arp"), ("b", "level 1"), ("b", "all"),
    ]  # fmt: skip
    assert (rows["a", "all"].rounds, rows["a", "all"].points, rows["a", "all"].mended.of_all) == (2, 50, 0.5)
    assert rows["b", "all"].points_within == 0
    assert bench_table.markdown(bench_table.rows(rounds)).count("\n") == 9


@pytest.mark.parametrize(  # the values of R's binom.confint(…, methods="wilson")
    ("hits", "of", "low", "high"), [(0, 10, 0.0, 0.2775328), (10, 10, 0.7224672, 1.0), (3, 10, 0.1077913, 0.6032219)]
)
def test_shares_have_score_intervals(hits: int, of: int, low: float, high: float) -> None:
    found = wilson(hits, of)
    assert found.low == pytest.approx(low, abs=1e-6)
    assert found.high == pytest.approx(high, abs=1e-6)


def test_a_result_file_is_continued(tmp_path: Path) -> None:
    file = tmp_path / "incidents.jsonl"
    assert read(file) == []
    rows = [a_round("a", 1, 10), a_round("a", 1, 20)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"agent": "cut o')
    assert [row["grade"] and row["grade"]["points"] for row in read(file)] == [10, 20]
    assert key_of(rows[0]) == ("a", 1, None, None)
    file.write_text('{"a": 1}\n')
    with pytest.raises(InputError, match="not the result file"):
        read(file)
