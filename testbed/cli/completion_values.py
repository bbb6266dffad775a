"""Completion of the command line: labs, nodes and interfaces, scenarios and faults and their parameters.

A lab is not asked, as that would advance its time: its run directory has its plan and the events of its pods. Facts
that only the inside knows are kept on disk after the first request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from testbed.cli.words import plain
from testbed.errors import TestbedError

if TYPE_CHECKING:
    from testbed.machine.live.labs import Lab
    from testbed.protocol import ScenarioInfo

Items = list[CompletionItem[str]]
Complete = Callable[[click.Context, click.Parameter, str], Items]
Nodes = dict[str, tuple[str, list[str]]]
"""The kind and the interfaces of each node."""
DASHES = "--"
QUALITY = "rate", "delay", "jitter", "loss", "queue", "ecn"
ENDS, NODES = ("end", "target", "source", "port"), ("host", "switch", "of")
"""Parameters of faults that are interfaces, and those that are nodes."""
CREATED = re.compile(r"created on \S+: (.*)")
HOSTS = "host", "pod"
HARMLESS = re.compile(r"[\w@%+=:,./-]*")


def items(found: Iterable[tuple[str, str]], incomplete: str) -> Items:
    """Return the names that begin with the typed text, each with its help. A shell would obey some characters."""
    return [
        CompletionItem(name, help=plain(" ".join(text.split())))
        for name, text in found
        if name.startswith(incomplete) and HARMLESS.fullmatch(name)
    ]


def positional(context: click.Context, name: str) -> list[str]:
    """Return the values of an argument on the line. Behind an option without a value click does not sort them."""
    value = context.params.get(name)
    return [value] if value and isinstance(value, str) else [*(value or context.args)]


# Labs


def labs(context: click.Context, _: click.Parameter, incomplete: str) -> Items:
    from testbed.machine.live import labs

    there = positional(context, "names")
    return items(
        [(lab.name, f"{lab.topology}, {lab.state}") for lab in labs.every() if lab.name not in there], incomplete
    )


def lab_of(context: click.Context) -> Lab | None:
    from testbed.machine.live import labs

    with suppress(TestbedError):
        return labs.named(context.params.get("name") or "")
    return None


def nodes_of(context: click.Context) -> Nodes:
    """Return the nodes of the lab that the line is about; none if that is not clear."""
    lab = lab_of(context)
    if lab is None:
        return {}
    found: Nodes = {}
    with suppress(OSError, ValueError, KeyError, TypeError):
        for row in json.loads((Path(lab.out) / "topology.json").read_text())["interfaces"]:
            found.setdefault(row["node"], (row["kind"], []))[1].append(row["interface"])
        add_pods(found, Path(lab.out) / "events.jsonl")
    return found


def add_pods(nodes: Nodes, events: Path) -> None:
    from testbed.protocol.events import POD

    of_pods = f'"kind":"{POD.name}"'
    with events.open() as file:
        for line in file:
            if of_pods not in line:
                continue
            event = json.loads(line)
            if made := CREATED.match(event["text"]):
                nodes[event["node"]] = "pod", [part.split()[0] for part in made[1].split(", ") if part]
            else:
                nodes.pop(event["node"], None)


def nodes(*kinds: str) -> Complete:
    """Complete nodes of these kinds, or all, that are not on the line yet."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
        if DASHES in context.meta:  # a command that runs on the nodes
            return []
        there = positional(context, parameter.name or "") if parameter.nargs == -1 else []
        found = [(name, kind) for name, (kind, _) in nodes_of(context).items() if not kinds or kind in kinds]
        return items([one for one in found if one[0] not in there], incomplete)

    return complete


def ends_of(nodes: Nodes, kinds: Sequence[str] = ()) -> list[tuple[str, str]]:
    return [
        (f"{name}:{interface}", kind)
        for name, (kind, interfaces) in nodes.items()
        for interface in interfaces
        if not kinds or kind in kinds
    ]


