"""`testbed get` and `testbed delete`: objects of Kubernetes in a lab that lives, with what the lab has of them."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from testbed.cni.objects import manifests
from testbed.cni.objects.kinds import IPPool
from testbed.cni.objects.lab_objects import Cluster
from testbed.cni.objects.manifests import DEFAULT, KINDS, Object, kind_named
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


def get(request: live.GetObjects, call: Call) -> Listing:
    kind = kind_named(request.resource)
    cluster = call.lab.objects
    assert isinstance(cluster, Cluster)
    within = request.namespace if KINDS[kind].namespaced else ""
    found = [one for one in cluster.all(kind) if within in ("", one.namespace) and request.name in ("", one.name)]
    if request.name and not found:
        cluster.find(kind, request.name, request.namespace or DEFAULT)
    objects = [observed(call.lab, cluster, one) for one in found]
    columns, wide, row = COLUMNS.get(kind, ([], [], lambda _, __: []))
    place = ["NAMESPACE"] if KINDS[kind].namespaced else []
    rows = [
        [*([one.namespace] if place else []), one.name, *row(call.lab, data)]
        for one, data in zip(found, objects, strict=True)
    ]
    return {"columns": [*place, "NAME", *columns], "wide": wide, "rows": rows, "objects": objects}


def observed(lab: Lab, cluster: Cluster, one: Object) -> dict[str, Any]:
    """Return an object with its status: of a pool the addresses that pods have, of a pod what its kernel has."""
    data = dict(one.data)
    if one.kind == "SpiderIPPool":
        held = cluster.held().get(one.name, {})
        taken = {str(address): {"pod": pod} for address, pod in sorted(held.items(), key=lambda entry: int(entry[0]))}
        total = len(IPPool.model_validate(one.spec).made(one.name)[1])
        data["status"] = {"allocatedIPCount": len(taken), "totalIPCount": total}
        if taken:
            data["status"]["allocatedIPs"] = json.dumps(taken)
    if one.kind == "Pod" and isinstance(pod := lab.nodes.get(one.name), Pod):
        ends = [
            {"name": end.name, "mac": end.mac, "ips": [str(address.ip) for address in end.addresses.values()]}
            for end in pod.interfaces.values()
        ]
        ips = [{"ip": ip} for end in ends if end["name"] == FIRST for ip in end["ips"]]
        status = {**data.get("status", {}), "podIPs": ips, **({"podIP": ips[0]["ip"]} if ips else {})}
        networks = {NETWORK_STATUS: json.dumps([{**end, "interface": end["name"]} for end in ends])}
        metadata = {**data["metadata"], "annotations": {**one.annotations, **networks}}
        data |= {"status": status, "metadata": metadata}
    return data


def _pool(_: Lab, data: Mapping[str, Any]) -> list[str]:
    spec, status = data["spec"], data["status"]
    counts = [str(status["allocatedIPCount"]), str(status["totalIPCount"])]
    flags = [str(bool(spec.get(key, False))).lower() for key in ("default", "disable")]
    family = str(spec.get("ipVersion") or (6 if ":" in spec["subnet"] else 4))
    return [family, spec["subnet"], *counts, *flags, ",".join(spec.get("nodeName", ())) or NONE]


def _pod(_: Lab, data: Mapping[str, Any]) -> list[str]:
    status, spec = data.get("status") or {}, data.get("spec") or {}
    networks = json.loads(data["metadata"]["annotations"].get(NETWORK_STATUS, "[]"))
    others = [one for one in networks if one["interface"] != FIRST]
    shown = ", ".join(f"{one['interface']} {' '.join(one['ips'])}" for one in others)
    return [status.get("phase", NONE), status.get("podIP", NONE), spec.get("nodeName") or NONE, shown or NONE]


def _workload(_: Lab, data: Mapping[str, Any]) -> list[str]:
    return [str(data.get("spec", {}).get("replicas", 1))]


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
    "Pod": (["STATUS", "IP", "NODE"], ["OTHER INTERFACES"], _pod),
    "Deployment": (["REPLICAS"], [], _workload),
    "StatefulSet": (["REPLICAS"], [], _workload),
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
    return [_deleted(call.lab, *one) for one in found]


def _deleted(lab: Lab, kind: str, name: str, namespace: str) -> str:
    within = namespace if KINDS[kind].namespaced else ""
    pod = lab.nodes.get(name) if kind == "Pod" else None
    if isinstance(pod, Pod) and pod.metadata.namespace == namespace:
        pod.delete()
    else:
        if kind == "Pod":
            raise InputError(f"there is no {Object(kind, name, within, {})}")
        lab.objects.delete(kind, name, namespace)
    return str(Object(kind, name, within, {}))
