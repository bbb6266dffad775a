"""What the controllers of workloads make and end, without a lab: pods are as the test says."""

import itertools
import math
import time
from typing import Any

import pytest

from testbed.cni.objects import manifests, workloads
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.placement import NodeView
from testbed.cni.objects.workloads import Next, Run, State
from testbed.cni.runtime import rollout
from testbed.errors import InputError

NODES = [NodeView(name, {"kubernetes.io/hostname": name}) for name in ("node1", "node2", "node3")]
LABELS = {"app": "web"}


def workload(kind: str, template: dict[str, Any] | None = None, **spec: Any) -> Object:
    version = "batch/v1" if kind == "Job" else "apps/v1"
    containers = {"containers": [{"name": "main", "image": "web:1"}], **(template or {})}
    selector = {} if kind == "Job" else {"selector": {"matchLabels": LABELS}}
    given = {"template": {"metadata": {"labels": LABELS}, "spec": containers}, **selector, **spec}
    return manifests.make({"apiVersion": version, "kind": kind, "metadata": {"name": "web"}, "spec": given})


def variable(path: str, **given: str) -> dict[str, Any]:
    source = {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}, **given}
    return {"containers": [{"name": "main", "env": [source]}]}


def volumes(mounts: list[tuple[str, str]], name: str = "v", path: str = "x", **more: str) -> dict[str, Any]:
    places = [{"name": one, "mountPath": place, **more} for one, place in mounts]
    source = {"name": "conf", "items": [{"key": "a", "path": path}]}
    return {"containers": [{"name": "m", "volumeMounts": places}], "volumes": [{"name": name, "configMap": source}]}


class Cluster:
    """The objects and pods, and the rounds of the controllers."""

    def __init__(self, *objects: Object) -> None:
        self.objects = {str(one): one for one in objects}
        self.runs: list[Run] = []
        self.numbers = itertools.count()
        self.starts = True
        """Whether what is made starts."""

    def next(self) -> Next:
        there = list(self.objects.values())
        revisions = [one for one in there if one.kind == "ControllerRevision"]
        found = workloads.following(there, self.runs, NODES, lambda: next(self.numbers), revisions)
        self.objects |= {str(one): one for one in found.objects}
        for one in found.gone:
            del self.objects[str(one)]
        self.runs = [run for run in self.runs if run not in found.ended]
        state = "running" if self.starts else "waiting"
        self.runs += [Run(pod, next(self.numbers), state, "node1") for pod in found.made]
        return found

    def settle(self) -> list[tuple[int, int]]:
        """Run rounds until nothing follows; return how many pods each made and ended."""
        rounds = []
        while True:
            found = self.next()
            if not (found.made or found.ended or found.objects or found.gone):
                return rounds
            if found.made or found.ended:
                rounds.append((len(found.made), len(found.ended)))
            assert len(rounds) < 50

    def end(self, run: Run, state: State, ended_s: float = 0.0) -> None:
        """A pod's container ends, and its Job counts it."""
        run.state, run.ended_s = state, ended_s
        (job,) = self.objects.values()
        self.objects[str(job)] = manifests.make({**job.data, "status": workloads.counted(job, run)})

    @property
    def names(self) -> list[str]:
        return sorted(run.pod.name for run in self.runs)


def test_a_deployment_has_a_replica_set_and_that_has_the_pods():
    cluster = Cluster(workload("Deployment", replicas=3))
    assert cluster.settle() == [(3, 0)]
    (replicas,) = [one for one in cluster.objects.values() if one.kind == "ReplicaSet"]
    assert replicas.name.startswith("web-")
    assert workloads.owner_of(replicas) == ("Deployment", "web")
    assert {workloads.owner_of(run.pod) for run in cluster.runs} == {("ReplicaSet", replicas.name)}
    pod = cluster.runs[0].pod
    assert pod.name[:-5] == f"{replicas.name}-"
    assert set(pod.name[-5:]) <= set(workloads.LETTERS)
    assert pod.labels == {**LABELS, "pod-template-hash": replicas.name.removeprefix("web-")}
    again = Cluster(workload("Deployment", replicas=3))
    again.settle()
    assert again.names == cluster.names


def updated(cluster: Cluster, **spec: Any) -> None:
    kind = next(iter(cluster.objects.values())).kind
    new = workload(kind, {"containers": [{"name": "main", "image": "web:2"}]}, **spec)
    status = cluster.objects[str(new)].data.get("status") or {}
    cluster.objects[str(new)] = manifests.make({**new.data, "status": status})


def images(cluster: Cluster) -> set[str]:
    return {run.pod.spec["containers"][0]["image"] for run in cluster.runs}


