"""Which pools a pod may have addresses of."""

import json
from dataclasses import replace
from typing import Any

import pytest

from testbed.cni.ipam import candidates as module
from testbed.cni.ipam.candidates import Asking, Named
from testbed.cni.objects import manifests
from testbed.cni.objects.kinds import IPPool
from testbed.cni.objects.manifests import Object
from testbed.errors import InputError

CONFIGURED = {4: ["conf"], 6: []}
NETWORKS = "k8s.v1.cni.cncf.io/networks"


OWNER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "trainer"}


def pod(labels: dict[str, str] | None = None, **annotations: Any) -> Object:
    """`annotations` are Spiderpool's, without their prefix and with `_` for `-`."""
    texts = {f"ipam.spidernet.io/{key.replace('_', '-')}": json.dumps(value) for key, value in annotations.items()}
    metadata = {"name": "a", "namespace": "ai", "labels": labels or {}, "ownerReferences": [OWNER]}
    return manifests.make({"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "annotations": texts}})


def namespace(**annotations: Any) -> Object:
    texts = {f"ipam.spidernet.io/{key.replace('_', '-')}": json.dumps(value) for key, value in annotations.items()}
    metadata = {"name": "ai", "labels": {"team": "llm"}, "annotations": texts}
    return manifests.make({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


ASKING = Asking("net1", "rail1", "node1", {"rail": "1"}, pod({"app": "trainer"}), namespace(), owner=OWNER)


def named(asked: Asking) -> Any:
    found = module.named(asked, CONFIGURED)
    return found and {family: names for family, names in found.pools.items() if names}


def test_the_pods_annotation_comes_before_its_namespaces_and_that_before_the_configuration():
    assert named(ASKING) == {4: ["conf"]}
    asked = replace(ASKING, namespace=namespace(default_ipv4_ippool=["ns"]))
    assert named(asked) == {4: ["ns"]}
    asked = replace(asked, pod=pod(ippool={"ipv4": ["own"], "ipv6": ["own6"]}))
    assert named(asked) == {4: ["own"], 6: ["own6"]}
    several = [{"interface": "eth0", "ipv4": ["other"]}, {"interface": "net1", "ipv4": ["mine"]}]
    asked = replace(asked, pod=pod(ippool={"ipv4": ["own"]}, ippools=several))
    assert named(asked) == {4: ["mine"]}
    with pytest.raises(InputError, match="interface net2 must be specified"):
        named(replace(asked, interface="net2"))
    assert module.named(ASKING, {4: [], 6: []}) is None


@pytest.mark.parametrize(
    ("annotation", "wrong", "place"),
    [
        ({"ippool": ["a"]}, "it must be a mapping, not a list", "1:1"),
        ({"ippool": {"ipv4": "a"}}, "ipv4 must be a list, not the string 'a'", "1:10"),
    ],
)
def test_an_annotation_that_is_wrong_is_named(annotation, wrong, place):
    with pytest.raises(InputError) as said:
        named(replace(ASKING, pod=pod(**annotation)))
    assert said.value.message.startswith(wrong)
    assert said.value.where == f"annotation ipam.spidernet.io/{next(iter(annotation))}:{place}"


@pytest.mark.parametrize(
    ("entries", "wrong"),
    [
        ([{"interface": "net1", "ipv4": ["a"]}, {"interface": "net1", "ipv4": ["b"]}], "duplicate interface net1"),
        ([{"interface": "net1", "ipv4": ["a"]}, {"ipv4": ["b"]}], "NIC should be either all specified or all unspec"),
        ([{"interface": "eth0", "ipv4": ["a"]}], "interface net1 must be specified"),
        ([{"ipv4": ["a"]}], "interface net1 must be specified"),
        ([], "too few entries in it: 0, at least 1"),
    ],
)
def test_entries_of_interfaces_that_do_not_fit_together(entries, wrong):
    with pytest.raises(InputError, match=wrong):
        named(replace(ASKING, pod=pod(ippools=entries), number=1))


def test_entries_without_interfaces_are_in_their_order():
    asked = replace(ASKING, pod=pod(ippools=[{"ipv4": ["a"]}, {"ipv4": ["b"], "cleangateway": True}]))
    assert [named(replace(asked, number=number)) for number in (0, 1)] == [{4: ["a"]}, {4: ["b"]}]


def test_the_node_s_name_is_nearer_than_its_labels_and_so_is_the_namespace_s():
    by_label, by_name = pool(nodeAffinity={"matchLabels": {"rail": "1"}}), pool(nodeName=["node1"])
    assert usable(a=by_label, b=by_name) == [["b", "a"]]
    of_label, of_name = pool(namespaceAffinity={"matchLabels": {"team": "llm"}}), pool(namespaceName=["ai"])
    assert usable(a=of_label, b=of_name, c=by_label) == [["c", "b", "a"]]


def test_a_network_without_a_namespace_is_spiderpools():
    asked = replace(
        ASKING,
        network="mv",
        pod=manifests.make(
            {**pod().data, "metadata": {**pod().data["metadata"], "annotations": {NETWORKS: "spiderpool/mv"}}}
        ),
    )
    assert usable(asked, a=pool(multusName=["mv"])) == [["a"]]
    other = {**pod().data["metadata"], "annotations": {NETWORKS: "mv"}}
    asked = replace(asked, pod=manifests.make({**pod().data, "metadata": other}))
    with pytest.raises(InputError, match="is not for network ai/mv"):
        usable(asked, a=pool(multusName=["mv"]))


def test_a_pool_is_named_once():
    with pytest.raises(InputError, match="a test names pool a twice"):
        usable(wanted=Named({4: ["a", "a"]}, "a test"), a=pool())


def test_routes_of_a_pod_have_a_subnet_and_an_address_of_one_family():
    assert (
        len(module.routes_of('[{"dst": "10.0.0.0/16", "gw": "10.6.0.1"}, {"dst": "fd00::/64", "gw": "fd01::1"}]')) == 2
    )
    for dst, gw in (("10.0.0.0", "10.6.0.1"), ("10.0.0.0/16", "fd01::1"), ("x", "10.6.0.1")):
        with pytest.raises(InputError, match="invalid route format"):
            module.routes_of(json.dumps([{"dst": dst, "gw": gw}]))


def pool(**keys: Any) -> IPPool:
    return IPPool.model_validate({"subnet": "10.0.10.0/24", **keys})


def usable(asked: Asking = ASKING, wanted: Named | None = None, **pools: IPPool) -> list[list[str]]:
    return module.candidates(asked, wanted or Named({4: list(pools)}, "a test"), pools)


LABELS = {"matchLabels": {"x": "y"}}


@pytest.mark.parametrize(
    ("fits", "does_not", "reason"),
    [
        ({}, {"disable": True}, "is disabled"),
        ({}, {"subnet": "fd00::/64"}, "is IPv6"),
        ({"nodeName": ["node1"]}, {"nodeName": ["node2"]}, "is not for node node1"),
        ({"nodeAffinity": {"matchLabels": {"rail": "1"}}}, {"nodeAffinity": LABELS}, "is not for node node1"),
        ({"nodeName": ["node1"], "nodeAffinity": LABELS}, {"nodeName": ["a"], "nodeAffinity": {}}, "is not for node"),
        ({"namespaceName": ["ai"]}, {"namespaceName": ["default"]}, "is not for namespace ai"),
        ({"namespaceAffinity": {"matchLabels": {"team": "llm"}}}, {"namespaceAffinity": LABELS}, "is not for namesp"),
        ({"podAffinity": {"matchLabels": {"app": "trainer"}}}, {"podAffinity": LABELS}, "is not for pods with its"),
        (
            {"podAffinity": {"matchLabels": {"ipam.spidernet.io/app-name": "trainer"}}},
            {"podAffinity": {"matchLabels": {"ipam.spidernet.io/app-kind": "StatefulSet"}}},
            "is not for pods",
        ),
        ({"multusName": ["rail1"]}, {"multusName": ["ai/rail2"]}, "is not for network spiderpool/rail1"),
    ],
)
def test_a_pools_affinities(fits, does_not, reason):
    assert usable(a=pool(**does_not), b=pool(**fits)) == [["b"]]
    with pytest.raises(InputError, match=f"no IPv4 pool may be used: a {reason}"):
        usable(a=pool(**does_not))


def test_the_definition_is_the_one_of_the_pods_annotation():
    asked = replace(
        ASKING,
        pod=manifests.make(
            {**pod().data, "metadata": {**pod().data["metadata"], "annotations": {NETWORKS: "net/rail1"}}}
        ),
    )
    assert usable(asked, a=pool(multusName=["net/rail1"]))
    with pytest.raises(InputError, match="is not for network net/rail1"):
        usable(asked, a=pool(multusName=["ai/rail1"]))


def test_the_pool_closest_to_the_pod_comes_first_and_then_their_order():
    given = {"multusName": ["rail1"]}, {"namespaceName": ["ai"]}, {"nodeName": ["node1"]}, {"podAffinity": {}}
    network, namespace, node, of_pod = (pool(**keys) for keys in given)
    assert usable(a=pool(), b=network, c=namespace, d=node, e=of_pod, f=pool()) == [["e", "d", "c", "b", "a", "f"]]


def test_a_pool_for_the_pod_comes_before_one_for_all_the_rest():
    rest = pool(multusName=["rail1"], namespaceName=["ai"], nodeName=["node1"])
    assert usable(a=rest, b=pool(podAffinity={})) == [["b", "a"]]


def test_each_family_has_its_pools_and_a_pattern_names_several():
    pools = {"a-1": pool(), "a-2": pool(), "b6": pool(subnet="fd00::/64")}
    wanted = Named({4: ["a-*"], 6: ["b6"]}, "the annotation x")
    assert usable(wanted=wanted, **pools) == [["a-1", "a-2"], ["b6"]]
    with pytest.raises(InputError, match="the annotation x names pool b-6, which does not exist") as said:
        usable(wanted=Named({4: ["b-6"]}, "the annotation x"), **pools)
    assert said.value.hint == "Did you mean b6? Pools: a-1, a-2, b6."


def test_without_a_name_it_is_the_clusters_default():
    pools = {"a": pool(), "b": pool(default=True), "c": pool(default=True, subnet="fd00::/64")}
    assert module.candidates(ASKING, None, pools) == [["b"], ["c"]]
    with pytest.raises(InputError, match="nothing names a pool for it, and the cluster has no default pool"):
        module.candidates(ASKING, None, {"a": pool()})
