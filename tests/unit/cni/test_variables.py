"""The environment of a pod's first container."""

from typing import Any

import pytest

from testbed.cni.objects import manifests
from testbed.cni.objects.pod_spec import ContainerSpec
from testbed.cni.objects.variables import ConfigError, Place, environment, expanded

METADATA = {"name": "web-0", "namespace": "ai", "uid": "u1", "labels": {"app": "web"}, "annotations": {"a/b": "c"}}
PLACE = Place("node1", ["10.0.0.1", "fd00::1"], ["10.9.0.1"])
OBJECTS = {
    ("ConfigMap", "c"): {"data": {"A": "1", "B": "2"}},
    ("Secret", "s"): {"data": {"KEY": "c2VjcmV0"}, "stringData": {"PLAIN": "x"}},
}


def look(kind: str, name: str, namespace: str) -> manifests.Object | None:
    found = OBJECTS.get((kind, name)) if namespace == "ai" else None
    return found and manifests.Object(kind, name, namespace, found)


def made(**container: Any) -> dict[str, str]:
    spec = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 8}}, **container}]}
    pod = manifests.make({"apiVersion": "v1", "kind": "Pod", "metadata": METADATA, "spec": spec})
    return environment(pod, ContainerSpec.model_validate(spec["containers"][0]), PLACE, look)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "web-0"),
        ("metadata.namespace", "ai"),
        ("metadata.uid", "u1"),
        ("metadata.labels['app']", "web"),
        ("metadata.annotations['a/b']", "c"),
        ("spec.nodeName", "node1"),
        ("status.podIP", "10.0.0.1"),
        ("status.podIPs", "10.0.0.1,fd00::1"),
        ("status.hostIP", "10.9.0.1"),
        ("spec.serviceAccountName", "default"),
    ],
)
def test_a_field_of_the_pod(path, value):
    assert made(env=[{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}]) == {"X": value}


def test_references_are_to_variables_before_and_a_dollar_is_two():
    env = [{"name": "A", "value": "a"}, {"name": "B", "value": "$(A)-$(C)-$$(A)-$5"}, {"name": "C", "value": "c"}]
    assert made(env=env) == {"A": "a", "B": "a-$(C)-$(A)-$5", "C": "c"}
    assert expanded("$(A)$(", {"A": "1"}) == "1$("


def test_config_maps_and_secrets_give_all_or_one_of_their_values():
    env_from = [{"prefix": "P_", "configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}]
    one = {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "B"}}}
    assert made(envFrom=env_from, env=[one]) == {"P_A": "1", "P_B": "2", "KEY": "secret", "PLAIN": "x", "A": "2"}


def test_what_is_not_there_is_left_out_only_if_it_is_optional():
    optional = {"configMapKeyRef": {"name": "c", "key": "Z", "optional": True}}
    assert (
        made(env=[{"name": "A", "valueFrom": optional}], envFrom=[{"secretRef": {"name": "z", "optional": True}}]) == {}
    )
    with pytest.raises(ConfigError, match="couldn't find key Z in ConfigMap ai/c"):
        made(env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "Z"}}}])
    with pytest.raises(ConfigError, match='secret "z" not found'):
        made(envFrom=[{"secretRef": {"name": "z"}}])


def test_a_resource_of_the_container():
    wanted = {"resourceFieldRef": {"resource": "limits.nvidia.com/gpu"}}
    assert made(env=[{"name": "N", "valueFrom": wanted}]) == {"N": "8"}
