"""The node that a pod gets, and the reasons of those that it does not get."""

import math
from collections import Counter
from typing import Any

import pytest

from testbed.cni.objects import manifests
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.placement import Crowd, NodeView, evicting, labels_of, place, taints_of
from testbed.cni.objects.pod_spec import PodSpec

ZONE = "topology.kubernetes.io/zone"
GPU = {"key": "gpu", "value": "true", "effect": "NoSchedule"}
NODES = [
    NodeView("node1", {**labels_of("node1", None), ZONE: "a", "rails": "8"}),
    NodeView("node2", {**labels_of("node2", None), ZONE: "a"}, free=Counter({"rdma/hca": 1})),
    NodeView("node3", {**labels_of("node3", None), ZONE: "b"}, [GPU], Counter({"rdma/hca": 2})),
]
TAINT = "1 node(s) had untolerated taint {gpu: true}"
APP = {"labelSelector": {"matchLabels": {"app": "web"}}}


def pod(
    name: str = "p", labels: dict[str, str] | None = None, container: dict[str, Any] | None = None, **spec: Any
) -> Object:
    metadata = {"name": name, "labels": labels or {}}
    containers = [{"name": "main", **(container or {})}]
    return manifests.make(
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}
    )


def crowd(**there: list[Object]) -> Crowd:
    found = Crowd()
    for node, pods in there.items():
        for one in pods:
            found.add(node, one)
    return found


def required(kind: str, *terms: dict[str, Any]) -> dict[str, Any]:
    found: Any = list(terms) if kind != "nodeAffinity" else {"nodeSelectorTerms": list(terms)}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": found}}}


@pytest.mark.parametrize(
    ("wanted", "there", "node"),
    [
        (pod(), {}, "node1"),
        (pod(), {"node1": [pod("a")]}, "node2"),
        (pod(tolerations=[{"operator": "Exists"}]), {"node1": [pod("a")], "node2": [pod("b")]}, "node3"),
        (pod(nodeSelector={ZONE: "b"}, tolerations=[{"key": "gpu", "value": "true"}]), {}, "node3"),
        (pod(**required("nodeAffinity", {"matchExpressions": [{"key": "rails", "operator": "Gt", "values": ["4"]}]})),
         {"node1": [pod("a")]}, "node1"),
        (pod(**required("nodeAffinity", {"matchExpressions": [{"key": "rails", "operator": "DoesNotExist"}]})),
         {}, "node2"),
        (pod(container={"resources": {"limits": {"rdma/hca": 1, "cpu": "4"}}}), {}, "node2"),
        (pod(**required("podAffinity", {**APP, "topologyKey": ZONE})), {"node2": [pod("a", {"app": "web"})]}, "node1"),
        (pod(**required("podAntiAffinity", {**APP, "topologyKey": "kubernetes.io/hostname"})),
         {"node1": [pod("a", {"app": "web"})], "node2": [pod("b"), pod("c")]}, "node2"),
        (pod(labels={"app": "web"}, hostNetwork=True, container={"ports": [{"containerPort": 80}]}),
         {"node1": [pod("a", hostNetwork=True, container={"ports": [{"containerPort": 80}]})]}, "node2"),
    ],
)  # fmt: skip
def test_the_node(wanted, there, node):
    assert place(wanted, NODES, crowd(**there)) == (node, "")


def test_the_preferred_one_counts_before_few_pods():
    term = {"weight": 5, "preference": {"matchExpressions": [{"key": "rails", "operator": "Exists"}]}}
    wanted = pod(affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}})
    assert place(wanted, NODES, crowd(node1=[pod("a"), pod("b")])) == ("node1", "")


def test_a_pod_of_others_keeps_it_away():
    rule = required("podAntiAffinity", {**APP, "topologyKey": ZONE})
    assert place(pod(labels={"app": "web"}), NODES, crowd(node1=[pod("a", **rule)])) == (
        "",
        "0/3 nodes are available: 1 node(s) had untolerated taint {gpu: true}, "
        "2 node(s) didn't satisfy existing pods anti-affinity rules.",
    )


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        (pod(nodeSelector={"disk": "ssd"}), TAINT + ", "
         "2 node(s) didn't match Pod's node affinity/selector"),
        (pod(container={"resources": {"limits": {"nvidia.com/gpu": 8}}}), TAINT + ", "
         "2 Insufficient nvidia.com/gpu"),
        (pod(**required("podAffinity", {**APP, "topologyKey": ZONE})), TAINT + ", "
         "2 node(s) didn't match pod affinity rules"),
    ],
)  # fmt: skip
def test_the_reasons(wanted, reason):
    assert place(wanted, NODES, Crowd()) == ("", f"0/3 nodes are available: {reason}.")


def test_pods_are_spread_over_domains():
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", **APP}
    everywhere = {"topologySpreadConstraints": [spread], "tolerations": [{"operator": "Exists"}]}
    there = crowd(node1=[pod("a", {"app": "web"})])
    assert place(pod(labels={"app": "web"}, **everywhere), NODES, there)[0] == "node3"


def test_affinity_goes_by_the_labels_of_namespaces():
    there = Crowd({"ai": {"team": "a"}, "web": {"team": "b"}})
    for node, namespace in (("node1", "ai"), ("node2", "web")):
        one = pod("x", {"app": "web"})
        there.add(node, manifests.make({**one.data, "metadata": {**one.data["metadata"], "namespace": namespace}}))
    term = {"topologyKey": "kubernetes.io/hostname", **APP}

    def near(**by: Any) -> str:
        return place(pod(**required("podAffinity", {**term, **by})), NODES, there)[0]

    assert near() == ""
    assert near(namespaceSelector={"matchLabels": {"team": "b"}}) == "node2"
    assert near(namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "ai"}}) == "node1"
    assert near(namespaceSelector={}) == "node1", "an empty one is all namespaces"
    assert near(namespaces=["web"], namespaceSelector={"matchLabels": {"team": "c"}}) == "node2"


def test_a_taint_drives_pods_off_unless_they_tolerate_it_and_for_as_long():
    taints = [{"key": "a", "value": "1", "effect": "NoExecute"}, {"key": "b", "effect": "NoSchedule"}]

    def after(*tolerations: dict[str, Any]) -> float:
        return evicting(PodSpec.model_validate(pod(tolerations=list(tolerations)).spec), taints)[1]

    assert after() == 0
    assert after({"key": "a", "value": "2"}) == 0
    assert after({"key": "a", "value": "1"}) == math.inf
    assert after({"operator": "Exists", "tolerationSeconds": 60}) == 60
    assert evicting(PodSpec.model_validate(pod().spec), taints[1:]) == (None, math.inf)


def test_no_node_is_up():
    assert place(pod(), [], Crowd()) == ("", "no nodes available to schedule pods")


def test_a_cordoned_node():
    metadata, spec = {"name": "n"}, {"unschedulable": True}
    node = manifests.make({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})
    view = NodeView("n", labels_of("n", node), taints_of(node))
    assert place(pod(), [view], Crowd())[1] == "0/1 nodes are available: 1 node(s) were unschedulable."
    assert place(pod(tolerations=[{"operator": "Exists"}]), [view], Crowd())[0] == "n"
