"""The Kubernetes object of a pod, as an API server completes it before the start."""

import copy
import uuid
from collections.abc import Mapping
from typing import Any

from testbed.cni.objects import manifests
from testbed.cni.objects.inject import asks, injected
from testbed.cni.objects.lab_objects import Cluster
from testbed.cni.objects.manifests import Object
from testbed.cni.spec.selection import NETWORKS
from testbed.errors import InputError
from testbed.lab import Pod
from testbed.protocol import events


def admitted(pod: Pod, cluster: Cluster, container: str) -> Object:
    """Return the pod's Kubernetes object with the injected parts. InputError."""
    known = described(pod, cluster, container)
    namespace = cluster.look("Namespace", known.namespace)
    configs = cluster.all("SpiderMultusConfig") if asks(known, namespace) else []
    found = injected(known, namespace, configs)
    if found is not known:
        networks = found.annotations[NETWORKS]
        pod.context.emit(events.POD(networks=networks), pod.name, f"networks are injected: {networks}")
    return found


def uid(container: str) -> str:
    """Return a pod's UID, derived from its container's ID."""
    return str(uuid.UUID(container[-32:]))


def described(pod: Pod, cluster: Cluster, container: str) -> Object:
    """Return the pod's Kubernetes object, with its owner's template."""
    given = pod.metadata
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
                "uid": uid(container),
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
