"""The pods of one workload in few domains of the fabric: Kueue's topology-aware scheduling, with its words.

Source: Kueue 0.14, pkg/cache/scheduler/tas_flavor_snapshot.go, profile BestFit. Quotas, cohorts and slices of pod sets
are not here: a lab has no ClusterQueues.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from testbed.cni.objects.kinds import LABEL_NAME
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.placement import HOSTNAME, NodeView
from testbed.errors import InputError

REQUIRED, PREFERRED, UNCONSTRAINED = (
    f"kueue.x-k8s.io/podset-{word}" for word in ("required-topology", "preferred-topology", "unconstrained-topology")
)
QUEUE = "kueue.x-k8s.io/queue-name"
"""The label of workloads that Kueue manages: without it their annotations mean nothing."""
LEVELS = (*(f"network.topology.nvidia.com/{level}" for level in ("core", "spine", "leaf")), HOSTNAME)
"""The levels without a Topology object, from the top: those of topograph's labels."""


@dataclass(frozen=True)
class Wish:
    """What a workload says of its pods: a label of nodes whose value they share (`required`) or are to share; or that
    any nodes do, without a level."""

    level: str
    required: bool
    topology: str
    levels: Sequence[str]


@dataclass
class _Domain:
    name: str
    order: int
    capacity: int = 0
    parts: list["_Domain"] = field(default_factory=list)


SLICES = ("kueue.x-k8s.io/podset-slice-required-topology", "kueue.x-k8s.io/podset-slice-size")


def check(annotations: Mapping[str, str]) -> None:
    """Raise InputError for annotations that Kueue's webhook refuses (pkg/controller/jobframework/tas_validation.go)."""
    given = [key for key in (REQUIRED, PREFERRED, UNCONSTRAINED) if key in annotations]
    if len(given) > 1:
        raise InputError(f"must not contain more than one topology annotation: {', '.join(given)}")
    for key in (REQUIRED, PREFERRED):
        if key in annotations and not re.fullmatch(LABEL_NAME, annotations[key]):
            raise InputError(f"{key}: Invalid value: {json.dumps(annotations[key])}: it is no name of a label")
    if annotations.get(UNCONSTRAINED, "true") not in ("true", "false"):
        raise InputError(f"{UNCONSTRAINED}: Invalid value: {json.dumps(annotations[UNCONSTRAINED])}: must be boolean")
    if sliced := [key for key in SLICES if key in annotations]:
        raise InputError(f"{sliced[0]} is not supported: a lab places a set of pods as a whole")


def wish_of(pod: Object, topologies: Sequence[Object]) -> Wish | None:
    """Return what a pod's annotations say, None if nothing. The Topology is the first one with the level."""
    notes = pod.annotations
    level = notes.get(REQUIRED) or notes.get(PREFERRED) or ""
    if not level and notes.get(UNCONSTRAINED) != "true":
        return None
    known = {one.name: [str(part["nodeLabel"]) for part in one.spec["levels"]] for one in topologies}
    name = next((name for name, levels in known.items() if level in levels), next(iter(known), "default"))
    return Wish(level, bool(notes.get(REQUIRED)), name, known.get(name, list(LEVELS)))


def assigned(
    wish: Wish, nodes: Sequence[NodeView], capacity: Mapping[str, int], count: int, there: Sequence[str] = ()
) -> tuple[list[str], str]:
    """Return the nodes of `count` pods, or none and the reason. `capacity` is how many of them each node takes; `there`
    are the nodes that pods of the workload have already, whose domain the others share."""
    levels = [label for label in wish.levels if any(label in node.labels for node in nodes)]
    if wish.level and wish.level not in levels:
        known = f"no node has the label {wish.level}" if wish.level in wish.levels else "it has no such level"
        return [], f'no requested topology level: {wish.level} (topology "{wish.topology}": {known})'
    roots = _tree(levels, nodes, capacity)
    total = sum(one.capacity for one in roots)
    if not wish.level:
        return (_least_free(roots, count), "") if total >= count else ([], _does_not_fit(wish, total, count))
    asked = levels.index(wish.level)
    kept = _domain_of(there, nodes, levels[: asked + 1])
    for level in range(asked, -1, -1):
        found = [one for one in _at(roots, level) if not wish.required or kept in (None, one.name)]
        fitting = [one for one in found if one.capacity >= count]
        if fitting:
            best = min(fitting, key=lambda one: (one.name != kept, one.capacity, one.order))
            return _spread([best], count), ""
        if wish.required:
            return [], _does_not_fit(wish, max((one.capacity for one in found), default=0), count)
    return (_spread(roots, count), "") if total >= count else ([], _does_not_fit(wish, total, count))


def _least_free(roots: Sequence[_Domain], count: int) -> list[str]:
    """Return the nodes of pods that may be anywhere: those with the least room first, to keep the others free."""
    nodes = list(roots)
    while any(one.parts for one in nodes):
        nodes = [part for one in nodes for part in one.parts or [one]]
    nodes.sort(key=lambda one: (one.capacity, one.order))
    whole = next((one for one in nodes if one.capacity >= count), None)
    names = [one.name for one in ([whole] if whole else nodes) for _ in range(one.capacity)]
    return names[:count]


def _does_not_fit(wish: Wish, most: int, count: int) -> str:
    fits = f"allows to fit only {most} out of {count} pod(s)" if most else f"doesn't allow to fit any of {count} pod(s)"
    return f'topology "{wish.topology}" {fits}'


def _tree(levels: Sequence[str], nodes: Sequence[NodeView], capacity: Mapping[str, int]) -> list[_Domain]:
    """Return the domains of the highest level, with those below them; at last the nodes. One that lacks a label of a
    level is in none."""
    roots: dict[str, _Domain] = {}
    index: dict[tuple[str, ...], _Domain] = {}
    for order, node in enumerate(nodes):
        values = [node.labels.get(level) for level in levels]
        if None in values:
            continue
        path = tuple(str(value) for value in values)
        if levels[-1] != HOSTNAME:
            path = (*path, node.name)
        parent: _Domain | None = None
        for depth in range(1, len(path) + 1):
            key = path[:depth]
            if key not in index:
                index[key] = _Domain("/".join(key), order)
                (parent.parts.append(index[key]) if parent else roots.setdefault(key[0], index[key]))
            parent = index[key]
            parent.capacity += capacity.get(node.name, 0)
        assert parent
        parent.name = node.name
    return list(roots.values())


def _at(domains: Sequence[_Domain], level: int) -> list[_Domain]:
    return list(domains) if not level else _at([part for one in domains for part in one.parts], level - 1)


def _domain_of(there: Sequence[str], nodes: Sequence[NodeView], levels: Sequence[str]) -> str | None:
    """Return the name of the domain in which pods are already; None without any."""
    node = next((one for one in nodes if one.name in there), None)
    if node is None:
        return None
    return node.name if levels[-1] == HOSTNAME else "/".join(str(node.labels.get(level)) for level in levels)


def _spread(domains: Sequence[_Domain], count: int) -> list[str]:
    """Return the nodes of `count` pods in few domains: the largest whole, the rest in the smallest that takes it."""
    found: list[str] = []
    left = sorted(domains, key=lambda one: (-one.capacity, one.order))
    while count and left:
        fitting = [one for one in left if one.capacity >= count]
        one = min(fitting, key=lambda one: (one.capacity, one.order)) if fitting else left[0]
        left.remove(one)
        part = min(count, one.capacity)
        found += _spread(one.parts, part) if one.parts else [one.name] * part
        count -= part
    return found
