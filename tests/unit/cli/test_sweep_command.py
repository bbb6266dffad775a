"""`testbed sweep`: every run is one row of its file, once, and those that are not as expected are shown."""

import asyncio
import errno
import json
import os
import re
import shlex
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.cli.main import invoke
from testbed.cli.sweep import planning, sweep_command
from testbed.errors import MachineError
from testbed.machine import record, runs, scenarios
from testbed.machine.record import Identity, VariantResult
from testbed.machine.runs import VariantRun
from testbed.machine.sweeps import result_file

Ran = list[tuple[str, str, int]]
"""The variant, the packets and the seed of each run, in their order."""


@pytest.fixture
def ran(ends_like: Callable[..., None], good: VariantResult, monkeypatch: pytest.MonkeyPatch, tiny: Path) -> Ran:
    """Runs end as expected, but those with seed 2 and 30 packets."""
    ends_like(good)
    ended = runs.run_variant
    found: Ran = []

    async def run_variant(job: Any, source: Any, variant_run: VariantRun, *others: Any) -> VariantResult:
        result = await ended(job, source, variant_run, *others)
        found.append((variant_run.label, str(variant_run.variant["settings"].get("packets", 4)), job.seed))
        result = replace(result, expected=variant_run.variant["expected"], observed=variant_run.variant["expected"])
        if found[-1][1:] == ("30", 2):
            return replace(result, observed="healthy", expected="fault", failures=["users saw healthy"])
        return result

    monkeypatch.setattr(runs, "run_variant", run_variant)
    return found


def rows(query: str, file: str = "runs/tiny/sweep.sqlite") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as database:
        return database.execute(query).fetchall()


def sweep(*words: str) -> int:
    return invoke(["sweep", "tiny", *words])


