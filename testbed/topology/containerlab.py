"""
Keys and kinds of links that containerlab knows and testbed does not: what is passed over with a note, and what is
refused, each with the reason.

A key that says how containers are run and managed is noted: the network of the lab is what it would be without it, and
the note says what is missing. A key that changes what the lab is (who shares a network with whom, which commands are
run, where a link ends) is refused.

Source: containerlab's manual (Topology definition, Nodes), types/node_definition.go and links/link.go, 0.70 to 0.75.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from testbed.errors import nearest
from testbed.topology.document import Document, Path
from testbed.topology.plan import NodeKind

Reasons = dict[str, str]
"""Why a key has no place here, or no effect, by its name."""

_CONTAINER = "no container is run"
_MANAGEMENT = "there is no management network"
_SYSTEM = "no network operating system is run"
_ORDER = "all nodes and links are there before the first command of 'exec' runs"
_VARIABLES = "there are no configuration templates"


def _because(reason: str, keys: str) -> Reasons:
    return dict.fromkeys(keys.split(), reason)


TOP_NOTES = {
    **_because("the names of namespaces begin with the lab's name alone", "prefix"),
    **_because(_MANAGEMENT, "mgmt"),
    **_because("no certificates are made", "settings"),
    **_because("what a lab does is in its run directory", "debug"),
}

TOPOLOGY_NOTES = _because("no certificates are made", "settings")

NODE_NOTES = {
    **_because(
        "no container is run: the daemons and files of the image are missing, programs are those of the lab's machine",
        "image",
    ),
    **_because("no container is run: what it would start is missing; 'exec' can start it", "cmd entrypoint"),
    **_because("no container is run: these files are missing", "binds"),
    **_because("no container is run: these variables are missing; 'env' sets them", "env-files"),
    **_because("no container is run: commands of 'exec' are run by root", "user"),
    **_because(
        _CONTAINER,
        "auto-remove cap-add cgroup-parent cgroupns-mode cpu cpu-set devices healthcheck image-pull-policy kernel "
        "memory restart-policy runtime sandbox shm-size",
    ),
    **_because(_MANAGEMENT, "aliases dns mgmt-ipv4 mgmt-ipv6 mgmt-net mgmt_ipv4 mgmt_ipv6 ports publish"),
    **_because("each node has a network of its own", "network-mode"),
    **_because("no certificates are made", "certificate SANs"),
    **_because(
        _SYSTEM,
        "components config credentials enforce-startup-config extras license startup-config suppress-startup-config "
        "type",
    ),
    **_because(_ORDER, "stages startup-delay wait-for"),
    **_because("'testbed graph' finds the places of nodes by itself", "position"),
    **_because("labels only annotate", "labels"),
}

LINK_NOTES = {
    **_because(_VARIABLES, "vars"),
    **_because("labels only annotate", "labels"),
}

ENDPOINT_NOTES = _because(_VARIABLES, "vars")

NODE_KEYS = {
    "network-mode": "the node would share the network of a container, and each node has one of its own",
    "stages": "commands of a stage are not run; put them into 'exec'",
}
"""Refused with the values that `_matters` finds."""

_UNDERLAY = "a link is a cable between two nodes of the lab"

LINK_KEYS = {
    **_because(_UNDERLAY, "dst-port endpoint host-interface mode parent-interface remote src-port udp-port vni"),
    **_because("a link has 'delay', 'jitter', 'loss' and 'rate' of its own", "impairment"),
}

SPECIAL: dict[str, NodeKind] = {"host": "host", "mgmt-net": "bridge"}
"""Special endpoints that a lab has, and the kind of node that stands for each: the machine that runs the containers,
and the bridge of the management network."""

LINK_TYPES = {
    "bridge": "a bridge is a node here",
    "dummy": "it has one end; a command of 'exec' can make it: ip link add dummy1 type dummy",
    "macvlan": "it needs an interface of the machine that runs the containers, and a lab has none of these",
    "macvtap": "it needs an interface of the machine that runs the containers, and a lab has none of these",
    "veth-stitch": "its other end is outside the lab",
    "vxlan": "its other end is outside the lab",
    "vxlan-stitch": "its other end is outside the lab",
}
"""The other types of the extended format; in the brief format some of them stand in the place of a node's name."""


