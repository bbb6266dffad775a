"""The node of a pod: what kube-scheduler filters and scores, with its words for what does not fit.

Source: Kubernetes 1.31, pkg/scheduler/framework/plugins. Of the nodes that fit, the one with the best preference and
the fewest pods of the same workload, then of all, counts; equal ones go by their order in the topology, where
kube-scheduler draws one.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pydantic import ValidationError

from testbed.cni.objects.device_plugins import amount
from testbed.cni.objects.kinds import Selector
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.pod_spec import ContainerSpec, NodeTerm, PodSpec, PodTerm, Requirement, Spread, Toleration

TELEMETRY = "telemetry/scheduling"
"""What pods with a telemetry policy request, of which no node has a number."""
HOSTNAME = "kubernetes.io/hostname"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label that every namespace has."""
HARD = ("NoSchedule", "NoExecute")
"""The effects of taints that keep pods away."""


class Placed(NamedTuple):
    """A pod that is on a node, or that is to be."""

    node: str
    pod: Object
    spec: PodSpec


class Crowd:
    """The pods that have a node. `namespaces` are the labels of namespaces, by their names."""

    def __init__(self, namespaces: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._namespaces = namespaces or {}
        self.pods: list[Placed] = []
        self.against: list[Placed] = []
        """Those that keep others away."""
        self.ports: set[tuple[str, str, int]] = set()
        """Ports in use: node, protocol, number."""
        self.on_node = Counter[str]()
        self.of_owner = Counter[tuple[str, str]]()

    def add(self, node: str, pod: Object) -> None:
        placed = Placed(node, pod, _spec(pod))
        self.pods.append(placed)
        if _anti(placed.spec):
            self.against.append(placed)
        self.ports |= {(node, *port) for port in placed.spec.host_ports()}
        self.on_node[node] += 1
        self.of_owner[node, owner(pod)] += 1

    def copy(self) -> "Crowd":
        found = Crowd(self._namespaces)
        found.pods, found.against, found.ports = [*self.pods], [*self.against], {*self.ports}
        found.on_node, found.of_owner = Counter(self.on_node), Counter(self.of_owner)
        return found

    def meant(self, term: PodTerm, of: Object, other: Object) -> bool:
        """Return whether a term of the pod `of` means the other one; without a selector it means none."""
        if term.labelSelector is None or not term.labelSelector.matches(other.labels):
            return False
        labels = {NAMESPACE_NAME: other.namespace, **self._namespaces.get(other.namespace, {})}
        by_labels = term.namespaceSelector is not None and term.namespaceSelector.matches(labels)
        own = [] if term.namespaceSelector else [of.namespace]
        return by_labels or other.namespace in (term.namespaces or own)


def _spec(pod: Object) -> PodSpec:
    """Return the `spec` of a pod; of one that a scenario made and no cluster would take one that asks for nothing."""
    try:
        return PodSpec.model_validate(pod.spec)
    except ValidationError:
        return PodSpec(containers=[ContainerSpec(name="main")])


@dataclass
class NodeView:
    """A node as the scheduler sees it."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, Any]] = ()
    free: Counter[str] = field(default_factory=Counter)
    """The devices that no pod has, by resource."""
    score: int = 0
    """What a telemetry policy gives it for the pod that is placed."""


def labels_of(name: str, node: Object | None) -> dict[str, str]:
    """Return the labels of a node: kubelet's, and those of its object."""
    own = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", HOSTNAME: name}
    return {**own, **(node.labels if node else {})}


def evicting(spec: PodSpec, taints: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any] | None, float]:
    """Return the taint that drives a pod off its node, and the seconds that it tolerates it; None, inf if it stays.
    Source: pkg/controller/tainteviction, GetMinTolerationTime."""
    found: list[tuple[Mapping[str, Any], float]] = []
    for taint in taints:
        if taint.get("effect") != "NoExecute":
            continue
        tolerating = [one for one in spec.tolerations or () if _tolerates(one, taint)]
        limits = [max(0.0, one.tolerationSeconds) for one in tolerating if one.tolerationSeconds is not None]
        if not tolerating or limits:
            found.append((taint, min(limits, default=0.0)))
    return min(found, key=lambda one: one[1], default=(None, math.inf))


def view(name: str, node: Object | None, cabling: Mapping[str, str] | None = None) -> NodeView:
    """Return a host as the scheduler sees it, without its devices. `cabling` are the labels of the switches above it,
    which those of its object replace."""
    return NodeView(name, {**(cabling or {}), **labels_of(name, node)}, taints_of(node))


