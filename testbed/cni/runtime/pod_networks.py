"""Pods on networks: the common work of kubelet, containerd and Multus when a pod starts and ends."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from testbed.cni.ipam import reclaim
from testbed.cni.ipam.address_store import ADDRESSES, Holder
from testbed.cni.ipam.address_store import Store as Addresses
from testbed.cni.objects import multus, variables
from testbed.cni.objects.database import OBJECTS, StoreError
from testbed.cni.objects.database import Store as Objects
from testbed.cni.objects.dra import claims
from testbed.cni.objects.kinds import NetworkAttachmentDefinition
from testbed.cni.objects.lab_objects import Cluster
from testbed.cni.objects.main_container import main_of
from testbed.cni.objects.manifests import Object, deleting
from testbed.cni.runtime import verification
from testbed.cni.runtime.dranet import Dranet, Nic
from testbed.cni.runtime.libcni import SHARED, Runtime
from testbed.cni.runtime.plugin_call import CniError, Limit
from testbed.cni.runtime.pod_files import PodFiles
from testbed.cni.runtime.pod_object import admitted
from testbed.cni.runtime.rollout import Workloads
from testbed.cni.runtime.scheduling import Devices, Given, Held
from testbed.cni.spec import IO, Result, conflist, selection
from testbed.cni.spec.conflist import Attachment, Conflist
from testbed.errors import InputError, TestbedError
from testbed.kernel import netns, own_devices, rdma
from testbed.lab import Host, Pod
from testbed.lab.context import Context
from testbed.lab.pods import Caller, Maker, Network, PodRequest
from testbed.lab.steps import Steps, in_order, raise_first, together
from testbed.protocol import events
from testbed.topology import address_of, pod_mac

OWN_PLUGINS = "cni-plugins"
"""The directory beside a scenario or a test with the user's own plugins, which are searched first."""


