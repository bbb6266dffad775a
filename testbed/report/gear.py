"""A run's symptoms on real switches and NICs: the commands of gear.yml for its events."""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from itertools import chain
from typing import Any

import yaml

from testbed.protocol import Event
from testbed.records.counter_names import Counter, find
from testbed.report.timeline import Lane

PLACES = "port", "interface", "device"
"""Names of a counter's place: the counter's owner decides which one a command has."""
WRONG = {"ARP and ND": ("arp.wrong", "nd.wrong"), "MAC table": ("fdb.wrong", "fdb.wrong")}


@functools.cache
def known() -> list[dict[str, Any]]:
    """Return the entries of gear.yml, with the commands that show their counters."""
    found: list[dict[str, Any]] = yaml.safe_load(resources.files(__package__).joinpath("gear.yml").read_text())
    for entry in found:
        counters = [find(name) for name in entry.get("counters", ())]
        entry["commands"] += [command for one in counters for command in _showing(one)]
        entry["source"] = "; ".join(dict.fromkeys([entry["source"], *(one.source for one in counters)]))
    return found


def on_real_gear(
    lanes: Iterable[Lane], events: Sequence[Event], counted: Iterable[tuple[str, str, str, int]]
) -> list[dict[str, Any]]:
    """Return the entries of gear.yml that fit, with the names of the first event that they fit in their commands; and
    an entry of the counters at the end that should be 0."""
    first: dict[str, dict[str, Any]] = {}
    for lane in lanes:
        bad = [bar for bar in lane.bars if bar.level == "bad"]
        if bad and lane.group in WRONG:
            names = {**events[bad[0].event]["data"], "switch": events[bad[0].event]["node"]}
            first.setdefault(WRONG[lane.group][":" in str(names.get("ip", ""))], names)
    for event in events:
        data = event["data"]
        names = {**data, "switch": event["node"]}
        if isinstance(end := data.get("end"), str):
            names["port"] = end.partition(":")[2]
        for kind in (event["kind"], data.get("status"), data.get("fault")):
            if isinstance(kind, str):
                first.setdefault(kind, names)
    found = []
    for entry in known():
        if kinds := [kind for kind in entry["kinds"] if kind in first]:
            commands = _filled(entry["commands"], first[kinds[0]])
            found.append({"title": entry["title"], "source": entry["source"], "commands": commands})
    errors: dict[Counter, str] = {}
    for _, place, name, _ in sorted(counted, key=lambda row: -row[3]):
        if find(name).meaning == "error":
            errors.setdefault(find(name), place)
    if errors:
        rows = (_filled(_showing(one), dict.fromkeys(PLACES, place)) for one, place in errors.items())
        source = "; ".join(dict.fromkeys(one.source for one in errors))
        found.append({"title": "Counters that should be 0", "source": source, "commands": [*chain(*rows)]})
    return found


def _showing(counter: Counter) -> list[dict[str, str]]:
    return [{**command._asdict(), "look": f"{command.look}: {counter.text}"} for command in counter.commands]


def _filled(commands: Iterable[Mapping[str, str]], names: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the commands with the names of an event or place; one that is not known stands as `<ip>`."""

    def name(match: re.Match[str]) -> str:
        return str(names.get(match[1]) or f"<{match[1]}>")

    return [{**command, "run": re.sub(r"\{(\w+)\}", name, command["run"])} for command in commands]
