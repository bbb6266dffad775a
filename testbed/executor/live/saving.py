"""The topology file of a lab as it is now: the file that it was made of, with the changes made by hand."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from testbed.documents.json import value_of
from testbed.lab import Lab, Pod
from testbed.topology.models import QUALITY_KEYS

DEFAULT = "none"
Words = Mapping[str, Mapping[str, str]]
"""Keys of a link and their values, as in a file, which were set by hand, by the end of the link."""


def text(lab: Lab, source: str, qualities: Words, down: Sequence[str]) -> str:
    """Write the file. `source` is the text of the file that the lab was made of, `down` are interfaces that were set
    down by hand. Comments at the top name what a file cannot express."""
    document = yaml.safe_load(source)
    topology = document["topology"]
    for switch in lab.switches():
        first = switch.first_profile.model_dump(mode="json")
        now = {name: value for name, value in switch.profile().items() if value != first[name]}
        if now:
            node = topology["nodes"][switch.name] = topology["nodes"][switch.name] or {}
            node["profile_values"] = {**node.get("profile_values", {}), **now}
    topology["links"] = [changed(link, qualities) for link in topology.get("links") or []]
    faults = [
        {"fault": one.fault.name, **one.fault.model_dump(mode="json", exclude_defaults=True)}
        for one in lab.injections
        if one.active
    ]
    faults += [{"fault": "link-down", "end": end} for end in down]
    if faults or "faults" in document:
        document["faults"] = faults
    pods = [node for node in lab.nodes.values() if isinstance(node, Pod)]
    left_out = "".join(f"# pod {pod} on {pod.host}: a topology file cannot have pods\n" for pod in pods)
    return left_out + yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def changed(link: Mapping[str, Any], qualities: Words) -> Mapping[str, Any]:
    """Return a link of the file with the values set by hand, which its ends have."""
    ends = [endpoint(end) for end in link.get("endpoints", [])]
    names = [f"{end['node']}:{end['interface']}" for end in ends]
    if not any(name in qualities for name in names):
        return link
    both = {key: value for key, value in link.items() if key in QUALITY_KEYS}
    made = [
        {**end, **set_by_hand({**both, **end}, qualities.get(name, {}))} for name, end in zip(names, ends, strict=True)
    ]
    return {**{key: value for key, value in link.items() if key not in both}, "endpoints": made}


def endpoint(given: str | Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(given, str):
        return given
    node, _, interface = given.partition(":")
    return {"node": node, "interface": interface}


def set_by_hand(before: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    now = {**{key: value for key, value in before.items() if key in QUALITY_KEYS}, **words}
    return {key: value_of(value) if isinstance(value, str) else value for key, value in now.items() if value != DEFAULT}