class PodNetworks:
    """The networks of the pods of one lab. Paths of conflist files are relative to `directory`. `plugins` are
    directories with the user's own plugins, by default ``cni-plugins`` in `directory` if it exists."""

    def __init__(self, directory: Path, plugins: Sequence[Path] | None = None) -> None:
        self._directory = directory
        own = directory / OWN_PLUGINS
        self._plugins = plugins if plugins is not None else [own.resolve()] if own.is_dir() else []
        self._runtimes: dict[Host, Runtime] = {}
        self._cluster: Cluster | None = None
        self._attached: dict[Pod, list[tuple[Conflist, Attachment]]] = {}
        self._devices = Devices()
        self._dranet: Dranet | None = None
        self._workloads: Workloads | None = None
        self._files = PodFiles()
        self._pods = 0

    def runtime(self, node: Host) -> Runtime:
        """Return the runtime that calls the plugins on a node."""
        if node not in self._runtimes:
            self._runtimes[node] = Runtime(node, self._plugins)
        return self._runtimes[node]

    def objects(self, context: Context) -> Cluster:
        """Return the objects of the lab of `context`."""
        if self._cluster is None:
            self._cluster = Cluster(context.file(SHARED) / OBJECTS, self._directory, context.emit)
        return self._cluster

    def workloads(self, context: Context, maker: Maker) -> Workloads:
        """Return the controllers of the lab of `context`."""
        if self._workloads is None:
            collector = partial(self._collector, context)
            self._workloads = Workloads(context, maker, self.objects(context), self._devices, collector, self._files)
        return self._workloads

    def _collector(self, context: Context, ready: Callable[[str], bool]) -> Callable[[], None]:
        """Start spiderpool-controller's part, and return what has it look at once, and again after its grace."""
        look = self._reclaiming(context, reclaim.GRACE, ready)

        def scan() -> None:
            look()
            context.scheduler.after(reclaim.GRACE, look)

        context.scheduler.every(reclaim.EVERY, scan)
        return scan

    def reclaim(self, context: Context, grace: float, every: float) -> Callable[[], None]:
        """See `testbed.lab.Pods.reclaim`."""
        ready = self._workloads.is_ready if self._workloads else lambda _: True
        return context.scheduler.every(every, self._reclaiming(context, grace, ready))

    @staticmethod
    def _reclaiming(context: Context, grace: float, ready: Callable[[str], bool]) -> Callable[[], None]:
        """Return what looks for addresses of pods that are no more, and frees them."""
        shared = context.file(SHARED)
        shared.mkdir(exist_ok=True)
        since: dict[Holder, float] = {}

        def look() -> None:
            with Addresses(shared / ADDRESSES) as addresses, Objects(shared / OBJECTS) as objects:
                found = reclaim.look(addresses, objects, since, grace, ready)
            for one in found:
                text = f"{one.lease.address} is taken back: {one.reason}"
                holder = one.lease.holder
                context.emit(events.IPAM(address=str(one.lease.address), host=holder.node), holder.pod, text)

        return look

    def load(self, network: Network) -> Conflist:
        return conflist.load(self._directory / network) if isinstance(network, str | Path) else conflist.make(network)

    def attach(self, pod: Pod, networks: Sequence[Network], caller: Caller) -> Steps[None]:
        """Attach the networks one after the other, as Multus does, or in parallel, as containerd does."""
        began = time.monotonic()
        limit = Limit(caller.plugin_limit, began + caller.pod_limit, caller.pod_limit)
        runtime = self.runtime(pod.host)
        self._pods += 1
        container = hashlib.sha256(f"{pod.context.lab}/{pod.name}/{self._pods}".encode()).hexdigest()
        with named(f"pod {pod.name}"):
            given = [self.load(network) for network in networks]
            asked = selection.selected(pod.metadata.annotations, pod.metadata.namespace)
        with named(f"pod {pod.name}"), storing([*(one.name for one in given), *(one.name for one in asked)]):
            known = admitted(pod, self.objects(pod.context))
            held = yield from self._devices.schedule(pod, known, self.objects(pod.context), caller.pending)
            nics = self._claimed(pod, known)
            wanted = [] if pod.metadata.host_network else self._wanted(pod, known, given, held)
        lists = yield from in_order([runtime.validate(one.network, f"pod {pod.name}") for one in wanted])
        with named(f"pod {pod.name}"), storing([one.network.name for one in wanted]):
            self._give_variables(pod, known)
            self.objects(pod.context).put(known)
        begun = self._attached.setdefault(pod, [])
        routed = [address_of(gateway) for one in wanted for gateway in one.default_route or ()]
        if len({one.version for one in routed}) < len(routed):
            raise InputError(f"pod {pod.name}: multus does not support ECMP for default-route")
        chosen = any(one.default_route is not None for one in wanted)

        def add(one: _Wanted, network: Conflist) -> Steps[None]:
            attachment = attachment_of(pod, one, container)
            begun.append((network, attachment))
            result = yield from reported(pod, "ADD", network, attachment, runtime.add(network, attachment, limit))
            assert result is not None, "ADD has a result"
            take_in(pod, attachment, result)
            if chosen:
                route(pod, attachment, one.default_route or ())
                runtime.forget_default(network, attachment, one.default_route or ())

        jobs = [partial(add, one, network) for one, network in zip(wanted, lists, strict=True)]
        if caller.side_by_side:
            raise_first((yield from together(jobs, at_once=len(jobs))))
        else:
            yield from in_order([job() for job in jobs])
        if self._dranet:
            self._dranet.attach(pod, nics)
        self._give_variables(pod, known)
        if pod.metadata.manifest:
            own = pod.host if pod.metadata.host_network else pod
            with named(f"pod {pod.name}"):
                self._files.prepare(pod, known, addresses_of(own)[:1], self.objects(pod.context).look)

    def _claimed(self, pod: Pod, known: Object) -> list[Nic]:
        """Return the NICs that a pod has by its claims."""
        if not claims.asked(known):
            return []
        self._dranet = self._dranet or Dranet(partial(self.objects, pod.context))
        return self._dranet.prepare(pod, known)

    def _give_variables(self, pod: Pod, known: Object) -> None:
        """Give a pod of a manifest the environment of its first container, with the addresses that it has by now."""
        if not pod.metadata.manifest:
            return
        first = main_of(known)
        own = pod.host if pod.metadata.host_network else pod
        place = variables.Place(pod.host.name, addresses_of(own), addresses_of(pod.host))
        pod.env = variables.environment(known, first, place, self.objects(pod.context).look)
        cmd, entrypoint = (
            tuple(variables.expanded(word, pod.env) for word in words or ()) for words in (first.args, first.command)
        )
        pod.command, pod.directory = (*entrypoint, *cmd), first.workingDir
        if pod.container:
            pod.container.plan = replace(pod.container.plan, cmd=cmd, entrypoint=entrypoint)

    def _wanted(self, pod: Pod, known: Object, given: Sequence[Conflist], held: Held) -> list[_Wanted]:
        """Return the networks of a pod: those it is given, then those of its annotations."""
        maps = self.objects(pod.context).all("ConfigMap")
        configured = ((one.namespace, one.data.get("data") or {}) for one in maps)
        default = selection.default(known.annotations) or selection.cluster_network(configured)
        devices = Given(pod.host, held)
        found = [_Wanted(network, "eth0" if not n else f"net{n}") for n, network in enumerate(given)]
        if default and not found:
            found.append(self._defined(pod, default, "eth0", devices))
        after = max(1, len(found))
        for number, one in enumerate(selection.selected(known.annotations, known.namespace), after):
            found.append(self._defined(pod, one, f"net{number}", devices))
        interfaces = [one.interface for one in found]
        if twice := [name for name in interfaces if interfaces.count(name) > 1]:
            raise InputError(f"two of its networks have the interface {twice[0]}")
        nics = [pod.host[name].rdma for name in devices.without_network([one.network for one in found])]
        own_devices.give(pod.namespace, filter(None, nics))
        return found

    def _defined(self, pod: Pod, one: selection.Selected, interface: str, given: Given) -> _Wanted:
        cluster = self.objects(pod.context)
        if one.or_file and not cluster.look(multus.DEFINITION, one.name, one.namespace):
            by_file = conflist.load if one.name.endswith(conflist.SUFFIXES) else None
            network = by_file(self._directory / one.name) if by_file else conflist.of_name(one.name, self._directory)
            return _Wanted(network, interface)
        there = cluster.find(multus.DEFINITION, one.name, one.namespace)
        definition = NetworkAttachmentDefinition.model_validate(there.spec)
        if definition.config:
            network = definition.conflist(one.name, f"{there}: spec.config")
        else:
            network = conflist.of_name(one.name, self._directory)
        network = conflist.with_arguments(given.device(there, network), one.arguments)
        return _Wanted(network, one.interface or interface, one.capabilities, one.default_route)

    def check(self, pod: Pod) -> Steps[None]:
        if pod not in self._attached:
            raise InputError(f"pod {pod.name}: nothing to check: its ADD failed, or DEL has followed")
        runtime = self.runtime(pod.host)
        for network, attachment in self._attached[pod]:
            yield from reported(pod, "CHECK", network, attachment, runtime.check(network, attachment))

    def detach(self, pod: Pod, *, again: bool = False) -> Steps[None]:
        """Detach all networks, the last first, even if one fails, and one whose ADD failed, as CNI requires."""
        runtime = self.runtime(pod.host)
        if not again:
            self._terminate(pod)

        def delete(network: Conflist, attachment: Attachment) -> Steps[Result | None]:
            return reported(pod, "DEL", network, attachment, runtime.delete(network, attachment))

        jobs = [partial(delete, *begun) for begun in reversed(self._attached.get(pod, []))]
        try:
            if self._dranet and pod in self._attached:
                self._dranet.detach(pod, again=again)
            raise_first((yield from together(jobs, at_once=1)))
        finally:
            self.forget(pod, again=again)

    def _terminate(self, pod: Pod) -> None:
        """Mark the object of a pod as one that is deleted."""
        cluster = self.objects(pod.context)
        networks = [network.name for network, _ in self._attached.get(pod, [])]
        with named(f"pod {pod.name}"), storing(networks):
            if networks and (there := cluster.look("Pod", pod.name, pod.metadata.namespace)):
                cluster.put(deleting(there))

    def forget(self, pod: Pod, *, again: bool = False) -> None:
        self._devices.give_back(pod)
        if self._dranet and pod in self._attached and not again:
            self._dranet.forget(pod)
        if (begun := self._attached.pop(pod, None)) is not None and not again:
            with named(f"pod {pod.name}"), storing([network.name for network, _ in begun]):
                self.objects(pod.context).remove(Object("Pod", pod.name, pod.metadata.namespace, {}))

    def removed(self, wanted: PodRequest) -> None:
        cluster = self.objects(wanted.host.context)
        if there := cluster.look("Pod", wanted.name, wanted.metadata.namespace):
            cluster.remove(there)
            cluster.give_back(there)

    def crash(self, pod: Pod) -> Sequence[tuple[Conflist, Attachment]]:
        begun = self._attached.get(pod, [])
        self.forget(pod, again=True)
        if self._dranet:
            self._dranet.forget(pod)
        return begun

    def restarted(self, host: Host) -> None:
        if self._runtimes.pop(host, None):
            self.runtime(host)

    def late(self, host: Host, sandboxes: Sequence[tuple[Conflist, Attachment]]) -> Steps[None]:
        """Call DEL with an empty CNI_NETNS, as containerd does for a sandbox whose namespace is closed. An error is an
        event, and the pod goes on: kubelet tries again for ever."""
        for network, attachment in reversed(sandboxes):
            text = f"DEL {network.name} on {attachment.interface} by {', '.join(network.types)}, late"
            ended = partial(
                events.CNI, command="DEL", network=network.name, interface=attachment.interface, host=host.name
            )
            try:
                yield from self.runtime(host).delete(network, replace(attachment, netns=""))
            except TestbedError as error:
                host.context.emit(ended(error=error.message), attachment.pod, f"{text} fails: {error.message}")
            else:
                host.context.emit(ended(), attachment.pod, text)

    def lives(self, wanted: PodRequest, uid: str) -> bool:
        there = self.objects(wanted.host.context).look("Pod", wanted.name, wanted.metadata.namespace)
        if there is None:
            return False
        metadata, phase = there.data["metadata"], (there.data.get("status") or {}).get("phase")
        ended = phase in reclaim.ENDED or there.spec.get("restartPolicy") == "Never"
        return metadata.get("uid") == uid and not metadata.get("deletionTimestamp") and not ended

    def collect(self, host: Host, networks: Sequence[Network]) -> Steps[None]:
        runtime = self.runtime(host)
        for network in (yield from self._validated(runtime, networks, f"node {host.name}")):
            valid = partial(self._attachments, host, network.name)
            yield from reported_of_node(host, "GC", network, runtime.collect(network, valid))

    def _attachments(self, host: Host, network: str) -> list[Attachment]:
        begun = [entry for pod, entries in self._attached.items() if pod.host is host for entry in entries]
        return [attachment for other, attachment in begun if other.name == network]

    def status(self, host: Host, networks: Sequence[Network]) -> Steps[None]:
        runtime = self.runtime(host)
        for network in (yield from self._validated(runtime, networks, f"node {host.name}")):
            yield from reported_of_node(host, "STATUS", network, runtime.status(network))

    def _validated(self, runtime: Runtime, networks: Sequence[Network], who: str) -> Steps[list[Conflist]]:
        with named(who):
            lists = [self.load(network) for network in networks]
        return (yield from in_order([runtime.validate(network, who) for network in lists]))


