"""Runs that stop at a moment, are looked into, touched, continued, and gone back to."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import Done, Shipped

VARIANT = ("ip-reuse", "--variant", "garp")
Command = Callable[..., Done]


@pytest.fixture
def lab(testbed: Command, tmp_path: Path) -> Iterator[Command]:
    """The command, with a place for labs that is the test's own."""
    command = partial(testbed, env={"XDG_STATE_HOME": str(tmp_path / "state"), "TESTBED_LAB": ""})
    yield command
    command("down", "--all")


@pytest.fixture
def plain(ip_reuse: Shipped) -> str:
    """The trace of the run that is neither stopped nor kept."""
    return ip_reuse.variants["garp"]["trace"]


def result_of(run: Done) -> dict[str, Any]:
    """The result of `continue -f json`."""
    assert run.status == 0, run.err
    return json.loads(run.out)


def trace(result: dict[str, Any]) -> str:
    """That of the one variant."""
    return result["variants"][0]["trace"]


def test_a_run_that_was_only_looked_into_goes_on_as_if_nobody_had(lab: Command, plain: str) -> None:
    stopped = lab("run", *VARIANT, "--stop-at", "pod B", "--json").json
    assert stopped["stopped"]["text"] == "pod B on node2 gets the address"
    assert lab("ps", "-f", "json").json[0]["state"] == "stopped"
    arp = {row["ip"]: row["port"] for row in lab("tables", "leaf", "-f", "json").json if row["table"] == "arp"}
    assert arp["10.0.20.100"] == "e2"  # pod A's, who has gone
    lab("inspect")
    lab("events")
    went_on = result_of(lab("continue", "-f", "json"))
    assert trace(went_on) == plain
    assert went_on["variants"][0]["touched"] == []
    assert lab("ps", "-f", "json").json == []


def test_what_is_done_at_a_stop_makes_another_run_which_says_so(lab: Command, plain: str) -> None:
    lab("run", *VARIANT, "--stop-at", "pod B")
    assert lab("exec", "node2", "--", "ip", "link", "set", "lo", "down").status == 0
    went_on = result_of(lab("continue", "-f", "json"))
    assert went_on["variants"][0]["touched"] == ["Exec"]
    assert trace(went_on) != plain
    lab("run", *VARIANT, "--stop-at", "pod B")
    lab("exec", "node2", "--", "true")
    assert trace(result_of(lab("continue", "--discard", "-f", "json"))) == plain


def test_a_run_stops_at_a_time_and_then_at_a_step(lab: Command, plain: str) -> None:
    stopped = lab("run", *VARIANT, "--stop-at", "T=0.5s", "--json").json["stopped"]
    assert (stopped["kind"], stopped["t"]) == ("time", 500_000_000)
    now_s = lab("inspect", "-f", "json").json["now_s"]
    assert 0.5 <= now_s < 0.6
    again = lab("continue", "--to", "the client connects", "-f", "json").json["stopped"]
    assert again["kind"] == "step"
    assert trace(result_of(lab("continue", "-f", "json"))) == plain


def test_a_stop_that_never_comes_is_said_and_the_run_is_whole(lab: Command, plain: str, tmp_path: Path) -> None:
    run = lab("run", *VARIANT, "--stop-at", "first-failure")
    assert run.status == 0
    assert "never reached 'first-failure'" in run.err
    assert trace(json.loads((tmp_path / "runs/ip-reuse/latest/result.json").read_text())) == plain


def test_a_step_is_gone_back_to_as_often_as_wanted(lab: Command, plain: str, tmp_path: Path) -> None:
    run = lab("run", *VARIANT, "--keep-steps", "--json").json
    assert trace(run) == plain
    latest = "runs/ip-reuse/latest"
    steps = lab("back", latest, "-f", "json").json
    assert [step["kind"] for step in steps] == ["lab", "step", "step", "step", "step"]
    seen = []
    for _ in range(2):
        assert lab("back", latest, "pod B").status == 0
        seen.append(lab("inspect", "-f", "json").json["nodes"])
        assert trace(result_of(lab("continue", "-f", "json"))) == plain
    assert seen[0] == seen[1]
    lab("back", latest, "pod B")
    lab("announce", "node1:eth1", "--ip", "10.0.20.100")
    other = result_of(lab("continue", "-f", "json"))
    assert trace(other) != plain
    assert lab("diff", run["out"], other["out"]).status == 1
    kept = tmp_path / run["out"] / "garp" / "steps" / "001.step"
    kept.write_bytes(kept.read_bytes().replace(b'"snapshot": "', b'"snapshot":"~', 1))
    another = lab("back", latest, "1")
    assert another.status == 2
    assert f"{kept}: another version of testbed, its image or QEMU kept the step" in another.err
    assert "Run the variant again with --keep-steps" in another.err
    assert lab("ps", "-f", "json").json == []


def test_wrong_input_says_what_there_is(lab: Command, ip_reuse: Shipped) -> None:
    none = lab("back", ip_reuse.out)
    assert none.status == 2
    assert "--keep-steps" in none.error
    assert lab("run", "ip-reuse", "--stop-at", "fault").status == 2
    assert "Such as T=12.5s" in lab("run", *VARIANT, "--stop-at", "T=soon").error
    assert lab("run", *VARIANT, "--stop-at", "fault", "--clock", "real").status == 2
    assert "no lab is up" in lab("continue").error
