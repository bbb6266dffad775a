"""Pods of one workload in few domains of the fabric, and nodes by what is measured there."""

from typing import Any

import pytest

from testbed.cni.objects import gangs, manifests, telemetry
from testbed.cni.objects.gangs import Wish, assigned, wish_of
from testbed.cni.objects.placement import NodeView
from testbed.errors import InputError

SPINE, LEAF, HOST = "network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf", "kubernetes.io/hostname"
TREE = {"pod1": {"leaf1": ["n1", "n2"], "leaf2": ["n3", "n4"]}, "pod2": {"leaf1": ["n5", "n6"]}}
"""The leaves of two pods may have one name."""
NODES = [
    NodeView(node, {SPINE: spine, LEAF: leaf, HOST: node})
    for spine, leaves in TREE.items()
    for leaf, nodes in leaves.items()
    for node in nodes
]


def wish(level: str, required: bool = True) -> Wish:
    return Wish(level, required, "default", [SPINE, LEAF, HOST])


def capacity(*each: int) -> dict[str, int]:
    return {node.name: room for node, room in zip(NODES, each, strict=True)}


@pytest.mark.parametrize(
    ("asked", "room", "count", "found"),
    [
        (wish(LEAF), (2, 2, 1, 1, 2, 2), 2, ["n3", "n4"]),  # the leaf with the least room that suffices
        (wish(LEAF), (2, 2, 1, 1, 2, 2), 3, ["n1", "n1", "n2"]),
        (wish(LEAF), (2, 2, 2, 1, 2, 1), 3, ["n3", "n3", "n4"]),  # of equal ones the first
        (wish(HOST), (2, 2, 1, 1, 4, 3), 3, ["n6", "n6", "n6"]),
        (wish(SPINE), (1, 1, 1, 1, 1, 1), 3, ["n1", "n2", "n3"]),
        (wish(LEAF, required=False), (1, 1, 1, 1, 1, 1), 3, ["n1", "n2", "n3"]),  # the pod, as no leaf suffices
        (wish(LEAF, required=False), (1, 1, 1, 1, 1, 1), 5, ["n1", "n2", "n3", "n4", "n5"]),
        (wish("", required=False), (3, 3, 1, 1, 2, 3), 2, ["n5", "n5"]),  # anywhere: the least room that takes all
        (wish("", required=False), (3, 3, 1, 1, 2, 3), 5, ["n3", "n4", "n5", "n5", "n1"]),
    ],
)
def test_the_nodes_of_a_gang(asked, room, count, found):
    assert assigned(asked, NODES, capacity(*room), count) == (found, "")


@pytest.mark.parametrize(
    ("asked", "room", "count", "why"),
    [
        (wish(LEAF), (1, 1, 1, 1, 1, 1), 3, 'topology "default" allows to fit only 2 out of 3 pod(s)'),
        (wish(LEAF), (0,) * 6, 3, 'topology "default" doesn\'t allow to fit any of 3 pod(s)'),
        (wish(LEAF, required=False), (1,) * 6, 7, 'topology "default" allows to fit only 6 out of 7 pod(s)'),
        (wish("rack"), (1,) * 6, 1, 'no requested topology level: rack (topology "default": it has no such level)'),
    ],
)
def test_why_a_gang_has_no_nodes(asked, room, count, why):
    assert assigned(asked, NODES, capacity(*room), count) == ([], why)


def test_a_pod_that_is_replaced_stays_in_the_domain_of_the_others():
    room = capacity(1, 0, 4, 4, 4, 4)
    assert assigned(wish(LEAF), NODES, room, 1, there=["n2"]) == (["n1"], "")
    assert assigned(wish(LEAF), NODES, capacity(0, 0, 4, 4, 4, 4), 1, there=["n2"])[0] == []
    assert assigned(wish(LEAF, required=False), NODES, capacity(0, 0, 4, 4, 4, 4), 1, there=["n2"])[0] == ["n3"]


def pod(**annotations: str) -> manifests.Object:
    metadata = {"name": "a", "annotations": annotations}
    return manifests.make({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}})


