"""Addresses without a pod."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from testbed.cni.ipam import pool as pools
from testbed.cni.ipam import reclaim
from testbed.cni.ipam.address_store import Holder
from testbed.cni.ipam.address_store import Store as Addresses
from testbed.cni.objects import manifests
from testbed.cni.objects.database import Store as Objects

WEB = Holder("rdma", "c1", "eth0", "ai", "web-0", "node1", "u1")


def made(kind: str, name: str, version: str = "v1", **parts: Any) -> manifests.Object:
    metadata = {"name": name, "uid": "u1", **parts.pop("metadata", {})}
    if kind in ("Pod", "StatefulSet"):
        metadata["namespace"] = "ai"
    return manifests.make({"apiVersion": version, "kind": kind, "metadata": metadata, **parts})


@dataclass
class Cluster:
    addresses: Addresses
    objects: Objects
    since: dict[Holder, float] = field(default_factory=dict)
    ready: Callable[[str], bool] = lambda _: True

    def reasons(self, grace: float = 0) -> list[str]:
        found = reclaim.look(self.addresses, self.objects, self.since, grace, self.ready)
        return [f"{one.lease.holder.pod}: {one.reason}" for one in found]

    def add(self, holder: Holder = WEB, fixed: bool = False) -> int:
        (lease,) = self.addresses.allocate(holder, [["p"]], "lowest-free", fixed=fixed)
        return lease.address.packed[-1]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Addresses(tmp_path / "addresses") as addresses, Objects(tmp_path / "objects") as objects:
        addresses.put(pools.make("p", "10.0.10.0/24", ["10.0.10.1-10.0.10.4"]))
        yield Cluster(addresses, objects)


def test_an_address_whose_pod_is_there_stays(cluster):
    cluster.add()
    cluster.objects.put([made("Pod", "web-0", status={"phase": "Running"})])
    assert cluster.reasons() == []


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ([], "its pod is gone"),
        ([made("Pod", "web-0", metadata={"uid": "u2"})], "its pod is another one now"),
        ([made("Pod", "web-0", status={"phase": "Succeeded"})], "its pod has succeeded"),
        ([made("Pod", "web-0", status={"phase": "Failed", "reason": "Evicted"})], "its pod has failed"),
        (
            [
                made("Pod", "web-0", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
                made("Node", "node1", status={"conditions": [{"type": "Ready", "status": "Unknown"}]}),
            ],
            "its pod is terminating, and node1 is not ready",
        ),
    ],
)
def test_an_address_without_a_pod_is_given_back(cluster, objects, reason):
    assert cluster.add() == 1
    cluster.objects.put(objects)
    assert cluster.reasons() == [f"web-0: {reason}"]
    assert cluster.add(replace(WEB, container="c2")) == 1


def test_a_pod_that_terminates_on_a_node_that_is_ready_is_its_kubelets(cluster):
    cluster.add()
    ready = {"conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}]}
    cluster.objects.put(
        [made("Pod", "web-0", metadata={"deletionTimestamp": "x"}), made("Node", "node1", status=ready)]
    )
    assert cluster.reasons() == []


def test_a_pod_that_terminates_on_a_node_that_is_silent_loses_its_address_unless_a_set_wants_it(cluster):
    """EnableGCStatelessTerminatingPodOnNotReadyNode of Spiderpool."""
    cluster.add()
    cluster.objects.put([made("Pod", "web-0", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})])
    cluster.ready = lambda name: name != "node1"
    assert cluster.reasons(grace=1000) == []
    cluster.objects.put([made("StatefulSet", "web", "apps/v1", spec={"replicas": 1})])
    assert cluster.reasons() == []
    cluster.objects.delete("StatefulSet", "web", "ai")
    assert cluster.reasons() == ["web-0: its pod is terminating, and node1 is not ready"]


def test_the_grace_begins_when_the_pod_is_first_missed_and_anew_when_it_was_there(cluster, monkeypatch):
    now = 100.0
    monkeypatch.setattr(reclaim.time, "monotonic", lambda: now)
    cluster.add()
    assert cluster.reasons(30) == []
    now = 129.0
    assert cluster.reasons(30) == []
    cluster.objects.put([made("Pod", "web-0")])
    assert cluster.reasons(30) == []
    cluster.objects.delete("Pod", "web-0", "ai")
    now = 131.0
    assert cluster.reasons(30) == []
    now = 161.0
    assert cluster.reasons(30) == ["web-0: its pod is gone"]


def test_a_holder_that_is_no_pod_is_left_to_gc(cluster):
    cluster.add(Holder("rdma", "c1", "eth0"))
    assert cluster.reasons() == []


def test_a_stateful_pod_keeps_its_address_for_as_long_as_it_is_wanted(cluster):
    cluster.objects.put([made("StatefulSet", "web", "apps/v1", spec={"replicas": 1})])
    assert cluster.add() == 1
    cluster.addresses.keep(WEB)
    assert cluster.add(replace(WEB, container="c2", pod="other")) == 2
    assert cluster.reasons() == ["other: its pod is gone"]
    again = replace(WEB, container="c3", node="node2")
    assert cluster.add(again, fixed=True) == 1
    assert [lease.holder.node for lease in cluster.addresses.leases()] == ["node2"]
    cluster.objects.put([made("StatefulSet", "web", "apps/v1", spec={"replicas": 0})])
    assert cluster.reasons() == ["web-0: its pod is gone"]
    assert cluster.addresses.leases() == []


def test_only_names_that_a_stateful_set_gives_are_wanted_again(cluster):
    for name in ("web", "web-", "web-0-x", "0"):
        assert not reclaim.is_wanted_again(replace(WEB, pod=name), cluster.objects)
    cluster.objects.put([made("StatefulSet", "web", "apps/v1")])
    wanted = [
        n for n in ("web", "web-0", "web-1", "x-0") if reclaim.is_wanted_again(replace(WEB, pod=n), cluster.objects)
    ]
    assert wanted == ["web-0"]
    assert not reclaim.is_wanted_again(replace(WEB, namespace="other"), cluster.objects)


def test_an_address_of_a_lost_container_is_its_successors_too(cluster):
    """Its DEL, if it comes late, gives nothing back."""
    cluster.objects.put([made("StatefulSet", "web", "apps/v1", spec={"replicas": 1})])
    assert cluster.add() == 1
    assert cluster.add(replace(WEB, container="c2"), fixed=True) == 1
    assert cluster.addresses.give_back(WEB) == []


def test_kept_addresses_of_two_pods_are_two(cluster):
    other = replace(WEB, container="c2", pod="web-1")
    assert [cluster.add(), cluster.add(other)] == [1, 2]
    for holder in (WEB, other):
        cluster.addresses.keep(holder)
    assert [str(a) for a in cluster.addresses.give_back(replace(WEB, container=""))] == ["10.0.10.1"]
    assert cluster.add(replace(other, container="c5"), fixed=True) == 2


@pytest.mark.parametrize(
    ("pod", "alive"),
    [
        ({}, True),
        ({"status": {"phase": "Pending"}}, True),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
        ({"metadata": {"uid": "another"}}, False),
        ({"status": {"phase": "Succeeded"}}, True),
        ({"status": {"phase": "Succeeded"}, "spec": {"restartPolicy": "OnFailure"}}, False),
        ({"status": {"phase": "Failed"}, "spec": {"restartPolicy": "OnFailure"}}, True),
        ({"status": {"phase": "Failed"}, "spec": {"restartPolicy": "Never"}}, False),
        ({"status": {"phase": "Failed", "reason": "Evicted"}}, False),
        (None, False),
    ],
)
def test_the_pods_whose_next_container_has_the_same_address(cluster, pod, alive):
    """The table of IsPodAlive."""
    if pod is not None:
        metadata = {"name": "web-0", "namespace": "ai", "uid": WEB.uid, **pod.get("metadata", {})}
        data = {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": metadata}
        cluster.objects.put([manifests.make(data)])
    assert reclaim.is_alive(WEB, cluster.objects) is alive


def test_a_pod_has_its_address_in_each_of_its_containers(cluster):
    assert cluster.add() == 1
    assert cluster.add(replace(WEB, container="c2")) == 1
    assert cluster.add(replace(WEB, container="c3", uid="another")) == 2
    assert cluster.addresses.other_uid(replace(WEB, uid="third")) in (WEB.uid, "another")
    assert cluster.addresses.other_uid(replace(WEB, pod="web-1")) == ""
