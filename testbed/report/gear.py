"""What a run shows, on real switches and NICs: the commands of gear.yml for what happened in it."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

import yaml

from testbed.protocol import Event
from testbed.report.timeline import Lane

WRONG = {"ARP and ND": ("arp.wrong", "nd.wrong"), "MAC table": ("fdb.wrong", "fdb.wrong")}


@functools.cache
def known() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(resources.files(__package__).joinpath("gear.yml").read_text())
    return found


def on_real_gear(lanes: Iterable[Lane], events: Sequence[Event]) -> list[dict[str, Any]]:
    """The entries of gear.yml that fit, with the names of the first event that they fit in their commands."""
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
            names = first[kinds[0]]
            commands = [{**command, "run": _filled(command["run"], names)} for command in entry["commands"]]
            found.append({"title": entry["title"], "source": entry["source"], "commands": commands})
    return found


def _filled(command: str, names: dict[str, Any]) -> str:
    """The command with the names of an event; what it does not have stands as `<ip>`."""
    return re.sub(r"\{(\w+)\}", lambda match: str(names.get(match[1]) or f"<{match[1]}>"), command)
