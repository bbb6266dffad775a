"""The Kubernetes objects of a lab as a table, and whole."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.cni.ipam.address_store import ADDRESSES, Holder, Store
from testbed.cni.objects.kinds import IPPool
from testbed.cni.objects.lab_objects import Cluster
from testbed.cni.objects.manifests import kind_named
from testbed.errors import InputError
from testbed.executor.live import objects
from testbed.protocol import live
from testbed.protocol.live import Listing

SPEC = {"subnet": "10.0.10.0/24", "ips": ["10.0.10.50-10.0.10.59"], "nodeName": ["n1", "n2"]}
MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: ai}
spec: {replicas: 3}
---
apiVersion: v1
kind: Ingress
metadata: {name: web}
"""


@pytest.fixture
def call(tmp_path: Path) -> Any:
    cluster = Cluster(tmp_path / "cluster" / "o", tmp_path, lambda *_, **__: None)
    version = "spiderpool.spidernet.io/v2beta1"
    cluster.apply({"apiVersion": version, "kind": "SpiderIPPool", "metadata": {"name": "p"}, "spec": SPEC})
    (tmp_path / "m.yaml").write_text(MANIFEST)
    cluster.apply("m.yaml")
    with Store(tmp_path / "cluster" / ADDRESSES) as store:
        store.put(IPPool.model_validate(SPEC).made("p"))
        store.allocate(Holder("net", "c1", "eth0", "ai", "web-1", "n1"), [["p"]], "lowest-free")
    pods = SimpleNamespace(delete_object=cluster.delete)
    return SimpleNamespace(lab=SimpleNamespace(objects=cluster, pods=pods, nodes={}))


def get(call: Any, resource: str, name: str = "", namespace: str = "") -> Listing:
    return objects.get(live.GetObjects(resource=resource, name=name, namespace=namespace), call)


def test_a_pool_is_shown_with_the_addresses_that_pods_have(call):
    found = get(call, "sp")
    assert found["rows"] == [["p", "4", "10.0.10.0/24", "1", "10", "false", "false", "n1,n2"]]
    assert len(found["columns"]) + len(found["wide"]) == len(found["rows"][0])
    (whole,) = found["objects"]
    assert whole["status"]["allocatedIPs"] == '{"10.0.10.50": {"pod": "ai/web-1"}}'
    assert whole["spec"] == SPEC


def test_a_namespace_and_a_name_choose(call):
    assert get(call, "deploy")["rows"] == [["ai", "web", "0/3", "0", "0"]]
    assert get(call, "deployments", namespace="other")["rows"] == []
    assert get(call, "Deployment", "web", "ai")["objects"][0]["spec"] == {"replicas": 3}
    with pytest.raises(InputError, match="there is no Deployment/ai/wep") as said:
        get(call, "deploy", "wep", "ai")
    assert said.value.hint == "Did you mean web? There are: web."


@pytest.mark.parametrize(
    ("word", "kind"),
    [("po", "Pod"), ("pods", "Pod"), ("Pod", "Pod"), ("sts", "StatefulSet"), ("net-attach-def", None), ("smc", None)],
)
def test_kinds_have_kubectls_names(word: str, kind: str | None) -> None:
    assert kind_named(word) == (kind or {"smc": "SpiderMultusConfig"}.get(word, "NetworkAttachmentDefinition"))


def test_an_unknown_word_has_those_that_are_known():
    with pytest.raises(InputError, match="a lab has no objects of kind 'pvc'; there are: NetworkAttachmentDefinition"):
        kind_named("pvc")


def test_objects_are_deleted_by_name_or_with_their_manifest(call):
    assert objects.delete(live.DeleteObjects(manifest=MANIFEST, file="m.yaml"), call) == ["Deployment/ai/web"]
    assert objects.delete(live.DeleteObjects(resource="sp", name="p"), call) == ["SpiderIPPool/p"]
    with pytest.raises(InputError, match="there is no SpiderIPPool/p"):
        objects.delete(live.DeleteObjects(resource="sp", name="p"), call)
    with pytest.raises(InputError, match="there is no Pod/default/web-1"):
        objects.delete(live.DeleteObjects(resource="pod", name="web-1"), call)


def test_a_deleted_pod_of_a_node_that_is_silent_is_terminating(call):
    metadata = {"name": "db-0", "deletionTimestamp": "2026-01-01T00:05:40Z"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n1"}}
    call.lab.objects.apply({**pod, "status": {"phase": "Running"}})
    assert get(call, "pods")["rows"] == [["default", "db-0", "Terminating", "<none>", "n1", "<none>", "<none>"]]
