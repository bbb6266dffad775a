"""A run directory, wherever it is, is enough to repeat its run; and what was shown is in the order of its events."""

import asyncio
import json
import shutil

from testbed.cli.console import Running
from testbed.machine import runs, scenarios
from testbed.machine.image import find
from testbed.machine.qemu import Flavour
from testbed.machine.slots import Slots
from testbed.machine.vm import VirtualMachine


def test_a_run_is_repeated_from_a_copy_of_its_directory(testbed, short, tmp_path):
    done = testbed("run", short, "--set", "profile=sonic", "--seed", "7", "--json")
    copy = tmp_path / "archive" / "of a run"
    shutil.copytree(tmp_path / done.json["out"], copy)
    shutil.rmtree(tmp_path / "runs")
    again = testbed("rerun", copy, "--json")
    assert again.status == 0, again.err
    (then,), (now,) = done.json["variants"], again.json["run"]["variants"]
    assert then["parameters"]["profile"] == "sonic"
    for key in ("trace", "parameters", "topology", "epoch", "virtual_s"):
        assert now[key] == then[key], key
    assert again.json["run"]["made_from"] == done.json["made_from"]
    for name in ("events.jsonl", "topology.json", "leaf-e3.pcap"):
        paths = copy / "announced" / name, tmp_path / again.json["run"]["out"] / "announced" / name
        assert paths[0].read_bytes() == paths[1].read_bytes(), name


class Screen(runs.Listener):
    """Keeps events in the order in which they are printed for good."""

    def __init__(self) -> None:
        self.running = Running("announced")
        self.printed = []

    def event(self, telling, event):
        self.running.add(event)

    def settled(self, telling, until_ns):
        self.printed += self.running.settle(until_ns)

    def finished(self, telling, result):
        self.printed += self.running.settle(float("inf"))


def test_a_run_is_shown_in_the_order_of_its_events(short, tmp_path):
    """Switches report what they did after the step in which they did it."""
    source = scenarios.resolve(str(short))
    [info] = asyncio.run(scenarios.describe([(source, {})]))
    machine, screen = VirtualMachine(find(), Flavour("virtual"), lambda _: None), Screen()

    async def run():
        return await runs.run(source, info, runs.choose(info, ["announced"]), 1, machine, tmp_path, screen, Slots(1))

    result = asyncio.run(run())
    assert result.as_expected
    events = [json.loads(line) for line in (tmp_path / "announced" / "events.jsonl").read_text().splitlines()]
    assert screen.printed == events
    assert any(event["kind"].startswith("arp.") for event in events)
