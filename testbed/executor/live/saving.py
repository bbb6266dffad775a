"""The topology file of a lab as it is now: the file that it was made of, with what was changed by hand."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import yaml

from testbed.lab import Lab, Pod
from testbed.lab.interface import Interface
from testbed.topology import Quality
from testbed.topology.models import QUALITY_KEYS

FACTORS = {"rate": ((1e9, "gbit"), (1e6, "mbit"), (1e3, "kbit")), "delay": ((1, "s"), (1e-3, "ms"), (1e-6, "us"))}
FACTORS["jitter"] = FACTORS["delay"]


def text(lab: Lab, source: str, down: list[str]) -> str:
    """`source` is the text of the file that the lab was made of, `down` are interfaces that were set down by hand.
    Comments at the top say what a file cannot say."""
    document = yaml.safe_load(source)
    topology = document["topology"]
    for switch in lab.switches():
        now = {name: value for name, value in switch.profile().items() if value != getattr(switch.first_profile, name)}
        if now:
            node = topology["nodes"][switch.name] = topology["nodes"][switch.name] or {}
            node["profile_values"] = {**node.get("profile_values", {}), **now}
    topology["links"] = [changed(lab, link) for link in topology.get("links") or []]
    faults = [
        {"fault": one.fault.name, **one.fault.model_dump(mode="json", exclude_defaults=True)}
        for one in lab.injections if one.active
    ]  # fmt: skip
    faults += [{"fault": "link-down", "end": end} for end in down]
    if faults or "faults" in document:
        document["faults"] = faults
    left_out = [
        f"# pod {node} on {node.host}: a file has no pods" for node in lab.nodes.values() if isinstance(node, Pod)
    ]
    return "".join(f"{line}\n" for line in left_out) + yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def changed(lab: Lab, link: dict[str, Any]) -> dict[str, Any]:
    """A link of the file, with its quality as it is now where that was changed."""
    ends = link.get("endpoints", [])
    names = [end if isinstance(end, str) else f"{end['node']}:{end['interface']}" for end in ends]
    found = [lab.interface(name) for name in names]
    if all(end.plan is None or end.sends.quality == end.plan.sends for end in found):
        return link
    both = {key: value for key, value in link.items() if key not in QUALITY_KEYS}
    return {**both, "endpoints": [endpoint(end, given) for end, given in zip(found, ends, strict=True)]}


def endpoint(end: Interface, given: Any) -> dict[str, Any]:
    node, _, interface = str(end).partition(":")
    kept = {"node": node, "interface": interface} if isinstance(given, str) else dict(given)
    quality, normal = end.sends.quality, Quality()
    now = {
        field.name: written(field.name, getattr(quality, field.name))
        for field in fields(Quality)
        if field.name in QUALITY_KEYS and getattr(quality, field.name) != getattr(normal, field.name)
    }
    return {**{key: value for key, value in kept.items() if key not in QUALITY_KEYS}, **now}


def written(key: str, value: float) -> Any:
    """A value as a file has it."""
    if key not in FACTORS:
        return value
    factor, unit = next((one for one in FACTORS[key] if value >= one[0]), FACTORS[key][-1])
    return f"{value / factor:g}{unit}"
