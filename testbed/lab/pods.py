"""Pods of a lab: their making and their deletion."""

import hashlib
import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from testbed.errors import InputError, TestbedError
from testbed.kernel.rtnetlink import FAMILIES
from testbed.lab import fabric
from testbed.lab.context import Context
from testbed.lab.fabric import Above
from testbed.lab.interface import Interface
from testbed.lab.node import Node, take_down
from testbed.lab.nodes.host_node import Host, Pod, PodMetadata, Program
from testbed.lab.steps import Steps, pause, together
from testbed.protocol import events
from testbed.topology import Container
from testbed.topology.values import check_label

T = TypeVar("T")
Network = str | Path | Mapping[str, Any]
"""A network that a pod is attached to: a CNI conflist, as a file or as what is in one."""


class UnschedulableError(TestbedError):
    """A pod that its node has no devices for; no plugin was called."""


@dataclass(frozen=True)
class Caller:
    """The way in which the programs above the CNI plugins start a pod. Times are in seconds."""

    side_by_side: bool = False
    """True if a pod's networks are added at once, as containerd does with those of its own configuration. Multus adds
    one after the other."""
    attempts: int = 1
    """Number of sandboxes to try, each of them another container."""
    pause: float = 10.0
    """Seconds before the next attempt."""
    plugin_limit: float = 30.0
    """Seconds that a plugin may take. libcni has no limit."""
    pod_limit: float = math.inf
    """Seconds that all plugins of an attempt may take together."""
    deletes_failed: bool = True
    """True if a failed ADD is followed by DEL and the end of the sandbox, as CNI demands of a runtime. If not, the pod
    stays in the lab with what the plugins made before the error, and no plugin is called for it again. There is one
    attempt then."""
    pending: float = 0.0
    """Seconds that the pod may wait for devices of its node which other pods have. After them it is refused."""

    def __post_init__(self) -> None:
        if not self.deletes_failed and self.attempts > 1:
            raise InputError("a pod that stays after a failed ADD keeps its name, so only one attempt is possible")


def kubelet(attempts: int = 30) -> Caller:
    """
    Return a caller that starts a pod as kubelet with containerd does.

    An attempt may take twice the runtime-request-timeout of 2 minutes, the next one is 10 s later (kubelet adds up to 5
    s at random, and tries for ever), and a plugin has no limit of its own.
    """
    return Caller(attempts=attempts, pause=10.0, plugin_limit=math.inf, pod_limit=240.0)


class Objects(Protocol):
    """Objects of Kubernetes that networks of pods need, as they are in an API server: `lab.objects`.

    Known are NetworkAttachmentDefinition, SpiderMultusConfig, SpiderCoordinator, SpiderIPPool, SpiderSubnet,
    SpiderReservedIP, SriovNetworkNodePolicy, SriovNetwork, SriovIBNetwork, MacvlanNetwork, HostDeviceNetwork,
    IPoIBNetwork, NicClusterPolicy, Service, NetworkPolicy, MultiNetworkPolicy, ConfigMap, Secret, Namespace, Node, Pod,
    Deployment, ReplicaSet, StatefulSet, ControllerRevision, DaemonSet, Job, PyTorchJob, TFJob, MPIJob, DeviceClass,
    ResourceClaim, ResourceClaimTemplate, ResourceSlice, Topology and TASPolicy. `lab.pods` makes the Pods, a
    SpiderMultusConfig makes a NetworkAttachmentDefinition, and a SpiderSubnet a SpiderIPPool for each application.
    """

    def apply(self, manifest: str | Path | Mapping[str, Any]) -> list[str]:
        """
        Add the objects of a manifest, or replace existing ones: all of them, or none if one is wrong.

        A manifest is a YAML file beside the scenario or the test, or one object as a dict. Return the names of the
        objects, such as ``SpiderIPPool/rail1`` or ``Deployment/default/web``. InputError with line and column. Objects
        of kinds that nothing in a lab reads are passed over, with an event for each kind.
        """

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
        """Return an object as it was applied. InputError if it does not exist."""

    def list(self, kind: str) -> list[dict[str, Any]]:
        """Return all objects of a kind, in the order of namespaces and names."""

    def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        """Delete an object. InputError if it does not exist."""


