"""The end of a variant's run, however it comes."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.errors import InputError
from testbed.executor.variant import Cut, Moments, saved
from testbed.executor.wire import MOMENT
from testbed.protocol import live, messages

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


class Messages:
    """Stands for the wire: what comes together."""

    virtual = True

    def __init__(self, *batches: list[dict[str, Any]]) -> None:
        self._batches = [*batches]
        self.sent: list[Any] = []
        self.pauses: list[int] = []

    def receive(self) -> list[dict[str, Any]]:
        return self._batches.pop(0) if self._batches else []

    def pause(self, reason: int) -> None:
        assert len(self.pauses) < 2, "it waits for a message that has come"
        self.pauses.append(reason)

    def send(self, line: bytes) -> None:
        self.sent.append(json.loads(line)["id"])


def test_a_request_that_came_with_the_order_to_hold_is_served() -> None:
    wire: Any = Messages([messages.ask(7, live.Hold()), messages.ask(8, live.Down())])
    lab: Any = SimpleNamespace(
        nodes={}, plan=SimpleNamespace(name="lab"), scheduler=SimpleNamespace(sources=[]), defer=lambda _: None
    )
    log: Any = SimpleNamespace(now=0)
    moments = Moments(wire, lambda _: None, "", None)
    moments.begin(lab, log)
    with pytest.raises(Cut):
        moments.up()
    assert wire.sent == [7, 8]
    assert wire.pauses == [MOMENT]
