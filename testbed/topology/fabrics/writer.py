"""A fabric as the text of a topology file, for people to read and to edit."""

import json
from collections.abc import Iterator
from typing import Any

from testbed.topology.fabrics.fabric import DEFAULTS, KINDS, Fabric, Node


def text(fabric: Fabric) -> str:
    return "\n".join([*_head(fabric), *_nodes(fabric), *_links(fabric)]) + "\n"


def _head(fabric: Fabric) -> Iterator[str]:
    for line in fabric.about:
        yield f"# {line}"
    yield "#"
    yield f"# Made by `{fabric.command}`. Change what you like;"
    yield "# `testbed topology check FILE` says what it becomes, `testbed graph FILE` draws it."
    yield f"name: {fabric.kind}"
    yield "topology:"
    if fabric.routing != "static":
        yield f"  routing: {fabric.routing}"
    yield f"  defaults: {_flow(DEFAULTS)}"
    yield "  kinds:"
    for kind, settings in KINDS.items():
        yield f"    {kind}: {_flow(settings)}"


def _nodes(fabric: Fabric) -> Iterator[str]:
    yield "  nodes:"
    for section in fabric.sections:
        if section.nodes:
            yield f"    # {section.heading}"
        anchors: dict[str, str] = {}
        for node in section.nodes:
            yield from _switch(node) if node.kind == "switch" else [_in_a_line(node, anchors)]


def _switch(switch: Node) -> Iterator[str]:
    yield f"    {switch.name}:"
    yield "      kind: switch"
    if switch.vlans:
        yield "      vlans:"
    for number, addresses in switch.vlans.items():
        yield f"        {number}: {_flow(addresses)}  # {switch.notes[number]}"
    if switch.routes:
        yield "      routes:"
    for route in switch.routes:
        note = switch.notes[route["to"]]
        yield f"        - {_flow(route)}" + (f"  # {note}" if note else "")


def _in_a_line(node: Node, anchors: dict[str, str]) -> str:
    """Return a node in one line; hosts with the same keys refer to the first of them."""
    line, keys = f"    {node.name}:", node.value()
    if keys is None:
        return line
    if node.kind != "host":
        return f"{line} {_flow(keys)}"
    if _flow(keys) in anchors:
        return f"{line} *{anchors[_flow(keys)]}"
    anchors[_flow(keys)] = node.name
    return f"{line} &{node.name} {_flow(keys)}"


def _links(fabric: Fabric) -> Iterator[str]:
    yield "  links:"
    for section in fabric.sections:
        if section.links:
            yield f"    # {section.heading}"
        for link in section.links:
            yield f"    - {_flow({**link, 'endpoints': list(map(json.dumps, link['endpoints']))})}"


def _flow(value: Any) -> str:
    """Return YAML's flow style. The strings of a fabric need no quotes: names, addresses, prefixes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