class PodRequest(NamedTuple):
    """A pod for `Pods.create_all` to make: as in `Pods.create`."""

    host: Host
    name: str
    networks: Sequence[Network] = ()
    metadata: PodMetadata = PodMetadata()
    program: Program | None = None
    """Starts the program of a pod that has no container."""


class Lost(NamedTuple):
    """A pod whose node has gone down, and its sandboxes: the networks to which they were attached."""

    wanted: PodRequest
    caller: Caller
    uid: str
    sandboxes: Sequence[Any]


class Rollout(NamedTuple):
    """The outcome of `Pods.apply` and `reconcile`."""

    objects: list[str]
    """The objects that were applied, such as ``Deployment/default/web``."""
    pods: list[Pod]
    """All pods of workloads and manifests that are there, in the order of their making."""
    waiting: dict[str, str]
    """Why pods wait, by their names."""


@dataclass(frozen=True)
class Start:
    """How the pods of a manifest start: the networks that each has before those of its annotations, and the caller."""

    networks: Sequence[Network] = ()
    caller: Caller = Caller()
    program: Program | None = None
    """Starts the programs of pods whose images the lab does not have."""


class Maker(NamedTuple):
    """What controllers of pods need of a lab."""

    hosts: Callable[[], list[Host]]
    above: Callable[[Host], Above]
    """Returns the switches above a host."""
    uplinks: Callable[[str], list[Interface]]
    """Returns the ports of a switch that lead to switches."""
    pod: Callable[[str], Pod | None]
    start: Callable[[PodRequest, Caller], Steps[Pod]]
    end: Callable[[Pod], Steps[None]]
    stop: Callable[[Pod], Steps[None]]
    """End the sandbox of a pod whose container has ended; its object stays."""


class Workloads(Protocol):
    """The controllers of workloads, whose pods `Pods` makes. All are jobs."""

    def apply(self, manifest: str | Path | Mapping[str, Any], start: Start) -> Steps[Rollout]: ...

    def reconcile(self) -> Steps[Rollout]: ...

    def node_is_off(self, name: str) -> None:
        """Take notice of a node that goes down."""

    def is_ready(self, name: str) -> bool:
        """Return whether a node counts as ready: it is up, or has been down for less than 40 s."""

    def delete(self, wanted: Sequence[tuple[str, str, str]]) -> Steps[Rollout]:
        """Delete objects by kind, name and namespace: the `objects` of the outcome; `waiting` has those that stay until
        others let them go. InputError if one is not there, and nothing is deleted."""

    def services(self) -> Sequence[Any]: ...

    def hold_services(self, node: str) -> Callable[[], None]:
        """Leave the Services and names on a node as they are, until the returned function is called."""

    def held(self) -> AbstractContextManager[None]:
        """Start no pod by itself in the block."""


class Networks(Protocol):
    """The networks that pods attach to: PodNetworks of `testbed.cni.runtime.pod_networks`, passed to a lab, which does
    not know CNI. All are jobs, so that several pods can start at once."""

    def objects(self, context: Context) -> Objects:
        """Return the objects of the lab."""

    def workloads(self, context: Context, maker: Maker) -> Workloads:
        """Return the controllers of the lab."""

    def reclaim(self, context: Context, grace: float, every: float) -> Callable[[], None]:
        """See `Pods.reclaim`."""

    def attach(self, pod: Pod, networks: Sequence[Network], caller: Caller) -> Steps[None]:
        """Add the interfaces of the pod. If that fails, `detach` undoes what was done."""

    def check(self, pod: Pod) -> Steps[None]: ...

    def detach(self, pod: Pod, *, again: bool = False) -> Steps[None]:
        """Detach the pod from its networks, the last one first. A second call does nothing. With `again` only its
        sandbox ends, and the pod gets another one."""

    def forget(self, pod: Pod, *, again: bool = False) -> None:
        """Forget a pod that is to end without `detach`."""

    def removed(self, wanted: PodRequest) -> None:
        """Remove the object of a pod that has no sandbox, and what is kept for it."""

    def crash(self, pod: Pod) -> Sequence[Any]:
        """Forget a pod whose node goes down, and return its sandboxes. Its object stays."""

    def late(self, host: Host, sandboxes: Sequence[Any]) -> Steps[None]:
        """Detach sandboxes whose network namespaces have gone."""

    def lives(self, wanted: PodRequest, uid: str) -> bool:
        """Return whether kubelet makes the pod a new sandbox: its object is there and not deleted, and its policy does
        not leave it as it has ended."""

    def restarted(self, host: Host) -> None:
        """Start what a node has for its pods, after a reboot."""

    def collect(self, host: Host, networks: Sequence[Network]) -> Steps[None]: ...

    def status(self, host: Host, networks: Sequence[Network]) -> Steps[None]: ...


