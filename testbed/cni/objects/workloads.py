"""The next steps of the controllers that make pods: Deployment, ReplicaSet, StatefulSet, DaemonSet and Job.

Each looks at its object and at the pods that are there, and says what to make and what to end; what it said before
does not count. Sources: Kubernetes 1.31, pkg/controller/{deployment,replicaset,statefulset,daemon,job}.
"""

import hashlib
import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from testbed.cni.objects.manifests import TIMESTAMP, Object, make, written
from testbed.cni.objects.placement import NodeView, fits
from testbed.cni.objects.pod_spec import (
    DaemonSetSpec,
    DeploymentSpec,
    JobSpec,
    PodSpec,
    ReplicaSetSpec,
    StatefulSetSpec,
    share,
)

LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of made names: no vowels, and nothing that looks like one (apimachinery, util/rand)."""
LONGEST_BASE = 58
"""Characters of a made name before its last five."""
HASH, REVISION = "pod-template-hash", "controller-revision-hash"
POD_NAME, POD_INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"
JOB_NAME, JOB_INDEX = "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-completion-index"
DAEMONS_TOLERATE = ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
UNREACHABLE = "node.kubernetes.io/unreachable"
NODE_GRACE, EVICTION = 40.0, 300.0
"""Seconds until a silent node is unreachable (--node-monitor-grace-period), and until its pods are deleted then, unless
their tolerations say otherwise (the admission plugin DefaultTolerationSeconds)."""
FIRST_BACKOFF, LONGEST_BACKOFF = 10.0, 600.0
"""Seconds until a Job replaces a pod that has failed, twice as many after each (pkg/controller/job)."""
State = Literal["waiting", "running", "terminating", "succeeded", "failed"]
"""Terminating: deleted, and its node cannot say that it has ended."""


@dataclass
class Run:
    """A pod that a controller has made, or that a manifest has. `number` is its place in the order of making."""

    pod: Object
    number: int
    state: State = "waiting"
    node: str = ""
    reason: str = ""
    """Why it waits."""
    ended_s: float = 0.0
    """When it succeeded or failed, in seconds of `time.monotonic`."""
    exit_code: int | None = None
    """The status with which its container has ended at last: above 128 for a signal."""
    restarts: int = 0
    """How often kubelet has started its container again."""
    quick: int = 0
    """How many of these came without a long run before."""
    began_s: float = 0.0
    """When its container was started at last, in seconds of `time.monotonic`."""

    @property
    def active(self) -> bool:
        return self.state in ("waiting", "running")


@dataclass
class Next:
    """What is to be done: pods to make and to end, and objects to put."""

    made: list[Object] = field(default_factory=list)
    ended: list[Run] = field(default_factory=list)
    objects: list[Object] = field(default_factory=list)
    gone: list[Object] = field(default_factory=list)
    """Objects to delete."""
    conflicts: list[str] = field(default_factory=list)
    """What cannot be made because somebody else has an object of this name."""
    later: float = math.inf
    """Seconds until there is more to do."""


def evicted_after(pod: Object) -> float:
    """Return the seconds after which a pod is deleted whose node has gone silent; infinite for one of a DaemonSet."""
    if owner_of(pod)[0] == "DaemonSet":
        return math.inf
    for one in PodSpec.model_validate(pod.spec).tolerations or ():
        if one.key in ("", UNREACHABLE) and one.effect in ("", "NoExecute") and one.operator == "Exists":
            return NODE_GRACE + (math.inf if one.tolerationSeconds is None else one.tolerationSeconds)
    return NODE_GRACE + EVICTION


def reference(owner: Object) -> dict[str, Any]:
    """Return the reference by which an object names its controller."""
    return {"apiVersion": owner.data["apiVersion"], "kind": owner.kind, "name": owner.name, "controller": True}


def owner_of(one: Object) -> tuple[str, str]:
    """Return kind and name of the object's controller, or two empty strings."""
    owners = one.data["metadata"].get("ownerReferences") or ()
    return next(((owner["kind"], owner["name"]) for owner in owners if owner.get("controller")), ("", ""))


