"""Whatever a user's scenario does, the run ends with one clear message and the right status."""

import json

import pytest

from testbed.errors import MachineError
from testbed.machine import watch
from testbed.machine.qemu import Qemu


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ("raises", "ValueError: the user's mistake"),
        ("exits", "SystemExit: enough"),
        ("asks", "else breakpoint()` asks for input, and no keyboard is connected to a machine"),
        ("debugs", "else breakpoint()` asks for input, and no keyboard is connected to a machine"),
        ("sleeps", "still running after 30 virtual seconds"),
        ("spins", "virtual seconds in a row without an event (the limit is 4), at misbehave.py:"),
        ("crashes", "ended by signal 11"),
        ("panics", "sysrq: Trigger a crash"),
        ("observes-nothing", "ended without an observation"),
        ("has-no-data", "an absent value: it was None"),
    ],
)
def test_a_scenario_that_goes_wrong_is_unexpected_and_says_why(testbed, misbehave, variant, said):
    done = testbed("run", misbehave, "--variant", variant, "--json")
    assert done.status == 1
    assert done.json["verdict"] == "unexpected"
    (result,) = done.json["variants"]
    assert said in "\n".join(result["failures"])


def test_a_full_disk_still_leaves_the_verdict_and_the_events(testbed, misbehave, tmp_path):
    done = testbed("run", misbehave, "--variant", "fills-the-disk", "--json")
    assert (done.status, done.json["verdict"]) == (1, "unexpected")
    assert "No space left on device" in done.json["variants"][0]["failures"][0]
    directory = tmp_path / done.json["out"] / "fills-the-disk"
    assert (directory / "events.jsonl").read_text().count("\n") > 2
    assert done.json["variants"][0]["trace"]


def test_an_exception_leaves_all_evidence(testbed, misbehave, tmp_path):
    done = testbed("run", misbehave, "--variant", "raises", "--json")
    directory = tmp_path / done.json["out"] / "raises"
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
    assert done.json["variants"][0]["failures"][0].startswith("a: no-such-program cannot be started")
    directory = tmp_path / done.json["out"] / "only"
    assert json.loads((directory / "tables.jsonl").read_text())["after"] == "the lab could not be built"
    assert json.loads((directory / "counters.json").read_text())["leaf"]["interfaces"]["e1"]


def test_what_a_guest_showed_before_it_hung_is_kept(testbed, misbehave, tmp_path):
    """The machine is ended by its limit in virtual time, and leaves no events of its own."""
    done = testbed("run", misbehave, "--variant", "sleeps", "--json")
    (variant,) = done.json["variants"]
    path = tmp_path / done.json["out"] / "sleeps" / "events.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [event["text"] for event in events] == ["build tiny", "tiny is up"]
    assert 0 < variant["virtual_s"] == events[-1]["t"] / 1e9
    assert variant["parameters"] == {}
    assert variant["epoch"]["realtime_ns"]


def test_one_bad_variant_does_not_hide_the_good_one(testbed, misbehave):
    done = testbed("run", misbehave, "--variant", "fine", "--json")
    assert (done.status, done.json["verdict"]) == (0, "as-expected")


def test_a_failure_names_the_line_of_the_user_s_file(testbed, misbehave):
    done = testbed("run", misbehave, "--variant", "raises", "--json")
    place = next(n for n, line in enumerate(misbehave.read_text().splitlines(), 1) if "raise ValueError" in line)
    assert done.json["variants"][0]["failures"][0].startswith(f"misbehave.py:{place}: ")


def test_a_scenario_that_forks_without_end_is_ended_too(testbed, misbehave):
    done = testbed("run", misbehave, "--variant", "forks", "--json")
    assert (done.status, done.json["verdict"]) == (1, "unexpected")
    assert "virtual seconds in a row without an event" in done.json["variants"][0]["failures"][0]


def test_what_was_shown_before_the_end_is_kept(testbed, misbehave, tmp_path):
    done = testbed("run", misbehave, "--variant", "spins", "--json")
    (result,) = done.json["variants"]
    directory = tmp_path / done.json["out"] / "spins"
    kept = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
    assert [event["text"] for event in kept] == ["build tiny", "tiny is up"]
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