@pytest.mark.parametrize(
    ("rolling", "most", "least"),
    [
        ({}, 5, 3),  # a quarter of four more, a quarter fewer
        ({"maxSurge": 0, "maxUnavailable": 1}, 4, 3),
        ({"maxSurge": 2, "maxUnavailable": 0}, 6, 4),
        ({"maxSurge": "50%", "maxUnavailable": "50%"}, 6, 2),
    ],
)
def test_a_rolling_update_keeps_within_its_bounds(rolling, most, least):
    strategy = {"type": "RollingUpdate", **({"rollingUpdate": rolling} if rolling else {})}
    cluster = Cluster(workload("Deployment", replicas=4, strategy=strategy))
    cluster.settle()
    updated(cluster, replicas=4, strategy=strategy)
    counts = []
    for _ in range(20):
        before = len(cluster.runs)
        found = cluster.next()
        counts += [before + len(found.made), before - len(found.ended)]
    assert images(cluster) == {"web:2"}
    assert len(cluster.runs) == 4
    assert max(counts) <= most
    assert min(counts) >= least


def test_an_update_that_does_not_start_stops_and_keeps_the_old_pods():
    """A pool of four addresses for four pods: there is none for the fifth."""
    cluster = Cluster(workload("Deployment", replicas=4))
    cluster.settle()
    cluster.starts = False
    updated(cluster, replicas=4)
    cluster.settle()
    running = [run for run in cluster.runs if run.state == "running"]
    assert len(running) == 3
    assert {run.pod.spec["containers"][0]["image"] for run in running} == {"web:1"}
    assert len(cluster.runs) == 5


def test_recreate_ends_all_before_it_makes_one():
    cluster = Cluster(workload("Deployment", replicas=2, strategy={"type": "Recreate"}))
    cluster.settle()
    updated(cluster, replicas=2, strategy={"type": "Recreate"})
    assert cluster.settle() == [(0, 2), (2, 0)]
    assert images(cluster) == {"web:2"}


def test_a_smaller_deployment_ends_first_what_does_not_run_then_the_newest():
    cluster = Cluster(workload("Deployment", replicas=3))
    cluster.settle()
    first, waits, newest = cluster.runs
    waits.state = "waiting"
    changed = workload("Deployment", replicas=1)
    cluster.objects[str(changed)] = changed
    cluster.settle()
    assert cluster.runs == [first]
    assert newest not in cluster.runs


def test_a_stateful_set_starts_one_after_the_other_and_ends_the_last_first():
    cluster = Cluster(workload("StatefulSet", replicas=3))
    assert cluster.settle() == [(1, 0), (1, 0), (1, 0)]
    assert cluster.names == ["web-0", "web-1", "web-2"]
    changed = workload("StatefulSet", replicas=1)
    cluster.objects[str(changed)] = changed
    assert [run.pod.name for run in cluster.next().ended] == ["web-2"]
    assert [run.pod.name for run in cluster.next().ended] == ["web-1"]
    updated(cluster, replicas=3)
    cluster.settle()
    assert images(cluster) == {"web:2"}
    assert cluster.names == ["web-0", "web-1", "web-2"]


def test_a_stateful_set_waits_for_a_pod_that_does_not_start_unless_it_is_parallel():
    cluster = Cluster(workload("StatefulSet", replicas=3))
    cluster.starts = False
    cluster.settle()
    assert cluster.names == ["web-0"]
    parallel = Cluster(workload("StatefulSet", replicas=3, podManagementPolicy="Parallel", ordinals={"start": 4}))
    parallel.starts = False
    parallel.settle()
    assert parallel.names == ["web-4", "web-5", "web-6"]


def test_a_daemon_set_has_a_pod_on_each_node_that_it_may_use():
    cluster = Cluster(workload("DaemonSet", {"nodeSelector": {"kubernetes.io/hostname": "node2"}}))
    cluster.settle()
    (run,) = cluster.runs
    terms = run.pod.spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert terms["nodeSelectorTerms"][0]["matchFields"][0]["values"] == ["node2"]
    everywhere = Cluster(workload("DaemonSet"))
    assert everywhere.settle() == [(3, 0)]
    updated(everywhere)
    assert everywhere.settle() == [(0, 1), (1, 0)] * 3
    assert images(everywhere) == {"web:2"}


