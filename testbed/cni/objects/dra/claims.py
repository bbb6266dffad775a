"""The claims of pods in the API server: which a pod has, what they were given, who uses them.

Sources: Kubernetes 1.34, staging/src/k8s.io/dynamic-resource-allocation/resourceclaim; pkg/controller/resourceclaim.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from testbed.cni.ipam.reclaim import ENDED
from testbed.cni.objects.dra.allocation import Given
from testbed.cni.objects.dra.kinds import ClaimSpec, ClassSpec, SliceSpec
from testbed.cni.objects.dra.network_config import DRIVER
from testbed.cni.objects.dra.selectors import Device
from testbed.cni.objects.manifests import Object, is_terminating, make
from testbed.cni.objects.placement import NodeView, term_matches
from testbed.cni.objects.pod_spec import PodClaim, PodSpec
from testbed.cni.objects.workloads import suffix
from testbed.errors import InputError

CLAIM, TEMPLATE, CLASS, SLICE = "ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "ResourceSlice"
VERSION = "resource.k8s.io/v1"
FOR_POD = "resource.kubernetes.io/pod-claim-name"
Look = Callable[[str, str, str], Object | None]
"""Returns the object of a kind, a name and a namespace."""


def asked(pod: Object) -> Sequence[PodClaim]:
    """Return the claims that a pod names."""
    return (PodSpec.model_validate(pod.spec).resourceClaims or ()) if pod.spec.get("resourceClaims") else ()


def name_of(pod: Object, one: PodClaim) -> str:
    """Return the name of the claim: of one of a template a made one, the same for each sandbox of the pod."""
    if one.resourceClaimName:
        return one.resourceClaimName
    uid = pod.data["metadata"].get("uid", "")
    return f"{pod.name}-{one.name}-{suffix(f'{pod}/{uid}/{one.name}')}"


def missing(pod: Object, look: Look) -> list[Object]:
    """Return the claims that are to be made of templates. InputError for a claim or a template that is not there."""
    made = []
    for one in asked(pod):
        name = name_of(pod, one)
        there = look(CLAIM, name, pod.namespace)
        if there is None and one.resourceClaimName:
            raise InputError(f'resourceclaim "{name}" not found')
        if there and is_terminating(there) and not _reserves(there, pod):
            raise InputError(f'resourceclaim "{name}" is being deleted')
        if there is None:
            template = look(TEMPLATE, one.resourceClaimTemplateName, pod.namespace)
            if template is None:
                raise InputError(f'resourceclaimtemplate.resource.k8s.io "{one.resourceClaimTemplateName}" not found')
            made.append(_made(pod, name, one.name, template))
        elif one.resourceClaimTemplateName and _owner(there) != pod.data["metadata"].get("uid"):
            raise InputError(f"ResourceClaim {name} was not created for pod {pod.namespace}/{pod.name}")
    return made


def _made(pod: Object, name: str, of_pod: str, template: Object) -> Object:
    given = template.spec.get("metadata") or {}
    uid = pod.data["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": uid, "controller": True}
    metadata = {
        "name": name,
        "namespace": pod.namespace,
        "labels": dict(given.get("labels") or {}),
        "annotations": {**(given.get("annotations") or {}), FOR_POD: of_pod},
        "ownerReferences": [owner],
    }
    spec = template.spec["spec"]
    return make({"apiVersion": template.data["apiVersion"], "kind": CLAIM, "metadata": metadata, "spec": spec})


def _reserves(claim: Object, pod: Object) -> bool:
    users = status_of(claim).get("reservedFor") or ()
    return pod.data["metadata"].get("uid") in [one["uid"] for one in users]


def _owner(claim: Object) -> str:
    owners = claim.data["metadata"].get("ownerReferences") or ()
    return next((str(one.get("uid", "")) for one in owners if one.get("kind") == "Pod"), "")


def status_of(claim: Object) -> dict[str, Any]:
    return dict(claim.data.get("status") or {})


def with_status(claim: Object, status: Mapping[str, Any]) -> Object:
    kept = {key: value for key, value in status.items() if value}
    data = {key: value for key, value in claim.data.items() if key != "status"}
    return Object(claim.kind, claim.name, claim.namespace, {**data, **({"status": kept} if kept else {})})


def results(claim: Object) -> list[Mapping[str, str]]:
    """Return the devices that a claim was given, with `request`, `driver`, `pool` and `device`."""
    allocation = status_of(claim).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def taken(claims: Iterable[Object]) -> set[str]:
    """Return the devices that claims have, as the text of a `Device`."""
    return {f"{one['driver']}/{one['pool']}/{one['device']}" for claim in claims for one in results(claim)}


def node_of(claim: Object) -> str:
    """Return the node whose devices a claim was given; empty if it has none of a single node."""
    allocation = status_of(claim).get("allocation") or {}
    for term in (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ():
        for one in term.get("matchFields") or ():
            return str(next(iter(one.get("values") or ()), ""))
    return ""


def allocated(claim: Object, given: Sequence[Given], classes: Mapping[str, ClassSpec], node: str) -> Object:
    """Return a claim with its devices, and the configurations that drivers get: of classes, then its own."""
    spec = ClaimSpec.model_validate(claim.spec)
    of_requests = [
        {"request": one.request, "driver": one.device.driver, "pool": one.device.pool, "device": one.device.name}
        for one in given
    ]
    configs: list[dict[str, Any]] = []
    given_to = {one.request for one in given}
    for request in spec.devices.requests:
        for name, option in request.options():
            if name in given_to:
                configs += [
                    {"source": "FromClass", "requests": [name], "opaque": config.opaque.model_dump()}
                    for config in classes[option.deviceClassName].config
                ]
    configs += [
        {"source": "FromClaim", "requests": own.requests, "opaque": own.opaque.model_dump()}
        for own in spec.devices.config
    ]
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    allocation = {
        "devices": {"results": of_requests, **({"config": configs} if configs else {})},
        "nodeSelector": {"nodeSelectorTerms": terms},
    }
    return with_status(claim, {**status_of(claim), "allocation": allocation})


def reserved(claim: Object, pod: Object) -> Object:
    """Return a claim that a pod uses."""
    status = status_of(claim)
    user = {"resource": "pods", "name": pod.name, "uid": pod.data["metadata"]["uid"]}
    users = [one for one in status.get("reservedFor") or () if one["uid"] != user["uid"]]
    return with_status(claim, {**status, "reservedFor": [*users, user]})


def configs_of(claim: Object, request: str, driver: str) -> Mapping[str, Any] | None:
    """Return the first parameters for a driver's device, or None: DraNet takes the first that is for the request."""
    allocation = status_of(claim).get("allocation") or {}
    for one in (allocation.get("devices") or {}).get("config") or ():
        opaque = one.get("opaque") or {}
        wanted = one.get("requests") or [request]
        if opaque.get("driver") == driver and request in wanted:
            parameters: Mapping[str, Any] = opaque["parameters"]
            return parameters
    return None


