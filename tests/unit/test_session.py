"""`testbed.session`: what is typed for a call, and what is made of the answer."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed import Lab, session
from testbed.errors import InputError, TestbedError, UnsupportedError

Typed = list[list[str]]
Fake = Callable[..., Typed]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Make the command answer this, and return the list of what is typed."""

    def fake(out: Any = "", status: int = 0, err: str = "") -> Typed:
        typed: Typed = []
        text = out if isinstance(out, str) else json.dumps(out)

        def run(words: list[str]) -> subprocess.CompletedProcess[str]:
            typed.append([*words])
            return subprocess.CompletedProcess(words, status, text, err)

        monkeypatch.setattr(session, "_testbed", run)
        return typed

    return fake


VARIANT = {
    "name": "as-is",
    "expected": "fault",
    "observed": "fault",
    "failures": [],
    "evidence": {"completion": "X"},
    "virtual_s": 2.5,
    "trace": "ab",
}
RUN = {"scenario": "s", "verdict": "unexpected", "seed": 7, "trace": "cd", "out": "runs/s/1", "variants": [VARIANT]}


def test_a_scenario_is_run_and_an_unexpected_result_is_no_error(command: Fake) -> None:
    typed = command(RUN, 1)
    found = session.run(
        "s", variants=["as-is"], settings={"down": 0.1, "name": "x", "on": True}, seed=7, topology="t.yml"
    )
    assert typed == [
        [
            *("run", "s", "--seed", "7", "--out", "runs", "--json", "--variant", "as-is"),
            *("--set", "down=0.1", "--set", "name=x", "--set", "on=true", "--topology", "t.yml"),
        ]
    ]
    assert (found.as_expected, found.seed, found["as-is"].as_expected) == (False, 7, True)
    assert found["as-is"].directory == Path("runs/s/1/as-is")
    assert found.records() == [
        {
            "completion": "X",
            "name": "as-is",
            "expected": "fault",
            "observed": "fault",
            "as_expected": True,
            "virtual_s": 2.5,
            "trace": "ab",
        }
    ]
    with pytest.raises(InputError, match="there is no variant other"):
        found["other"]


@pytest.mark.parametrize(("status", "kind"), [(1, TestbedError), (2, InputError), (3, UnsupportedError)])
def test_an_error_of_the_command_is_an_exception(command: Fake, status: int, kind: type[TestbedError]) -> None:
    command({"error": {"message": "wrong", "where": "x:1", "hint": "do", "also": []}, "status": status}, status)
    with pytest.raises(kind) as caught:
        session.run("s")
    assert (type(caught.value), str(caught.value)) == (kind, "x:1: wrong\n  do")
    command("", status, "… progress\nerror: only text\n")
    with pytest.raises(kind, match="only text"):
        session.up("x.yml")


def test_a_live_lab_has_the_commands_of_labs_that_live(command: Fake) -> None:
    typed = command({"name": "x", "out": "runs/x/1", "number": 3, "status": "SUCCESS"})
    with session.up("x.clab.yml", seed=2) as lab:
        assert lab.inject("link-loss", end="a:e1", loss=5)["number"] == 3
        lab.recover(3)
        lab.advance("5m")
        lab.rdma_write("a", "b", silent=True)
        lab.testbed("link", "set", "a:e1", "rate=1gbit")
    mine = ["--lab", "x", "--format", "json"]
    assert typed == [
        ["up", "x.clab.yml", "--clock", "virtual", "--seed", "2", "--out", "runs", "--format", "json"],
        ["fault", "inject", "link-loss", "end=a:e1", "loss=5", *mine],
        ["fault", "recover", "3", *mine],
        ["advance", "5m", *mine],
        ["rdma", "write", "a", "b", "--silent", *mine],
        ["link", "set", "a:e1", "rate=1gbit", *mine],
        ["down", "x"],
    ]
    assert lab.directory == Path("runs/x/1")


def test_a_program_that_fails_raises_unless_it_is_not_checked(command: Fake) -> None:
    command("out", 4, "why")
    lab = session.LiveLab(Path(), "x")
    assert lab.execute("a", "false", check=False) == "out"
    with pytest.raises(TestbedError, match="a: false: status 4: why"):
        lab.execute("a", "false")


def double(lab: Any, number: int, *, more: int = 0) -> int:
    return 2 * number + more


def test_a_function_is_sent_as_a_test_with_its_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = tmp_path / "runs/1"
    (place / "files").mkdir(parents=True)
    (place / "tests.jsonl").write_text(json.dumps({"directory": "tmp/test_call0"}) + "\n")

    def run(words: list[str]) -> subprocess.CompletedProcess[str]:
        assert (words[0], words[2:]) == ("pytest", ["--seed", "5", "--out", "runs"])
        program: dict[str, Any] = {}
        exec(Path(words[1]).read_text(), program)  # noqa: S102 - as pytest would
        monkeypatch.chdir(place / "files")
        program["test_call"](None)
        return subprocess.CompletedProcess(words, 0, "", f"… text, tests and files: {place}\n")

    monkeypatch.setattr(session, "_testbed", run)
    answer = session.call(double, "name: t\ntopology: {}\n", 4, more=1, seed=5)
    assert (answer.value, answer.directory) == (9, place / "tmp/test_call0")


def test_a_function_without_a_name_cannot_be_sent() -> None:
    with pytest.raises(InputError, match="give a function with a name"):
        session.call(lambda lab: 1, "name: t\n")


def test_a_lab_outside_of_a_machine_names_the_way() -> None:
    with pytest.raises(InputError) as caught:
        Lab("x.clab.yml")  # type: ignore[arg-type]
    assert "testbed.session.up(FILE)" in caught.value.hint


def test_a_capture_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no capture x"):
        session.Files(tmp_path).packets("x")
