"""Topologies of data centres, made from a few numbers.

Each kind is a function with its options as parameters. It returns a Fabric: a lab is built from `topology()`, and
`text(fabric)` is a topology file for people. An impossible fabric is an InputError that names the option.

    from testbed.topology.fabrics import leaf_spine

    @pytest.mark.topology(leaf_spine(leaves=2, spines=2, hosts=2).topology())
    def test_ping(lab): ...
"""

import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any

from testbed.documents.yaml import MAX_NODES
from testbed.errors import InputError, did_you_mean
from testbed.topology.fabrics.clos import fat_tree, leaf_spine, rail_optimized, single, two_tier
from testbed.topology.fabrics.fabric import DEFAULTS, NODE_KINDS, Fabric, Manner, Node, RoutedManner

__all__ = ["KINDS", "Fabric", "fat_tree", "leaf_spine", "make", "rail_optimized", "single", "text", "two_tier"]

KINDS: dict[str, Callable[..., Fabric]] = {
    "single": single,
    "two-tier": two_tier,
    "leaf-spine": leaf_spine,
    "rail-optimized": rail_optimized,
    "fat-tree": fat_tree,
}


def make(kind: str, options: dict[str, Any]) -> Fabric:
    """Make a fabric by the name of its kind; `options` are parameters of its function."""
    if kind not in KINDS:
        hint = f"{did_you_mean(kind, KINDS)}Kinds: {', '.join(KINDS)}."
        raise InputError(f"fabric kind {kind!r} does not exist", hint=hint)
    own = [name for name in inspect.signature(KINDS[kind]).parameters if name != "manner"]
    known = [*own, *(Manner if kind == "single" else RoutedManner).__annotations__]
    for option in options:
        if option not in known:
            raise InputError(f"{kind} has no option {option!r}", hint=f"It has: {', '.join(known)}.")
    fabric = KINDS[kind](**options)
    if (values := _values(fabric.document())) > MAX_NODES:
        raise InputError(
            f"`{fabric.command}` would write {values} values; the limit for a topology is {MAX_NODES}",
            hint="Choose smaller numbers.",
        )
    return fabric


def _values(data: Any) -> int:
    """Count keys and values, as the reader of the file does."""
    if isinstance(data, dict):
        return 1 + sum(1 + _values(value) for value in data.values())
    return 1 + sum(map(_values, data)) if isinstance(data, list) else 1


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
    for kind, settings in NODE_KINDS.items():
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
    for key, value in switch.gateway().items():
        yield f"      {key}: {_flow(value)}"
    if switch.bonds:
        yield "      bonds:"
    for name, bond in switch.bonds.items():
        yield f"        {name}: {_flow(bond)}"
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
