"""`testbed matrix`: the values it takes, what it calls an outage, and what it prints."""

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from testbed.cli.main import invoke
from testbed.cli.sweep import matrix
from testbed.machine.record import VariantResult
from testbed.protocol import Event
from testbed.records.event_reader import read

REQUEST = {"opcode": "RDMA_WRITE", "elapsed_s": 0.5, "error": "ETIMEDOUT"}


def told(*said: tuple[str, float, str]) -> list[Event]:
    """Events of a kind, at a second, with a status; each request took half a second."""
    return [
        {"t": round(t * 1e9), "kind": kind, "node": "a", "text": "", "data": {**REQUEST, "status": status}}
        for kind, t, status in said
    ]


@pytest.mark.parametrize(
    ("story", "outage", "text"),
    [
        ([], 0.0, "none"),
        ([("completion", 1, "SUCCESS")], 0.0, "none"),
        (
            [("completion", 1, "SUCCESS"), ("completion", 3, "RETRY_EXC_ERR"), ("completion", 9, "SUCCESS")],
            6.5,
            "6.50 s",
        ),
        ([("completion", 3, "RETRY_EXC_ERR"), ("step", 4, "SUCCESS")], None, "does not end"),
        ([("connect", 2.5, ""), ("connect", 5, ""), ("completion", 9, "SUCCESS"), ("connect", 11, "")], 6.5, "6.50 s"),
    ],
)
def test_an_outage_lasts_from_the_first_failure_to_the_next_success(
    story: list[tuple[str, float, str]], outage: float | None, text: str
) -> None:
    assert matrix.outage(told(*story), "healthy") == matrix.Outage(outage, text)


def job(t: float, **data: object) -> Event:
    return {"t": round(t * 1e9), "kind": "job", "node": "", "text": "", "data": {"name": "job", **data}}


@pytest.mark.parametrize(
    ("story", "outage"),
    [
        ([job(1, ranks=4), job(20, ok=True)], matrix.Outage(None, "no request failed")),
        ([job(1, ranks=4), job(20, ok=False)], matrix.Outage(None, "does not end")),
        ([job(1, ranks=4), job(20, ok=False), job(21, ranks=4), job(50, ok=True)], matrix.Outage(30.0, "30.00 s")),
    ],
)
def test_the_outage_of_a_job_begins_when_it_dies(story: list[Event], outage: matrix.Outage) -> None:
    """Users see a fault in each."""
    assert matrix.outage(story, "fault") == outage


def test_a_fault_that_no_request_shows_is_not_called_no_outage() -> None:
    slow = told(("completion", 1, "SUCCESS"))
    assert matrix.outage(slow, "fault") == matrix.outage([], "fault") == matrix.Outage(None, "no request failed")


@pytest.mark.parametrize("line", ["{", "[" * 100_000, "7", '{"t": 1}', '{"t": "1", "kind": "job", "data": {}}'])
def test_a_line_that_is_no_event_is_left_out(line: str, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text(f"{line}\n{json.dumps(job(1, ok=True))}\n")
    assert [*read(tmp_path / "events.jsonl")] == [job(1, ok=True)]


def test_a_value_that_cannot_name_a_directory_is_refused(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tiny / "scenario.py"
    text = file.read_text().replace("packets: int = Field(4, gt=0", 'packets: str = Field("4"')
    file.write_text(text.replace('{"packets": 9}', '{"packets": "9"}'))
    assert invoke(["matrix", str(tiny), "--over", "packets=../../x"]) == 2
    assert "'../../x' cannot be a value" in capsys.readouterr().err


def test_a_matrix_has_a_row_for_each_value(
    ends_like: Callable[..., None], good: VariantResult, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends_like(good, told(("completion", 3, "RETRY_EXC_ERR"), ("completion", 9, "SUCCESS")))
    assert invoke(["matrix", str(tiny), "--over", "packets=2,30", "--variant", "good"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:4]] == [
        ["packets", "users", "see", "outage"],
        ["2", "healthy", "6.50", "s"],
        ["30", "healthy", "6.50", "s"],
    ]
    assert lines[5:7] == ["2:  packets 2", "30: packets 30"]
    assert lines[-2].startswith("tiny good · 2 runs · ")


def test_a_wide_terminal_has_the_evidence_in_the_table(
    ends_like: Callable[..., None],
    good: VariantResult,
    tiny: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    ends_like(good, [])
    assert invoke(["matrix", str(tiny), "--over", "packets=2,30", "--variant", "good"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:4] == [
        ["packets", "users", "see", "outage", "evidence"],
        ["2", "healthy", "none", "packets", "2"],
        ["30", "healthy", "none", "packets", "30"],
    ]


@pytest.mark.parametrize(
    ("second", "below"),
    [
        ({"step_s": 2, "kb": 7}, [["packets", "step", "kb"], ["2", "500", "ms", "30"], ["30", "2", "s", "7"]]),
        ({"step_s": 2}, [["2:", "step", "500", "ms,", "kb", "30"], ["30:", "step", "2", "s"]]),
        ({"step_s": 2, "kb": "-"}, [["2:", "step", "500", "ms,", "kb", "30"], ["30:", "step", "2", "s,", "kb", "-"]]),
    ],
)
def test_figures_of_the_same_names_have_a_column_each(
    good: VariantResult, second: dict[str, object], below: list[list[str]]
) -> None:
    screen = Console(file=io.StringIO(), width=80)
    results = [
        replace(good, name="packets=2", evidence={"step_s": 0.5, "kb": 30}),
        replace(good, name="packets=30", evidence=second),
    ]
    with screen.capture() as captured:
        matrix.report(screen, [{"packets": "2"}, {"packets": "30"}], results, [matrix.Outage(0.0, "none")] * 2)
    assert [line.split() for line in captured.get().splitlines()[5:]][: len(below)] == below


def test_a_matrix_is_printed_for_programs(
    ends_like: Callable[..., None], bad: VariantResult, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends_like(bad, told(("completion", 3, "RETRY_EXC_ERR")))
    assert invoke(["matrix", str(tiny), "--over", "packets=2,30", "--json"]) == 0  # whatever users saw
    found = json.loads(capsys.readouterr().out)
    assert (found["scenario"], found["variant"]) == ("tiny", "bad")
    assert [row["values"] for row in found["variants"]] == [{"packets": "2"}, {"packets": "30"}]
    assert [row["evidence"] for row in found["variants"]] == [{"packets": "2"}, {"packets": "30"}]
    assert {row["outage_s"] for row in found["variants"]} == {None}


def test_a_run_without_an_observation_is_1_and_says_why(
    ends_like: Callable[..., None], bad: VariantResult, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends_like(replace(bad, observed=None, failures=["the reason"]), [])
    assert invoke(["matrix", str(tiny), "--over", "packets=2"]) == 1
    assert "packets=2 has no observation:\n  the reason" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--over", "packets=0"], "Input should be greater than 0"),
        (["--over", "packets=1", "--over", "packets=2"], "--over packets is given twice"),
        (["--over", "packets=1", "--variant", "goood"], "has no variant 'goood'"),
        ([], "Missing option '--over'"),
    ],
)
def test_what_cannot_be_compared_is_2_before_a_machine_is_asked_for(
    tiny: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["matrix", str(tiny), *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
