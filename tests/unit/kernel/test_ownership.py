"""Runs on this very kernel: a record is there before anything changes, and says whether its owner lives."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.errors import TestbedError
from testbed.kernel import ownership, sysctl
from testbed.kernel.ownership import Run


@pytest.fixture(autouse=True)
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of records, and a /proc/sys with one value."""
    monkeypatch.setattr(ownership, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(sysctl, "ROOT", tmp_path / "sys")
    for directory in ("runs", "sys"):
        (tmp_path / directory).mkdir()
    (tmp_path / "sys" / "value").write_text("1\n")
    return tmp_path / "runs"


@pytest.fixture
def run() -> Iterator[Run]:
    begun = ownership.begin(exclusive=False)
    yield begun
    ownership.end(begun)


def recorded() -> Run:
    [found] = ownership.runs()
    return found


def test_a_run_lives_as_long_as_its_process(run: Run) -> None:
    assert recorded() == run
    assert recorded().lives
    assert not replace(run, born=run.born + 1).lives  # another process that has its number now


def test_a_process_that_ended_owns_nothing_even_if_nobody_waited_for_it(run: Run) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        born = ownership._birth(process.pid)
        assert born
        other = replace(run, pid=process.pid, born=born)
        assert other.lives
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not other.lives
    assert not other.lives


def test_the_first_value_of_a_sysctl_is_the_one_that_is_kept(run: Run) -> None:
    ownership.change_sysctl("value", 2)
    ownership.change_sysctl("value", 3)
    assert sysctl.read("value") == "3"
    assert recorded().sysctls == {"value": "1"}


def test_a_value_is_recorded_before_it_is_changed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> None:
        raise SystemExit

    monkeypatch.setattr(sysctl, "write", killed)
    with pytest.raises(SystemExit):
        ownership.change_sysctl("value", 2)
    assert recorded().sysctls == {"value": "1"}


def test_a_sysctl_that_this_kernel_does_not_have_is_left_out(run: Run) -> None:
    ownership.change_sysctl("absent", 2)
    assert recorded().sysctls == {}


def test_what_is_claimed_is_in_the_record(run: Run) -> None:
    ownership.claim_namespace("mine-a")
    ownership.claim_file(Path("/run/x"))
    ownership.claim_place("/etc/x")
    ownership.claim_probes()
    found = recorded()
    assert (found.namespaces, found.files, found.probes) == (["mine-a"], ["/run/x"], True)
    assert found.places == ["/etc/x"]


def test_a_place_stays_if_somebody_uses_it(tmp_path: Path) -> None:
    top = tmp_path / "places"
    used, unused, file = (top / name for name in ("used", "unused", "file"))
    for directory in used, unused:
        directory.mkdir(parents=True)
    (used / "mine").write_text("x")
    file.touch()
    for place in used, unused, file, used / "mine", top / "gone":
        ownership.leave_place(place)
    assert sorted(path.name for path in top.rglob("*")) == ["mine", "used"]


def test_without_a_run_nothing_is_changed_and_nothing_recorded(records: Path) -> None:
    ownership.claim_namespace("mine-a")
    ownership.claim_file("/run/x")
    ownership.claim_probes()
    ownership.change_sysctl("value", 2)
    assert sysctl.read("value") == "1"
    assert list(records.iterdir()) == []


def test_a_record_that_was_being_written_goes_with_its_run(records: Path) -> None:
    killed = ownership.begin(exclusive=False)
    killed.draft.write_text("{")
    assert recorded() == killed
    ownership.end(killed)
    assert list(records.iterdir()) == []


def test_programs_have_the_mark_and_others_have_not(run: Run) -> None:
    with subprocess.Popen(["sleep", "60"]) as ours, subprocess.Popen(["sleep", "60"], env={"X": run.name}) as other:
        assert (ownership.owner_of_process(ours.pid), ownership.owner_of_process(other.pid)) == (run.name, "")
        ours.kill()
        other.kill()


@pytest.mark.parametrize(("alias", "owner"), [("testbed run 7-ab", "7-ab"), ("testbed", ""), ("uplink", ""), ("", "")])
def test_only_a_whole_mark_is_one(alias: str, owner: str) -> None:
    assert ownership.owner_of(alias) == owner


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "x"}', json.dumps({"name": "x", "of": "later"})])
def test_a_record_that_cannot_be_read_is_an_error_with_its_place(records: Path, text: str) -> None:
    (records / "x.json").write_text(text)
    with pytest.raises(TestbedError, match=r"x\.json: is not a record of a run"):
        ownership.runs()
