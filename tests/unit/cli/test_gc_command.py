"""`testbed gc`: what it prints of what it is reported, and how it ends."""

import json

import pytest

from testbed.cli.main import invoke
from testbed.machine import questions
from testbed.protocol import Leftover
from testbed.protocol.requests import Collect

GONE = Leftover(run="7-ab", kind="namespace", name="mine-a", problem="")
BUSY = Leftover(run="7-ab", kind="RDMA netns mode", name="shared", problem="it could not be changed")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Leftover]:
    """What is found on this kernel."""
    there: list[Leftover] = []

    def ask(request: Collect) -> list[Leftover]:
        return [Leftover(**{**one, "problem": ""}) for one in there] if request.dry_run else there

    monkeypatch.setattr(questions, "ask", ask)
    return there


def test_nothing_is_left(found: list[Leftover], capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["gc"]) == 0
    assert capsys.readouterr().out == "nothing is left of runs on this kernel\n"


def test_each_thing_has_a_line_and_what_stays_is_status_1(
    found: list[Leftover], capsys: pytest.CaptureFixture[str]
) -> None:
    found += [GONE, BUSY]
    assert invoke(["gc"]) == 1
    removed = "namespace mine-a: removed\nRDMA netns mode shared: it could not be changed\n"
    assert capsys.readouterr().out == removed


def test_a_dry_run_says_what_would_be_removed(found: list[Leftover], capsys: pytest.CaptureFixture[str]) -> None:
    found.append(GONE)
    assert invoke(["gc", "--dry-run"]) == 0
    assert capsys.readouterr().out == "namespace mine-a: would be removed\n"


def test_json_has_all_of_it(found: list[Leftover], capsys: pytest.CaptureFixture[str]) -> None:
    found += [GONE, BUSY]
    assert invoke(["gc", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == [GONE, BUSY]
