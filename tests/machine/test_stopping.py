"""Runs that stop at a moment, are looked into, touched, continued, and gone back to."""

import json
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import COMMAND, Done, Shipped

ADDRESS = "10.0.20.2"
"""The one that goes from a to b."""
Command = Callable[..., Done]


@pytest.fixture
def lab(testbed: Command, tmp_path: Path) -> Iterator[Command]:
    """The command, with a place for labs that is the test's own."""
    command = partial(testbed, env={"XDG_STATE_HOME": str(tmp_path / "state"), "TESTBED_LAB": ""})
    yield command
    command("down", "--all")


@pytest.fixture(scope="module")
def plain(short: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The trace of the run that is neither stopped nor kept."""
    place = tmp_path_factory.mktemp("plain")
    done = subprocess.run([*COMMAND, "run", short, "--json"], cwd=place, stdout=subprocess.PIPE, check=True)
    return trace(json.loads(done.stdout))


def result_of(run: Done) -> dict[str, Any]:
    """The result of `continue -f json`."""
    assert run.status == 0, run.err
    return json.loads(run.out)


def trace(result: dict[str, Any]) -> str:
    """That of the one variant."""
    return result["variants"][0]["trace"]


def test_a_run_that_was_only_looked_into_goes_on_as_if_nobody_had(lab: Command, plain: str, short: Path) -> None:
    stopped = lab("run", short, "--stop-at", "b gets", "--json").json
    assert stopped["stopped"]["text"] == "b gets the address"
    assert lab("ps", "-f", "json").json[0]["state"] == "stopped"
    arp = {row["ip"]: row["port"] for row in lab("tables", "leaf", "-f", "json").json if row["table"] == "arp"}
    assert arp[ADDRESS] == "e2"  # that of a
    lab("inspect")
    lab("events")
    went_on = result_of(lab("continue", "-f", "json"))
    assert trace(went_on) == plain
    assert went_on["variants"][0]["touched"] == []
    assert lab("ps", "-f", "json").json == []


def test_what_is_done_at_a_stop_makes_another_run_which_says_so(lab: Command, plain: str, short: Path) -> None:
    lab("run", short, "--stop-at", "b gets")
    assert lab("exec", "b", "--", "ip", "link", "set", "lo", "down").status == 0
    went_on = result_of(lab("continue", "-f", "json"))
    assert went_on["variants"][0]["touched"] == ["Exec"]
    assert trace(went_on) != plain
    lab("run", short, "--stop-at", "b gets")
    lab("exec", "b", "--", "true")
    assert trace(result_of(lab("continue", "--discard", "-f", "json"))) == plain


def test_a_run_stops_at_a_time_and_then_at_a_step(lab: Command, plain: str, short: Path) -> None:
    stopped = lab("run", short, "--stop-at", "T=0.5s", "--json").json["stopped"]
    assert (stopped["kind"], stopped["t"]) == ("time", 500_000_000)
    now_s = lab("inspect", "-f", "json").json["now_s"]
    assert 0.5 <= now_s < 0.6
    again = lab("continue", "--to", "the client writes to b", "-f", "json").json["stopped"]
    assert again["kind"] == "step"
    assert trace(result_of(lab("continue", "-f", "json"))) == plain


def test_a_stop_that_never_comes_is_said_and_the_run_is_whole(
    lab: Command, plain: str, short: Path, tmp_path: Path
) -> None:
    run = lab("run", short, "--stop-at", "first-failure")
    assert run.status == 0
    assert "never reached 'first-failure'" in run.err
    assert trace(json.loads((tmp_path / "runs/short/latest/result.json").read_text())) == plain


def test_a_step_is_gone_back_to_as_often_as_wanted(lab: Command, plain: str, short: Path, tmp_path: Path) -> None:
    run = lab("run", short, "--keep-steps", "--json").json
    assert trace(run) == plain
    latest = "runs/short/latest"
    steps = lab("back", latest, "-f", "json").json
    assert [step["kind"] for step in steps] == ["lab", "step", "step", "step", "step"]
    seen = []
    for _ in range(2):
        assert lab("back", latest, "b gets").status == 0
        seen.append(lab("inspect", "-f", "json").json["nodes"])
        assert trace(result_of(lab("continue", "-f", "json"))) == plain
    assert seen[0] == seen[1]
    lab("back", latest, "b gets")
    lab("announce", "a:eth1", "--ip", ADDRESS)
    other = result_of(lab("continue", "-f", "json"))
    assert trace(other) != plain
    assert lab("diff", run["out"], other["out"]).status == 1
    kept = tmp_path / run["out"] / "announced" / "steps" / "001.step"
    kept.write_bytes(kept.read_bytes().replace(b'"snapshot": "', b'"snapshot":"~', 1))
    another = lab("back", latest, "1")
    assert another.status == 2
    assert f"{kept}: another version of testbed, its image or QEMU kept the step" in another.err
    assert "Run the variant again with --keep-steps" in another.err
    assert lab("ps", "-f", "json").json == []


def test_wrong_input_says_what_there_is(lab: Command, ip_reuse: Shipped, short: Path) -> None:
    none = lab("back", ip_reuse.out)
    assert none.status == 2
    assert "--keep-steps" in none.error
    several = lab("run", "ip-reuse", "--stop-at", "fault")
    assert several.status == 2
    assert "one variant" in several.error
    assert "Such as T=12.5s" in lab("run", short, "--stop-at", "T=soon").error
    assert lab("run", short, "--stop-at", "fault", "--clock", "real").status == 2
    assert "no lab is up" in lab("continue").error


def test_a_training_job_stops_at_its_fault_and_goes_on(lab: Command) -> None:
    script = Path(__file__).parent / "programs/ddp/transformer.py"
    fault = "link-down leaf1:e1 after step 1 for 1s"
    stopped = lab("train", str(script), "--ranks", "2", "--fault", fault, "--stop-at", "fault", "--json").json
    assert stopped["stopped"]["text"].startswith("link-down end=leaf1:e1")
    assert "NO-CARRIER" in lab("exec", "host1", "--", "ip", "link", "show", "eth1").out
    assert result_of(lab("continue", "-f", "json"))["variants"][0]["observed"] == "healthy"
