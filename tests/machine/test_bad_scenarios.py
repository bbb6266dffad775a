"""Whatever a user's scenario does, the run ends with one clear message and the right status."""

import json
import shutil

import pytest

from testbed.errors import MachineError
from testbed.machine import watch
from testbed.machine.qemu import Qemu


@pytest.fixture
def end_badly(testbed, misbehave, tmp_path):
    """Runs a variant that ends in an unexpected way. Returns its result and its directory."""

    def run(variant):
        done = testbed("run", misbehave, "--variant", variant, "--json")
        assert (done.status, done.json["verdict"]) == (1, "unexpected")
        [result] = done.json["variants"]
        return result, tmp_path / done.json["out"] / variant

    return run


def events_in(directory):
    return [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]


SAID = {
    "exits": "SystemExit: enough",
    "asks": "else breakpoint()` asks for input, but a machine has no keyboard",
    "debugs": "else breakpoint()` asks for input, but a machine has no keyboard",
    "crashes": "ended by signal 11",
    "panics": "sysrq: Trigger a crash",
    "observes-nothing": "ended without an observation",
    "has-no-data": "an absent value: it was None",
}


def test_a_scenario_that_goes_wrong_is_unexpected_says_why_and_hides_no_good_one(testbed, misbehave):
    done = testbed("run", misbehave, *(f"--variant={name}" for name in ("fine", *SAID)), "--json")
    assert (done.status, done.json["verdict"]) == (1, "unexpected")
    failures = {variant["name"]: "\n".join(variant["failures"]) for variant in done.json["variants"]}
    assert failures.pop("fine") == ""
    assert {name: text for name, text in failures.items() if SAID[name] not in text} == {}
    assert failures.keys() == SAID.keys()


def test_no_code_of_a_scenario_runs_on_the_host(testbed, short, tmp_path):
    """Neither to describe it nor to run it, nor to run a directory again that somebody else sent; nor a file for mn."""
    mine, mark = tmp_path / "mine", tmp_path / "was-here"
    shutil.copytree(short.parent, mine)
    code = f"import pathlib\nif pathlib.Path({str(tmp_path)!r}).exists():\n    pathlib.Path({str(mark)!r}).touch()\n"
    (mine / "scenario.py").write_text(code + (mine / "scenario.py").read_text())
    assert testbed("describe", mine).status == 0
    done = testbed("run", mine, "--variant", "announced", "--json")
    assert done.status == 0, done.err
    assert testbed("rerun", done.json["out"]).status == 0
    topologies = "from mininet.topo import SingleSwitchTopo\ntopos = {'s': SingleSwitchTopo}\n"
    (tmp_path / "custom.py").write_text(code + topologies)
    converted = testbed("topology", "from-mininet", "custom.py")
    assert converted.status == 0, converted.err
    assert not mark.exists()
    assert testbed("describe", "--machine", "local", mine, env={"XDG_CACHE_HOME": str(tmp_path / "cache")}).status == 0
    assert mark.exists()


@pytest.mark.slow
def test_a_fork_bomb_is_ended(end_badly):
    result, _ = end_badly("forks")
    assert "virtual seconds in a row without an event" in "\n".join(result["failures"])


@pytest.mark.slow
def test_a_full_disk_still_leaves_the_verdict_and_the_events(end_badly):
    result, directory = end_badly("fills-the-disk")
    assert "No space left on device" in result["failures"][0]
    assert len(events_in(directory)) > 2
    assert result["trace"]


def test_an_exception_names_the_line_of_the_user_s_file_and_leaves_all_evidence(end_badly, misbehave):
    result, directory = end_badly("raises")
    place = next(n for n, line in enumerate(misbehave.read_text().splitlines(), 1) if "raise ValueError" in line)
    assert result["failures"][0].startswith(f"misbehave.py:{place}: ")
    assert "ValueError: the user's mistake" in result["failures"][0]
    (tables,) = [json.loads(line) for line in (directory / "tables.jsonl").read_text().splitlines()]
    assert (tables["after"], tables["switch"]) == ("the run was cut short", "leaf")
    counters = json.loads((directory / "counters.json").read_text())
    assert counters["leaf"]["interfaces"]["e1"]
    assert counters["a"]["rdma"]
    assert {"events.jsonl", "kernel.log", "topology.json", "traceback.txt"} <= {
        path.name for path in directory.iterdir()
    }
    assert [path for path in directory.rglob("*") if not path.stat().st_size] == []


def test_a_lab_that_cannot_be_built_leaves_what_there_is_of_it(testbed, misbehave, tmp_path):
    done = testbed("run", misbehave.parent / "unbuilt", "--json")
    assert done.status == 1
    for variant, name in zip(done.json["variants"], ("only", "other"), strict=True):
        assert variant["failures"][0].startswith("a queue of 1000000 packets of 9000 bytes is too large")
        directory = tmp_path / done.json["out"] / name
        assert json.loads((directory / "tables.jsonl").read_text())["after"] == "the lab could not be built"
        assert json.loads((directory / "counters.json").read_text())["leaf"]["interfaces"]["e1"]


def test_what_a_guest_showed_before_it_hung_is_kept(end_badly):
    """The machine is ended by its limit in virtual time, and leaves no events of its own."""
    result, directory = end_badly("sleeps")
    assert "still running after 30 virtual seconds" in "\n".join(result["failures"])
    events = events_in(directory)
    assert [event["text"] for event in events] == ["build tiny", "tiny is up"]
    assert 0 < result["virtual_s"] == events[-1]["t"] / 1e9
    assert result["parameters"] == {}
    assert result["epoch"]["realtime_ns"]


def test_what_was_shown_before_a_loop_without_end_is_kept(end_badly):
    result, directory = end_badly("spins")
    said = "virtual seconds in a row without an event (the limit is 2), at misbehave.py:"
    assert said in "\n".join(result["failures"])
    assert [event["text"] for event in events_in(directory)] == ["build tiny", "tiny is up"]
    assert result["virtual_s"] > 0
    assert "misbehave.py" in (directory / "stack.txt").read_text()


def test_a_guest_whose_clock_stands_still_hangs(misbehave, run_in_a_machine, monkeypatch):
    """Its machine is not continued."""
    real = Qemu.command

    async def command(machine, name, **arguments):
        return None if name == "cont" else await real(machine, name, **arguments)

    monkeypatch.setattr(Qemu, "command", command)
    monkeypatch.setattr(watch, "STILL_LOOKS", 3)
    with pytest.raises(MachineError, match="the guest hangs: its clock stands still"):
        run_in_a_machine(str(misbehave), "fine")