def following(
    workloads: Iterable[Object],
    runs: Sequence[Run],
    nodes: Sequence[NodeView],
    number: Callable[[], int],
    revisions: Sequence[Object] = (),
) -> Next:
    """Return the next steps for `workloads`, the ReplicaSets of Deployments among them. `number` is another one at each
    call: names are drawn from it. `revisions` are all ControllerRevisions."""
    found = Next()
    owned: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        owned.setdefault((run.pod.namespace, *owner_of(run.pod)), []).append(run)
    sets = {(one.namespace, one.name): one for one in workloads if one.kind == "ReplicaSet"}
    for one in workloads:
        if one.kind == "Deployment":
            theirs = [rs for rs in sets.values() if _owns(one, rs)]
            for changed in _replica_sets(one, theirs, {rs.name: _of(rs, owned) for rs in theirs}):
                sets[changed.namespace, changed.name] = changed
                found.objects.append(changed)
    for one in [*sets.values(), *(one for one in workloads if one.kind != "ReplicaSet")]:
        own = _of(one, owned)
        match one.kind:
            case "ReplicaSet":
                _replicas(one, own, found, number)
            case "StatefulSet":
                _stateful(one, own, found, [rev for rev in revisions if _owns(one, rev)])
            case "DaemonSet":
                _daemons(one, own, nodes, found, number)
            case "Job":
                _job(one, own, found, number)
    return found


def _of(owner: Object, owned: Mapping[tuple[str, str, str], list[Run]]) -> list[Run]:
    return owned.get((owner.namespace, owner.kind, owner.name), [])


def _owns(owner: Object, one: Object) -> bool:
    return one.namespace == owner.namespace and owner_of(one) == (owner.kind, owner.name)


def template_hash(template: Mapping[str, Any]) -> str:
    """Return what a changed template changes. Kubernetes' is another number: it hashes its own structures."""
    digest = int.from_bytes(hashlib.sha256(json.dumps(template, sort_keys=True).encode()).digest()[:4])
    return "".join(LETTERS[ord(digit) % len(LETTERS)] for digit in str(digest))


def suffix(of: str) -> str:
    """Return the last five letters of a made name, where a cluster draws them."""
    digest = hashlib.sha256(of.encode()).digest()
    return "".join(LETTERS[byte % len(LETTERS)] for byte in digest[:5])


def _drawn(base: str, owner: Object, number: Callable[[], int]) -> str:
    return f"{base}-"[:LONGEST_BASE] + suffix(f"{owner}/{number()}")


def _pod(owner: Object, name: str, labels: Mapping[str, str], spec: Mapping[str, Any] | None = None) -> Object:
    """Return a pod of the owner's template."""
    template = owner.spec["template"]
    given = template.get("metadata") or {}
    return make(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": owner.namespace,
                "labels": {**(given.get("labels") or {}), **labels},
                "annotations": dict(given.get("annotations") or {}),
                "ownerReferences": [reference(owner)],
            },
            "spec": dict(spec or template["spec"]),
        }
    )


def _replica_sets(owner: Object, there: Sequence[Object], runs: Mapping[str, Sequence[Run]]) -> list[Object]:
    """Return the ReplicaSets of a Deployment that are new or have another size: as rolling.go and recreate.go of
    pkg/controller/deployment have them."""
    spec = DeploymentSpec.model_validate(owner.spec)
    name = f"{owner.name}-{template_hash(owner.spec['template'])}"
    sizes = {one.name: ReplicaSetSpec.model_validate(one.spec).replicas for one in there}
    present = Counter({one: sum(run.active or run.state == "terminating" for run in own) for one, own in runs.items()})
    available = Counter({one: sum(run.state == "running" for run in own) for one, own in runs.items()})
    old = [one.name for one in there if one.name != name]
    if spec.paused and old and name not in sizes:
        return []
    before = dict(sizes)
    sizes.setdefault(name, 0)
    if spec.strategy.type == "Recreate":
        sizes.update(dict.fromkeys(old, 0))
        if not any(present[one] for one in old):
            sizes[name] = spec.replicas
    else:
        room = spec.replicas + spec.surge - sum(sizes.values())
        sizes[name] = min(spec.replicas, sizes[name] + max(0, room)) if old else spec.replicas
        _shrink(sizes, old, available, not_yet=sizes[name] - available[name], least=spec.replicas - spec.unavailable)
    kept = {one.name: one for one in there}
    return [_sized(owner, one, size, kept.get(one)) for one, size in sizes.items() if before.get(one) != size]


def _shrink(sizes: dict[str, int], old: Sequence[str], available: Counter[str], *, not_yet: int, least: int) -> None:
    """Shrink old ReplicaSets as far as `least` pods stay available; first by pods that are not. `not_yet` are the new
    pods that are not available."""
    spare = sum(sizes.values()) - least - not_yet
    for name in old:
        unhealthy = min(max(0, spare), sizes[name] - min(sizes[name], available[name]))
        sizes[name] -= unhealthy
        spare -= unhealthy
    spare = min(spare, sum(available.values()) - least)
    for name in old:
        fewer = min(max(0, spare), sizes[name])
        sizes[name] -= fewer
        spare -= fewer