@dataclass(frozen=True, slots=True)
class Note:
    """A key of a file that has no effect in a lab. `lines` has the line of each place, `where` is the first one."""

    key: str
    where: str
    text: str
    lines: tuple[int, ...]


def pass_over(value: Any, document: Document, kinds: Collection[str]) -> list[Note]:
    """Takes out of a file's value the keys that are noted, but those that the models have too, and what is said of
    kinds that are not among `kinds`, nor meant to be."""
    found: dict[tuple[str, str], list[Path]] = {}
    for path, mapping in _kinds(value):
        for kind in [kind for kind in mapping if kind not in kinds and nearest(str(kind), kinds) is None]:
            found.setdefault((str(kind), "a lab has no nodes of this kind"), []).append((*path, kind))
            del mapping[kind]
    for path, mapping, reasons in _places(value):
        for key in [key for key in mapping if key in reasons and not _matters(key, mapping[key])]:
            found.setdefault((key, reasons[key]), []).append((*path, key))
            if key not in _KEPT:
                del mapping[key]
    notes = [note(document, key, f"{key!r} has no effect: {reason}", paths) for (key, reason), paths in found.items()]
    return sorted(notes, key=lambda note: note.lines)


_KEPT = ("image", "labels")
"""Noted, and checked by the models."""


def note(document: Document, key: str, text: str, paths: list[Path]) -> Note:
    marks = sorted(document.find(path, key=True) for path in paths)
    where = f"{document.source}:{marks[0].line}:{marks[0].column}"
    return Note(key, where, text, tuple(dict.fromkeys(mark.line for mark in marks)))


def _matters(key: str | int, value: Any) -> bool:
    """Whether a key that is noted has a value that changes what the lab is."""
    if key == "network-mode":
        return not isinstance(value, str | None) or (value or "").startswith("container:")
    if key == "stages":
        stages = value.values() if isinstance(value, dict) else ()
        return any(isinstance(stage, dict) and stage.get("exec") for stage in stages)
    return False


def _kinds(value: dict[Any, Any]) -> Iterator[tuple[Path, dict[Any, Any]]]:
    topology = value.get("topology")
    if isinstance(topology, dict) and isinstance(kinds := topology.get("kinds"), dict):
        yield ("topology", "kinds"), kinds


def _places(value: dict[Any, Any]) -> Iterator[tuple[Path, dict[Any, Any], Reasons]]:
    """The mappings of a file with keys of containerlab's. What has another shape is for the models to refuse."""
    yield (), value, TOP_NOTES
    topology = value.get("topology")
    if not isinstance(topology, dict):
        return
    yield ("topology",), topology, TOPOLOGY_NOTES
    if isinstance(defaults := topology.get("defaults"), dict):
        yield ("topology", "defaults"), defaults, NODE_NOTES
    for part in "kinds", "groups", "nodes":
        named = topology.get(part)
        for name, node in named.items() if isinstance(named, dict) else ():
            if isinstance(node, dict):
                yield ("topology", part, name), node, NODE_NOTES
    links = topology.get("links")
    for index, link in enumerate(links if isinstance(links, list) else ()):
        if isinstance(link, dict):
            path: Path = ("topology", "links", index)
            yield path, link, LINK_NOTES
            ends = link.get("endpoints")
            for number, end in enumerate(ends if isinstance(ends, list) else ()):
                if isinstance(end, dict):
                    yield (*path, "endpoints", number), end, ENDPOINT_NOTES
            if isinstance(end := link.get("endpoint"), dict):
                yield (*path, "endpoint"), end, ENDPOINT_NOTES
