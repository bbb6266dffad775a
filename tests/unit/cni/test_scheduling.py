"""Which pod has which devices of its node."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from testbed.cni.objects import manifests
from testbed.cni.objects.lab_objects import Cluster
from testbed.cni.runtime import scheduling
from testbed.cni.runtime.scheduling import Devices
from testbed.lab.pods import UnschedulableError

GPUS = {"apiVersion": "v1", "kind": "Node", "status": {"allocatable": {"nvidia.com/gpu": 2, "cpu": 4}}}
VFS = {
    "apiVersion": "sriovnetwork.openshift.io/v1",
    "kind": "SriovNetworkNodePolicy",
    "spec": {"numVfs": 3, "nicSelector": {"pfNames": ["eth1"]}},
}


GPU = "nvidia.com/gpu"


@dataclass(eq=False)
class Node:
    """A host as far as the scheduler looks at it."""

    name: str
    interfaces: ClassVar[Mapping[str, Any]] = {"eth1": SimpleNamespace(plan=None)}

    def __str__(self) -> str:
        return self.name

    def claim_vf(self, *_: str, mtu: int) -> None:
        """A VF is made without a kernel."""


@dataclass(eq=False)
class Asking:
    """A pod, likewise."""

    name: str
    host: Node
    emitted: list[str] = field(default_factory=list)

    @property
    def context(self) -> Asking:
        return self

    def emit(self, _topic: str, _name: str, text: str, **_: object) -> None:
        self.emitted.append(text)


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setattr(scheduling, "is_exclusive", lambda: False)
    made = Cluster(tmp_path / "cluster" / "objects.sqlite", tmp_path, lambda *_, **__: None)
    for name in "node1", "node2":
        made.apply(GPUS | {"metadata": {"name": name}})
    return made


@pytest.fixture
def vfs(cluster):
    """Two resources that have the same VFs, which are made without a kernel."""
    for name in "vfs", "same":
        cluster.apply(VFS | {"metadata": {"name": name}, "spec": {**VFS["spec"], "resourceName": name}})


@pytest.fixture
def schedule(cluster):
    devices = Devices()
    nodes = {name: Node(name) for name in ("node1", "node2")}

    def call(name, resources, limit=0.0, node="node1"):
        spec = {"containers": [{"name": "main", "resources": {"limits": resources}}]}
        metadata = {"name": name, "namespace": "default"}
        known = manifests.make({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        pod = Asking(name, nodes[node])
        return pod, devices.schedule(pod, known, cluster, limit)

    call.devices = devices
    return call


def at_once(job):
    with pytest.raises(StopIteration) as end:
        next(job)
    return end.value.value


def test_a_pod_that_asks_for_nothing_has_nothing(schedule):
    held = at_once(schedule("web", {"cpu": 64})[1])
    assert (held.amounts, held.vfs) == ({}, {})


def test_what_a_pod_has_is_not_there_for_others_of_its_node_until_it_gives_it_back(schedule):
    first, job = schedule("first", {GPU: 2})
    assert at_once(job).amounts == {"nvidia.com/gpu": 2}
    at_once(schedule("elsewhere", {GPU: 2}, node="node2")[1])
    with pytest.raises(UnschedulableError) as said:
        next(schedule("second", {GPU: 1})[1])
    assert said.value.message == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    assert said.value.hint == "node1 has 2 of nvidia.com/gpu; holders: first 2."
    schedule.devices.give_back(first)
    at_once(schedule("second", {GPU: 2})[1])


def test_all_that_is_missing_is_named_and_nothing_is_taken(schedule):
    wanted = {"a.b/none": 1, GPU: 2, "x.y/none": 1}
    with pytest.raises(UnschedulableError) as said:
        next(schedule("first", wanted)[1])
    assert said.value.message == "0/1 nodes are available: 1 Insufficient a.b/none, 1 Insufficient x.y/none."
    assert "Nothing offers a.b/none" in said.value.hint
    at_once(schedule("second", {GPU: 2})[1])


def test_a_vf_is_one_pod_s_by_whatever_resource(schedule, vfs):
    first = at_once(schedule("first", {"spidernet.io/vfs": 1, "spidernet.io/same": 1})[1])
    assert first.vfs == {"spidernet.io/same": {"eth1v0": "eth1"}, "spidernet.io/vfs": {"eth1v1": "eth1"}}
    second = at_once(schedule("second", {"spidernet.io/vfs": 1})[1])
    assert second.vfs == {"spidernet.io/vfs": {"eth1v2": "eth1"}}
    with pytest.raises(UnschedulableError, match=r"1 Insufficient spidernet\.io/same"):
        next(schedule("third", {"spidernet.io/same": 1})[1])


def test_a_pod_waits_a_second_at_a_time_and_is_pending_meanwhile(schedule, cluster, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    first, job = schedule("first", {GPU: 2})
    at_once(job)
    second, job = schedule("second", {GPU: 1}, limit=2.5)
    assert next(job).deadline == 101
    condition = cluster.find("Pod", "second", "default").data["status"]["conditions"][0]
    assert condition["message"] == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    clock[0] = 101
    assert job.send(False).deadline == 102
    schedule.devices.give_back(first)
    clock[0] = 102
    with pytest.raises(StopIteration):
        job.send(False)
    assert second.emitted == ["pending: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu."]


def test_a_pod_that_waits_in_vain_looks_a_last_time_at_its_limit(schedule, cluster, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    _, job = schedule("first", {GPU: 3}, limit=1.5)
    moments = [next(job).deadline]
    clock[0] = 101
    moments.append(job.send(False).deadline)
    clock[0] = 101.5
    with pytest.raises(UnschedulableError):
        job.send(False)
    assert moments == [101, 101.5]
    assert cluster.all("Pod") == []