def settled(claims: Sequence[Object], pods: Mapping[tuple[str, str], Object]) -> tuple[list[Object], list[Object]]:
    """Return the claims that change and those that go, as pods have ended: one that nobody uses gives its devices back,
    one that was made for a pod goes with it. `pods` are those that are there, by namespace and name."""
    changed, gone = [], []
    for claim in claims:
        status = status_of(claim)
        users = [one for one in status.get("reservedFor") or () if _uses(one, pods.get((claim.namespace, one["name"])))]
        owner = _owner(claim)
        made_for = {pod.data["metadata"].get("uid") for key, pod in pods.items() if key[0] == claim.namespace}
        terminating = claim.data["metadata"].get("deletionTimestamp")
        if not users and ((owner and owner not in made_for) or terminating):
            gone.append(claim)
        elif len(users) < len(status.get("reservedFor") or ()):
            kept = status if users else {key: value for key, value in status.items() if key not in _OF_USERS}
            changed.append(with_status(claim, {**kept, "reservedFor": users}))
    return changed, gone


_OF_USERS = ("allocation", "devices")


def _uses(user: Mapping[str, str], pod: Object | None) -> bool:
    if pod is None or pod.data["metadata"].get("uid") != user["uid"]:
        return False
    return (pod.data.get("status") or {}).get("phase") not in ENDED


def devices(slices: Sequence[Object], node: NodeView) -> list[Device]:
    """Return the devices that a node has, in the order of slices and of their devices.

    Slices of one pool count if they are all there, as kube-scheduler has it. The driver dra.net is observed: slices
    that a user adds for it give its devices attributes that a kernel here cannot have, such as their PCIe root.
    """
    specs = [(one, SliceSpec.model_validate(one.spec)) for one in slices]
    here = [(one, spec) for one, spec in specs if _is_on(spec, node)]
    observed = {str(device) for one, spec in here if is_published(one) for device in spec.offered()}
    found: dict[str, Device] = {}
    for _, spec in sorted(here, key=lambda pair: is_published(pair[0])):
        if spec.driver == DRIVER or _is_complete(spec, [other for _, other in specs]):
            for device in spec.offered():
                there = found.get(str(device), device)
                attributes = {**there.attributes, **device.attributes}
                found[str(device)] = replace(
                    device, attributes=attributes, capacity={**there.capacity, **device.capacity}
                )
    return [device for text, device in found.items() if device.driver != DRIVER or text in observed]


def published(node: str, listed: Sequence[Mapping[str, Any]]) -> Object:
    """Return the ResourceSlice of the driver dra.net on a node."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": list(listed)}
    return make({"apiVersion": VERSION, "kind": SLICE, "metadata": {"name": f"{node}-{DRIVER}"}, "spec": spec})


def is_published(one: Object) -> bool:
    return one.name == f"{one.spec.get('nodeName')}-{DRIVER}" and one.spec.get("driver") == DRIVER


def _is_on(spec: SliceSpec, node: NodeView) -> bool:
    if spec.nodeSelector:
        return any(term_matches(term, node) for term in spec.nodeSelector.nodeSelectorTerms)
    return spec.allNodes or spec.nodeName == node.name


def _is_complete(spec: SliceSpec, others: Iterable[SliceSpec]) -> bool:
    pool = [one for one in others if (one.driver, one.pool.name) == (spec.driver, spec.pool.name)]
    newest = max(one.pool.generation for one in pool)
    count = sum(one.pool.generation == newest for one in pool)
    return spec.pool.generation == newest and count == spec.pool.resourceSliceCount


def network_configs(claims: Sequence[Object]) -> Iterator[tuple[Object, Mapping[str, str], Mapping[str, Any]]]:
    """Yield the NICs of claims: the claim, its result, and its parameters."""
    for claim in claims:
        for one in results(claim):
            if one["driver"] == DRIVER:
                yield claim, one, configs_of(claim, one["request"], DRIVER) or {}