def _sized(owner: Object, name: str, size: int, there: Object | None) -> Object:
    if there:
        return make({**there.data, "spec": {**there.spec, "replicas": size}})
    template = owner.spec["template"]
    digest = name.removeprefix(f"{owner.name}-")
    given = template.get("metadata") or {}
    labels = {**(given.get("labels") or {}), HASH: digest}
    selector = {**owner.spec["selector"]}
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH: digest}
    return make(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "namespace": owner.namespace,
                "labels": labels,
                "ownerReferences": [reference(owner)],
            },
            "spec": {
                "replicas": size,
                "selector": selector,
                "template": {**template, "metadata": {**given, "labels": labels}},
            },
        }
    )


def _replicas(owner: Object, own: Sequence[Run], found: Next, number: Callable[[], int]) -> None:
    spec = ReplicaSetSpec.model_validate(owner.spec)
    active = [run for run in own if run.active]
    for _ in range(spec.replicas - len(active)):
        found.made.append(_pod(owner, _drawn(owner.name, owner, number), {}))
    crowd = Counter(run.node for run in active)
    leaving = sorted(active, key=lambda run: (run.state == "running", bool(run.node), -crowd[run.node], -run.number))
    found.ended += leaving[: max(0, len(active) - spec.replicas)]


def _stateful(owner: Object, own: Sequence[Run], found: Next, revisions: Sequence[Object]) -> None:
    spec = StatefulSetSpec.model_validate(owner.spec)
    ordered = spec.podManagementPolicy == "OrderedReady"
    first, newest = spec.ordinals.start, f"{owner.name}-{template_hash(owner.spec['template'])}"
    current = _revised(owner, newest, spec, own, revisions, found)
    there = {run.pod.name: run for run in own}
    wanted = {f"{owner.name}-{number}": number for number in range(first, first + spec.replicas)}
    old = [run for run in own if run.pod.labels.get(REVISION) != newest]
    keeps = first + spec.updateStrategy.rolling.partition
    for name, number in wanted.items():
        run = there.get(name)
        if run is None:
            former = current if number < keeps and spec.updateStrategy.type == "RollingUpdate" else None
            template = former.data["data"]["spec"]["template"] if former else owner.spec["template"]
            labels = {POD_NAME: name, POD_INDEX: str(number), REVISION: former.name if former else newest}
            domain = {"hostname": name, "subdomain": spec.serviceName} if spec.serviceName else {"hostname": name}
            made = {**template["spec"], **domain}
            found.made.append(_pod(_with_template(owner, template), name, labels, made))
        elif run.state in ("succeeded", "failed"):
            found.ended.append(run)  # and made again
        if ordered and (run is None or run.state != "running"):
            return
    leaving = sorted((run for run in own if run.pod.name not in wanted), key=_ordinal, reverse=True)
    found.ended += leaving[:1] if ordered else leaving
    outdated = sorted(
        (run for run in old if run.pod.name in wanted and _ordinal(run) >= keeps), key=_ordinal, reverse=True
    )
    if leaving or spec.updateStrategy.type == "OnDelete" or not outdated:
        return
    waiting = [run for run in own if run.state != "running"]
    if not waiting or (not ordered and outdated[0] in waiting):
        found.ended += outdated[:1]


def _revised(
    owner: Object, newest: str, spec: StatefulSetSpec, own: Sequence[Run], revisions: Sequence[Object], found: Next
) -> Object | None:
    """Keep the newest template as a ControllerRevision, and delete those that no pod has. Return the current one, which
    the pods below `partition` have; None if it is the newest (pkg/controller/statefulset: updateStatefulSet,
    completeRollingUpdate)."""
    status = owner.data.get("status") or {}
    known = {one.name: one for one in revisions}
    if newest not in known:
        found.objects.append(
            _revision(owner, newest, 1 + max((int(one.data["revision"]) for one in revisions), default=0))
        )
    name = str(status.get("currentRevision") or newest)
    updated = sum(run.state == "running" and run.pod.labels.get(REVISION) == newest for run in own)
    if name not in known or (spec.updateStrategy.type == "RollingUpdate" and updated == spec.replicas == len(own)):
        name = newest
    if status.get("currentRevision") != name or status.get("updateRevision") != newest:
        state = {**status, "currentRevision": name, "updateRevision": newest}
        found.objects.append(make({**owner.data, "status": state}))
    used = {name, newest, *(run.pod.labels.get(REVISION, "") for run in own)}
    found.gone += [one for one in revisions if one.name not in used]
    return known[name] if name != newest else None


