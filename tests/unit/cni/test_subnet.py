"""Pools that follow the size of applications."""

import json
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from testbed.cni.ipam.address_store import ADDRESSES, Holder, Store
from testbed.cni.ipam.candidates import Asking, candidates, named, top_owner
from testbed.cni.objects import manifests
from testbed.cni.objects.autopools import pods, sized
from testbed.cni.objects.kinds import IPPool
from testbed.cni.objects.lab_objects import Cluster
from testbed.cni.objects.subnet import NUMBER, ONE, RECLAIM, SEVERAL, pool_name, ranges, settings
from testbed.errors import InputError

VERSION = "spiderpool.spidernet.io/v2beta1"
NAME = "auto4-web-eth0-7f9fa"


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def cluster(tmp_path: Path, events: list[str]) -> Cluster:
    made = Cluster(tmp_path / "cluster" / "o", tmp_path, lambda *event, **_: events.append(event[-1]))
    made.apply(subnet("rail1", "10.0.10.0/24", gateway="10.0.10.1", ips=["10.0.10.2-10.0.10.10"]))
    return made


def subnet(name: str, network: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": VERSION,
        "kind": "SpiderSubnet",
        "metadata": {"name": name},
        "spec": {"subnet": network} | spec,
    }


def application(
    kind: str = "Deployment", name: str = "web", more: dict[str, str] | None = None, status: Any = None, **spec: Any
) -> dict[str, Any]:
    annotations = {ONE: '{"ipv4": ["rail1"]}'} | (more or {})
    version = "batch/v1" if kind == "Job" else "apps/v1"
    template = {"metadata": {"annotations": annotations}}
    found = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": {"template": template, **spec}}
    return {**found, **({"status": status} if status else {})}


def ips(cluster: Cluster) -> dict[str, list[str]]:
    return {one["metadata"]["name"]: one["spec"]["ips"] for one in cluster.list("SpiderIPPool")}


def test_a_pool_follows_its_application(cluster, events):
    cluster.apply(application(replicas=2))
    (made,) = cluster.list("SpiderIPPool")
    assert made["metadata"]["name"] == NAME
    assert made["spec"]["ips"] == ["10.0.10.2-10.0.10.4"], "two and a spare one; the gateway is nobody's"
    assert (made["spec"]["subnet"], made["spec"]["gateway"]) == ("10.0.10.0/24", "10.0.10.1")
    assert made["spec"]["podAffinity"]["matchLabels"]["ipam.spidernet.io/app-name"] == "web"
    cluster.apply(application(replicas=4))
    assert ips(cluster) == {NAME: ["10.0.10.2-10.0.10.6"]}
    cluster.apply(application(replicas=0))
    assert ips(cluster) == {NAME: ["10.0.10.2"]}
    cluster.delete("Deployment", "web")
    assert ips(cluster) == {}
    assert events[-1] == f"SpiderIPPool/{NAME} is deleted"


def test_the_number_may_be_fixed_or_beyond_the_pods(cluster):
    cluster.apply(application(more={NUMBER: "5"}, replicas=2))
    assert ips(cluster) == {NAME: ["10.0.10.2-10.0.10.6"]}
    cluster.apply(application(more={NUMBER: "+0"}, replicas=2))
    assert ips(cluster) == {NAME: ["10.0.10.2-10.0.10.3"]}


def test_pools_of_one_subnet_share_no_address(cluster, events):
    metadata = {"name": "own"}
    spec = {"subnet": "10.0.10.0/24", "ips": ["10.0.10.2"]}
    cluster.apply({"apiVersion": VERSION, "kind": "SpiderIPPool", "metadata": metadata, "spec": spec})
    cluster.apply(application(replicas=3))
    cluster.apply(application(name="db", replicas=9))
    given = ips(cluster)
    assert given.pop("own") == ["10.0.10.2"]
    assert list(given.values()) == [["10.0.10.7-10.0.10.10"], ["10.0.10.3-10.0.10.6"]]
    assert events[-1] == "Deployment/default/db needs 10 addresses; SpiderSubnet/rail1 has 4 for it"


