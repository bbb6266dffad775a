"""The pods of workloads: their controllers, as far as a lab has their work.

`cni/objects/workloads.py` says what to make and to end, `pod_starts.py` does the scheduler's and kubelet's part. This
looks again until nothing follows. A pod that cannot start is tried again, as by kubelet.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.cni.objects import gangs, manifests, placement, pod_spec, workloads
from testbed.cni.objects.dra.claims import CLAIM
from testbed.cni.objects.manifests import NAMESPACES, Object, deleting
from testbed.cni.objects.pod_spec import WORKLOADS, PodSpec
from testbed.cni.objects.services import ServedPort
from testbed.cni.objects.training import kinds as training
from testbed.cni.objects.training import operators
from testbed.cni.objects.workloads import NODE_GRACE, Next, Run, evicted_after, owner_of
from testbed.cni.runtime.container_restarts import FIRST_PAUSE, LONGEST_PAUSE, ContainerRestarts
from testbed.cni.runtime.pod_files import PodFiles
from testbed.cni.runtime.pod_object import completed
from testbed.cni.runtime.pod_starts import PodStarts
from testbed.cni.runtime.policy_enforcer import PolicyEnforcer
from testbed.cni.runtime.service_proxy import ServiceProxy
from testbed.documents.problems import Problems
from testbed.errors import InputError, TestbedError
from testbed.kernel.syscalls import explained
from testbed.lab.context import Context
from testbed.lab.nodes.host_node import Pod
from testbed.lab.pods import Maker, Rollout, Start
from testbed.lab.steps import Steps, raise_first, together
from testbed.protocol import events

if TYPE_CHECKING:
    from testbed.cni.objects.lab_objects import Cluster
    from testbed.cni.runtime.scheduling import Devices
CONTROLLERS = (*(kind for kind in WORKLOADS if kind != "Pod"), *training.FRAMEWORKS)
STATEFUL = ("Job", "StatefulSet", *training.FRAMEWORKS, CLAIM)
"""The kinds whose status is more than a count of pods."""
OWNED = ("ReplicaSet", "ControllerRevision", "Job", "Service", "ConfigMap", "Secret")
"""The kinds that controllers make beside pods."""
LONGEST_NAME = 63
"""Characters of the name of a node of a lab, which a pod is."""
LOST_CONTAINER = 137
"""The status that kubelet gives a container of which it knows no end, after a reboot (ContainerStatusUnknown)."""
AT_ONCE = 10
"""Pods that start or end side by side."""


class Workloads:
    """The pods of the workloads and manifests that were applied for their pods."""

    def __init__(
        self,
        context: Context,
        maker: Maker,
        cluster: Cluster,
        devices: Devices,
        collector: Callable[[Callable[[str], bool]], Callable[[], None]],
        files: PodFiles,
    ) -> None:
        """`collector` starts the controller that frees addresses of pods that are no more, and returns what has it look
        at once; it is given the function that says whether a node is ready."""
        self._context, self._maker, self._cluster = context, maker, cluster
        self._starts = PodStarts(context, maker, cluster, devices)
        self._collector, self._files = collector, files
        self._services = ServiceProxy(context, maker, cluster)
        self._policies = PolicyEnforcer(context, maker, cluster)
        self._managed: dict[str, Start] = {}
        """The workloads whose pods are made here, by the names of their objects as text, and of Pods themselves."""
        self._runs: dict[tuple[str, str], Run] = {}
        """Pods by namespace and name."""
        self._made: dict[tuple[str, str], Pod] = {}
        self._numbers = itertools.count()
        self._busy = self._missed = False
        self._pause = FIRST_PAUSE
        self._later = math.inf
        """Seconds for which a controller waits."""
        self._unplanned: Callable[[], None] = _nothing
        """Cancels the next attempt."""
        self._containers = ContainerRestarts(context, cluster, self._follow)
        self._conflicts: set[str] = set()
        """What could not be made in the last round."""
        self._looks: Callable[[], None] | None = None
        """Cancels a look that is about to come."""
        self._silent: dict[str, float] = {}
        """When the nodes that are down were first missed."""
        self._tainted: dict[tuple[int, str], float] = {}
        """When pods, by their numbers, were first seen on a node with a taint that they tolerate for a time."""
        self._collect_addresses: Callable[[], None] = _nothing

    def apply(self, manifest: str | Path | Mapping[str, Any], start: Start) -> Steps[Rollout]:
        """Add the objects, or replace them; start and end the pods that follow. InputError, and nothing is changed, if
        an object is wrong."""
        found = self._cluster.read(manifest)
        checked(found.objects, self._cluster.look)
        mine = [one for one in found.objects if one.kind in CONTROLLERS]
        singles = [one for one in found.objects if one.kind == "Pod"]
        new = [one for one in singles if not self._is_there(one)]
        others = [self._with_status(one) for one in found.objects if one.kind != "Pod"]
        self._cluster.take(others, [*found.notes, *self._of_no_namespace(found.objects)])
        if self._collect_addresses is _nothing:
            self._collect_addresses = self._collector(self.is_ready)
        for one in [*mine, *singles]:
            self._managed[str(one)] = start
        for one in singles:
            if one in new:
                self._add(one)
            else:
                self._relabel(one)
        self._pause = FIRST_PAUSE
        done = yield from self.reconcile()
        return done._replace(objects=[str(one) for one in found.objects])

    def _of_no_namespace(self, objects: Sequence[Object]) -> list[str]:
        """Return a remark for each namespace that a cluster would miss."""
        there = {*NAMESPACES, *(one.name for one in self._cluster.all("Namespace"))}
        there |= {one.name for one in objects if one.kind == "Namespace"}
        missing = dict.fromkeys(one.namespace for one in objects if one.namespace and one.namespace not in there)
        return [f"there is no Namespace {name}: a cluster refuses what is in it, a lab takes it" for name in missing]

    def _relabel(self, pod: Object) -> None:
        """Give a pod that is there the labels and annotations of its manifest."""
        run = self._runs[pod.namespace, pod.name]
        run.pod = _relabelled(run.pod, pod)
        if there := self._cluster.look("Pod", pod.name, pod.namespace):
            self._cluster.put(_relabelled(there, pod))

    def _add(self, pod: Object) -> None:
        number = next(self._numbers)
        self._runs[pod.namespace, pod.name] = Run(_with_uid(pod, number), number)

    def _with_status(self, one: Object) -> Object:
        """Return a DaemonSet with the number of its pods, by which its pools are sized, and a Job, a StatefulSet or a
        claim with what has become of it. A status that the user wrote does not count, as in a cluster."""
        status: Mapping[str, Any] = {}
        if one.kind not in (*CONTROLLERS, *STATEFUL):
            return one
        if one.kind == "DaemonSet":
            status = {"desiredNumberScheduled": len(workloads.daemon_nodes(one, self._starts.nodes()))}
        elif one.kind in STATEFUL and (there := self._cluster.look(one.kind, one.name, one.namespace)):
            status = there.data.get("status") or {}
        return Object(one.kind, one.name, one.namespace, {**one.data, "status": status}, one.document)

    def _is_there(self, one: Object) -> bool:
        """Return whether a Pod is there already. InputError if it is another one."""
        run = self._runs.get((one.namespace, one.name))
        if run is None:
            return False
        before, now = ({**completed(pod, self._cluster).spec} for pod in (run.pod, one))
        if now.pop("nodeName", run.node) != run.node and run.node:
            changed = ["nodeName"]
        else:
            before.pop("nodeName", None)
            changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        if changed:
            hint = f"`testbed delete pod {one.name}` first."
            wrong = (
                f"Pod {one.name} is invalid: spec.{changed[0]}: Forbidden: a lab does not change a pod that is there"
            )
            raise InputError(wrong, where=one.document.source if one.document else "", hint=hint)
        return True

    def reconcile(self) -> Steps[Rollout]:
        """Do what the controllers have to do now, until nothing follows: make pods, end pods, and try those that
        wait."""
        if self._busy:
            self._missed = True
            return self._outcome()
        self._busy = True
        self._missed = False
        self._unplanned()
        try:
            yield from self._rounds()
            self._starts.claims.settle()
            self._sync_services()
            self._policies.sync()
        finally:
            self._busy = False
            self._plan()
            if self._missed:
                self._soon()
        return self._outcome()

    def _sync_services(self) -> list[ServedPort]:
        """Give the Services to the nodes, and their names to the pods."""
        found = self._services.sync()
        self._files.sync(self._services.names, self._services.held, self._cluster.look)
        return found

    def _plan(self) -> None:
        """Look again later while pods wait, or may end by themselves."""
        waits = any(run.state == "waiting" for run in self._runs.values())
        if not waits:
            self._pause = FIRST_PAUSE
        seconds = min(self._pause if waits else math.inf, self._later, self._containers.next(self._runs.values()))
        if seconds < math.inf:
            self._unplanned = self._context.scheduler.after(seconds, self._again)

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
            self._starts.claims.settle()
            self._sync_services()
            there = [one for kind in CONTROLLERS for one in self._cluster.all(kind)]
            mine = [one for one in there if str(one) in self._managed or self._of_managed(one, there)]
            revisions = self._cluster.all("ControllerRevision")
            following = workloads.following(
                mine, list(self._runs.values()), self._starts.nodes(), partial(next, self._numbers), revisions
            )
            owned = [one for kind in ("Service", "ConfigMap", "Secret") for one in self._cluster.all(kind)]
            runs = list(self._runs.values())
            operators.follow(mine, runs, owned, partial(next, self._numbers), _key_pair, following)
            self._later = following.later
            self._cluster.put(*following.objects)
            self._remove(following.gone)
            leaving = [*following.ended, *self._orphans({str(one) for one in mine})]
            leaving += [run for run in self._driven_off() if run not in leaving]
            made = [one for one in following.made if (one.namespace, one.name) not in self._runs]
            for one in made:
                self._add(one)
            self._report_conflicts(following, made)
            up = {host.name for host in self._maker.hosts() if not host.off}
            if lost := self._of_no_node():
                for run in lost:
                    self._collect(run)
                continue
            waiting = [run for run in self._runs.values() if run.state == "waiting" and run not in leaving]
            waiting = [run for run in waiting if run.node in ("", *up)]
            trying = [run for run in waiting if tried.get(run.number, -1) < ended]
            tried.update(dict.fromkeys((run.number for run in trying), ended))
            self._starts.place(trying)
            starting = [run for run in trying if run.node and not run.reason]
            started = yield from self._start_and_end(starting, leaving)
            ended += bool(leaving)
            if not (started or leaving or following.objects or made or following.gone):
                return

    def _report_conflicts(self, following: Next, made: Sequence[Object]) -> None:
        """Say once what cannot be made because of its name."""
        pods = [one for one in following.made if one not in made]
        texts = [f'{"/".join(owner_of(one))}: pods "{one.name}" already exists' for one in pods]
        for text in [*following.conflicts, *texts]:
            if text not in self._conflicts:
                self._context.emit(events.OBJECT(), "", text)
        self._conflicts = {*following.conflicts, *texts}
        if self._conflicts:
            self._later = min(self._later, LONGEST_PAUSE)

    def _remove(self, gone: Sequence[Object]) -> None:
        """Delete objects that controllers delete."""
        for one in gone:
            self._managed.pop(str(one), None)
            self._cluster.remove(one)
            self._context.emit(events.OBJECT(object=str(one)), "", f"{one} is deleted")

    def _driven_off(self) -> list[Run]:
        """Return the pods that a taint NoExecute drives off their nodes now."""
        taints = {node.name: node.taints for node in self._starts.nodes()}
        found, now = [], time.monotonic()
        seen: dict[tuple[int, str], float] = {}
        for run in self._runs.values():
            if not run.node or run.state not in ("waiting", "running"):
                continue
            taint, seconds = placement.evicting(PodSpec.model_validate(run.pod.spec), taints.get(run.node, ()))
            if taint is None:
                continue
            text = f"{taint['key']}={taint.get('value', '')}:NoExecute"
            began = seen[run.number, text] = self._tainted.get((run.number, text), now)
            if now >= began + seconds:
                self._context.emit(events.POD(host=run.node), run.pod.name, f"is deleted: {run.node} has {text}")
                self._managed.pop(str(run.pod), None)
                found.append(run)
            else:
                self._later = min(self._later, began + seconds - now)
        self._tainted = seen
        return found

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
            elif run.active and (status := pod.exit_status()) is not None:
                run.exit_code = status
                if self._containers.wanted(run, status):
                    self._containers.restart(run, pod)
                    continue
                run.state, run.ended_s = ("failed" if status else "succeeded"), time.monotonic()
                del self._made[key]
                yield from self._stop(run, pod)

    def _follow(self, pod: Pod) -> None:
        """Look at the pods as soon as the program of this one has ended."""
        if first := pod.first_process:
            with contextlib.suppress(ProcessLookupError):  # it has ended already, which the next look finds
                self._context.scheduler.programs.watch(first, self._soon)

    def _soon(self) -> None:
        """Look at the pods from the next wait on, once however many programs have ended."""
        if self._looks is None:
            self._looks = self._context.scheduler.after(0, self._look_now)

    def _look_now(self) -> None:
        self._looks = None
        self._retry()

    def _stop(self, run: Run, pod: Pod) -> Steps[None]:
        """End the sandbox of a pod that has succeeded or failed: its object stays, its addresses and devices do not."""
        self._containers.show_phase(run)
        yield from self._maker.stop(pod)
        self._account(run)

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
            run.restarts, run.exit_code = run.restarts + 1, LOST_CONTAINER
            self._started(run, pod)
            self._containers.show(run, waits=False)
        elif there is None or there.data["metadata"].get("uid") != uid:
            del self._runs[key], self._made[key]
        elif run.node not in {one.name for one in self._maker.hosts()}:
            del self._made[key]
            self._collect(run)
        elif host:
            del self._made[key]
            run.state = "waiting"
            if run.pod.spec.get("restartPolicy") == "Never":  # kubelet makes it no other sandbox
                run.state, run.ended_s, run.exit_code = "failed", time.monotonic(), LOST_CONTAINER
                self._containers.show_phase(run)
                self._account(run)
            if there.data["metadata"].get("deletionTimestamp"):
                self._drop(run)
        elif time.monotonic() >= self._silent.setdefault(run.node, time.monotonic()) + evicted_after(run.pod):
            if run.state != "terminating":
                self._context.emit(events.POD(host=run.node), run.pod.name, f"is deleted: {run.node} is unreachable")
                self._cluster.put(deleting(there))
                self._collect_addresses()
            run.state = "terminating"

    def node_is_off(self, name: str) -> None:
        """See `testbed.lab.pods.Workloads`: look at the pods of the node when they count as evicted."""
        self._silent[name] = time.monotonic()
        times = sorted({evicted_after(run.pod) for run in self._runs.values()} - {math.inf})
        for seconds in times:
            self._context.scheduler.after(seconds, self._retry)

    def is_ready(self, name: str) -> bool:
        """Return whether a node counts as ready: it is up, or has been down for a short time only."""
        return time.monotonic() < self._silent.get(name, math.inf) + NODE_GRACE

    def _drop(self, run: Run) -> None:
        """Remove a pod that has no sandbox."""
        del self._runs[run.pod.namespace, run.pod.name]
        there = self._cluster.look("Pod", run.pod.name, run.pod.namespace)
        if there and there.data["metadata"].get("uid") == run.pod.data["metadata"]["uid"]:
            self._cluster.remove(run.pod)
            self._cluster.give_back(run.pod)

    def _orphans(self, there: set[str]) -> list[Run]:
        """Return pods, and delete what else controllers have made, whose owner is no more: the work of the garbage
        collector."""
        for one in [one for kind in OWNED for one in self._cluster.all(kind)]:
            kind, name = owner_of(one)
            if kind in CONTROLLERS and self._cluster.look(kind, name, one.namespace) is None:
                self._cluster.remove(one)
        found = []
        for run in self._runs.values():
            kind, name = owner_of(run.pod)
            owner = f"{kind}/{run.pod.namespace}/{name}" if kind else str(run.pod)
            if (owner not in there) if kind else (owner not in self._managed):
                found.append(run)
        return found

    def delete(self, wanted: Sequence[tuple[str, str, str]]) -> Steps[Rollout]:
        """See `testbed.lab.pods.Workloads`."""
        found = [self._cluster.find(*one) for one in wanted]
        for one in found:
            if one.kind == "Namespace":
                found += self._within(one)
        pods = [one for one in found if one.kind == "Pod"]
        staying = self._cluster.delete_all([one for one in found if one.kind != "Pod"])
        for one in found:
            self._managed.pop(str(one), None)
        outcomes = yield from together([partial(self._delete_pod, one) for one in pods], AT_ONCE)
        done = yield from self.reconcile()
        raise_first(outcomes)
        waiting = {str(one): f"its {'devices' if one.kind == CLAIM else 'addresses'} are in use" for one in staying}
        return done._replace(
            objects=[str(one) for one in found if str(one) not in waiting], waiting={**done.waiting, **waiting}
        )

    def _within(self, namespace: Object) -> list[Object]:
        """Return all objects of a namespace that is to be deleted. InputError for one that stays."""
        if namespace.name in NAMESPACES:
            raise InputError(f'namespaces "{namespace.name}" is forbidden: this namespace may not be deleted')
        kinds = [kind for kind, known in manifests.KINDS.items() if known.namespaced]
        return [one for kind in kinds for one in self._cluster.all(kind) if one.namespace == namespace.name]

    def _delete_pod(self, one: Object) -> Steps[None]:
        if run := self._runs.get((one.namespace, one.name)):
            yield from self._end(run)
        elif (pod := self._maker.pod(one.name)) and pod.metadata.namespace == one.namespace:
            yield from self._maker.end(pod)
        else:
            self._cluster.remove(one)

    def services(self) -> list[ServedPort]:
        """See `testbed.lab.Pods.services`."""
        return self._sync_services()

    def hold_services(self, node: str) -> Callable[[], None]:
        """See `testbed.lab.pods.Workloads`."""
        self._context.emit(events.OBJECT(), node, "kube-proxy and the DNS cache stop")
        self._services.held.add(node)

        def go_on() -> None:
            self._context.emit(events.OBJECT(), node, "kube-proxy and the DNS cache go on")
            self._services.held.discard(node)
            self._sync_services()

        return go_on

    def _start_and_end(self, starting: Sequence[Run], leaving: Sequence[Run]) -> Steps[bool]:
        """Start pods and end others, side by side. Return whether one has started."""
        jobs = [partial(self._starts.start, run, self._start_of(run), self._started) for run in starting]
        jobs += [partial(self._end, run) for run in leaving]
        outcomes = yield from together(jobs, AT_ONCE)
        for outcome in outcomes[len(starting) :]:
            if isinstance(outcome, TestbedError):
                raise outcome
        return any(run.state == "running" for run in starting)

    def _started(self, run: Run, pod: Pod) -> None:
        self._made[run.pod.namespace, run.pod.name] = pod
        run.began_s = time.monotonic()
        self._follow(pod)

    def _start_of(self, run: Run) -> Start:
        kind, name = owner_of(run.pod)
        if kind in ("ReplicaSet", "Job") and (there := self._cluster.look(kind, name, run.pod.namespace)):
            above, named = owner_of(there)
            kind, name = (above, named) if above else (kind, name)
        owner = f"{kind}/{run.pod.namespace}/{name}" if kind else str(run.pod)
        return self._managed.get(owner, Start())

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
        pods = [self._made[key] for key in self._runs if key in self._made]
        return Rollout([], [pod for pod in pods if not pod.gone], waiting)


def _key_pair() -> tuple[str, str]:
    """Make a private key for ssh and its public one."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "key"
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(file)]
        with explained("a key for ssh cannot be made"):
            subprocess.run(command, check=True)
        return file.read_text(), file.with_suffix(".pub").read_text()


