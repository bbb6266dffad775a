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
POOL = {
    "apiVersion": "spiderpool.spidernet.io/v2beta1",
    "kind": "SpiderIPPool",
    "metadata": {"name": "p"},
    "spec": SPEC,
}
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
    cluster.apply(POOL)
    (tmp_path / "m.yaml").write_text(MANIFEST)
    cluster.apply("m.yaml")
    with Store(tmp_path / "cluster" / ADDRESSES) as store:
        store.put(IPPool.model_validate(SPEC).made("p"))
        store.allocate(Holder("net", "c1", "eth0", "ai", "web-1", "n1"), [["p"]], "lowest-free")

    def delete_objects(wanted: Any) -> Any:
        there = [cluster.find(*one) for one in wanted]
        staying = {str(one): "its addresses are in use" for one in cluster.delete_all(there)}
        return SimpleNamespace(objects=[str(one) for one in there if str(one) not in staying], waiting=staying)

    pods = SimpleNamespace(delete_objects=delete_objects)
    lab = SimpleNamespace(objects=cluster, pods=pods, nodes={})
    return SimpleNamespace(lab=lab, file=tmp_path / "cluster" / ADDRESSES)


def get(call: Any, resource: str, *names: str, **given: str) -> Listing:
    (found,) = objects.get(live.GetObjects(resources=[resource], names=list(names), **given), call)
    return found


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
    assert get(call, "Deployment", "web", namespace="ai")["objects"][0]["spec"] == {"replicas": 3}
    with pytest.raises(InputError, match="there is no Deployment/ai/wep") as said:
        get(call, "deploy", "wep", namespace="ai")
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


def deleted(call: Any, **given: Any) -> tuple[list[str], list[str], list[str]]:
    found = objects.delete(live.DeleteObjects(**given), call)
    return found["deleted"], found["staying"], found["failed"]


def test_objects_are_deleted_by_name_or_with_their_manifest(call):
    missing = "there is no Pod/default/web-1. Apply a Pod first."
    assert deleted(call, manifest=MANIFEST, file="m.yaml") == (["Deployment/ai/web"], [], [])
    assert deleted(call, resources=["pod"], names=["web-1"]) == ([], [], [missing])


def test_what_is_there_is_deleted_though_another_one_is_not(call):
    pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: web-1}\nspec: {containers: [{name: a}]}\n"
    missing = "there is no Pod/default/web-1. Apply a Pod first."
    assert deleted(call, manifest=MANIFEST + pod, file="m.yaml") == (["Deployment/ai/web"], [], [missing])


def test_a_pool_stays_until_its_addresses_are_free(call):
    reason = "SpiderIPPool/p: its addresses are in use"
    assert deleted(call, resources=["sp"], names=["p"]) == ([], [reason], [])
    assert get(call, "sp", "p")["objects"][0]["metadata"]["deletionTimestamp"]
    with pytest.raises(InputError, match="cannot update a terminating IPPool"):
        call.lab.objects.apply(
            {
                "apiVersion": "spiderpool.spidernet.io/v2beta1",
                "kind": "SpiderIPPool",
                "metadata": {"name": "p"},
                "spec": SPEC,
            }
        )
    with Store(call.file) as store:
        for lease in store.leases():
            store.give_back(lease.holder)
    assert get(call, "sp")["rows"] == []


@pytest.mark.parametrize(
    ("selector", "matching"),
    [
        ("app=web", True),
        ("app==web,tier!=db", True),
        ("tier in (db, front)", False),
        ("app in (db, web),!old", True),
        ("app notin (web)", False),
        ("old", False),
    ],
)
def test_a_selector_in_kubectls_words(selector, matching):
    assert objects.selected(selector).matches({"app": "web"}) is matching


@pytest.mark.parametrize("wrong", ["a=b=c", "=x", "a in b", "a in (b", ","])
def test_what_is_no_selector(wrong):
    with pytest.raises(InputError, match="is no selector of labels"):
        objects.selected(wrong)


def test_several_kinds_are_several_tables(call):
    found = objects.get(live.GetObjects(resources=["sp,deploy"]), call)
    assert [(one["kind"], len(one["rows"])) for one in found] == [("SpiderIPPool", 1), ("Deployment", 1)]
    assert [one["kind"] for one in objects.get(live.GetObjects(resources=["all"]), call)] == [*objects.ALL]


def test_a_deleted_pod_of_a_node_that_is_silent_is_terminating(call):
    metadata = {"name": "db-0", "deletionTimestamp": "2026-01-01T00:05:40Z"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n1"}}
    call.lab.objects.apply({**pod, "status": {"phase": "Running"}})
    assert get(call, "pods")["rows"] == [["default", "db-0", "Terminating", "0", "<none>", "n1", "<none>", "<none>"]]