def test_a_job_ends_with_its_completions():
    never = {"restartPolicy": "Never"}
    cluster = Cluster(workload("Job", never, parallelism=2, completions=3))
    assert cluster.settle() == [(2, 0)]
    first, second = cluster.runs
    cluster.end(first, "succeeded")
    cluster.end(second, "failed")
    assert cluster.settle() == [(2, 0)]
    for run in [run for run in cluster.runs if run.state == "running"]:
        cluster.end(run, "succeeded")
    assert cluster.settle() == []
    cluster.runs.clear()
    assert cluster.settle() == [], "what has succeeded counts when its pods are deleted, too"


def test_an_indexed_job_has_a_pod_for_each_index_once():
    indexed = Cluster(
        workload("Job", {"restartPolicy": "Never"}, parallelism=2, completions=4, completionMode="Indexed")
    )
    indexed.settle()
    assert [name[:6] for name in indexed.names] == ["web-0-", "web-1-"]
    assert indexed.runs[1].pod.spec["containers"][0]["env"] == [{"name": "JOB_COMPLETION_INDEX", "value": "1"}]
    indexed.end(indexed.runs[1], "succeeded")
    indexed.runs.pop()
    indexed.settle()
    assert [name[:6] for name in indexed.names] == ["web-0-", "web-2-"]


def test_a_job_waits_before_it_replaces_what_failed_and_gives_up_after_its_backoff_limit():
    cluster = Cluster(workload("Job", {"restartPolicy": "Never"}, backoffLimit=1))
    cluster.settle()
    cluster.end(cluster.runs[-1], "failed", time.monotonic())
    assert 9.9 < cluster.next().later <= 10
    assert len(cluster.runs) == 1
    cluster.end(cluster.runs[-1], "failed", time.monotonic() - 100)
    assert cluster.settle() == []
    assert cluster.next().later == math.inf
    (job,) = cluster.objects.values()
    assert [(one["type"], one["reason"]) for one in job.data["status"]["conditions"]] == [
        ("Failed", "BackoffLimitExceeded")
    ]


def test_a_job_that_takes_too_long_fails_and_goes_after_its_time(monkeypatch):
    cluster = Cluster(
        workload("Job", {"restartPolicy": "Never"}, activeDeadlineSeconds=100, ttlSecondsAfterFinished=20)
    )
    now = 1_800_000_000
    monkeypatch.setattr(time, "time", lambda: now)
    cluster.settle()
    assert cluster.next().later == 100
    now += 101
    assert cluster.settle() == [(0, 1)]
    (job,) = cluster.objects.values()
    assert job.data["status"]["conditions"][0]["reason"] == "DeadlineExceeded"
    assert cluster.next().later == 20
    now += 20
    cluster.settle()
    assert cluster.objects == {}


def test_a_pod_below_the_partition_keeps_its_template():
    update = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    cluster = Cluster(workload("StatefulSet", replicas=3, updateStrategy=update, ordinals={"start": 5}))
    cluster.settle()
    updated(cluster, replicas=3, updateStrategy=update, ordinals={"start": 5})
    cluster.settle()
    of = {run.pod.name: run.pod.spec["containers"][0]["image"] for run in cluster.runs}
    assert of == {"web-5": "web:1", "web-6": "web:1", "web-7": "web:2"}
    cluster.runs = [run for run in cluster.runs if run.pod.name != "web-5"]
    cluster.settle()
    assert {run.pod.name: run.pod.spec["containers"][0]["image"] for run in cluster.runs} == of


def test_the_last_pod_below_the_partition_comes_back_in_its_template_too():
    update = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    cluster = Cluster(workload("StatefulSet", replicas=2, updateStrategy=update))
    cluster.settle()
    updated(cluster, replicas=2, updateStrategy=update)
    cluster.settle()
    cluster.runs = [run for run in cluster.runs if run.pod.name != "web-0"]
    cluster.settle()
    assert {run.pod.name: run.pod.spec["containers"][0]["image"] for run in cluster.runs} == {
        "web-0": "web:1",
        "web-1": "web:2",
    }
    revisions = [one for one in cluster.objects.values() if one.kind == "ControllerRevision"]
    assert [one.data["revision"] for one in revisions] == [1, 2]
    updated(cluster, replicas=2)
    cluster.settle()
    assert images(cluster) == {"web:2"}
    revisions = [one for one in cluster.objects.values() if one.kind == "ControllerRevision"]
    assert [one.data["revision"] for one in revisions] == [2], "the old one goes with its last pod"


def test_a_parallel_set_replaces_a_pod_that_does_not_start():
    cluster = Cluster(workload("StatefulSet", replicas=2, podManagementPolicy="Parallel"))
    cluster.starts = False
    cluster.settle()
    cluster.starts = True
    updated(cluster, replicas=2, podManagementPolicy="Parallel")
    cluster.settle()
    assert images(cluster) == {"web:2"}