@dataclass(frozen=True)
class _Wanted:
    network: Conflist
    interface: str
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """The capability values for its plugins and this pod."""
    default_route: Sequence[str] | None = None
    """The gateways of the pod's default routes, if they go by this network."""


@contextlib.contextmanager
def named(who: str) -> Iterator[None]:
    """Prefix errors in the block with `who`."""
    try:
        yield
    except TestbedError as error:
        error.message = f"{who}: {error.message}"
        raise


@contextlib.contextmanager
def storing(networks: Sequence[str]) -> Iterator[None]:
    """Turn a store error in the block into CNI's, which names the pod's networks."""
    try:
        yield
    except StoreError as error:
        names = ", ".join(f'"{name}"' for name in networks)
        what = f"network{'s' * (len(networks) > 1)} {names}: " if names else ""
        failure = CniError(f"{what}{error.message}", code=IO)
        failure.where = error.where
        raise failure from error


def attachment_of(pod: Pod, wanted: _Wanted, container: str) -> Attachment:
    """Return the attachment as containerd makes it, but without random values."""
    arguments = {
        "IgnoreUnknown": "1",
        "K8S_POD_NAMESPACE": pod.metadata.namespace,
        "K8S_POD_NAME": pod.name,
        "K8S_POD_INFRA_CONTAINER_ID": container,
        "K8S_POD_UID": pod.uid,
    }
    planned = {"mac": pod_mac(pod.context.lab, f"{container}/{wanted.interface}")}
    namespace = str(netns.path(pod.namespace))
    return Attachment(pod.name, container, namespace, wanted.interface, arguments, {**planned, **wanted.capabilities})


