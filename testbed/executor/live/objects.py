"""`testbed get` and `testbed delete`: objects of Kubernetes in a lab that lives, with what the lab has of them."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from testbed.cni.objects import manifests, workloads
from testbed.cni.objects.kinds import IPPool
from testbed.cni.objects.lab_objects import Cluster
from testbed.cni.objects.manifests import DEFAULT, KINDS, Object, kind_named
from testbed.cni.runtime.rollout import CONTROLLERS, SANDBOX
from testbed.errors import InputError
from testbed.executor.live.applying import from_text
from testbed.executor.live.server import Call
from testbed.lab import Lab, Pod
from testbed.protocol import live
from testbed.protocol.live import Listing

Row = Callable[[Lab, Mapping[str, Any]], list[str]]
NONE, FIRST = "<none>", "eth0"
NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status"
"""The annotation in which Multus writes what a pod has."""


class Observed:
    """The objects of a lab with what it has of them."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        assert isinstance(lab.objects, Cluster)
        self.cluster: Cluster = lab.objects

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
        if one.kind in CONTROLLERS:
            data["status"] = {**(data.get("status") or {}), **self._workload(one)}
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

    def _pool(self, one: Object) -> dict[str, Any]:
        held = self.cluster.held().get(one.name, {})
        taken = {str(address): {"pod": pod} for address, pod in sorted(held.items(), key=lambda entry: int(entry[0]))}
        total = len(IPPool.model_validate(one.spec).made(one.name)[1])
        status: dict[str, Any] = {"allocatedIPCount": len(taken), "totalIPCount": total}
        return {**status, **({"allocatedIPs": json.dumps(taken)} if taken else {})}

    def _workload(self, one: Object) -> dict[str, Any]:
        pods = self.pods(one)
        phases = Counter(phase(pod.data) for pod in pods)
        ready = sum(self.running(pod) is not None and phase(pod.data) == "Running" for pod in pods)
        if one.kind == "Job":
            return {"active": ready, "succeeded": phases["Succeeded"], "failed": phases["Failed"]}
        if one.kind == "DaemonSet":
            return {"currentNumberScheduled": len(pods), "numberReady": ready}
        found = {"replicas": len(pods), "readyReplicas": ready}
        if one.kind == "Deployment":
            name = f"{one.name}-{workloads.template_hash(one.spec.get('template') or {})}"
            found["updatedReplicas"] = sum(workloads.owner_of(pod)[1] == name for pod in pods)
        return found


def get(request: live.GetObjects, call: Call) -> Listing:
    kind = kind_named(request.resource)
    seen = Observed(call.lab)
    within = request.namespace if KINDS[kind].namespaced else ""
    there = seen.cluster.all(kind)
    found = [one for one in there if within in ("", one.namespace) and request.name in ("", one.name)]
    if request.name and not found:
        seen.cluster.find(kind, request.name, request.namespace or DEFAULT)
    objects = [seen.data(one) for one in found]
    columns, wide, row = COLUMNS.get(kind, ([], [], lambda _, __: []))
    place = ["NAMESPACE"] if KINDS[kind].namespaced else []
    rows = [
        [*([one.namespace] if place else []), one.name, *row(call.lab, data)]
        for one, data in zip(found, objects, strict=True)
    ]
    return {"columns": [*place, "NAME", *columns], "wide": wide, "rows": rows, "objects": objects}


def phase(data: Mapping[str, Any]) -> str:
    found: str = (data.get("status") or {}).get("phase", NONE)
    return found


def _pool(_: Lab, data: Mapping[str, Any]) -> list[str]:
    spec, status = data["spec"], data["status"]
    counts = [str(status["allocatedIPCount"]), str(status["totalIPCount"])]
    flags = [str(bool(spec.get(key, False))).lower() for key in ("default", "disable")]
    family = str(spec.get("ipVersion") or (6 if ":" in spec["subnet"] else 4))
    return [family, spec["subnet"], *counts, *flags, ",".join(spec.get("nodeName", ())) or NONE]