def test_every_variant_is_run_with_every_seed(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("--seeds", "1..3", "--jobs", "1") == 0
    assert ran == [(name, packets, seed) for seed in (1, 2, 3) for name, packets in (("bad", "4"), ("good", "9"))]
    printed = capsys.readouterr()
    assert re.search(r"bad +3 +fault +fault +25 min 03 s\n", printed.out)
    assert "tiny: as expected · 6 runs\nruns/tiny/sweep.sqlite\n" in printed.out
    assert "… 6 of 6 runs\n" in printed.err
    found = rows("SELECT variant, seed, verdict, image, code, qemu, directory FROM runs WHERE variant = 'bad'")
    assert found == [("bad", seed, "as-expected", "ef" * 32, "c0de", "10.0.2 (Debian)", None) for seed in (1, 2, 3)]
    assert os.listdir("runs/tiny") == ["sweep.sqlite"]


def test_values_are_swept_and_the_first_that_differs_has_its_command(
    ran: Ran, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("--variant", "bad", "--seeds", "0..3", "--over", "packets=3,30") == 1
    printed = capsys.readouterr()
    assert re.search(r"bad +30 +4 +fault +3 fault, 1 healthy +seed 2 ", printed.out)
    assert "The first that is not as expected is bad packets=30 with seed 2:\n  users saw healthy\n" in printed.out
    [shown] = re.findall(r"Run it again: testbed (.*)\n", printed.out)
    assert f"  testbed {shown}\n" in printed.err
    [kept] = re.findall(r"It left: (.*)\n", printed.out)
    assert record.load(Path(kept)).out == Path(kept)
    assert {"report.html", "README.txt", "result.json", "bad", "scenario"} <= {*os.listdir(kept)}
    ran.clear()
    assert invoke(shlex.split(shown)) == 1
    assert ran == [("bad", "30", 2)]


def test_the_same_command_runs_what_is_missing(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    sweep("--seeds", "1..2", "--variant", "good")
    ran.clear()
    assert sweep("--seeds", "1..2", "--variant", "good") == 0
    assert ran == []
    assert sweep("--seeds", "1..4", "--variant", "good", "--json") == 0
    assert [seed for _, _, seed in ran] == [3, 4]
    printed = capsys.readouterr()
    assert "… 2 of 4 runs are in runs/tiny/sweep.sqlite\n" in printed.err
    found = json.loads(printed.out.splitlines()[-1])
    assert (found["runs"], found["verdict"], found["first_unexpected"]) == (4, "as-expected", None)
    assert found["rows"][0]["observed"] == {"healthy": 4}


def test_a_sweep_that_is_killed_goes_on(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child is killed in its third run."""
    ended = runs.run_variant

    async def killed(*arguments: Any) -> VariantResult:
        if len(ran) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return await ended(*arguments)

    child = os.fork()
    if not child:
        monkeypatch.setattr(runs, "run_variant", killed)
        sweep("--seeds", "1..5", "--variant", "good", "--jobs", "1")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert rows("SELECT seed FROM runs") == [(1,), (2,)]
    assert sweep("--seeds", "1..5", "--variant", "good", "--jobs", "1") == 0
    assert [seed for _, _, seed in ran] == [3, 4, 5]
    assert os.listdir("runs/tiny") == ["sweep.sqlite"]


def test_an_interrupted_sweep_says_how_far_it_is(
    ran: Ran, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background have it ignored
    ended = runs.run_variant

    async def interrupted(*arguments: Any) -> VariantResult:
        if len(ran) == 1:
            signal.raise_signal(signal.SIGINT)
            await asyncio.Event().wait()
        return await ended(*arguments)

    monkeypatch.setattr(runs, "run_variant", interrupted)
    try:
        assert sweep("--seeds", "1..5", "--variant", "good", "--jobs", "1") == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert "1 of 5 runs are in runs/tiny/sweep.sqlite; the same command runs the rest" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"code": "c1de"}, "testbed's code that runs inside"),
        ({"image": "aa" * 32}, "the image"),
        ({"qemu": "11.0"}, "QEMU"),
    ],
)
def test_a_file_of_something_else_is_refused(
    ran: Ran, change: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep("--seeds", "1", "--variant", "good")
    other = replace(Identity.of(None), **change)  # type: ignore[arg-type]
    monkeypatch.setattr(Identity, "of", lambda *_: other)
    ran.clear()
    assert sweep("--seeds", "1..2", "--variant", "good") == 2
    assert ran == []
    printed = capsys.readouterr().err
    assert f"sweep.sqlite: has runs with other inputs: {words}\n" in printed
    assert "Name another file with --results, or remove this one to start again." in printed


def test_a_file_of_another_scenario_is_refused(ran: Ran, tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep("--seeds", "1", "--variant", "good", "--results", "some.sqlite")
    with (tiny / "scenario.py").open("a") as file:
        file.write("# changed\n")
    assert sweep("--seeds", "1", "--variant", "good", "--results", "some.sqlite") == 2
    assert "with other inputs: scenario.py of the scenario\n" in capsys.readouterr().err
    tiny.rename(tiny.with_name("other"))
    assert invoke(["sweep", "other", "--seeds", "1", "--variant", "good", "--results", "some.sqlite"]) == 2
    assert "some.sqlite: has runs of another scenario: tiny\n" in capsys.readouterr().err


@pytest.mark.parametrize("contents", [b"seed,verdict\n1,as-expected\n", b"SQLite format 3\0" + bytes(200)])
def test_another_kind_of_file_is_refused_and_stays(
    ran: Ran, contents: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mine").write_bytes(contents)
    assert sweep("--seeds", "1", "--results", "mine") == 2
    assert "mine: is not a sweep's result file" in capsys.readouterr().err
    assert Path("mine").read_bytes() == contents


def test_a_database_of_the_users_is_refused(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect("mine")) as database:
        database.execute("CREATE TABLE runs (seed)")
    assert sweep("--seeds", "1", "--results", "mine") == 2
    assert "mine: is not a sweep's result file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM sweep",
        "UPDATE sweep SET made_from = '['",
        "UPDATE sweep SET made_from = '{}'",
        "UPDATE sweep SET made_from = 'null'",
        "UPDATE runs SET failures = 'x'",
        "UPDATE runs SET failures = '1'",
        "UPDATE runs SET evidence = '[1]'",
        "UPDATE runs SET evidence = '{\"x\": NaN}'",
        "UPDATE runs SET virtual_s = 'long'",
        "UPDATE runs SET failures = x'ff'",
        "UPDATE runs SET seed = 'one'",
    ],
)
def test_a_result_file_that_somebody_damaged_is_one_message(
    ran: Ran, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("--seeds", "1", "--variant", "good", "--results", "some.sqlite") == 0
    with closing(sqlite3.connect("some.sqlite")) as database, database:
        database.execute(damage)
    assert sweep("--seeds", "1", "--variant", "good", "--results", "some.sqlite") == 2
    assert "some.sqlite: is damaged: " in capsys.readouterr().err


def test_two_sweeps_do_not_write_to_one_file(
    ran: Ran, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with result_file._locked(Path("one.sqlite")):
        assert sweep("--seeds", "1", "--results", "one.sqlite") == 2
    assert "one.sqlite: another sweep is writing to it" in capsys.readouterr().err
    assert ran == []


def test_a_full_disk_loses_no_run_that_was_recorded(
    ran: Ran, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = result_file.Results._begin

    def small(self: result_file.Results, scenario: str) -> None:
        begin(self, scenario)
        pages = self._database.execute("PRAGMA page_count").fetchone()[0]
        self._database.execute(f"PRAGMA max_page_count = {pages + 2}")

    monkeypatch.setattr(result_file.Results, "_begin", small)
    assert sweep("--seeds", "1..200", "--variant", "good", "--jobs", "1") == 3
    printed = capsys.readouterr().err
    assert "runs/tiny/sweep.sqlite: the disk is full\n" in printed
    there = rows("SELECT count(*) FROM runs")[0][0]
    assert 0 < there < 200
    assert f"{there} of 200 runs are in" in printed
    monkeypatch.undo()


def test_a_run_that_this_machine_cannot_do_ends_the_sweep(
    ran: Ran, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def full(*_: Any) -> VariantResult:
        raise OSError(errno.ENOSPC, "No space left on device", "/somewhere")

    monkeypatch.setattr(runs, "run_variant", full)
    assert sweep("--seeds", "1..3") == 3
    assert "/somewhere: the disk is full" in capsys.readouterr().err
    assert os.listdir("runs/tiny") == ["sweep.sqlite"]


def test_a_machine_that_fails_is_a_run_without_an_observation(
    ran: Ran, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = runs.run_variant

    async def hung(*arguments: Any) -> VariantResult:
        result = await ended(*arguments)
        return replace(result, observed=None, failures=[str(MachineError("the guest hangs"))])

    monkeypatch.setattr(runs, "run_variant", hung)
    assert sweep("--seeds", "5", "--variant", "good") == 1
    assert re.search(r"good +1 +healthy +nothing +seed 5", capsys.readouterr().out)


def test_few_run_directories_stay(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_command, "KEPT", 2)
    ended = runs.run_variant

    async def unexpected(*arguments: Any) -> VariantResult:
        return replace(await ended(*arguments), failures=["no"])

    monkeypatch.setattr(runs, "run_variant", unexpected)
    assert sweep("--seeds", "1..2", "--variant", "good") == 1
    assert sweep("--seeds", "1..4", "--variant", "good") == 1
    kept = rows("SELECT directory FROM runs WHERE directory IS NOT NULL ORDER BY seed")
    assert [Path(directory).is_dir() for (directory,) in kept] == [True, True]
    assert len(os.listdir("runs/tiny")) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "1", "--over", "packets=1,2"], "variant good sets packets itself"),
        (["--seeds", "1", "--over", "bytes=1"], "there is no parameter 'bytes'"),
        (["--seeds", "1", "--variant", "worse"], "has no variant 'worse'"),
        (["--seeds", "1", "--variant", "bad", "--over", "packets=1,-2"], "packets"),
        (["--seeds", "0..999999"], "a sweep of 2000000 runs is too large"),
        (["--seeds", "x"], "not a seed or a range"),
        ([], "--seeds"),
    ],
)
def test_wrong_input_ends_before_anything_runs(
    ran: Ran, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(*words) == 2
    assert message in capsys.readouterr().err
    assert ran == []
    assert not Path("runs").exists()


def test_what_a_variant_sets_itself_is_not_in_its_command(ran: Ran) -> None:
    source = scenarios.resolve("tiny")
    [info] = asyncio.run(scenarios.describe([(source, {})]))
    _, planned = asyncio.run(planning.plan(source, info, [2], [], [], {"packets": "30"}))
    assert [point.command("tiny") for point in planned] == [
        "testbed run tiny --variant bad --set packets=30 --seed 2",
        "testbed run tiny --variant good --seed 2",
    ]


def test_files_that_change_meanwhile_do_not_count(ran: Ran, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = runs.run_variant
    seen = []

    async def edited(job: Any, *others: Any) -> VariantResult:
        seen.append(job.files["scenario.py"])
        (tiny / "scenario.py").write_text("broken")
        return await ended(job, *others)

    monkeypatch.setattr(runs, "run_variant", edited)
    assert sweep("--seeds", "1,3", "--variant", "good", "--jobs", "1") == 0
    assert seen[0] == seen[1] != b"broken"
