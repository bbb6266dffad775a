"""Networks and resources that a webhook injects into pods."""

from typing import Any

import pytest

from testbed.cni.objects import manifests
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.multus import INJECT, INJECT_RDMA
from testbed.cni.runtime.pod_object import injected
from testbed.cni.spec.selection import NETWORKS
from testbed.errors import InputError

POOLS = {"ipv4": ["pool"]}


def config(name: str, value: str = "rdma", key: str = INJECT_RDMA, **spec: Any) -> Object:
    metadata = {"name": name, "namespace": "ai", "annotations": {key: value}}
    head = {"apiVersion": "spiderpool.spidernet.io/v2beta1", "kind": "SpiderMultusConfig", "metadata": metadata}
    return manifests.make({**head, "spec": spec})


def macvlan(name: str, master: str, resource: str = "", value: str = "rdma", key: str = INJECT_RDMA) -> Object:
    nic = {"master": [master], "rdmaResourceName": resource, "ippools": POOLS}
    return config(name, value, key, cniType="macvlan", macvlan=nic)


def pod(annotations: dict[str, str], namespace: str = "ai", **spec: Any) -> Object:
    metadata = {"name": "web", "namespace": namespace, "annotations": annotations}
    return manifests.make({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def namespace(annotations: dict[str, str]) -> Object:
    metadata = {"name": "ai", "annotations": annotations}
    return manifests.make({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


CONFIGS = [
    macvlan("a-rail2", "eth2", "x/rail2"),
    macvlan("b-rail1", "eth1", "x/rail1"),
    macvlan("other", "eth0", "x/other", "other"),
]


def limits(found: Object) -> list[dict[str, int]]:
    return [one.get("resources", {}).get("limits", {}) for one in found.spec["containers"]]


def test_a_pod_gets_all_networks_and_one_of_each_resource():
    found = injected(pod({INJECT_RDMA: "rdma", "note": "mine"}), None, CONFIGS)
    assert found.annotations == {INJECT_RDMA: "rdma", "note": "mine", NETWORKS: "ai/b-rail1,ai/a-rail2"}
    assert limits(found) == [{"x/rail1": 1, "x/rail2": 1}]


def test_networks_are_in_the_order_of_nics_and_vfs_of_resources():
    vf = config("z", cniType="sriov", sriov={"resourceName": "a/vf", "ippools": POOLS})
    bond = {"master": ["eth7", "eth8"], "bond": {"name": "bond0", "mode": 1}, "rdmaResourceName": "x/b"}
    bonded = config("y", cniType="ipvlan", ipvlan={**bond, "ippools": POOLS})
    found = injected(pod({INJECT_RDMA: "rdma"}), None, [*CONFIGS, bonded, vf])
    assert found.annotations[NETWORKS] == "ai/z,ai/y,ai/b-rail1,ai/a-rail2"


def test_what_a_container_has_already_is_not_asked_for_again():
    asking = {"name": "second", "resources": {"limits": {"x/rail1": 4}}}
    found = injected(pod({INJECT_RDMA: "rdma"}, containers=[{"name": "first"}, asking]), None, CONFIGS)
    assert limits(found) == [{"x/rail2": 1}, {"x/rail1": 4}]


def test_networks_that_the_pod_names_itself_are_replaced():
    found = injected(pod({INJECT_RDMA: "rdma", NETWORKS: "mine"}), None, CONFIGS)
    assert found.annotations[NETWORKS] == "ai/b-rail1,ai/a-rail2"


def test_the_annotation_may_be_the_namespace_s_and_the_pod_s_own_comes_first():
    assert injected(pod({}), namespace({INJECT_RDMA: "rdma"}), CONFIGS).annotations[NETWORKS].startswith("ai/b-rail1")
    found = injected(pod({INJECT_RDMA: "other"}), namespace({INJECT_RDMA: "rdma"}), CONFIGS)
    assert found.annotations[NETWORKS] == "ai/other"


def test_the_annotation_for_networks_needs_no_resource_and_comes_second():
    plain = macvlan("plain", "eth1", key=INJECT)
    found = injected(pod({INJECT: "rdma"}), None, [*CONFIGS, plain])
    assert found.annotations[NETWORKS] == "ai/plain"
    assert "containers" not in found.spec
    both = injected(pod({INJECT: "rdma", INJECT_RDMA: "other"}), None, [*CONFIGS, plain])
    assert both.annotations[NETWORKS] == "ai/other"


def test_pods_without_it_and_of_system_namespaces_stay_as_they_are():
    for one in (pod({"note": "mine"}), pod({INJECT_RDMA: "rdma"}, "kube-system")):
        assert injected(one, None, CONFIGS) is one


def test_a_value_that_no_config_has_is_refused():
    with pytest.raises(InputError, match=f"no SpiderMultusConfig has the annotation {INJECT_RDMA}: rmda"):
        injected(pod({INJECT_RDMA: "rmda"}), None, CONFIGS)
