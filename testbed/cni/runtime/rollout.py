"""The pods of workloads: controllers, scheduler and kubelets, as far as a lab has their work.

`cni/objects/workloads.py` says what to make and to end, `cni/objects/placement.py` on which node. This does it, and
looks again until nothing follows. A pod that cannot start is an object that waits, and is tried again, as by kubelet.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cni.objects import manifests, placement, workloads
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.placement import Crowd, NodeView
from testbed.cni.objects.pod_spec import WORKLOADS, PodSpec
from testbed.cni.objects.services import ServedPort
from testbed.cni.objects.workloads import Run, evicted_after, owner_of
from testbed.cni.runtime.pod_object import completed
from testbed.cni.runtime.policy_enforcer import PolicyEnforcer
from testbed.cni.runtime.service_proxy import ServiceProxy
from testbed.documents.problems import Problems
from testbed.errors import InputError, TestbedError
from testbed.lab.context import Context
from testbed.lab.docker import client as docker
from testbed.lab.nodes.host_node import Pod, PodMetadata
from testbed.lab.pods import Maker, PodRequest, Rollout, Start, UnschedulableError
from testbed.lab.steps import Steps, together
from testbed.protocol import events
from testbed.topology import Container

if TYPE_CHECKING:
    from testbed.cni.objects.lab_objects import Cluster
    from testbed.cni.runtime.scheduling import Devices
CONTROLLERS = tuple(kind for kind in WORKLOADS if kind != "Pod")
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 300.0
"""Seconds until waiting pods are tried again: kubelet's, and twice as many each time."""
SANDBOX = "FailedCreatePodSandBox"
"""The reason of a pod that has a node and does not start."""
TIMESTAMP = "%Y-%m-%dT%H:%M:%SZ"
AT_ONCE = 10
"""Pods that start or end side by side."""