def test_applications_of_one_file_share_no_address(cluster, events, tmp_path):
    """Each gets what it wants, to the last address, and nothing is said about it."""
    both = [application(more={NUMBER: "4"}), application(name="db", more={NUMBER: "5"})]
    (tmp_path / "both.yaml").write_text("\n---\n".join(map(json.dumps, both)))
    cluster.apply("both.yaml")
    assert list(ips(cluster).values()) == [["10.0.10.6-10.0.10.10"], ["10.0.10.2-10.0.10.5"]]
    assert not any("needs" in event for event in events)


def test_an_application_that_asks_for_no_pool_has_none(cluster):
    cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "bare"}})
    cluster.apply(application(name="plain") | {"spec": {"template": {"metadata": {"labels": {"app": "plain"}}}}})
    assert ips(cluster) == {}


def test_an_address_that_a_pod_has_stays(cluster, tmp_path):
    cluster.apply(application(replicas=4))
    (made,) = cluster.list("SpiderIPPool")
    with Store(tmp_path / "cluster" / ADDRESSES) as store:
        store.put(IPPool.model_validate({**made["spec"], "ips": ["10.0.10.6"]}).made(NAME))
        store.allocate(Holder("net", "c", "eth0"), [[NAME]], "lowest-free")
    cluster.apply(application(replicas=1))
    assert ips(cluster) == {NAME: ["10.0.10.2", "10.0.10.6"]}
    cluster.delete("Deployment", "web")
    cluster.apply(application(name="db", replicas=7))
    assert list(ips(cluster).values()) == [["10.0.10.2-10.0.10.5", "10.0.10.7-10.0.10.10"]]


def test_a_pool_that_is_not_reclaimed_waits_for_the_next_one_of_its_name(cluster):
    keeps = application(more={RECLAIM: "false"}, replicas=2)
    cluster.apply(keeps)
    cluster.delete("Deployment", "web")
    assert ips(cluster) == {NAME: ["10.0.10.2-10.0.10.4"]}
    cluster.apply(application(name="db", replicas=0))
    cluster.apply(keeps)
    assert ips(cluster)[NAME] == ["10.0.10.2-10.0.10.4"]


def test_a_subnet_may_come_later_and_go_before(cluster, events):
    cluster.apply(application(more={ONE: '{"ipv4": ["rail2"]}'}))
    assert events[-1] == "Deployment/default/web gets no addresses: there is no SpiderSubnet/rail2"
    cluster.apply(subnet("rail2", "10.0.20.0/24", ips=["10.0.20.5-10.0.20.9"]))
    assert ips(cluster) == {NAME: ["10.0.20.5-10.0.20.6"]}
    cluster.delete("SpiderSubnet", "rail2")
    assert ips(cluster) == {NAME: ["10.0.20.5-10.0.20.6"]}


def test_interfaces_and_families_have_pools_each(cluster):
    cluster.apply(subnet("rail2", "fd00:20::/64", ips=["fd00:20::5-fd00:20::9"]))
    several = [{"interface": "net1", "ipv4": ["rail1", "ignored"]}, {"interface": "net2", "ipv6": ["rail2"]}]
    cluster.apply(application(more={SEVERAL: json.dumps(several), NUMBER: "2"}))
    assert [(name.rpartition("-")[0], given) for name, given in ips(cluster).items()] == [
        ("auto4-web-net1", ["10.0.10.2-10.0.10.3"]),
        ("auto6-web-net2", ["fd00:20::5-fd00:20::6"]),
    ]


