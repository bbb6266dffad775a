"""Faults on one line: ``link-down leaf1:e1 after step 7 for 5s``."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.cli.completion_values import ENDS, NODES
from testbed.cli.live.live_options import seconds
from testbed.errors import InputError, did_you_mean
from testbed.protocol import FaultInfo, PlanRows

FORM = "Such as `link-down leaf1:e1 after step 7 for 5s`, `link-loss leaf1:e1 loss=5 after 2s`; `testbed fault list`."
PLACES = {*ENDS, *NODES} - {"port"}
"""Parameters that name an end of a link, or a node."""


def parse(text: str, known: Sequence[FaultInfo]) -> dict[str, Any]:
    """Return a fault for the scenario: its name, parameters and time. A word without `=` is its first parameter."""
    where = f"--fault {text!r}"
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"cannot be read: {error}", where=where, hint=FORM) from None
    if not words:
        raise InputError("names no fault", where=where, hint=FORM)
    name, *rest = words
    kinds = {info["name"]: info for info in known}
    if name not in kinds:
        raise InputError(f"there is no fault {name!r}", where=where, hint=f"{did_you_mean(name, kinds)}{FORM}")
    required = kinds[name]["parameters"].get("required", [])
    found: dict[str, Any] = {"name": name, "parameters": {}}
    while rest:
        word, *rest = rest
        match word, rest:
            case "after", ["step", number, *rest] if not {"after_step", "after_s"} & {*found}:
                if not number.isascii() or not number.isdecimal() or int(number) < 1:
                    raise InputError(f"{number!r} is not a step number: steps count from 1", where=where, hint=FORM)
                found["after_step"] = int(number)
            case "after", [time, *rest] if not {"after_step", "after_s"} & {*found}:
                found["after_s"] = seconds(time)
            case "for", [time, *rest] if "lasting_s" not in found:
                found["lasting_s"] = seconds(time)
            case _ if "=" in word:
                key, _, value = word.partition("=")
                if key in found["parameters"]:
                    raise InputError(f"{key} is given twice", where=where)
                found["parameters"][key] = value
            case _ if required and not found["parameters"] and word not in ("after", "for"):
                found["parameters"][required[0]] = word
            case _:
                raise InputError(f"{word!r} is not allowed there", where=where, hint=FORM)
    return found


def check_places(faults: Sequence[Mapping[str, Any]], plan: PlanRows) -> None:
    """Raise InputError for a fault at a node or an end of a link that a topology does not have."""
    ends = [f"{row['node']}:{row['interface']}" for row in plan["interfaces"] if row["peer"]]
    nodes = list(dict.fromkeys(row["node"] for row in plan["interfaces"]))
    for fault in faults:
        for key, value in fault["parameters"].items():
            there = ends if ":" in value else nodes
            if key not in PLACES or value in there:
                continue
            what = "end of a link" if ":" in value else "node"
            near = did_you_mean(value, there)
            own = [end for end in ends if end.startswith(value.partition(":")[0] + ":")] if ":" in value else []
            hint = f"{near}There are: {', '.join(own or there)}."
            raise InputError(f"fault {fault['name']}: the topology has no {what} {value!r}", hint=hint)