class Pods:
    """The pods of a lab, made and deleted here."""

    def __init__(self, nodes: dict[str, Node[Any]], networks: Networks | None, context: Context) -> None:
        """`nodes` are all of the lab, to which pods are added."""
        self._nodes = nodes
        self._networks = networks
        self._context = context
        self._run = context.scheduler.run
        self._made = 0
        self._operations: dict[Pod, str] = {}
        """The operation under way for each pod."""
        self._started: dict[Pod, tuple[PodRequest, Caller]] = {}
        """How the pods that are there were made."""

    @property
    def networks(self) -> Networks:
        if self._networks is None:
            hint = "Give it `networks=PodNetworks(…)` of testbed.cni.runtime.pod_networks."
            raise InputError("this lab has no pods", hint=hint)
        return self._networks

    @property
    def objects(self) -> Objects:
        return self.networks.objects(self._context)

    def create(
        self,
        host: Host,
        name: str,
        networks: Sequence[Network] = (),
        caller: Caller | None = None,
        *,
        namespace: str = "default",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        owner: str = "",
        privileged: bool = False,
        resources: Mapping[str, int] | None = None,
        container: Container | None = None,
    ) -> Pod:
        """
        Make a pod on a host, attached to `networks` in their order: its interfaces are eth0, net1, net2, …

        A network is a conflist: a file beside the scenario or the test, or a dict. See docs/cni.md. Networks of the
        annotation ``k8s.v1.cni.cncf.io/networks`` follow. If a network refuses the pod, nothing of it is left. Without
        `caller` there is one attempt, made as Multus makes it. The rest is the pod's Kubernetes metadata: see
        `PodMetadata`. Programs of a `privileged` pod find the files of all RDMA devices of its node. With a `container`
        they are those of its image, which the scenario names in `images`.
        """
        given = dict(labels or {}), dict(annotations or {})
        metadata = PodMetadata(namespace, *given, owner, privileged, dict(resources or {}), container)
        return self._run(self._create(PodRequest(host, name, networks, metadata), caller or Caller()))

    def apply(
        self,
        manifest: str | Path | Mapping[str, Any],
        networks: Sequence[Network] = (),
        caller: Caller | None = None,
        program: Program | None = None,
    ) -> Rollout:
        """
        Add the objects of a manifest as `Objects.apply` does, and start the pods of those that are a Pod, Deployment,
        ReplicaSet, StatefulSet, DaemonSet, Job, PyTorchJob, TFJob or MPIJob, as the controllers and the scheduler of
        a cluster do.

        A pod has the networks of its annotations, `networks` before them, or as eth0 Multus' `clusterNetwork`. Its
        program runs if the machine has its image, else `program` may start one. A workload that is there already
        changes as in a cluster: by a rolling update. What cannot start is in `waiting`, and is tried again after 10 s,
        later up to 300 s, and by every `apply` and `reconcile`. InputError, with line and column, if an object is
        wrong: nothing changes then.
        """
        return self._run(self._workloads.apply(manifest, Start(networks, caller or Caller(), program)))

    def reconcile(self) -> Rollout:
        """Do what the controllers of applied workloads have to do now, such as replace a pod that was deleted."""
        if self._networks is None:
            return Rollout([], [], {})
        return self._run(self._workloads.reconcile())

    def delete_object(self, kind: str, name: str, namespace: str = "default") -> Rollout:
        """Delete an object as `kubectl delete` does: with a workload its pods end, and a pod ends as `Pod.delete` ends
        it, and is replaced if a workload wants it. InputError if there is none."""
        return self.delete_objects([(kind, name, namespace)])

    def delete_objects(self, wanted: Sequence[tuple[str, str, str]]) -> Rollout:
        """Delete objects by kind, name and namespace, as `delete_object` does one: all, or none if one is not there."""
        return self._run(self._workloads.delete(wanted))

    def services(self) -> Sequence[Any]:
        """Return the ports of Services, each with the endpoints that the nodes send connections to now: `service`,
        `address`, `port`, `protocol`, and `endpoints` with `address`, `port`, `pod` and `node`."""
        return self._workloads.services()

    def hold_services(self, host: Host) -> Callable[[], None]:
        """Stop kube-proxy and the DNS cache of a host: its Services and the names that its pods find stay as they are,
        whatever becomes of pods, until the returned function is called. Services by BPF at the socket are not held."""
        return self._workloads.hold_services(host.name)

    @property
    def _workloads(self) -> Workloads:
        return self.networks.workloads(
            self._context,
            Maker(
                self._hosts,
                partial(fabric.above, nodes=self._nodes),
                partial(fabric.uplinks, nodes=self._nodes),
                self._pod,
                self._create,
                self._delete,
                self._stop,
            ),
        )

    def _hosts(self) -> list[Host]:
        return [node for node in self._nodes.values() if isinstance(node, Host) and not isinstance(node, Pod)]

    def _pod(self, name: str) -> Pod | None:
        found = self._nodes.get(name)
        return found if isinstance(found, Pod) else None

    def create_all(
        self,
        pods: Iterable[PodRequest | tuple[Host, str, Sequence[Network]]],
        at_once: int = 10,
        caller: Caller | None = None,
    ) -> list[Pod | TestbedError]:
        """Make several pods, `at_once` of them side by side. Return each, or the error that refused it, in order."""
        jobs = [partial(self._create, PodRequest(*pod), caller or Caller()) for pod in pods]
        return self._run(together(jobs, at_once))

    def _create(self, wanted: PodRequest, caller: Caller, uid: str = "") -> Steps[Pod]:
        """Make a pod. With a `uid` it is one that was there before, in other sandboxes."""
        self._made += 1
        unique = hashlib.sha256(f"{self._context.lab}/{wanted.name}/{self._made}".encode()).hexdigest()
        uid = uid or wanted.metadata.uid or str(uuid.UUID(unique[:32]))
        for attempt in range(1, caller.attempts):
            try:
                return (yield from self._attempt(wanted, caller, uid, again=True))
            except InputError:
                if not wanted.metadata.manifest:
                    self.networks.removed(wanted)
                raise
            except TestbedError as error:
                host = wanted.host
                again = f"refused on {host.name}, attempt {attempt} of {caller.attempts}: {error.message}"
                data = events.POD_REFUSED(host=host.name, attempt=attempt, error=error.message)
                host.context.emit(data, wanted.name, again)
            yield from pause(caller.pause)
        return (yield from self._attempt(wanted, caller, uid, again=bool(wanted.metadata.manifest)))

    def _attempt(self, wanted: PodRequest, caller: Caller, uid: str, *, again: bool) -> Steps[Pod]:
        host, name, networks, metadata, program = wanted
        plugged = self.networks
        self._check_name(host, name)
        pod = self._nodes[name] = Pod(host, name, self, metadata, uid, program)
        self._started[pod] = wanted, caller
        return (yield from self._alone(pod, "created", self._attached(pod, plugged, networks, caller, again)))

    def _alone(self, pod: Pod, operation: str, job: Steps[T]) -> Steps[T]:
        """Run the job, unless another one is under way for the pod, which a timer has interrupted."""
        if under_way := self._operations.get(pod):
            wrong = f"{pod.name} cannot be {operation} while it is being {under_way}"
            raise InputError(f"{wrong}: CNI allows one operation at a time for a container")
        self._operations[pod] = operation
        try:
            with self._context.view.quietly(pod.host, pod):
                return (yield from job)
        finally:
            del self._operations[pod]

    def _attached(
        self, pod: Pod, plugged: Networks, networks: Sequence[Network], caller: Caller, again: bool
    ) -> Steps[Pod]:
        host, name = pod.host, pod.name
        try:
            yield from plugged.attach(pod, networks, caller)
        except BaseException as error:
            wrong_input = isinstance(error, InputError | UnschedulableError)  # found before any plugin is called
            if isinstance(error, TestbedError) and not (wrong_input or caller.deletes_failed):
                plugged.forget(pod)
                self._watch(pod)
                pod.context.emit(events.POD(host=host.name), name, f"left on {host.name} after a failed ADD: no DEL")
                raise
            try:
                if isinstance(error, TestbedError):  # after another error nothing that takes time is awaited
                    yield from self._detached(pod, again=again)
                else:
                    self._take_away(pod)
            except TestbedError as later:
                error.add_note(f"After that the pod could not be removed cleanly: {later}")
            raise
        self._watch(pod)
        try:
            pod.begin()
        except BaseException:
            yield from self._detached(pod)
            raise
        ends = pod.interfaces.values()
        given = [(end.name, end.addresses[family].ip) for family in FAMILIES for end in ends if family in end.addresses]
        text = f"created on {host.name}: {', '.join(f'{name} {ip}' for name, ip in given)}"
        pod.context.emit(events.POD(host=host.name), name, text)
        return pod

    def _watch(self, pod: Pod) -> None:
        if not pod.shares:  # else its node is followed already
            self._context.view.watch(pod)

    def _check_name(self, host: Host, name: str) -> None:
        if isinstance(host, Pod):
            raise InputError(f"{host} is a pod; pods run on hosts")
        if not isinstance(host, Host):
            raise InputError(f"{host!r} is no host", hint='Give one, such as lab.host("node1").')
        if host.off:
            raise InputError(f"{host} is down: it starts no pod")
        try:
            check_label(name)
        except ValueError as error:
            raise InputError(f"a pod cannot have this name: {error}") from None
        if (there := self._nodes.get(name)) is not None:
            what, hint = f"a {type(there).__name__.lower()} of the topology", "Choose another name."
            if isinstance(there, Pod):
                what, hint = f"a pod on {there.host}", "Delete it first (`pod.delete()`), or choose another name."
            raise InputError(f"{name} already exists: {what}", hint=hint)

    def check(self, pod: Pod) -> None:
        """Check a pod: see `Pod.check`."""
        self._run(self._alone(pod, "checked", self.networks.check(pod)))

    def detach(self, pod: Pod) -> None:
        self._run(self.networks.detach(pod))

    def delete(self, pod: Pod) -> None:
        """Delete a pod: see `Pod.delete`. InputError for what is no pod."""
        if not isinstance(pod, Pod):
            raise InputError(f"{pod!r} is no pod", hint="Give what `create` returned.")
        self._run(self._delete(pod))

    def delete_all(self, pods: Iterable[Pod], at_once: int = 10) -> None:
        """Delete several pods, of which `at_once` end side by side. Raise the first error after all have ended."""
        for outcome in self._run(together([partial(self._delete, pod) for pod in pods], at_once)):
            if outcome:
                raise outcome

    def _delete(self, pod: Pod) -> Steps[None]:
        if self._nodes.get(pod.name) is pod:
            yield from self._alone(pod, "deleted", self._detached(pod))
            pod.context.emit(events.POD(host=pod.host.name), pod.name, f"deleted from {pod.host.name}")

    def _stop(self, pod: Pod) -> Steps[None]:
        yield from self._alone(pod, "stopped", self._detached(pod, again=True))

    def _detached(self, pod: Pod, *, again: bool = False) -> Steps[None]:
        """End a pod in the order that the kernel needs: programs, networks, namespace."""
        pod.keep_addresses()
        try:
            pod.end_programs()
            yield from self.networks.detach(pod, again=again)
        finally:
            self._take_away(pod)

    def lose(self, pod: Pod) -> None:
        """Lose a pod: see `Pod.lose`."""
        if self._nodes.get(pod.name) is pod:
            pod.keep_addresses()
            self.networks.forget(pod)
            self._take_away(pod)
            pod.context.emit(events.POD(host=pod.host.name), pod.name, f"lost on {pod.host.name}: no DEL")

    def crash(self, host: Host) -> list[Lost]:
        """Lose all pods of a host that goes down; their objects stay. See `Lab.reboot`."""
        found = []
        for pod in [pod for pod in self._started if pod.host is host]:
            pod.keep_addresses()
            wanted, caller = self._started[pod]
            under_way = pod in self._operations
            lost = Lost(wanted, caller, pod.uid, self.networks.crash(pod))
            found += [] if under_way else [lost]  # an ADD that is under way fails, and its caller goes on from there
            self._take_away(pod)
            pod.context.emit(events.POD(host=host.name), pod.name, f"lost on {host.name}, which goes down")
        if self._networks:
            self._workloads.node_is_off(host.name)
        return found

    def come_back(self, hosts: Sequence[Host], lost: Sequence[Lost], *, late_del: bool) -> Rollout:
        """Start pods again, each after the DEL of its sandboxes if that comes `late_del`, as kubelet does after the
        boot of its node; then do what controllers have to do."""
        if self._networks is None:
            return self.reconcile()
        for host in hosts:
            self.networks.restarted(host)
        jobs = [partial(self._again, one, late_del=late_del) for one in lost]
        with self._workloads.held():
            outcomes = self._run(together(jobs, at_once=10))
        done = self.reconcile()
        there = {pod.name: pod for pod in (*done.pods, *(one for one in outcomes if isinstance(one, Pod)))}
        failed = {one.wanted.name: outcome for one, outcome in zip(lost, outcomes, strict=True)}
        waiting = {name: error.message for name, error in failed.items() if isinstance(error, TestbedError)}
        return Rollout([], list(there.values()), {**waiting, **done.waiting})

    def _again(self, lost: Lost, *, late_del: bool) -> Steps[Pod | None]:
        if late_del:
            yield from self.networks.late(lost.wanted.host, lost.sandboxes)
        if not self.networks.lives(lost.wanted, lost.uid):
            return None
        return (yield from self._create(lost.wanted, lost.caller, lost.uid))

    def collect(self, host: Host, networks: Sequence[Network]) -> None:
        """
        Run CNI's GC of `networks` on a host: release what their plugins hold for pods that no longer exist.

        As libcni does it: DEL for each pod that was added and is neither there nor deleted, then GC of each plugin if
        the network is of CNI 1.1.0 or later. Raise what failed, after all has been tried.
        """
        with self._context.view.quietly(host):
            self._run(self.networks.collect(host, networks))

    def status(self, host: Host, networks: Sequence[Network]) -> None:
        """Run CNI's STATUS of `networks` on a host; raise the error of a plugin that cannot serve a pod (CNI 1.1.0)."""
        self._run(self.networks.status(host, networks))

    def reclaim(self, grace: float = 35.0, every: float = 600.0) -> Callable[[], None]:
        """
        Start an IPAM's controller: `every` so many seconds it looks for addresses of `ippool` without a pod, and
        releases those that have been so for `grace` seconds. The returned function stops it.

        An address is without a pod if its pod is no object any more or another one, has succeeded or failed, or is
        terminating on a node that is not ready; or if no StatefulSet wants the pod that it is kept for. Nothing checks
        whether its container still runs. Spiderpool has 5 s after a pod's termination period of 30 s, and 600 s.
        """
        return self.networks.reclaim(self._context, grace, every)

    def _take_away(self, pod: Pod) -> None:
        try:
            take_down([pod])
        finally:
            self._nodes.pop(pod.name, None)
            self._started.pop(pod, None)
