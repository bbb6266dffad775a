"""The end of a variant's run, however it comes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.errors import InputError
from testbed.executor.variant import Cut, saved

FILE = Path("scenario.py")


class Files:
    """Stands for Evidence."""

    def __init__(self) -> None:
        self.saved: list[str] = []

    def save(self, text: str) -> list[str]:
        self.saved.append(text)
        return [f"no counters at {text}"]


@pytest.fixture
def run() -> Any:
    return SimpleNamespace(
        failures=["an expectation"],
        warnings=[],
        lab=SimpleNamespace(scheduler=SimpleNamespace(programs=SimpleNamespace(failed=lambda: ["it ended"]))),
    )


def test_the_end_of_a_run_is_saved(run: Any, tmp_path: Path) -> None:
    files: Any = Files()
    with saved(files, run, FILE, tmp_path / "reserve"):
        pass
    assert files.saved == ["the end"]
    assert run.failures == ["an expectation", "no counters at the end"]
    assert run.warnings == ["it ended"]


def test_what_cut_a_run_short_is_its_first_failure_before_the_lab_is_taken_down(run: Any, tmp_path: Path) -> None:
    files: Any = Files()
    (tmp_path / "reserve").touch()
    with pytest.raises(InputError), saved(files, run, FILE, tmp_path / "reserve"):
        raise InputError("no such node")
    assert run.failures == ["no such node", "an expectation", "no counters at the run was cut short"]
    assert not (tmp_path / "reserve").exists()


def test_a_reserve_that_the_scenario_has_removed_hides_nothing(run: Any, tmp_path: Path) -> None:
    files: Any = Files()
    with pytest.raises(OSError, match="mine"), saved(files, run, FILE, tmp_path / "reserve"):
        raise OSError("mine")
    assert "mine" in run.failures[0]


def test_a_run_that_the_user_ended_has_no_failure_of_its_own(run: Any, tmp_path: Path) -> None:
    files: Any = Files()
    with pytest.raises(Cut), saved(files, run, FILE, tmp_path / "reserve"):
        raise Cut(1)
    assert (run.failures, files.saved) == (["an expectation"], [])