def test_what_annotations_say():
    levels = {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": HOST}]}
    topology = manifests.make(
        {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Topology", "metadata": {"name": "dc"}, "spec": levels}
    )
    assert wish_of(pod(), [topology]) is None
    assert wish_of(pod(**{gangs.REQUIRED: "rack"}), [topology]) == Wish("rack", True, "dc", ["rack", HOST])
    assert wish_of(pod(**{gangs.PREFERRED: LEAF}), []) == Wish(LEAF, False, "default", list(gangs.LEVELS))
    assert wish_of(pod(**{gangs.UNCONSTRAINED: "true"}), []) == Wish("", False, "default", list(gangs.LEVELS))


@pytest.mark.parametrize(
    ("annotations", "wrong"),
    [
        ({gangs.REQUIRED: LEAF, gangs.PREFERRED: LEAF}, "must not contain more than one topology annotation"),
        ({gangs.REQUIRED: "not a label!!"}, "it is no name of a label"),
        ({gangs.UNCONSTRAINED: "maybe"}, "must be boolean"),
        ({gangs.REQUIRED: LEAF, gangs.SLICES[1]: "2"}, "podset-slice-size is not supported"),
    ],
)
def test_what_kueues_webhook_refuses(annotations, wrong):
    with pytest.raises(InputError, match=wrong):
        gangs.check(annotations)
    gangs.check({gangs.UNCONSTRAINED: "false"})
    assert wish_of(pod(**{gangs.UNCONSTRAINED: "false"}), []) is None


UP, OWN = "leaf_uplink_transmit_bytes_per_second", "node_network_transmit_bytes_per_second"


def policy(**strategies: Any) -> telemetry.PolicySpec:
    found = telemetry.PolicySpec.model_validate({"strategies": strategies})
    found.check(manifests.Metadata(name="p"))
    return found


def rule(metric: str, operator: str = "GreaterThan", target: int = 1000) -> dict[str, Any]:
    return {"metricname": metric, "operator": operator, "target": target}


@pytest.mark.parametrize(
    ("strategy", "metrics", "left_out"),
    [
        ({"rules": [rule(UP)]}, {UP: 1001.0}, True),
        ({"rules": [rule(UP)]}, {UP: 1000.0}, False),
        ({"rules": [rule(UP)]}, {}, False),
        ({"rules": [rule(UP, "LessThan")]}, {UP: 1.0}, True),
        ({"rules": [rule(UP), rule(OWN)]}, {UP: 0.0, OWN: 2000.0}, True),
        ({"rules": [rule(UP), rule(OWN)], "logicalOperator": "allOf"}, {UP: 0.0, OWN: 2000.0}, False),
    ],
)
def test_a_node_is_left_out_by_what_is_measured(strategy, metrics, left_out):
    assert bool(telemetry.obstacle(policy(dontschedule=strategy), metrics)) is left_out


def test_nodes_are_ordered_by_a_metric():
    nodes = {"a": {UP: 5.0}, "b": {UP: 1.0}, "c": {}, "d": {UP: 3.0}}
    assert telemetry.scores(policy(scheduleonmetric={"rules": [rule(UP, "LessThan")]}), nodes) == {
        "b": 10,
        "d": 9,
        "a": 8,
    }
    assert telemetry.scores(policy(scheduleonmetric={"rules": [rule(UP)]}), nodes) == {"a": 10, "d": 9, "b": 8}
    assert telemetry.scores(policy(dontschedule={"rules": [rule(UP)]}), nodes) == {}


def test_a_metric_that_nobody_measures_is_refused():
    with pytest.raises(InputError, match="a lab measures no node_temperature"):
        policy(dontschedule={"rules": [rule("node_temperature")]})


def test_hostnames_are_the_lowest_level_of_a_topology():
    levels = [{"nodeLabel": HOST}, {"nodeLabel": "rack"}]
    with pytest.raises(InputError, match="can only be used at the lowest level"):
        telemetry.TopologySpec.model_validate({"levels": levels}).check(manifests.Metadata(name="t"))
