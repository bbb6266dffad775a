"""`testbed counters`: counters over time and events of a run directory, as a table, CSV and JSON."""

import csv
import io
import json
from pathlib import Path

import pytest

from testbed.cli.main import invoke


def line(t: float, after: str, **places: dict[str, int]) -> str:
    return json.dumps({"t": int(t * 1e9), "after": after, "counters": {"leaf": places} if places else {}})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    for variant in "good", "bad":
        (tmp_path / variant).mkdir()
        moments = [
            line(1, "the lab came up", e1={"rx_packets": 10}),
            line(3, "a WRITE", e1={"rx_packets": 30, "pfc_queue_bytes": 0}),
            line(4, "a sample", e1={"queue_waiting": 7}),
            line(5, "the end", e1={"rx_packets": 34, "tx_packets": 8, "queue_waiting": 2}),
            '{"t": 6, "cut',
        ]
        (tmp_path / variant / "counters.jsonl").write_text("\n".join(moments))
        event = {"t": 1_500_000_000, "kind": "note", "node": "", "text": 'a "note"\x1b[2J', "data": {"x": 1}}
        (tmp_path / variant / "events.jsonl").write_text(json.dumps(event) + "\n")
    return tmp_path


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_counters_over_time_with_their_changes_and_rates(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["counters", str(run / "good"), "--csv"]) == 0
    rows = read(capsys.readouterr().out)
    found = [(row["t_s"], row["counter"], row["value"], row["change"], row["per_s"]) for row in rows]
    assert ("1", "rx_packets", "10", "", "") in found, "the lab's begin: when it was 0 is not known"
    assert ("3", "rx_packets", "30", "20", "10") in found
    assert ("5", "rx_packets", "34", "4", "2") in found, "it is known at 3 s; the sample at 4 s has queues only"
    assert ("5", "tx_packets", "8", "8", "4") in found
    assert {row["node"] for row in rows} == {"leaf"}
    assert {row["unit"] for row in rows if row["counter"] == "rx_packets"} == {"packets"}


def test_a_level_has_no_change_and_no_rate(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["counters", str(run / "good"), "--json"]) == 0
    levels = [row for row in json.loads(capsys.readouterr().out) if row["meaning"] == "level"]
    assert levels
    assert all((row["change"], row["per_s"]) == (None, None) for row in levels)


def test_a_run_has_the_rows_of_its_variants(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["counters", str(run), "--csv", "-o", str(run / "all.csv")]) == 0
    assert {row["variant"] for row in read((run / "all.csv").read_text())} == {"good", "bad"}
    assert invoke(["counters", str(run), "-o", str(run / "all.csv")]) == 2
    assert "exists" in capsys.readouterr().err


def test_events_without_what_a_terminal_would_obey(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["counters", str(run / "good"), "--events", "--csv"]) == 0
    out = capsys.readouterr().out
    (row,) = read(out)
    assert (row["t_s"], row["kind"], json.loads(row["data"])) == ("1.5", "note", {"x": 1})
    assert row["text"].startswith('a "note"')
    assert "\x1b" not in out


def test_a_table_for_people(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["counters", str(run / "good")]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["variant", "t_s", "after"]
    assert len(rows) == 7


@pytest.mark.parametrize(("place", "message"), [("nowhere", "no such directory"), (".", "has no counters.jsonl")])
def test_what_is_no_run_is_refused(
    tmp_path: Path, place: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(["counters", str(tmp_path / place)]) == 2
    assert message in capsys.readouterr().err