def reported(
    pod: Pod, command: str, network: Conflist, attachment: Attachment, job: Steps[Result | None] | Steps[Result]
) -> Steps[Result | None]:
    """Run the job, and emit an event with its outcome."""
    text = f"{command} {network.name} on {attachment.interface} by {', '.join(network.types)}"
    ended = partial(
        events.CNI, command=command, network=network.name, interface=attachment.interface, host=pod.host.name
    )
    began = time.monotonic()
    try:
        result = yield from job
    except TestbedError as error:
        pod.context.emit(ended(error=error.message), pod.name, f"{text} fails: {error.message}")
        raise
    took_s = time.monotonic() - began
    given = [entry["address"] for entry in result.get("ips", [])] if result else []
    text = ": ".join(filter(None, (text, ", ".join(given))))
    mac, addresses = kernel_has(pod, attachment.interface) if command == "ADD" else (None, None)
    pod.context.emit(ended(took_s=took_s, result=result, mac=mac, addresses=addresses), pod.name, text)
    return result


def addresses_of(host: Host) -> list[str]:
    """Return the addresses of eth0, or else of the first interface that has any."""
    ends = sorted(host.interfaces.values(), key=lambda end: end.name != "eth0")
    return next(([str(one.ip) for one in end.addresses.values()] for end in ends if end.addresses), [])


