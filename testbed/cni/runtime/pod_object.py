"""The Kubernetes object of a pod, as an API server completes it before the start.

Injection by Spiderpool's webhook: a pod gets the networks and resources of the SpiderMultusConfigs that it names.
Source: Spiderpool 1.0, docs/usage/install/ai/get-started-macvlan.md, and its `podmanager`.
"""

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from testbed.cni.objects import manifests
from testbed.cni.objects.device_plugins import aliases
from testbed.cni.objects.lab_objects import Cluster
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.multus import DEFINITION, INJECT, INJECT_RDMA, RESOURCE_NAME, MultusConfig
from testbed.cni.objects.webhook.annotations import METADATA, check_pod
from testbed.cni.objects.webhook.review import Denied
from testbed.cni.objects.workloads import owner_of
from testbed.cni.spec import selection
from testbed.cni.spec.selection import NETWORKS
from testbed.errors import InputError
from testbed.lab import Pod
from testbed.protocol import events

SRIOV_NETWORK = "SriovNetwork"
LEFT_ALONE = ("kube-system", "kube-public", "spiderpool", "metallb-system", "istio-system")
"""The namespaces whose pods get nothing injected."""


def admitted(pod: Pod, cluster: Cluster) -> Object:
    """Return the pod's Kubernetes object with the injected parts. InputError."""
    known = described(pod, cluster)
    found = completed(known, cluster)
    if asks(known, cluster.look("Namespace", known.namespace)):
        networks = found.annotations[NETWORKS]
        pod.context.emit(events.POD(networks=networks), pod.name, f"networks are injected: {networks}")
    return found


def completed(known: Object, cluster: Cluster) -> Object:
    """Return a pod with what webhooks put into it: networks and resources. A second call changes nothing. InputError
    with the reason if they refuse it."""
    try:
        check_pod(METADATA, known.annotations)
    except Denied as error:
        raise InputError(str(error)) from None
    namespace = cluster.look("Namespace", known.namespace)
    configs = cluster.all("SpiderMultusConfig") if asks(known, namespace) else []
    return with_resources(injected(known, namespace, configs), cluster)


def with_resources(pod: Object, cluster: Cluster) -> Object:
    """Return the pod with the resources of its networks that an SriovNetwork has made, as network-resources-injector
    adds them, which sriov-network-operator installs (pkg/webhook: one unit for each network)."""
    wanted = Counter[str]()
    for one in selection.selected(pod.annotations, pod.namespace):
        definition = cluster.look(DEFINITION, one.name, one.namespace)
        if definition and owner_of(definition)[0] == SRIOV_NETWORK:
            wanted[definition.annotations[RESOURCE_NAME]] += 1
    if not wanted:
        return pod
    data: dict[str, Any] = copy.deepcopy(dict(pod.data))
    _ask_for(data["spec"], wanted)
    return manifests.make(data)


def described(pod: Pod, cluster: Cluster) -> Object:
    """Return the pod's Kubernetes object, with its owner's template."""
    given = pod.metadata
    if given.manifest:
        spec = {**given.manifest["spec"], "nodeName": pod.host.name}
        return manifests.make({**given.manifest, "spec": spec, "status": {"phase": "Running"}})
    labels, annotations, owners = dict(given.labels), dict(given.annotations), []
    containers: list[dict[str, Any]] = []
    if given.owner:
        kind, slash, name = given.owner.partition("/")
        if not slash:
            raise InputError(f"owner {given.owner!r} is not of the form Kind/name")
        owner = cluster.find(kind, name, given.namespace)
        template = owner.spec.get("template") or {}
        metadata = template.get("metadata") or {}
        labels = {**(metadata.get("labels") or {}), **labels}
        annotations = {**(metadata.get("annotations") or {}), **annotations}
        containers = copy.deepcopy((template.get("spec") or {}).get("containers") or [])
        version = owner.data["apiVersion"]
        owners.append({"apiVersion": version, "kind": kind, "name": name, "controller": True})
    if given.resources:
        containers[:1] = [_asking(containers[0] if containers else {"name": "main"}, given.resources)]
    return manifests.make(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": pod.name,
                "namespace": given.namespace,
                "uid": pod.uid,
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": owners,
            },
            "spec": {"nodeName": pod.host.name, **({"containers": containers} if containers else {})},
            "status": {"phase": "Running"},
        }
    )


def _asking(container: Mapping[str, Any], resources: Mapping[str, int]) -> dict[str, Any]:
    """Return the container with limits."""
    own = container.get("resources") or {}
    return {**container, "resources": {**own, "limits": {**(own.get("limits") or {}), **resources}}}


def injected(pod: Object, namespace: Object | None, configs: Sequence[Object]) -> Object:
    """Return the pod with the injected parts, or unchanged. InputError if no config matches the annotation."""
    wanted = asks(pod, namespace)
    if not wanted:
        return pod
    key, value = wanted
    chosen = sorted((one for one in configs if one.annotations.get(key) == value), key=_order)
    if not chosen:
        raise InputError(f"no SpiderMultusConfig has the annotation {key}: {value}")
    data: dict[str, Any] = copy.deepcopy(dict(pod.data))
    data["metadata"]["annotations"][NETWORKS] = ",".join(f"{one.namespace}/{one.name}" for one in chosen)
    resources = [spec.network.resource for spec in map(_spec, chosen) if spec.network]
    _ask_for(data["spec"], dict.fromkeys([name for name in resources if name], 1))
    return manifests.make(data)


def asks(pod: Object, namespace: Object | None) -> tuple[str, str] | None:
    """Return the annotation that counts: the pod's own or its namespace's, the one for RDMA first."""
    if pod.namespace in LEFT_ALONE:
        return None
    of_namespace = namespace.annotations if namespace else {}
    for key in (INJECT_RDMA, INJECT):
        if found := pod.annotations.get(key) or of_namespace.get(key):
            return key, found
    return None


def _spec(config: Object) -> MultusConfig:
    return MultusConfig.model_validate(config.spec)


def _order(config: Object) -> tuple[str, str]:
    """Return the sort key: the name of the NIC, or of its VFs' resource, so that net1 is the same NIC in all pods."""
    network = _spec(config).network
    return network.key if network else "", f"{config.namespace}/{config.name}"


def _ask_for(spec: dict[str, Any], resources: Mapping[str, int]) -> None:
    containers = spec.setdefault("containers", [{"name": "main"}]) if resources else spec.get("containers", [])
    limits = [(one.get("resources") or {}).get("limits") or {} for one in containers]
    for name, count in resources.items():
        if not any(known in of_one for of_one in limits for known in (name, *aliases(name))):
            first = containers[0].setdefault("resources", {})
            first["limits"] = {**(first.get("limits") or {}), name: count}