def _pod(_: Lab, data: Mapping[str, Any]) -> list[str]:
    status, spec = data.get("status") or {}, data.get("spec") or {}
    networks = json.loads(data["metadata"].get("annotations", {}).get(NETWORK_STATUS, "[]"))
    others = [one for one in networks if one["interface"] != FIRST]
    shown = ", ".join(f"{one['interface']} {' '.join(one['ips'])}" for one in others)
    waits: Mapping[str, str] = next((one for one in status.get("conditions") or () if one["status"] == "False"), {})
    state = "ContainerCreating" if waits.get("reason") == SANDBOX else phase(data)
    if data["metadata"].get("deletionTimestamp"):
        state = "Terminating"
    return [state, status.get("podIP", NONE), spec.get("nodeName") or NONE, shown or NONE, waits.get("message", NONE)]


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
    return [f"{status['succeeded']}/{wanted}", str(status["active"]), str(status["failed"])]


def _service(lab: Lab, data: Mapping[str, Any]) -> list[str]:
    spec = data["spec"]
    ports = ",".join(f"{one['port']}/{one.get('protocol', 'TCP')}" for one in spec.get("ports") or ()) or NONE
    name = f"{data['metadata'].get('namespace', DEFAULT)}/{data['metadata']['name']}"
    ends = [f"{end.address}:{end.port}" for one in lab.pods.services() if one.service == name for end in one.endpoints]
    return [spec.get("type", "ClusterIP"), spec.get("clusterIP") or NONE, ports, ",".join(ends) or NONE]


def _config(_: Lab, data: Mapping[str, Any]) -> list[str]:
    return [str(data.get("spec", {}).get("cniType", "custom"))]


def _node(lab: Lab, data: Mapping[str, Any]) -> list[str]:
    return ["" if data["metadata"]["name"] in lab.nodes else "not in the lab"]


COLUMNS: Mapping[str, tuple[list[str], list[str], Row]] = {
    "SpiderIPPool": (
        ["VERSION", "SUBNET", "ALLOCATED-IP-COUNT", "TOTAL-IP-COUNT", "DEFAULT"],
        ["DISABLE", "NODENAME"],
        _pool,
    ),
    "Pod": (["STATUS", "IP", "NODE"], ["OTHER INTERFACES", "WAITS FOR"], _pod),
    "Deployment": (["READY", "UP-TO-DATE", "AVAILABLE"], [], _deployment),
    "ReplicaSet": (["DESIRED", "CURRENT", "READY"], [], _replica_set),
    "StatefulSet": (["READY"], [], _stateful_set),
    "DaemonSet": (["DESIRED", "CURRENT", "READY"], [], _daemon_set),
    "Job": (["COMPLETIONS", "ACTIVE", "FAILED"], [], _job),
    "Service": (["TYPE", "CLUSTER-IP", "PORT(S)"], ["ENDPOINTS"], _service),
    "SpiderMultusConfig": (["CNITYPE"], [], _config),
    "Node": (["LAB"], [], _node),
}
"""The columns of kinds behind the name, those of `-o wide`, and the cells of all of them."""


def delete(request: live.DeleteObjects, call: Call) -> list[str]:
    if request.manifest:
        with from_text(request.file, request.manifest) as file:
            found = [(one.kind, one.name, one.namespace) for one in manifests.load(file).objects]
    else:
        found = [(kind_named(request.resource), request.name, request.namespace or DEFAULT)]
    done, failed = [], []
    for one in found:  # as kubectl: the others, too, if one is not there
        try:
            done.append(_deleted(call.lab, *one))
        except InputError as error:
            failed.append(error)
    if failed:
        raise InputError(failed[0].message, hint=failed[0].hint, also=[("", error.message) for error in failed[1:]])
    return done


def _deleted(lab: Lab, kind: str, name: str, namespace: str) -> str:
    lab.pods.delete_object(kind, name, namespace)
    return str(Object(kind, name, namespace if KINDS[kind].namespaced else "", {}))