def kernel_has(pod: Pod, interface: str) -> tuple[str | None, list[str] | None]:
    """Return the MAC and the addresses of a pod's interface, None if it is not there: a result may leave out its MAC,
    and one of an IPAM plugin has no interface."""
    now = pod.now()
    index = next((index for index, link in now.links.items() if link.name == interface), None)
    if index is None:
        return None, None
    return now.links[index].mac, [str(address) for address in now.addresses.get(index, [])]


def reported_of_node(host: Host, command: str, network: Conflist, job: Steps[None]) -> Steps[None]:
    """Run the job of a network without a pod, and emit an event with its outcome."""
    text = f"{command} {network.name} by {', '.join(network.types)}"
    try:
        yield from job
    except TestbedError as error:
        failed = events.CNI(command=command, network=network.name, error=error.message)
        host.context.emit(failed, host.name, f"{text} fails: {error.message}")
        raise
    host.context.emit(events.CNI(command=command, network=network.name), host.name, text)


def route(pod: Pod, attachment: Attachment, gateways: Sequence[str]) -> None:
    """Set the pod's default routes by an interface to `gateways`, and delete its others, as Multus does if one network
    asks for it (pkg/netutils: DeleteDefaultGW, SetDefaultGW)."""
    given = {f"-{address_of(gateway).version}": gateway for gateway in gateways}
    for family in ("-4", "-6"):
        pod.use("ip", family, "route", "flush", "default", "dev", attachment.interface, check=False)
        if gateway := given.get(family):
            pod.use("ip", family, "route", "add", "default", "via", gateway, "dev", attachment.interface)


def take_in(pod: Pod, attachment: Attachment, result: Result) -> None:
    """Add the interfaces, addresses and RDMA devices of a verified result to the pod, and the attachment's interface if
    the result leaves it out."""
    there = [link.name for link in pod.now().links.values() if link.name == attachment.interface]
    for name in dict.fromkeys([*verification.interfaces(attachment, result), *there]):
        pod.adopt(name).take_addresses()
    with pod.entered(), rdma.Rdma() as here:
        found = here.links()
    for interface, device in found.items():
        if interface in pod.interfaces and pod[interface].rdma is None:
            pod[interface].adopt_rdma(device)
