"""A fabric as the text of a topology file, for people to read and to edit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from testbed.topology.fabrics.fabric import DEFAULTS, KINDS, Bridge, Fabric, Host, Link, Node, Route, Switch


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
        if not section.nodes:
            continue
        yield f"    # {section.heading}"
        anchors: dict[tuple[Route, ...], str] = {}
        for node in section.nodes:
            yield from _node(node, anchors)


def _node(node: Node, anchors: dict[tuple[Route, ...], str]) -> Iterator[str]:
    match node:
        case Switch():
            yield from _switch(node)
        case Bridge():
            yield f"    {node.name}: {_flow(node.value())}"
        case Host():
            yield _host(node, anchors)


def _switch(switch: Switch) -> Iterator[str]:
    yield f"    {switch.name}:"
    yield "      kind: switch"
    if switch.vlans:
        yield "      vlans:"
    for number in switch.vlans:
        yield f"        {number}: {_flow(switch.vlan(number))}  # {switch.notes[number]}"
    if switch.routes:
        yield "      routes:"
    for route in switch.routes:
        yield f"        - {_flow(route.value())}" + (f"  # {route.note}" if route.note else "")


def _host(host: Host, anchors: dict[tuple[Route, ...], str]) -> str:
    """Hosts with the same routes refer to the first of them."""
    line = f"    {host.name}:"
    if host.routes in anchors:
        return f"{line} *{anchors[host.routes]}"
    if not host.routes:
        return line
    anchors[host.routes] = host.name
    return f"{line} &{host.name} {_flow(host.value())}"


def _links(fabric: Fabric) -> Iterator[str]:
    yield "  links:"
    for section in fabric.sections:
        if section.links:
            yield f"    # {section.heading}"
        for link in section.links:
            yield f"    - {_link(link)}"


def _link(link: Link) -> str:
    settings = "".join(f", {key}: {_flow(value)}" for key, value in link.settings.items())
    return f"{{endpoints: [{', '.join(map(json.dumps, link.ends))}]{settings}}}"


def _flow(value: Any) -> str:
    """YAML's flow style. The strings of a fabric are plain ones: names, addresses, prefixes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
