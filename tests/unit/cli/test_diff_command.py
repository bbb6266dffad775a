"""`testbed diff`: where two runs part."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.cli.main import invoke
from testbed.protocol import Event

Keep = Callable[..., Path]


def event(t: int, kind: str, node: str = "", text: str = "", **data: Any) -> Event:
    return {"t": t, "kind": kind, "node": node, "text": text, "data": data}


def steps(*names: str, late: int = 0) -> list[Event]:
    return [event(number * 10**9 + late, "step", "", name) for number, name in enumerate(names)]


def learned(t: int, mac: str) -> Event:
    return event(
        t, "arp.learned", "leaf", f"ARP 10.0.0.1 is at {mac}", vlan=10, ip="10.0.0.1", mac=mac, port="e1", reason="garp"
    )


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    """Makes the directory of a variant."""

    def make(place: str, events: Sequence[Event], *, separators: tuple[str, str] = (",", ":")) -> Path:
        directory = tmp_path / place
        directory.mkdir(parents=True)
        lines = (json.dumps(one, separators=separators) + "\n" for one in events)
        (directory / "events.jsonl").write_text("".join(lines))
        return directory

    return make


@pytest.fixture
def diff(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any]]:
    """The status and what is printed, as JSON."""

    def run(*arguments: Path | str) -> tuple[int, Any]:
        status = invoke(["diff", *map(str, arguments), "--json"])
        return status, json.loads(capsys.readouterr().out)

    return run


def lines(found: dict[str, Any]) -> list[tuple[int | None, int | None]]:
    """The lines of the events that are shown, of each run."""
    return [tuple(side and side["line"] for side in (pair["run1"], pair["run2"])) for pair in found["events"]]


def test_the_same_events_are_the_same_however_they_were_written(keep: Keep, diff) -> None:
    """Those of a run that was cut short are written by the outside."""
    one, other = keep("1/a", steps("x", "y")), keep("2/a", steps("x", "y"), separators=(", ", ": "))
    status, found = diff(one, other)
    assert (status, found["same"], found["variants"][0]["first_difference"]) == (0, True, None)


def test_runs_part_where_what_happened_differs_and_not_its_time(keep: Keep, diff) -> None:
    one, other = keep("1/a", steps("x", "y", "z", "end")), keep("2/a", steps("x", "y", "other", "end", late=7))
    status, found = diff(one, other)
    [variant] = found["variants"]
    assert status == 1
    assert [variant["first_difference"][run]["text"] for run in ("run1", "run2")] == ["z", "other"]
    assert (variant["times_only"], variant["times_differ_from_line"]) == (False, 1)
    assert lines(variant) == [(1, 1), (2, 2), (3, None), (None, 3), (4, 4)]


def test_measured_time_is_time(keep: Keep, diff) -> None:
    def completion(seconds: float, status: str = "SUCCESS") -> list[Event]:
        text = f"RDMA_WRITE ends with {status} after {seconds * 1e3:.1f} ms"
        return [event(0, "completion", "a", text, status=status, elapsed_s=seconds), *steps("x", "y")]

    slow, fast, dead = (
        keep(f"{name}/a", events)
        for name, events in (
            ("slow", completion(0.2)),
            ("fast", completion(0.1)),
            ("dead", completion(0.1, "RETRY_EXC_ERR")),
        )
    )
    assert diff(slow, fast)[1]["variants"][0]["times_only"]
    assert not diff(fast, dead)[1]["variants"][0]["times_only"]
    assert diff(slow, fast)[0] == 1


def test_what_an_add_took_is_time_and_its_text_is_not(keep: Keep, diff) -> None:
    def add(seconds: float, text: str) -> list[Event]:
        return [event(0, "cni", "a", text, command="ADD", took_s=seconds), *steps("x", "y")]

    slow, fast, other = (
        keep(f"{name}/a", add(seconds, text))
        for name, seconds, text in (
            ("slow", 0.2, "ADD rdma by macvlan"),
            ("fast", 0.1, "ADD rdma by macvlan"),
            ("bridge", 0.1, "ADD rdma by ptp"),
        )
    )
    assert diff(slow, fast)[1]["variants"][0]["times_only"]
    assert not diff(fast, other)[1]["variants"][0]["times_only"]


def test_other_times_alone_are_shown_where_they_begin(keep: Keep, diff, capsys: pytest.CaptureFixture[str]) -> None:
    late = steps("x", "y", "z")
    late[1]["t"] += 7
    one, other = keep("1/a", steps("x", "y", "z")), keep("2/a", late)
    status, found = diff(one, other)
    assert (status, found["variants"][0]["first_difference"]["run2"]["line"]) == (1, 2)
    assert invoke(["diff", str(one), str(other)]) == 1
    assert "a: the same events; their times differ from line 2 on, there by 7 ns" in capsys.readouterr().out


def test_a_run_that_ended_earlier_differs_where_it_ends(keep: Keep, diff) -> None:
    _, found = diff(keep("1/a", steps("x")), keep("2/a", steps("x", "y")))
    assert found["variants"][0]["first_difference"]["run1"] is None
    assert found["variants"][0]["first_difference"]["run2"]["text"] == "y"


def test_so_many_events_are_shown_on_each_side(keep: Keep, diff) -> None:
    names = [str(number) for number in range(9)]
    one, other = keep("1/a", steps(*names, "p", *names)), keep("2/a", steps(*names, "q", "r", *names))
    _, found = diff(one, other, "--context", "2")
    assert lines(found["variants"][0]) == [(8, 8), (9, 9), (10, None), (None, 10), (None, 11), (11, 12)]


def test_the_switch_tables_are_those_of_the_difference_and_of_what_is_shown(keep: Keep, diff) -> None:
    before, end = [learned(0, "same"), *steps("x", late=1)], steps("x", "y", "z", late=2)[1:]
    one = keep("1/a", [*before, learned(5, "mine"), *end])
    other = keep("2/a", [*before, *end, learned(3 * 10**9, "yours")])
    _, found = diff(one, other)
    rows = [(row["moment"], row["entry"], row["run1"], row["run2"]) for row in found["variants"][0]["tables"]]
    assert rows == [
        ("right after the first event that differs", "10.0.0.1", "mine on e1", "same on e1"),
        ("after the last events shown", "10.0.0.1", "mine on e1", "yours on e1"),
    ]


def test_variants_are_compared_by_name_and_those_of_one_run_are_named(keep: Keep, diff, tmp_path: Path) -> None:
    for run, names in ("1", "abc"), ("2", "bcd"):
        for name in names:
            keep(f"{run}/{name}", steps("x", run if name == "c" else "y"))
    status, found = diff(tmp_path / "1", tmp_path / "2")
    assert status == 1
    assert found["only_in_one"] == {"run1": ["a"], "run2": ["d"]}
    assert [(Path(one["run1"]).name, one["same"]) for one in found["variants"]] == [("b", True), ("c", False)]


def test_a_variant_that_only_one_run_has_makes_them_differ(keep: Keep, diff, tmp_path: Path) -> None:
    for place in "1/a", "1/b", "2/a":
        keep(place, steps("x"))
    keep("2/c", steps("x"))
    assert diff(tmp_path / "1", tmp_path / "2")[0] == 1
    assert diff(tmp_path / "1", tmp_path / "1")[0] == 0


def test_events_that_only_one_run_has_are_in_the_order_of_time(keep: Keep, diff) -> None:
    _, found = diff(keep("1/a", steps("x", "y", "z")), keep("2/a", steps("x", "p", "q", late=1)))
    assert lines(found["variants"][0]) == [(1, 1), (2, None), (None, 2), (3, None), (None, 3)]


def test_a_variant_is_compared_with_its_like_in_a_run_and_with_any_other_variant(
    keep: Keep, diff, tmp_path: Path
) -> None:
    keep("1/a", steps("x"))
    keep("2/a", steps("x"))
    keep("2/b", steps("y"))
    assert diff(tmp_path / "1" / "a", tmp_path / "2")[0] == 0
    assert diff(tmp_path / "2", tmp_path / "1" / "a")[0] == 0
    assert diff(tmp_path / "2" / "a", tmp_path / "2" / "b")[0] == 1


def test_what_differs_in_the_data_alone_is_named(keep: Keep, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (keep(f"{side}/a", [event(0, "job", "", "ends", ok=True, ranks=side)]) for side in (1, 2))
    assert invoke(["diff", str(one), str(other)]) == 1
    assert "Their data differs in line 1: ranks 1 and 2\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["1/a", "none"], "none: no such directory", ""),
        (["1/a", "2/as"], "2/as: no such directory", "It contains: as-is, garp."),
        (["1", "base"], "base: has no events.jsonl, and no directory with one", "Did you mean base/latest?"),
        (["1/a", "2"], "2: has no variant 'a'", "It has: as-is, garp."),
        (["3", "2"], "2: the two runs have no variant in common", "3 has a, b; 2 has as-is, garp."),
        (["1/a", "damaged"], "damaged/events.jsonl:1: is not an event", ""),
    ],
)
def test_bad_input_is_2_with_what_there_is(
    keep: Keep,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
    hint: str,
) -> None:
    for place in "1/a", "2/as-is", "2/garp", "3/a", "3/b", "base/latest":
        keep(place, steps("x"))
    (tmp_path / "base" / "latest" / "events.jsonl").rename(tmp_path / "base" / "other.txt")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "events.jsonl").write_text("{}\n")
    monkeypatch.chdir(tmp_path)
    assert invoke(["diff", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert hint in error


def test_nothing_in_an_event_is_obeyed_by_a_terminal(keep: Keep, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b[2J[red]"
    one, other = (keep(f"{side}/a", [event(0, "step", hostile, side), learned(1, hostile)]) for side in "12")
    assert invoke(["diff", str(one), str(other)]) == 1
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "[red]" in shown