def room(pod: Object, node: NodeView, nodes: Sequence[NodeView], there: Crowd, most: int) -> int:
    """Return how many pods like this one a node takes, `most` at most."""
    spec = PodSpec.model_validate(pod.spec)
    crowd, here = there.copy(), replace(node, free=Counter(node.free))
    for count in range(most):
        if _obstacles(pod, spec, here, nodes, crowd):
            return count
        crowd.add(node.name, pod)
        here.free.subtract(asked(pod))
    return most


def taints_of(node: Object | None) -> list[Mapping[str, Any]]:
    spec = node.spec if node else {}
    cordon = [{"key": UNSCHEDULABLE, "effect": "NoSchedule"}] if spec.get("unschedulable") else []
    return [*cordon, *(one for one in _list(spec.get("taints")) if _mapping(one).get("key"))]


def asked(pod: Object) -> dict[str, int]:
    """Return the devices that all containers of a pod request: limits, or requests without limits. InputError."""
    found = Counter[str]()
    for container in _list(pod.spec.get("containers")):
        own = _mapping(_mapping(container).get("resources"))
        for name, value in {**_mapping(own.get("requests")), **_mapping(own.get("limits"))}.items():
            if "/" in name and name != TELEMETRY:  # others, such as cpu, do not concern the lab
                found[name] += amount(name, value)
    return {name: count for name, count in sorted(found.items()) if count}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def place(
    pod: Object, nodes: Sequence[NodeView], there: Crowd, obstacle: Callable[[NodeView], str] = lambda _: ""
) -> tuple[str, str]:
    """Return the node for a pod and an empty string, or an empty name and the reason in kube-scheduler's words.
    `obstacle` says why a node that fits otherwise does not."""
    spec = PodSpec.model_validate(pod.spec)
    reasons = {node.name: _obstacles(pod, spec, node, nodes, there) for node in nodes}
    for node in nodes:
        if not reasons[node.name] and (why := obstacle(node)):
            reasons[node.name] = [why]
    fitting = [node for node in nodes if not reasons[node.name]]
    if fitting:
        best = max(fitting, key=lambda node: (_preference(pod, spec, node, nodes, there), -fitting.index(node)))
        return best.name, ""
    counts = Counter(reason for found in reasons.values() for reason in found)
    if not nodes:
        return "", "no nodes available to schedule pods"
    listed = ", ".join(sorted(f"{number} {reason}" for reason, number in counts.items()))
    return "", f"0/{len(nodes)} nodes are available: {listed}."


def fits(spec: PodSpec, node: NodeView) -> bool:
    """Return whether a DaemonSet has a pod on the node: its affinity and its taints."""
    return not _untolerated(spec, node.taints) and _matches(spec, node)


