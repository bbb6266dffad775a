"""`testbed get` and `testbed delete`: objects of Kubernetes in a lab that lives, with what the lab has of them."""

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from testbed.cni.objects import manifests, placement, workloads
from testbed.cni.objects.dra import claims
from testbed.cni.objects.kinds import Expression, IPPool, Selector
from testbed.cni.objects.lab_objects import Cluster
from testbed.cni.objects.manifests import DEFAULT, KINDS, NAMESPACES, Object, bare, is_terminating, kind_named, written
from testbed.cni.objects.training.kinds import FRAMEWORKS
from testbed.cni.runtime import dranet
from testbed.cni.runtime.pod_starts import SANDBOX
from testbed.cni.runtime.rollout import CONTROLLERS
from testbed.cni.runtime.scheduling import offers
from testbed.errors import InputError
from testbed.executor.live.applying import from_text
from testbed.executor.live.server import Call
from testbed.lab import Host, Lab, Pod, fabric
from testbed.protocol import live
from testbed.protocol.live import Applied, Deleted, Listing

Row = Callable[[Lab, Mapping[str, Any]], list[str]]
NONE, FIRST = "<none>", "eth0"
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status"
"""The annotation in which Multus writes what a pod has."""


class Observed:
    """The objects of a lab with what it has of them."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        assert isinstance(lab.objects, Cluster)
        self.cluster: Cluster = lab.objects

    def all(self, kind: str) -> Sequence[Object]:
        """Return all objects of a kind; nodes are the hosts of the lab, and namespaces those of every cluster, too.
        ResourceSlices of NICs are as the nodes have them now."""
        if kind == claims.SLICE:
            up = [host for host in self.hosts.values() if not host.off]
            seen = [claims.published(host.name, dranet.devices(host)) for host in up]
            return [*seen, *(one for one in self.cluster.all(kind) if not claims.is_published(one))]
        always = {"Node": self.hosts, "Namespace": NAMESPACES}.get(kind, ())
        there = self.cluster.all(kind)
        known = {one.name for one in there}
        return sorted([*(bare(kind, name) for name in always if name not in known), *there], key=_place)

    @cached_property
    def hosts(self) -> Mapping[str, Host]:
        """Return the hosts of the lab, without its pods."""
        nodes = self.lab.nodes.values()
        return {node.name: node for node in nodes if isinstance(node, Host) and not isinstance(node, Pod)}

    def running(self, one: Object) -> Pod | None:
        """Return the pod of an object, if it runs."""
        pod = self.lab.nodes.get(one.name)
        return pod if isinstance(pod, Pod) and pod.metadata.namespace == one.namespace else None

    @cached_property
    def owned(self) -> Mapping[str, list[Object]]:
        """Return the pods and ReplicaSets of each controller, by its name as text."""
        found: dict[str, list[Object]] = {}
        for kind in ("Pod", "ReplicaSet"):
            for one in self.cluster.all(kind):
                owner, name = workloads.owner_of(one)
                found.setdefault(f"{owner}/{one.namespace}/{name}", []).append(one)
        return found

    def pods(self, owner: Object) -> list[Object]:
        """Return the pods of a workload, a Deployment's by its ReplicaSets."""
        own = self.owned.get(str(owner), [])
        sets = [one for one in own if one.kind == "ReplicaSet"]
        by_sets = [pod for one in sets for pod in self.owned.get(str(one), []) if pod.kind == "Pod"]
        return [*by_sets, *(one for one in own if one.kind == "Pod")]

    def data(self, one: Object) -> dict[str, Any]:
        """Return an object with its status: of a pool the addresses that pods have, of a pod what its kernel has, of a
        workload the number of its pods."""
        data = dict(one.data)
        if one.kind == "Pod":  # what the user wrote of it is of another pod
            own = {key: value for key, value in one.annotations.items() if key != NETWORK_STATUS}
            data["metadata"] = {**data["metadata"], "annotations": own}
        if one.kind == "SpiderIPPool":
            data["status"] = self._pool(one)
        if one.kind == "Node" and (host := self.hosts.get(one.name)):
            data = self._node(host, data)
        if one.kind in CONTROLLERS and one.kind not in FRAMEWORKS:
            kept = {key: value for key, value in (data.get("status") or {}).items() if key != "lastFailure"}
            data["status"] = {**kept, **self._workload(one)}
        if one.kind == "Pod" and (pod := self.running(one)):
            ends = [
                {"name": end.name, "mac": end.mac, "ips": [str(address.ip) for address in end.addresses.values()]}
                for end in (pod.host if pod.metadata.host_network else pod).interfaces.values()
            ]
            first = next((end for end in ends if end["name"] == FIRST or pod.metadata.host_network), None)
            ips = [{"ip": ip} for ip in first["ips"]] if first else []
            status = {**data.get("status", {}), "podIPs": ips, **({"podIP": ips[0]["ip"]} if ips else {})}
            data["status"] = status
            if not pod.metadata.host_network:
                networks = {NETWORK_STATUS: json.dumps([{**end, "interface": end["name"]} for end in ends])}
                data["metadata"] = {**data["metadata"], "annotations": {**one.annotations, **networks}}
        return data

    def _node(self, host: Host, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return a node as its kubelet reports it: labels, devices, whether it is up, its first address."""
        there = self.cluster.look("Node", host.name)
        labels = {**self._cabling(host.name), **placement.labels_of(host.name, there)}
        ready = {"type": "Ready", "status": "Unknown" if host.off else "True"}
        ips = [str(one.ip) for end in host.interfaces.values() for one in end.addresses.values()][:1]
        addresses = [{"type": "InternalIP", "address": ip} for ip in ips]
        status = {**(data.get("status") or {}), "conditions": [ready], "addresses": addresses}
        if devices := {name: str(offer.amount) for name, offer in offers(host, self.cluster).items()}:
            status["allocatable"] = devices
        return {**data, "metadata": {**data["metadata"], "labels": labels}, "status": status}

    def _cabling(self, name: str) -> Mapping[str, str]:
        return fabric.above(self.hosts[name], self.lab.nodes).labels()

    def _pool(self, one: Object) -> dict[str, Any]:
        held = self.cluster.held().get(one.name, {})
        taken = {str(address): {"pod": pod} for address, pod in sorted(held.items(), key=lambda entry: int(entry[0]))}
        total = len(IPPool.model_validate(one.spec).made(one.name)[1])
        status: dict[str, Any] = {"allocatedIPCount": len(taken), "totalIPCount": total}
        return {**status, **({"allocatedIPs": json.dumps(taken)} if taken else {})}

    def _workload(self, one: Object) -> dict[str, Any]:
        pods = [pod for pod in self.pods(one) if not is_terminating(pod)]
        phases = Counter(phase(pod.data) for pod in pods)
        ready = sum(self.running(pod) is not None and phase(pod.data) == "Running" for pod in pods)
        if one.kind == "Job":
            return {"active": ready, "succeeded": phases["Succeeded"], "failed": phases["Failed"]}
        if one.kind == "DaemonSet":
            nodes = [placement.view(name, self.cluster.look("Node", name), self._cabling(name)) for name in self.hosts]
            wanted = len(workloads.daemon_nodes(one, nodes)) if one.spec.get("template") else 0
            return {"desiredNumberScheduled": wanted, "currentNumberScheduled": len(pods), "numberReady": ready}
        found = {"replicas": len(pods), "readyReplicas": ready}
        if one.kind == "Deployment":
            name = f"{one.name}-{workloads.template_hash(one.spec.get('template') or {})}"
            found["updatedReplicas"] = sum(workloads.owner_of(pod)[1] == name for pod in pods)
        return found


def _place(one: Object) -> tuple[str, str]:
    return one.namespace, one.name


ALL = ("Pod", "Service", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet", "Job")
"""The kinds that kubectl means by ``all``."""


def get(request: live.GetObjects, call: Call) -> list[Listing]:
    seen = Observed(call.lab)
    kinds = _kinds(request.resources)
    chosen = _chosen(seen, kinds, request.names, request.namespace, request.selector)
    return [_listing(seen, kind, [one for one in chosen if one.kind == kind]) for kind in kinds]


def _kinds(resources: Sequence[str]) -> list[str]:
    words = [word for one in resources for word in one.split(",")]
    return list(dict.fromkeys(kind for word in words for kind in (ALL if word == "all" else (kind_named(word),))))


def _chosen(seen: Observed, kinds: Sequence[str], names: Sequence[str], namespace: str, selector: str) -> list[Object]:
    """Return the objects of the kinds that a command names. InputError for a name that none has."""
    labels, found = selected(selector), []
    for kind in kinds:
        within = namespace if KINDS[kind].namespaced else ""
        there = [one for one in seen.all(kind) if within in ("", one.namespace) and labels.matches(one.labels)]
        for name in names:
            if name not in [one.name for one in there]:
                seen.cluster.find(kind, name, namespace or DEFAULT)
        found += [one for one in there if not names or one.name in names]
    return found


_TERM = re.compile(
    r"\s*(?:(?P<none>!)\s*(?P<absent>[^\s!=,()]+)|(?P<key>[^\s!=,()]+)\s*"
    r"(?:(?P<sign>==|=|!=)\s*(?P<value>[^\s,()=!]*)|\s(?P<set>in|notin)\s*\((?P<values>[^()]*)\))?)\s*"
)


def selected(text: str) -> Selector:
    """Read a selector of labels in kubectl's words: ``app=web,tier!=db,zone in (a,b),!old``. InputError."""
    found: list[Expression] = []
    for part in re.split(r",(?![^(]*\))", text) if text else ():
        match = _TERM.fullmatch(part)
        if not match:
            raise InputError(f"{text!r} is no selector of labels", hint="Such as app=web,tier!=db.")
        if match["none"]:
            found.append(Expression(key=match["absent"], operator="DoesNotExist"))
        elif match["set"]:
            values = [value.strip() for value in match["values"].split(",")]
            found.append(Expression(key=match["key"], operator={"in": "In"}.get(match["set"], "NotIn"), values=values))
        elif match["sign"]:
            operator = "NotIn" if match["sign"] == "!=" else "In"
            found.append(Expression(key=match["key"], operator=operator, values=[match["value"]]))
        else:
            found.append(Expression(key=match["key"], operator="Exists"))
    return Selector(matchExpressions=found)


def _listing(seen: Observed, kind: str, found: Sequence[Object]) -> Listing:
    objects = [seen.data(one) for one in found]
    columns, wide, row = COLUMNS.get(kind, ([], [], lambda _, __: []))
    place = ["NAMESPACE"] if KINDS[kind].namespaced else []
    rows = [
        [*([one.namespace] if place else []), one.name, *row(seen.lab, data)]
        for one, data in zip(found, objects, strict=True)
    ]
    return {"kind": kind, "columns": [*place, "NAME", *columns], "wide": wide, "rows": rows, "objects": objects}


def phase(data: Mapping[str, Any]) -> str:
    found: str = (data.get("status") or {}).get("phase", NONE)
    return found


def _pool(_: Lab, data: Mapping[str, Any]) -> list[str]:
    spec, status = data["spec"], data["status"]
    counts = [str(status["allocatedIPCount"]), str(status["totalIPCount"])]
    flags = [str(bool(spec.get(key, False))).lower() for key in ("default", "disable")]
    family = str(spec.get("ipVersion") or (6 if ":" in spec["subnet"] else 4))
    return [family, spec["subnet"], *counts, *flags, ",".join(spec.get("nodeName", ())) or NONE]


ENDED = {"Succeeded": "Completed", "Failed": "Error"}
"""What kubectl prints for the phase of a pod whose containers have ended."""


def _ended(lab: Lab, data: Mapping[str, Any]) -> str:
    """Return kubectl's word for a pod whose container has ended, whatever its object says; empty if it runs."""
    pod = lab.nodes.get(data["metadata"]["name"])
    status = pod.exit_status() if isinstance(pod, Pod) and pod.uid == data["metadata"].get("uid") else None
    return "" if status is None else ENDED["Failed" if status else "Succeeded"]


def _pod(lab: Lab, data: Mapping[str, Any]) -> list[str]:
    status, spec = data.get("status") or {}, data.get("spec") or {}
    networks = json.loads(data["metadata"].get("annotations", {}).get(NETWORK_STATUS, "[]"))
    others = [one for one in networks if one["interface"] != FIRST]
    shown = ", ".join(f"{one['interface']} {' '.join(one['ips'])}" for one in others)
    waits: Mapping[str, str] = next((one for one in status.get("conditions") or () if one["status"] == "False"), {})
    state = "ContainerCreating" if waits.get("reason") == SANDBOX else phase(data)
    container: Mapping[str, Any] = next(iter(status.get("containerStatuses") or ()), {})
    waiting = (container.get("state") or {}).get("waiting") or {}
    state = waiting.get("reason") or _ended(lab, data) or ENDED.get(state, state)
    if data["metadata"].get("deletionTimestamp"):
        state = "Terminating"
    restarts = str(container.get("restartCount", 0))
    return [
        state,
        restarts,
        status.get("podIP", NONE),
        spec.get("nodeName") or NONE,
        shown or NONE,
        waits.get("message", NONE),
    ]


def _deployment(_: Lab, data: Mapping[str, Any]) -> list[str]:
    status, wanted = data["status"], data["spec"].get("replicas", 1)
    return [f"{status['readyReplicas']}/{wanted}", str(status["updatedReplicas"]), str(status["readyReplicas"])]


def _replica_set(_: Lab, data: Mapping[str, Any]) -> list[str]:
    status = data["status"]
    return [str(one) for one in (data["spec"].get("replicas", 1), status["replicas"], status["readyReplicas"])]


def _stateful_set(_: Lab, data: Mapping[str, Any]) -> list[str]:
    return [f"{data['status']['readyReplicas']}/{data['spec'].get('replicas', 1)}"]


def _daemon_set(_: Lab, data: Mapping[str, Any]) -> list[str]:
    status = data["status"]
    wanted = status.get("desiredNumberScheduled", NONE)
    return [str(one) for one in (wanted, status["currentNumberScheduled"], status["numberReady"])]


def _job(_: Lab, data: Mapping[str, Any]) -> list[str]:
    status, spec = data["status"], data["spec"]
    wanted = spec.get("completions", f"1 of {spec.get('parallelism', 1)}")
    now = "Suspended" if spec.get("suspend") else "Running"
    ended = next((one["type"] for one in status.get("conditions") or ()), now)
    return [ended, f"{status['succeeded']}/{wanted}", str(status["active"]), str(status["failed"])]


def _training_job(_: Lab, data: Mapping[str, Any]) -> list[str]:
    status = data.get("status") or {}
    states = [one["type"] for one in status.get("conditions") or () if one["status"] == "True"]
    counts = (status.get("replicaStatuses") or {}).items()
    shown = [f"{kind}: {', '.join(f'{number} {end}' for end, number in one.items())}" for kind, one in counts if one]
    return [states[-1] if states else NONE, "; ".join(shown) or NONE]


def _service(lab: Lab, data: Mapping[str, Any]) -> list[str]:
    spec = data["spec"]
    ports = ",".join(f"{one['port']}/{one.get('protocol', 'TCP')}" for one in spec.get("ports") or ()) or NONE
    name = f"{data['metadata'].get('namespace', DEFAULT)}/{data['metadata']['name']}"
    ends = [f"{end.address}:{end.port}" for one in lab.pods.services() if one.service == name for end in one.endpoints]
    return [spec.get("type", "ClusterIP"), spec.get("clusterIP") or NONE, ports, ",".join(ends) or NONE]


def _config(_: Lab, data: Mapping[str, Any]) -> list[str]:
    return [str(data.get("spec", {}).get("cniType", "custom"))]


def _node(lab: Lab, data: Mapping[str, Any]) -> list[str]:
    if data["metadata"]["name"] not in lab.nodes:
        return ["not in the lab", NONE, NONE, NONE, NONE]
    status, spec = data["status"], data.get("spec") or {}
    ready = "Ready" if status["conditions"][0]["status"] == "True" else "NotReady"
    taints = [f"{one['key']}={one.get('value', '')}:{one['effect']}" for one in spec.get("taints") or ()]
    devices = [f"{name}: {amount}" for name, amount in (status.get("allocatable") or {}).items()]
    return [
        ready + (",SchedulingDisabled" if spec.get("unschedulable") else ""),
        ", ".join(taints) or NONE,
        ", ".join(devices) or NONE,
        next((one["address"] for one in status["addresses"]), NONE),
        ",".join(f"{key}={value}" for key, value in sorted(data["metadata"]["labels"].items())),
    ]


def _claim(_: Lab, data: Mapping[str, Any]) -> list[str]:
    status = data.get("status") or {}
    devices = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    states = ["deleted"] if data["metadata"].get("deletionTimestamp") else []
    states += [word for key, word in (("allocation", "allocated"), ("reservedFor", "reserved")) if status.get(key)]
    users = [one["name"] for one in status.get("reservedFor") or ()]
    given = [f"{one['pool']}/{one['device']} for {one['request']}" for one in devices]
    return [",".join(states) or "pending", ", ".join(given) or NONE, ", ".join(users) or NONE]


def _slice(_: Lab, data: Mapping[str, Any]) -> list[str]:
    spec = data["spec"]
    names = ", ".join(one["name"] for one in spec.get("devices") or ())
    return [spec.get("nodeName") or NONE, spec["driver"], spec["pool"]["name"], names or NONE]


COLUMNS: Mapping[str, tuple[list[str], list[str], Row]] = {
    "SpiderIPPool": (
        ["VERSION", "SUBNET", "ALLOCATED-IP-COUNT", "TOTAL-IP-COUNT", "DEFAULT"],
        ["DISABLE", "NODENAME"],
        _pool,
    ),
    "Pod": (["STATUS", "RESTARTS", "IP", "NODE"], ["OTHER INTERFACES", "WAITS FOR"], _pod),
    "Deployment": (["READY", "UP-TO-DATE", "AVAILABLE"], [], _deployment),
    "ReplicaSet": (["DESIRED", "CURRENT", "READY"], [], _replica_set),
    "StatefulSet": (["READY"], [], _stateful_set),
    "DaemonSet": (["DESIRED", "CURRENT", "READY"], [], _daemon_set),
    "Job": (["STATUS", "COMPLETIONS", "ACTIVE", "FAILED"], [], _job),
    **dict.fromkeys(FRAMEWORKS, (["STATE"], ["PODS"], _training_job)),
    "Service": (["TYPE", "CLUSTER-IP", "PORT(S)"], ["ENDPOINTS"], _service),
    "SpiderMultusConfig": (["CNITYPE"], [], _config),
    "ResourceClaim": (["STATE"], ["DEVICES", "USERS"], _claim),
    "ResourceSlice": (["NODE", "DRIVER", "POOL"], ["DEVICES"], _slice),
    "Node": (["STATUS", "TAINTS", "DEVICES"], ["INTERNAL-IP", "LABELS"], _node),
}
"""The columns of kinds behind the name, those of `-o wide`, and the cells of all of them."""


def delete(request: live.DeleteObjects, call: Call) -> Deleted:
    seen = Observed(call.lab)
    if request.manifest:
        with from_text(request.file, request.manifest) as file:
            wanted = [(one.kind, one.name, one.namespace) for one in manifests.load(file).objects]
    else:
        kinds, namespace = _kinds(request.resources), request.namespace or DEFAULT
        wanted = [(kind, name, namespace) for kind in kinds for name in request.names]
        if not request.names:
            chosen = _chosen(seen, kinds, (), namespace, request.selector)
            wanted = [(one.kind, one.name, one.namespace) for one in chosen]
    there, failed = [], []
    for one in dict.fromkeys(wanted):  # as kubectl: the others, too, if one is not there
        try:
            seen.cluster.find(*one)
            there.append(one)
        except InputError as error:
            failed.append(f"{error.message}. {error.hint}")
    done = call.lab.pods.delete_objects(there) if there else None
    waiting = done.waiting if done else {}
    named = {
        str(Object(kind, name, namespace if KINDS[kind].namespaced else "", {})) for kind, name, namespace in there
    }
    staying = [f"{name}: {waiting[name]}" for name in waiting if name in named]
    return {"deleted": done.objects if done else [], "staying": staying, "failed": failed}


SIZED = ("Deployment", "ReplicaSet", "StatefulSet")
RESTARTED = ("Deployment", "StatefulSet", "DaemonSet")


def change(request: live.ChangeWorkload, call: Call) -> Applied:
    """Scale or restart a workload: its object changes as by kubectl, and its controller does the rest."""
    kind = kind_named(request.resource)
    if kind not in (RESTARTED if request.restart else SIZED):
        known = ", ".join(RESTARTED if request.restart else SIZED)
        raise InputError(f"a {kind} has no {'template to roll out' if request.restart else 'size'}; there are: {known}")
    there = Observed(call.lab).cluster.find(kind, request.name, request.namespace or DEFAULT)
    spec = dict(there.spec)
    if request.restart:
        template = dict(spec["template"])
        metadata = dict(template.get("metadata") or {})
        metadata["annotations"] = {**(metadata.get("annotations") or {}), RESTARTED_AT: written(time.time())}
        spec["template"] = {**template, "metadata": metadata}
    else:
        spec["replicas"] = request.replicas
    done = call.lab.pods.apply({**there.data, "spec": spec})
    running = [pod.name for pod in done.pods]
    return {"applied": done.objects, "notes": [], "running": running, "waiting": done.waiting}
