"""The environment of a pod's containers, as kubelet makes it: values, references to the pod and to other objects.

Source: Kubernetes 1.31, pkg/kubelet/kubelet_pods.go (makeEnvironmentVariables), pkg/fieldpath, and
third_party/forked/golang/expansion.
"""

import base64
import binascii
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.cni.objects.manifests import Object
from testbed.cni.objects.pod_spec import ContainerSpec, EnvSource, KeyRef
from testbed.errors import TestbedError

_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")
Look = Callable[[str, str, str], Object | None]
"""Returns the object of a kind, a name and a namespace."""


class ConfigError(TestbedError):
    """A container cannot be made: it names what is not there (CreateContainerConfigError)."""


@dataclass(frozen=True)
class Place:
    """Where a pod is: its addresses and those of its node."""

    node: str
    ips: Sequence[str] = ()
    host_ips: Sequence[str] = ()


def environment(pod: Object, container: ContainerSpec, place: Place, look: Look) -> dict[str, str]:
    """Return the variables of a container. ConfigError."""
    found: dict[str, str] = {}
    for source in container.envFrom or ():
        for kind, ref in (("ConfigMap", source.configMapRef), ("Secret", source.secretRef)):
            if ref and (there := _object(kind, ref.name, pod.namespace, look, optional=ref.optional)):
                found |= {f"{source.prefix}{key}": value for key, value in values(there).items()}
    for one in container.env or ():
        value = _of_source(one.valueFrom, pod, place, look) if one.valueFrom else expanded(one.value, found)
        if value is not None:
            found[one.name] = value
    return found


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with ``$(NAME)`` replaced; ``$$`` is a dollar, and what has no value stays as it is."""

    def replaced(match: re.Match[str]) -> str:
        return "$" if match[1] is None else variables.get(match[1], match[0])

    return _REFERENCE.sub(replaced, text)


def _of_source(source: EnvSource, pod: Object, place: Place, look: Look) -> str | None:
    if source.fieldRef:
        return _field(source.fieldRef.fieldPath, pod, place)
    if source.resourceFieldRef:
        return _resource(source.resourceFieldRef.resource, source.resourceFieldRef.containerName, pod)
    for kind, ref in (("ConfigMap", source.configMapKeyRef), ("Secret", source.secretKeyRef)):
        if ref:
            return _key(kind, ref, pod.namespace, look)
    return None


def _key(kind: str, ref: KeyRef, namespace: str, look: Look) -> str | None:
    there = _object(kind, ref.name, namespace, look, optional=ref.optional)
    found = values(there) if there else {}
    if ref.key not in found and not ref.optional:
        raise ConfigError(f"couldn't find key {ref.key} in {kind} {namespace}/{ref.name}")
    return found.get(ref.key)


def _object(kind: str, name: str, namespace: str, look: Look, *, optional: bool) -> Object | None:
    there = look(kind, name, namespace)
    if there is None and not optional:
        raise ConfigError(f'{kind.lower()} "{name}" not found')
    return there


def contents(one: Object) -> dict[str, bytes]:
    """Return what a ConfigMap or a Secret has, by its keys."""
    data: Mapping[str, Any] = one.data.get("data") or {}
    if one.kind == "Secret":
        plain: Mapping[str, Any] = one.data.get("stringData") or {}
        of_data = {key: _decoded(str(value)) for key, value in data.items()}
        return {**of_data, **{key: str(value).encode() for key, value in plain.items()}}
    binary: Mapping[str, Any] = one.data.get("binaryData") or {}
    texts = {key: str(value).encode() for key, value in data.items()}
    return {**texts, **{key: _decoded(str(value)) for key, value in binary.items()}}


def values(one: Object) -> dict[str, str]:
    """Return the texts of a ConfigMap or a Secret, by their keys."""
    binary: Mapping[str, Any] = one.data.get("binaryData") or {}
    return {key: value.decode(errors="replace") for key, value in contents(one).items() if key not in binary}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""


def _field(path: str, pod: Object, place: Place) -> str:
    if match := _SUBSCRIPT.fullmatch(path):
        return (pod.labels if match[1] == "labels" else pod.annotations).get(match[2], "")
    first, first_host = (next(iter(ips), "") for ips in (place.ips, place.host_ips))
    known = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": str(pod.data["metadata"].get("uid", "")),
        "spec.nodeName": place.node,
        "spec.serviceAccountName": str(pod.spec.get("serviceAccountName", "default")),
        "status.podIP": first,
        "status.podIPs": ",".join(place.ips),
        "status.hostIP": first_host,
        "status.hostIPs": ",".join(place.host_ips),
    }
    if path not in known:
        raise ConfigError(f"unsupported fieldPath: {path}")
    return known[path]


def _resource(name: str, container: str, pod: Object) -> str:
    """Return a request or a limit as it is written: kubelet's division by a divisor is not made."""
    group, _, resource = name.partition(".")
    for one in pod.spec.get("containers") or ():
        if container in ("", one.get("name")):
            return str(((one.get("resources") or {}).get(group) or {}).get(resource, "0"))
    return "0"