def ends(context: click.Context, _: click.Parameter, incomplete: str) -> Items:
    return items(ends_of(nodes_of(context)), incomplete)


def nics(context: click.Context, _: click.Parameter, incomplete: str) -> Items:
    """Complete hosts and pods, and behind a colon their interfaces."""
    there = nodes_of(context)
    if ":" in incomplete:
        return items(ends_of(there, HOSTS), incomplete)
    return items([(name, kind) for name, (kind, _) in there.items() if kind in HOSTS], incomplete)


def qualities(_: click.Context, __: click.Parameter, incomplete: str) -> Items:
    """Complete the qualities that `link set` changes."""
    return items([("up", ""), ("down", ""), *((f"{key}=", "") for key in QUALITY)], incomplete)


# Scenarios


def scenarios(_: click.Context, __: click.Parameter, incomplete: str) -> Items:
    from testbed.machine import scenarios

    names = [(source.name, "") for source in scenarios.shipped()]
    with suppress(TestbedError):
        names += [(source.name, "") for source in scenarios.own()]
    return [*items(names, incomplete), CompletionItem(incomplete, type="file")]


def described(context: click.Context, argument: str) -> ScenarioInfo | None:
    import asyncio  # slow import

    from testbed.machine import scenarios

    with suppress(TestbedError):
        for name in positional(context, argument):
            return asyncio.run(scenarios.describe([(scenarios.resolve(name), {})]))[0]
    return None


def variants(argument: str) -> Complete:
    """Complete variants of the scenario that is this argument."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> Items:
        info = described(context, argument)
        return items([(one["name"], one["text"]) for one in info["variants"]] if info else [], incomplete)

    return complete


def parameters(argument: str) -> Complete:
    """Complete ``KEY=`` and, where they are known, values of parameters of the scenario that is this argument."""

    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> Items:
        info = described(context, argument)
        schema = info["parameters"]["properties"] if info else {}
        return items(settings_of(schema, lambda _: []), incomplete)

    return complete


def settings_of(schema: Mapping[str, Any], known: Callable[[str], Iterable[str]]) -> list[tuple[str, str]]:
    """Return ``KEY=`` for each property of a JSON Schema, or ``KEY=VALUE`` for each of its values."""
    found = []
    for key, about in schema.items():
        values = [*known(key), *map(json.dumps, about.get("enum", []))]
        values += ["true", "false"] if about.get("type") == "boolean" else []
        text = about.get("description", "")
        found += [(f"{key}={value.strip(chr(34))}", text) for value in values] or [(f"{key}=", text)]
    return found


# Faults and profiles


def faults(_: click.Context, __: click.Parameter, incomplete: str) -> Items:
    from testbed.machine import questions
    from testbed.protocol import requests

    return items([(one["name"], one["title"]) for one in questions.kept(requests.Faults())], incomplete)


def fault_parameters(context: click.Context, _: click.Parameter, incomplete: str) -> Items:
    from testbed.machine import questions
    from testbed.protocol import requests

    there = nodes_of(context)

    def known(key: str) -> list[str]:
        if key in ENDS:
            return [name for name, _ in ends_of(there)]
        return [*there] if key in NODES else []

    schemas = {one["name"]: one["parameters"]["properties"] for one in questions.kept(requests.Faults())}
    return items(settings_of(schemas.get(context.params.get("fault", ""), {}), known), incomplete)


def profiles(_: click.Context, __: click.Parameter, incomplete: str) -> Items:
    from testbed.machine import questions
    from testbed.protocol import requests

    return items([(one["name"], one["about"]) for one in questions.kept(requests.Profiles())], incomplete)


def profile_values(_: click.Context, __: click.Parameter, incomplete: str) -> Items:
    from testbed.machine import questions
    from testbed.protocol import requests

    values = questions.kept(requests.Profiles())[0]["values"]
    return items([(f"{key}=", value["text"]) for key, value in values.items()], incomplete)