def _nothing() -> None:
    """Cancel what is not planned."""


def checked(objects: Sequence[Object], look: Callable[[str, str, str], Object | None]) -> None:
    """Raise InputError, with places, for workloads whose pods cannot be made, or that others cannot become."""
    for one in objects:
        if model := WORKLOADS.get(one.kind):
            problems = Problems(one.document, "" if one.document else str(one))
            manifests.check(one, model, problems)
            problems.stop()
        if one.kind in training.FRAMEWORKS:
            problems = Problems(one.document, "" if one.document else str(one))
            training.check(one, problems)
            problems.stop()
        if one.kind in (*WORKLOADS, *training.FRAMEWORKS):
            problems = Problems(one.document, "" if one.document else str(one))
            _check_metadata(one, problems)
            problems.stop()
        before = look(one.kind, one.name, one.namespace) if one.kind in pod_spec.FIXED else None
        if before and (key := pod_spec.fixed(one.kind, before.spec, one.spec)):
            problems = Problems(one.document, "" if one.document else str(one))
            problems.add(("spec", key), f"{one} is invalid: spec.{key}: Forbidden: the field is immutable")
            problems.stop(hint=f"`testbed delete {one.kind.lower()} {one.name}` first.")


def _check_metadata(one: Object, problems: Problems) -> None:
    """Add what is wrong with a pod's name, and with the annotations of a template."""
    if one.kind == "Pod" and len(one.name) > LONGEST_NAME:
        wrong = f"metadata.name: a pod of a lab has a name of {LONGEST_NAME} characters at most"
        problems.add(("metadata", "name"), wrong)
    template = one.spec.get("template") or {}
    try:
        gangs.check((template.get("metadata") or {}).get("annotations") or {})
    except InputError as error:
        problems.add(("spec", "template", "metadata", "annotations"), error.message)


def _relabelled(pod: Object, given: Object) -> Object:
    metadata = dict(pod.data["metadata"])
    metadata["labels"] = {**pod.labels, **given.labels}
    metadata["annotations"] = {**pod.annotations, **given.annotations}
    return Object(pod.kind, pod.name, pod.namespace, {**pod.data, "metadata": metadata}, pod.document)


def _with_uid(pod: Object, number: int) -> Object:
    """Return the pod with a UID, which it keeps in all its sandboxes."""
    unique = hashlib.sha256(f"{pod}/{number}".encode()).hexdigest()
    metadata = {**pod.data["metadata"], "uid": str(uuid.UUID(unique[:32]))}
    return Object(pod.kind, pod.name, pod.namespace, {**pod.data, "metadata": metadata}, pod.document)