def test_a_paused_deployment_is_not_updated():
    cluster = Cluster(workload("Deployment", replicas=2))
    cluster.settle()
    updated(cluster, replicas=2, paused=True)
    assert cluster.settle() == []


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        (workload("Deployment", {"restartPolicy": "Never"}), 'Unsupported value: "Never"'),
        (workload("Deployment", strategy={"rollingUpdate": {"maxSurge": -1}}), "greater than or equal to 0"),
        (workload("Deployment", strategy={"rollingUpdate": {"maxSurge": "2%%"}}), "must be an integer or percentage"),
        (
            workload("Deployment", strategy={"type": "Recreate", "rollingUpdate": {}}),
            "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
        ),
        (workload("Deployment", strategy={"rollingUpdate": {"maxUnavailable": "120%"}}), "not be greater than 100%"),
        (
            workload("DaemonSet", updateStrategy={"rollingUpdate": {"maxUnavailable": "x"}}),
            "spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: 'x'",
        ),
        (
            workload("Deployment", {"containers": [{"name": "m"}, {"name": "m"}]}),
            'spec.template.spec.containers: Duplicate value: "m"',
        ),
        (
            workload("Deployment", variable("metadata.name", value="x")),
            "may not be specified when `value` is not empty",
        ),
        (workload("Deployment", variable("spec.nosuch")), 'Invalid value: "spec.nosuch": no such field of a pod'),
        (workload("Deployment", {"tolerations": [{"effect": "NoSchedul"}]}), "effect"),
        (workload("Deployment", replicas=10**9), "spec.replicas: Input should be less than or equal to 5000"),
        (workload("Job", {"restartPolicy": "Never"}, completionMode="Indexed"), "when completion mode is Indexed"),
        (workload("Job"), 'Required value: valid values: "OnFailure", "Never"'),
        (
            workload("Deployment", {"containers": [{"name": "m", "resources": {"limits": {"a/b": "1.5"}}}]}),
            "'1.5' is not",
        ),
        (workload("Deployment", {"containers": [{"name": "m", "resources": "x"}]}), "resources"),
        (workload("Deployment", {"containers": [{"name": "m", "securityContext": "x"}]}), "securityContext"),
        (workload("Deployment", volumes([("none", "/a")])), 'volumeMounts: Not found: "none"'),
        (workload("Deployment", volumes([("v", "/a"), ("v", "/a")])), 'Invalid value: "/a": must be unique'),
        (workload("Deployment", volumes([("v", "/a:b")])), "must not contain ':'"),
        (workload("Deployment", volumes([("v", "/a")], subPath="../x")), "must not contain '..'"),
        (workload("Deployment", volumes([("v", "/a")], name="../../etc")), "volumes[0].name"),
        (workload("Deployment", volumes([("v", "/a")], path="../x")), "'../x': must be a relative path"),
    ],
)
def test_what_no_api_server_takes_is_refused(given, wrong):
    with pytest.raises(InputError) as said:
        rollout.checked([given], lambda *_: None)
    assert wrong in str(said.value)


@pytest.mark.parametrize(
    ("kind", "before", "now", "field"),
    [
        ("Deployment", {}, {"selector": {"matchLabels": {"app": "other"}}}, "selector"),
        ("StatefulSet", {"podManagementPolicy": "Parallel"}, {}, "podManagementPolicy"),
        ("Job", {"completions": 2}, {"completions": 3}, "completions"),
    ],
)
def test_what_no_update_changes(kind, before, now, field):
    template = {"restartPolicy": "Never"} if kind == "Job" else {}
    there = workload(kind, template, **before)
    new = manifests.make({**there.data, "spec": {**workload(kind, template).spec, **now}})
    labels = new.spec.get("selector", {}).get("matchLabels")
    if labels:
        new.data["spec"]["template"] = {**new.spec["template"], "metadata": {"labels": labels}}
    with pytest.raises(InputError, match=f"spec.{field}: Forbidden: the field is immutable"):
        rollout.checked([new], lambda *_: there)
    rollout.checked([there], lambda *_: there)


def test_a_template_without_metadata_is_one_without_labels():
    """`DoesNotExist` matches it."""
    selector = {"matchExpressions": [{"key": "gone", "operator": "DoesNotExist"}]}
    data = dict(workload("Deployment", selector=selector).data)
    data["spec"] = {**data["spec"], "template": {"spec": {"containers": [{"name": "main"}]}}}
    cluster = Cluster(manifests.make(data))
    assert cluster.settle() == [(1, 0)]