def _revision(owner: Object, name: str, number: int) -> Object:
    return make(
        {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {"name": name, "namespace": owner.namespace, "ownerReferences": [reference(owner)]},
            "data": {"spec": {"template": owner.spec["template"]}},
            "revision": number,
        }
    )


def _with_template(owner: Object, template: Mapping[str, Any]) -> Object:
    data = {**owner.data, "spec": {**owner.spec, "template": template}}
    return Object(owner.kind, owner.name, owner.namespace, data)


def _ordinal(run: Run) -> int:
    """Return the number at the end of the pod's name; -1 if it has none, as a pod that a manifest gave to the set."""
    number = run.pod.name.rpartition("-")[2]
    return int(number) if number.isascii() and number.isdigit() else -1


def daemon_nodes(owner: Object, nodes: Iterable[NodeView]) -> list[str]:
    """Return the nodes that have a pod of a DaemonSet."""
    pod = _daemon(owner, "any", "")
    spec = PodSpec.model_validate({**owner.spec["template"]["spec"], "tolerations": pod.spec["tolerations"]})
    return [node.name for node in nodes if fits(spec, node)]


def _daemon(owner: Object, name: str, node: str) -> Object:
    """Return a pod of a DaemonSet, which the scheduler can place on its node only (ReplaceDaemonSetPodNodeNameNode
    Affinity of pkg/controller/daemon/util)."""
    given = owner.spec["template"]["spec"]
    tolerations = [{"key": f"node.kubernetes.io/{key}", "operator": "Exists"} for key in DAEMONS_TOLERATE]
    affinity = dict(given.get("affinity") or {})
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity["nodeAffinity"] = {
        **(affinity.get("nodeAffinity") or {}),
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
    }
    spec = {**given, "affinity": affinity, "tolerations": [*(given.get("tolerations") or ()), *tolerations]}
    return _pod(owner, name, {REVISION: template_hash(owner.spec["template"])}, spec)


def _daemons(
    owner: Object, own: Sequence[Run], nodes: Sequence[NodeView], found: Next, number: Callable[[], int]
) -> None:
    spec = DaemonSetSpec.model_validate(owner.spec)
    wanted = daemon_nodes(owner, nodes)
    there = {_only_node(run.pod): run for run in own if run.active}
    found.ended += [run for run in own if not run.active or _only_node(run.pod) not in wanted]
    for node in wanted:
        if node not in there:
            found.made.append(_daemon(owner, _drawn(owner.name, owner, number), node))
    if spec.updateStrategy.type != "RollingUpdate":
        return
    digest = template_hash(owner.spec["template"])
    most = spec.updateStrategy.rolling.maxUnavailable
    spare = max(1, share(1 if most is None else most, len(wanted), up=True))
    missing = sum(node not in there or there[node].state != "running" for node in wanted)
    old = [run for node, run in there.items() if node in wanted and run.pod.labels.get(REVISION) != digest]
    found.ended += [run for run in old if run.state != "running"]
    found.ended += [run for run in old if run.state == "running"][: max(0, spare - missing)]


def _only_node(pod: Object) -> str:
    """Return the node that a pod of a DaemonSet is for; empty for one that a manifest gave to the set."""
    affinity = PodSpec.model_validate(pod.spec).affinity
    nodes = affinity.nodeAffinity if affinity else None
    required = nodes.requiredDuringSchedulingIgnoredDuringExecution if nodes else None
    fields = (required.nodeSelectorTerms[0].matchFields or ()) if required else ()
    return next((value for one in fields for value in one.values or ()), "")


def counted(owner: Object, run: Run) -> dict[str, Any]:
    """Return the status of a Job after one of its pods has succeeded or failed. What has ended counts when its pod is
    deleted, too."""
    status = dict(owner.data.get("status") or {})
    status[run.state] = int(status.get(run.state) or 0) + 1
    if run.state == "succeeded" and (index := run.pod.annotations.get(JOB_INDEX)):
        done = {*filter(None, str(status.get("completedIndexes") or "").split(",")), index}
        status["completedIndexes"] = ",".join(sorted(done, key=int))
    if run.state == "failed":
        status["lastFailure"] = run.ended_s
    return status