def _obstacles(pod: Object, spec: PodSpec, node: NodeView, nodes: Sequence[NodeView], there: Crowd) -> list[str]:
    if taint := _untolerated(spec, node.taints):
        if taint["key"] == UNSCHEDULABLE:
            return ["node(s) were unschedulable"]
        return [f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"]
    if not _matches(spec, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    if any((node.name, *port) in there.ports for port in spec.host_ports()):
        return ["node(s) didn't have free ports for the requested pod ports"]
    if lacking := [name for name, count in asked(pod).items() if node.free[name] < count]:
        return [f"Insufficient {name}" for name in lacking]
    return _between_pods(pod, spec, node, nodes, there)


def _between_pods(pod: Object, spec: PodSpec, node: NodeView, nodes: Sequence[NodeView], there: Crowd) -> list[str]:
    usable = [one for one in nodes if _matches(spec, one)]  # nodeAffinityPolicy: Honor
    if any(not _spreads(one, pod, node, usable, there) for one in spec.topologySpreadConstraints or ()):
        return ["node(s) didn't match pod topology spread constraints"]
    affinity = spec.affinity
    near = affinity.podAffinity if affinity else None
    for term in (near and near.requiredDuringSchedulingIgnoredDuringExecution) or ():
        others = [one for one in there.pods if there.meant(term, pod, one.pod)]
        first = not others and there.meant(term, pod, pod)  # the first of a group that wants to be together
        if not first and not any(_beside(term.topologyKey, node, one, nodes) for one in others):
            return ["node(s) didn't match pod affinity rules"]
    for term in _anti(spec):
        if any(there.meant(term, pod, one.pod) and _beside(term.topologyKey, node, one, nodes) for one in there.pods):
            return ["node(s) didn't match pod anti-affinity rules"]
    for other in there.against:
        for term in _anti(other.spec):
            if there.meant(term, other.pod, pod) and _beside(term.topologyKey, node, other, nodes):
                return ["node(s) didn't satisfy existing pods anti-affinity rules"]
    return []


def _anti(spec: PodSpec) -> Sequence[PodTerm]:
    away = spec.affinity.podAntiAffinity if spec.affinity else None
    return (away and away.requiredDuringSchedulingIgnoredDuringExecution) or ()


def _untolerated(spec: PodSpec, taints: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the first taint that keeps the pod away."""
    hard = (taint for taint in taints if taint.get("effect") in HARD)
    return next((taint for taint in hard if not any(_tolerates(one, taint) for one in spec.tolerations or ())), None)


def _tolerates(one: Toleration, taint: Mapping[str, Any]) -> bool:
    if one.effect and one.effect != taint.get("effect"):
        return False
    if one.key and one.key != taint["key"]:
        return False
    return one.operator == "Exists" or (one.key == taint["key"] and one.value == (taint.get("value") or ""))


def _matches(spec: PodSpec, node: NodeView) -> bool:
    if any(node.labels.get(key) != value for key, value in (spec.nodeSelector or {}).items()):
        return False
    affinity = spec.affinity.nodeAffinity if spec.affinity else None
    required = affinity.requiredDuringSchedulingIgnoredDuringExecution if affinity else None
    return required is None or any(term_matches(term, node) for term in required.nodeSelectorTerms)


def term_matches(term: NodeTerm, node: NodeView) -> bool:
    fields = {"metadata.name": node.name}
    wanted = [(one, node.labels) for one in term.matchExpressions or ()]
    wanted += [(one, fields) for one in term.matchFields or ()]
    return bool(wanted) and all(_holds(one, labels) for one, labels in wanted)


def _holds(one: Requirement, labels: Mapping[str, str]) -> bool:
    found, values = labels.get(one.key), one.values or []
    match one.operator:
        case "In":
            return found in values
        case "NotIn":
            return found not in values
        case "Exists":
            return found is not None
        case "DoesNotExist":
            return found is None
        case _:
            try:
                here, there = int(found or ""), int(values[0])
            except (ValueError, IndexError):
                return False
            return here > there if one.operator == "Gt" else here < there


def _beside(key: str, node: NodeView, other: Placed, nodes: Sequence[NodeView]) -> bool:
    """Return whether the other pod is in the same domain of `key` as the node."""
    domain = node.labels.get(key)
    return domain is not None and any(one.labels.get(key) == domain for one in nodes if one.name == other.node)


def _spreads(one: Spread, pod: Object, node: NodeView, nodes: Sequence[NodeView], there: Crowd) -> bool:
    if one.whenUnsatisfiable == "ScheduleAnyway":
        return True
    counts = _domains(one.topologyKey, one.labelSelector, pod, nodes, there)
    domain = node.labels.get(one.topologyKey)
    if domain is None:
        return False
    itself = int(one.labelSelector is not None and one.labelSelector.matches(pod.labels))
    return counts[domain] + itself - min(counts.values()) <= one.maxSkew


def _domains(key: str, selector: Selector | None, pod: Object, nodes: Sequence[NodeView], there: Crowd) -> Counter[str]:
    """Return the pods that the selector means, by domain, with those that have none."""
    domains = {node.name: node.labels[key] for node in nodes if key in node.labels}
    counts = Counter(dict.fromkeys(domains.values(), 0))
    for other in there.pods:
        of_namespace = other.pod.namespace == pod.namespace and other.node in domains
        if of_namespace and selector is not None and selector.matches(other.pod.labels):
            counts[domains[other.node]] += 1
    return counts


def _preference(
    pod: Object, spec: PodSpec, node: NodeView, nodes: Sequence[NodeView], there: Crowd
) -> tuple[int, int, int]:
    """Return the score of a node: the weights of what the pod prefers, then few pods of its workload, then few."""
    affinity = spec.affinity
    weight = node.score
    of_nodes = affinity.nodeAffinity if affinity else None
    for one in (of_nodes and of_nodes.preferredDuringSchedulingIgnoredDuringExecution) or ():
        weight += one.weight * term_matches(one.preference, node)
    for sign, group in ((1, affinity and affinity.podAffinity), (-1, affinity and affinity.podAntiAffinity)):
        for pods in (group and group.preferredDuringSchedulingIgnoredDuringExecution) or ():
            term = pods.podAffinityTerm
            near = [one for one in there.pods if there.meant(term, pod, one.pod)]
            weight += sign * pods.weight * sum(_beside(term.topologyKey, node, one, nodes) for one in near)
    name = owner(pod)
    return weight, -there.of_owner[node.name, name] if name else 0, -there.on_node[node.name]


def owner(pod: Object) -> str:
    """Return the name of the workload that a pod is of, empty if of none."""
    owners = pod.data["metadata"].get("ownerReferences") or ()
    return next((f"{pod.namespace}/{one['kind']}/{one['name']}" for one in owners), "")