class Workloads:
    """The pods of the workloads and manifests that were applied for their pods."""

    def __init__(self, context: Context, maker: Maker, cluster: Cluster, devices: Devices) -> None:
        self._context, self._maker, self._cluster, self._devices = context, maker, cluster, devices
        self._services = ServiceProxy(context, maker, cluster)
        self._policies = PolicyEnforcer(context, maker, cluster)
        self._managed: dict[str, Start] = {}
        """The workloads whose pods are made here, by the names of their objects as text, and of Pods themselves."""
        self._runs: dict[tuple[str, str], Run] = {}
        """Pods by namespace and name."""
        self._made: dict[tuple[str, str], Pod] = {}
        self._numbers = itertools.count()
        self._busy = False
        self._pause = FIRST_PAUSE
        self._later = False
        """Whether a controller waits for time to pass."""
        self._unplanned: Callable[[], None] = _nothing
        """Cancels the next attempt."""
        self._without_image: set[str] = set()
        self._silent: dict[str, float] = {}
        """When the nodes that are down were first missed."""

    def apply(self, manifest: str | Path | Mapping[str, Any], start: Start) -> Steps[Rollout]:
        """Add the objects, or replace them; start and end the pods that follow. InputError, and nothing is changed, if
        an object is wrong."""
        found = self._cluster.read(manifest)
        checked(found.objects)
        mine = [one for one in found.objects if one.kind in CONTROLLERS]
        singles = [one for one in found.objects if one.kind == "Pod"]
        others = [self._with_status(one) for one in found.objects if one.kind != "Pod"]
        new = [one for one in singles if not self._is_there(one)]
        self._cluster.take(others, found.notes)
        for one in [*mine, *singles]:
            self._managed[str(one)] = start
        for one in new:
            self._add(one)
        self._pause = FIRST_PAUSE
        done = yield from self.reconcile()
        return done._replace(objects=[str(one) for one in found.objects])

    def _add(self, pod: Object) -> None:
        number = next(self._numbers)
        self._runs[pod.namespace, pod.name] = Run(_with_uid(pod, number), number)

    def _with_status(self, one: Object) -> Object:
        """Return a DaemonSet with the number of its pods, by which its pools are sized, and a Job with what it has
        done. A status that the user wrote does not count, as in a cluster."""
        status: Mapping[str, Any] = {}
        if one.kind == "DaemonSet":
            status = {"desiredNumberScheduled": len(workloads.daemon_nodes(one, self._nodes()))}
        elif one.kind == "Job" and (there := self._cluster.look("Job", one.name, one.namespace)):
            status = there.data.get("status") or {}
        if one.kind not in ("DaemonSet", "Job"):
            return one
        return Object(one.kind, one.name, one.namespace, {**one.data, "status": status}, one.document)

    def _is_there(self, one: Object) -> bool:
        """Return whether a Pod is there already. InputError if it is another one."""
        run = self._runs.get((one.namespace, one.name))
        if run is None:
            return False
        if run.pod.spec != one.spec:
            hint = f"`testbed delete pod {one.name}` first."
            wrong = f"Pod {one.name} is invalid: spec: Forbidden: pod updates may not change fields"
            raise InputError(wrong, where=one.document.source if one.document else "", hint=hint)
        return True

    def reconcile(self) -> Steps[Rollout]:
        """Do what the controllers have to do now, until nothing follows: make pods, end pods, and try those that
        wait."""
        if self._busy:
            return self._outcome()
        self._busy = True
        self._unplanned()
        try:
            yield from self._rounds()
            self._services.sync()
            self._policies.sync()
        finally:
            self._busy = False
            self._plan()
        return self._outcome()

    def _plan(self) -> None:
        """Look again later while pods wait, or may end by themselves."""
        states = {run.state for run in self._runs.values() if run.state == "waiting" or self._may_end(run)}
        if "waiting" not in states:
            self._pause = FIRST_PAUSE
        if states or self._later:
            self._unplanned = self._context.scheduler.after(self._pause, self._again)

    def _may_end(self, run: Run) -> bool:
        pod = self._made.get((run.pod.namespace, run.pod.name))
        return bool(pod and pod.container and run.pod.spec.get("restartPolicy") in ("Never", "OnFailure"))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """See `testbed.lab.pods.Workloads`."""
        before, self._busy = self._busy, True
        try:
            yield
        finally:
            self._busy = before

    def _again(self) -> None:
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)
        self._retry()

    def _retry(self) -> None:
        try:
            self._context.scheduler.run(self.reconcile())
        except TestbedError as error:
            self._context.emit(events.OBJECT(), "", f"a controller of pods could not go on: {error.message}")
        except (ValueError, TypeError, LookupError, AttributeError) as error:  # of an object that nobody foresaw
            text = f"a controller of pods could not go on: {type(error).__name__}: {error}"
            self._context.emit(events.OBJECT(), "", text)

    def _rounds(self) -> Steps[None]:
        tried: dict[int, int] = {}
        """The rounds in which pods were ended before a pod was tried, by its number."""
        ended = 0
        while True:
            yield from self._look()
            there = [one for kind in CONTROLLERS for one in self._cluster.all(kind)]
            mine = [one for one in there if str(one) in self._managed or self._of_managed(one, there)]
            following = workloads.following(
                mine, list(self._runs.values()), self._nodes(), partial(next, self._numbers)
            )
            self._later = following.later
            leaving = [*following.ended, *self._orphans({str(one) for one in mine})]
            self._cluster.put(*following.objects)
            for one in following.made:
                self._add(one)
            up = {host.name for host in self._maker.hosts() if not host.off}
            if lost := self._of_no_node():
                for run in lost:
                    self._collect(run)
                continue
            waiting = [run for run in self._runs.values() if run.state == "waiting" and run not in leaving]
            waiting = [run for run in waiting if run.node in ("", *up)]
            trying = [run for run in waiting if tried.get(run.number, -1) < ended]
            tried.update(dict.fromkeys((run.number for run in trying), ended))
            self._place(trying)
            starting = [run for run in trying if run.node and not run.reason]
            started = yield from self._start_and_end(starting, leaving)
            ended += bool(leaving)
            if not (started or leaving or following.objects or following.made):
                return

    def _of_no_node(self) -> list[Run]:
        """Return the pods without a sandbox whose node has left the lab."""
        there = {"", *(host.name for host in self._maker.hosts())}
        return [run for key, run in self._runs.items() if run.node not in there and key not in self._made]

    def _collect(self, run: Run) -> None:
        """Delete a pod of a node that has left the lab, as kube-controller-manager's podgc does."""
        self._context.emit(events.POD(), run.pod.name, f"is deleted: the node {run.node} has left the lab")
        self._managed.pop(str(run.pod), None)
        self._drop(run)

    def _of_managed(self, one: Object, there: Sequence[Object]) -> bool:
        """Return whether a ReplicaSet is of a Deployment whose pods are made here."""
        kind, name = owner_of(one)
        return f"{kind}/{one.namespace}/{name}" in self._managed and any(
            (owner.kind, owner.namespace, owner.name) == (kind, one.namespace, name) for owner in there
        )

    def _look(self) -> Steps[None]:
        """Take in what became of the pods; end the sandboxes of those that have ended."""
        up = [host.name for host in self._maker.hosts() if not host.off]
        self._silent = {name: since for name, since in self._silent.items() if name not in up}
        for key, pod in list(self._made.items()):
            run = self._runs.get(key)
            if run is None:
                del self._made[key]
            elif pod.gone:
                self._look_again(run)
            elif run.active and self._may_end(run) and (status := pod.exit_status()) is not None:
                of_job = owner_of(run.pod)[0] == "Job"
                if status and not of_job and run.pod.spec["restartPolicy"] == "OnFailure":
                    continue  # a cluster starts its container again
                run.state, run.ended_s = ("failed" if status else "succeeded"), time.monotonic()
                del self._made[key]
                yield from self._stop(run, pod)

    def _stop(self, run: Run, pod: Pod) -> Steps[None]:
        """End the sandbox of a pod that has succeeded or failed: its object stays, its addresses and devices do not."""
        self._show_phase(run)
        yield from self._maker.stop(pod)
        self._account(run)

    def _show_phase(self, run: Run) -> None:
        if there := self._cluster.look("Pod", run.pod.name, run.pod.namespace):
            status = {"phase": run.state.title()}
            self._cluster.put(Object("Pod", there.name, there.namespace, {**there.data, "status": status}))

    def _account(self, run: Run) -> None:
        """Free what a pod had that has succeeded or failed, and count it for its Job."""
        self._cluster.give_back(run.pod)
        kind, name = owner_of(run.pod)
        if kind == "Job" and (job := self._cluster.look(kind, name, run.pod.namespace)):
            data = {**job.data, "status": workloads.counted(job, run)}
            self._cluster.put(Object(kind, name, run.pod.namespace, data))

    def _look_again(self, run: Run) -> None:
        """Take in what became of a pod whose sandbox is gone: it was restarted, it is to be, or it was deleted."""
        key = run.pod.namespace, run.pod.name
        there = self._cluster.look("Pod", run.pod.name, run.pod.namespace)
        uid = run.pod.data["metadata"]["uid"]
        host = next((one for one in self._maker.hosts() if one.name == run.node and not one.off), None)
        if (pod := self._maker.pod(run.pod.name)) and pod.uid == uid:
            self._made[key] = pod
        elif there is None or there.data["metadata"].get("uid") != uid:
            del self._runs[key], self._made[key]
        elif run.node not in {one.name for one in self._maker.hosts()}:
            del self._made[key]
            self._collect(run)
        elif host:
            del self._made[key]
            run.state = "waiting"
            if run.pod.spec.get("restartPolicy") == "Never":  # kubelet makes it no other sandbox
                run.state, run.ended_s = "failed", time.monotonic()
                self._show_phase(run)
                self._account(run)
            if there.data["metadata"].get("deletionTimestamp"):
                self._drop(run)
        elif time.monotonic() >= self._silent.setdefault(run.node, time.monotonic()) + evicted_after(run.pod):
            if run.state != "terminating":
                self._context.emit(events.POD(host=run.node), run.pod.name, f"is deleted: {run.node} is unreachable")
            run.state = "terminating"
            now = datetime.now(UTC).strftime(TIMESTAMP)
            metadata = {**there.data["metadata"], "deletionTimestamp": now}
            self._cluster.put(Object("Pod", key[1], key[0], {**there.data, "metadata": metadata}))

    def node_is_off(self, name: str) -> None:
        """See `testbed.lab.pods.Workloads`: look at the pods of the node when they count as evicted."""
        self._silent[name] = time.monotonic()
        times = sorted({evicted_after(run.pod) for run in self._runs.values()} - {math.inf})
        for seconds in times:
            self._context.scheduler.after(seconds, self._retry)

    def _drop(self, run: Run) -> None:
        """Remove a pod that has no sandbox."""
        del self._runs[run.pod.namespace, run.pod.name]
        there = self._cluster.look("Pod", run.pod.name, run.pod.namespace)
        if there and there.data["metadata"].get("uid") == run.pod.data["metadata"]["uid"]:
            self._cluster.remove(run.pod)
            self._cluster.give_back(run.pod)

    def _orphans(self, there: set[str]) -> list[Run]:
        """Return pods, and delete ReplicaSets, whose owner is no more: the work of the garbage collector."""
        for one in self._cluster.all("ReplicaSet"):
            kind, name = owner_of(one)
            if kind == "Deployment" and self._cluster.look(kind, name, one.namespace) is None:
                self._cluster.remove(one)
        found = []
        for run in self._runs.values():
            kind, name = owner_of(run.pod)
            owner = f"{kind}/{run.pod.namespace}/{name}" if kind else str(run.pod)
            if (owner not in there) if kind else (owner not in self._managed):
                found.append(run)
        return found

    def delete(self, kind: str, name: str, namespace: str) -> Steps[Rollout]:
        """See `testbed.lab.Pods.delete_object`."""
        if kind != "Pod":
            self._cluster.delete(kind, name, namespace)
            self._managed.pop(f"{kind}/{namespace}/{name}", None)
        elif run := self._runs.get((namespace, name)):
            self._managed.pop(str(run.pod), None)
            failed = yield from together([partial(self._end, run)], 1)
            done = yield from self.reconcile()
            if isinstance(failed[0], TestbedError):
                raise failed[0]
            return done
        else:
            self._cluster.find(kind, name, namespace)
            if (pod := self._maker.pod(name)) and pod.metadata.namespace == namespace:
                yield from self._maker.end(pod)
        return (yield from self.reconcile())

    def services(self) -> list[ServedPort]:
        """See `testbed.lab.Pods.services`."""
        return self._services.sync()

    def _nodes(self) -> list[NodeView]:
        found = []
        for host in self._maker.hosts():
            node = self._cluster.look("Node", host.name)
            found.append(NodeView(host.name, placement.labels_of(host.name, node), placement.taints_of(node)))
        return found

    def _place(self, waiting: Sequence[Run]) -> None:
        """Give the pods nodes, in the order of their making; the reason to those that get none."""
        hosts = {host.name: host for host in self._maker.hosts() if not host.off}
        nodes = [node for node in self._nodes() if node.name in hosts]
        for run in waiting:
            run.reason = self._completed(run)
        if any(placement.asked(run.pod) for run in waiting):
            for node in nodes:
                node.free = self._devices.free(hosts[node.name], self._cluster)
        crowd = Crowd()
        for one in self._cluster.all("Pod"):
            if one.spec.get("nodeName") in hosts:
                crowd.add(one.spec["nodeName"], one)
        for run in waiting:
            if not run.node and not run.reason:
                run.node, run.reason = self._node_for(run.pod, nodes, crowd)
                if run.node:
                    crowd.add(run.node, run.pod)
            for node in nodes:
                if node.name == run.node:
                    node.free.subtract(placement.asked(run.pod))
            if run.reason:
                self._wait(run)

    def _completed(self, run: Run) -> str:
        """Put into a pod what webhooks put into it before a scheduler sees it; return why they refuse it."""
        try:
            run.pod = completed(run.pod, self._cluster)
        except InputError as error:
            return error.message
        there = self._cluster.look("Pod", run.pod.name, run.pod.namespace)
        uid = run.pod.data["metadata"]["uid"]
        if there and there.data["metadata"].get("uid") != uid:
            return f'pods "{run.pod.name}" already exists'
        return ""

    @staticmethod
    def _node_for(pod: Object, nodes: Sequence[NodeView], crowd: Crowd) -> tuple[str, str]:
        if named := pod.spec.get("nodeName"):
            there = any(node.name == named for node in nodes)
            return (named, "") if there else ("", f"the lab has no node {named}")
        return placement.place(pod, nodes, crowd)

    def _wait(self, run: Run) -> None:
        """Make an object of a pod that waits, with the reason."""
        pod = f"{run.pod.namespace}/{run.pod.name}" if run.pod.namespace != manifests.DEFAULT else run.pod.name
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": run.reason}
        if run.node:
            condition = {
                "type": "PodReadyToStartContainers",
                "status": "False",
                "reason": SANDBOX,
                "message": run.reason,
            }
        status = {"phase": "Pending", "conditions": [condition]}
        spec = {**run.pod.spec, **({"nodeName": run.node} if run.node else {})}
        before = self._cluster.look("Pod", run.pod.name, run.pod.namespace)
        if before and before.data["metadata"].get("uid") != run.pod.data["metadata"]["uid"]:
            return  # the object of another pod with this name
        self._cluster.put(
            Object("Pod", run.pod.name, run.pod.namespace, {**run.pod.data, "spec": spec, "status": status})
        )
        if before is None or before.data.get("status") != status:
            self._context.emit(events.POD(host=run.node or None), pod, f"waits: {run.reason}")

    def _start_and_end(self, starting: Sequence[Run], leaving: Sequence[Run]) -> Steps[bool]:
        """Start pods and end others, side by side. Return whether one has started."""
        jobs = [partial(self._start, run) for run in starting] + [partial(self._end, run) for run in leaving]
        outcomes = yield from together(jobs, AT_ONCE)
        for outcome in outcomes[len(starting) :]:
            if isinstance(outcome, TestbedError):
                raise outcome
        return any(run.state == "running" for run in starting)

    def _start(self, run: Run) -> Steps[None]:
        host = next(one for one in self._maker.hosts() if one.name == run.node)
        start = self._start_of(run)
        networks = () if run.pod.spec.get("hostNetwork") else start.networks
        try:
            pod = yield from self._maker.start(
                PodRequest(host, run.pod.name, networks, self._metadata(run.pod)), start.caller
            )
        except TestbedError as error:
            run.reason = error.message
            if isinstance(error, UnschedulableError) and not run.pod.spec.get("nodeName"):
                run.node = ""
            self._wait(run)
            return
        run.state, run.reason = "running", ""
        self._made[run.pod.namespace, run.pod.name] = pod

    def _start_of(self, run: Run) -> Start:
        kind, name = owner_of(run.pod)
        if kind == "ReplicaSet" and (there := self._cluster.look(kind, name, run.pod.namespace)):
            above, named = owner_of(there)
            kind, name = (above, named) if above else (kind, name)
        owner = f"{kind}/{run.pod.namespace}/{name}" if kind else str(run.pod)
        return self._managed.get(owner, Start())

    def _metadata(self, pod: Object) -> PodMetadata:
        spec = PodSpec.model_validate(pod.spec)
        first = spec.containers[0]
        privileged = bool((pod.spec["containers"][0].get("securityContext") or {}).get("privileged"))
        container = None
        if first.image and docker.has_image(first.image):
            container = Container(first.image, tuple(first.args or ()), tuple(first.command or ()))
        elif first.image not in self._without_image:
            self._without_image.add(first.image)
            note = f"the lab has no image {first.image}: its pods start without their program"
            self._context.emit(events.OBJECT(), "", note)
        return PodMetadata(
            pod.namespace,
            pod.labels,
            pod.annotations,
            privileged=privileged,
            container=container,
            host_network=spec.hostNetwork,
            manifest=pod.data,
            env={one.name: one.value for one in first.env or ()},
        )

    def _end(self, run: Run) -> Steps[None]:
        key = run.pod.namespace, run.pod.name
        pod = self._made.pop(key, None)
        self._runs.pop(key, None)
        if pod is None or pod.gone:
            self._runs[key] = run
            self._drop(run)
        else:
            yield from self._maker.end(pod)

    def _outcome(self) -> Rollout:
        waiting = {run.pod.name: run.reason for run in self._runs.values() if run.state == "waiting"}
        return Rollout([], [self._made[key] for key in self._runs if key in self._made], waiting)


def _nothing() -> None:
    """Cancel what is not planned."""


def checked(objects: Sequence[Object]) -> None:
    """Raise InputError, with places, for workloads whose pods cannot be made."""
    for one in objects:
        if model := WORKLOADS.get(one.kind):
            problems = Problems(one.document, "" if one.document else str(one))
            manifests.check(one, model, problems)
            problems.stop()


def _with_uid(pod: Object, number: int) -> Object:
    """Return the pod with a UID, which it keeps in all its sandboxes."""
    unique = hashlib.sha256(f"{pod}/{number}".encode()).hexdigest()
    metadata = {**pod.data["metadata"], "uid": str(uuid.UUID(unique[:32]))}
    return Object(pod.kind, pod.name, pod.namespace, {**pod.data, "metadata": metadata}, pod.document)