def _job(owner: Object, own: Sequence[Run], found: Next, number: Callable[[], int]) -> None:
    spec = JobSpec.model_validate(owner.spec)
    status = dict(owner.data.get("status") or {})
    active = [run for run in own if run.active]
    if spec.suspend:
        found.ended += active
        return
    if "startTime" not in status:
        status["startTime"] = written(time.time())
    if not status.get("conditions"):
        _condition(spec, status, active)
    if status != (owner.data.get("status") or {}):
        found.objects.append(make({**owner.data, "status": status}))
    if conditions := status.get("conditions"):
        found.ended += active if conditions[0]["type"] == "Failed" else []
        if spec.ttlSecondsAfterFinished is not None:
            left = seconds_left(conditions[0]["lastTransitionTime"], spec.ttlSecondsAfterFinished)
            found.gone += [owner] if left <= 0 else []
            found.later = min(found.later, max(0.0, left))
        return
    if spec.activeDeadlineSeconds is not None:
        found.later = min(found.later, seconds_left(status["startTime"], spec.activeDeadlineSeconds))
    _workers(owner, spec, active, status, found, number)


def _condition(spec: JobSpec, status: dict[str, Any], active: Sequence[Run]) -> None:
    """Put into the status that a Job is complete or has failed, if so."""
    succeeded, failed = (int(status.get(key) or 0) for key in ("succeeded", "failed"))
    found: dict[str, str] = {}
    if failed > spec.backoffLimit:
        found = {"type": "Failed", "reason": "BackoffLimitExceeded"}
    elif spec.activeDeadlineSeconds is not None and seconds_left(status["startTime"], spec.activeDeadlineSeconds) <= 0:
        found = {"type": "Failed", "reason": "DeadlineExceeded"}
    elif succeeded >= (spec.completions or 1) and (spec.completions is not None or not active):
        found = {"type": "Complete", "reason": "CompletionsReached"}
        status["completionTime"] = written(time.time())
    if found:
        status["conditions"] = [{**found, "status": "True", "lastTransitionTime": written(time.time())}]


def seconds_left(begin: str, seconds: float) -> float:
    """Return how many of `seconds` after a time of an object are left."""
    return datetime.strptime(begin, TIMESTAMP).replace(tzinfo=UTC).timestamp() + seconds - time.time()


def _workers(
    owner: Object,
    spec: JobSpec,
    active: Sequence[Run],
    status: Mapping[str, Any],
    found: Next,
    number: Callable[[], int],
) -> None:
    """Make the pods that a Job has too few of, and end those that it has too many of."""
    succeeded, failed = (int(status.get(key) or 0) for key in ("succeeded", "failed"))
    if spec.completions is None:
        missing = 0 if succeeded else spec.parallelism - len(active)
    else:
        missing = min(spec.parallelism, spec.completions - succeeded) - len(active)
    found.ended += active[len(active) + missing :] if missing < 0 else []
    pause = min(LONGEST_BACKOFF, FIRST_BACKOFF * 2.0 ** (failed - 1)) if failed else 0.0
    left = float(status.get("lastFailure") or 0.0) + pause - time.monotonic()
    if missing > 0 and failed and left > 0:
        found.later = min(found.later, left)
        return
    indices: list[int | None] = [None] * max(0, missing)
    if spec.completionMode == "Indexed":
        taken = {run.pod.annotations.get(JOB_INDEX) for run in active}
        taken |= set(str(status.get("completedIndexes") or "").split(","))
        free = (one for one in range(spec.completions or 0) if str(one) not in taken)
        indices = list(itertools.islice(free, max(0, missing)))
    for index in indices:
        found.made.append(_worker(owner, index, number))


def _worker(owner: Object, index: int | None, number: Callable[[], int]) -> Object:
    labels = {JOB_NAME: owner.name, "job-name": owner.name}
    if index is None:
        return _pod(owner, _drawn(owner.name, owner, number), labels)
    given = owner.spec["template"]["spec"]
    variable = {"name": "JOB_COMPLETION_INDEX", "value": str(index)}
    containers = [{**one, "env": [*(one.get("env") or ()), variable]} for one in given["containers"]]
    spec = {**given, "hostname": f"{owner.name}-{index}", "containers": containers}
    made = _pod(owner, _drawn(f"{owner.name}-{index}", owner, number), labels, spec)
    metadata = {**made.data["metadata"], "annotations": {**made.annotations, JOB_INDEX: str(index)}}
    return make({**made.data, "metadata": metadata})