def asking(interface: str, **metadata: Any) -> Asking:
    metadata = {"name": "web-1", "annotations": {ONE: '{"ipv4": ["rail1"]}'}, **metadata}
    pod = manifests.make({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
    return Asking(interface, "net", "node1", pod=pod, owner=top_owner(pod, lambda *_: None))


def test_a_pod_has_its_addresses_of_its_application_s_pool(cluster):
    cluster.apply(application())
    pools = {one["metadata"]["name"]: IPPool.model_validate(one["spec"]) for one in cluster.list("SpiderIPPool")}
    owners = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}]
    mine = asking("eth0", ownerReferences=owners)
    assert candidates(mine, named(mine, {4: ["other"]}), pools) == [[NAME]]
    other = asking("net1", ownerReferences=owners)
    configured = named(other, {4: ["other"]})
    assert configured
    assert configured.pools == {4: ["other"]}
    foreign = asking("eth0", ownerReferences=[{**owners[0], "name": "db"}])
    with pytest.raises(InputError, match="names pool auto4-db-eth0-"):
        candidates(foreign, named(foreign, {}), pools)
    with pytest.raises(InputError, match="is for the pods of an application, and the pod has no owner"):
        named(asking("eth0"), {})


@pytest.mark.parametrize(
    ("kind", "spec", "status", "count"),
    [
        ("Deployment", {}, None, 1),
        ("StatefulSet", {"replicas": 3}, None, 3),
        ("Job", {}, None, 1),
        ("Job", {"parallelism": 4}, None, 4),
        ("Job", {"parallelism": 4, "completions": 8}, None, 8),
        ("Job", {"completions": 0}, None, 1),
        ("DaemonSet", {}, {"desiredNumberScheduled": 16}, 16),
    ],
)
def test_the_size_of_applications(kind, spec, status, count):
    assert pods(manifests.make(application(kind, status=status, **spec))) == count


def test_what_yaml_takes_for_a_number_has_to_be_quoted(cluster):
    with pytest.raises(InputError, match=f"{NUMBER} must be a string, not the number 2; quote it"):
        cluster.apply(application(more={NUMBER: 2}))  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("more", "wrong"),
    [
        ({ONE: "{"}, "not valid JSON"),
        ({ONE: "{}"}, "it names no subnet"),
        ({ONE: '{"ipv4": [""]}'}, "ipv4[0]: String should have at least 1 character"),
        ({ONE: '{"ip4": ["rail1"]}'}, "ip4: Extra inputs are not permitted"),
        ({SEVERAL: "[]"}, "too few entries in it: 0, at least 1"),
        ({SEVERAL: '[{"ipv4": ["a"]}]'}, "[0].interface: Field required"),
        ({SEVERAL: '[{"interface": "a", "ipv4": ["a"]}, {"interface": "a", "ipv4": ["b"]}]'}, "an interface is given"),
        ({SEVERAL: '[{"interface": "a", "ipv4": ["a"]}, {"interface": "b", "ipv4": ["a"]}]'}, "a subnet is given twi"),
        ({NUMBER: "-1"}, "'-1' is not a number such as '5' or '+1'"),
        ({RECLAIM: "no"}, "'no' is neither 'true' nor 'false'"),
    ],
)
def test_annotations_that_are_wrong_are_refused_with_all_of_the_file(cluster, more, wrong):
    with pytest.raises(InputError) as said:
        cluster.apply(application(more=more))
    assert wrong in said.value.message
    assert said.value.where.startswith("Deployment/default/web: spec.template.metadata.annotations.ipam.spidernet.io/")
    assert cluster.list("Deployment") == []


def test_the_size_of_a_daemon_set_has_to_be_said(cluster):
    with pytest.raises(InputError, match="nothing has placed the pods of the DaemonSet"):
        cluster.apply(application("DaemonSet"))
    cluster.apply(application("DaemonSet", more={NUMBER: "3"}))
    assert list(ips(cluster).values()) == [["10.0.10.2-10.0.10.4"]]


def test_pieces():
    a, b, c, d = (ip_address(f"10.0.0.{n}") for n in (1, 2, 3, 5))
    assert ranges([a, b, c, d]) == ["10.0.0.1-10.0.0.3", "10.0.0.5"]
    assert sized([a, b, c], [d], {c}, 2) == [a, c]
    assert sized([a], [b, c], set(), 2) == [a, b]
    assert len(pool_name(4, "Deployment", "default", "x" * 253, "eth0")) == 253
    assert settings({}) is None
