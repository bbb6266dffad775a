"""The devices of nodes and their holders: the work of the scheduler, of kubelet's device manager and of Multus."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from testbed.cni.objects import device_plugins
from testbed.cni.objects.device_plugins import NodePolicy, Offer
from testbed.cni.objects.lab_objects import Cluster
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.multus import RESOURCE_NAME
from testbed.cni.objects.operators import NicClusterPolicy
from testbed.cni.objects.placement import asked, labels_of
from testbed.cni.spec import conflist
from testbed.cni.spec.conflist import Conflist
from testbed.kernel.rdma import Rdma
from testbed.lab import Host, Pod
from testbed.lab.pods import UnschedulableError
from testbed.lab.steps import Steps, pause
from testbed.protocol import events

EVERY = 1.0
"""The period of attempts to schedule a waiting pod, in seconds."""


@dataclass(frozen=True)
class Held:
    """The devices that a pod holds: amounts and VFs with their NICs by resource, and interfaces whose RDMA device it
    shares."""

    amounts: Mapping[str, int] = field(default_factory=dict)
    vfs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    shared: Sequence[str] = ()
    rdma: Sequence[str] = ()
    """The resources whose VFs bring their RDMA device, which shared mode shows in the pod."""


class Devices:
    """The holders of the devices of all nodes."""

    def __init__(self) -> None:
        self._held: dict[Pod, Held] = {}

    def schedule(self, pod: Pod, known: Object, cluster: Cluster, limit: float) -> Steps[Held]:
        """Give the pod the devices it requests, or wait `limit` seconds until others free them. UnschedulableError."""
        wanted = asked(known)
        if not wanted:
            return Held()
        deadline, waits = time.monotonic() + limit, False
        while True:
            offered = offers(pod.host, cluster)
            try:
                held = self._allocate(pod, wanted, offered)
                break
            except UnschedulableError as error:
                if time.monotonic() >= deadline:
                    if waits:
                        cluster.remove(known)
                    raise
                if not waits:
                    cluster.put(pending(known, error.message))
                    pod.context.emit(events.POD(host=pod.host.name), pod.name, f"pending: {error.message}")
                waits = True
            yield from pause(min(EVERY, deadline - time.monotonic()))
        for resource, vfs in held.vfs.items():
            for vf, nic in vfs.items():
                pod.host.claim_vf(vf, nic, mtu=offered[resource].mtu)
        return held

    def free(self, host: Host, cluster: Cluster) -> Counter[str]:
        """Return the devices of a node that no pod has, by resource."""
        others = [held for pod, held in self._held.items() if pod.host is host]
        taken = {vf for held in others for vfs in held.vfs.values() for vf in vfs}
        found = Counter[str]()
        for name, offer in offers(host, cluster).items():
            used = sum(held.amounts.get(name, 0) for held in others)
            found[name] = len(offer.vfs.keys() - taken) if offer.vfs else offer.amount - used
        return found

    def give_back(self, pod: Pod) -> None:
        """Free all devices of the pod; a second call does nothing."""
        self._held.pop(pod, None)

    def _allocate(self, pod: Pod, wanted: Mapping[str, int], offered: Mapping[str, Offer]) -> Held:
        others = {other.name: held for other, held in self._held.items() if other.host is pod.host and other is not pod}
        used = sum((Counter(held.amounts) for held in others.values()), Counter[str]())
        taken = {vf for held in others.values() for vfs in held.vfs.values() for vf in vfs}
        free: dict[str, list[str]] = {}
        missing = []
        for resource, count in wanted.items():
            offer = offered.get(resource, Offer(0))
            free[resource] = [vf for vf in offer.vfs if vf not in taken][:count]
            left = len(free[resource]) if offer.vfs else offer.amount - used[resource]
            if left < count:
                missing.append(resource)
            taken.update(free[resource])
        if missing:
            raise UnschedulableError(
                f"0/1 nodes are available: {', '.join(f'1 Insufficient {name}' for name in missing)}.",
                hint=" ".join(_explained(pod.host, name, offered.get(name), others) for name in missing),
            )
        vfs = {name: {vf: offered[name].vfs[vf] for vf in found} for name, found in free.items() if found}
        shared = [name for resource in wanted for name in offered[resource].shared]
        self._held[pod] = Held(wanted, vfs, shared, [name for name in vfs if offered[name].rdma])
        return self._held[pod]


def _explained(host: Host, resource: str, offer: Offer | None, others: Mapping[str, Held]) -> str:
    if offer is None:
        return f"Nothing offers {resource}: add a ConfigMap, a SriovNetworkNodePolicy or a Node's allocatable."
    if offer.why_none:
        return offer.why_none
    holders = [f"{name} {held.amounts[resource]}" for name, held in others.items() if held.amounts.get(resource)]
    return f"{host} has {offer.amount} of {resource}; holders: {', '.join(holders) or 'none'}."


def offers(host: Host, cluster: Cluster) -> dict[str, Offer]:
    node = next((one for one in cluster.all("Node") if one.name == host.name), None)
    status = node.data.get("status") or {} if node else {}
    maps = [one.data.get("data") or {} for one in cluster.all("ConfigMap")]
    maps += [
        data for one in cluster.all("NicClusterPolicy") for data in NicClusterPolicy.model_validate(one.spec).data()
    ]
    shared = [device for data in maps for device in device_plugins.shared_devices(data)]
    resources = [resource for data in maps for resource in device_plugins.resources(data)]
    policies = [NodePolicy.model_validate(one.spec) for one in cluster.all("SriovNetworkNodePolicy")]
    exclusive = is_exclusive()
    labels = labels_of(host.name, node)
    nics = [name for name, end in host.interfaces.items() if end.plan and not end.plan.bond]
    found = device_plugins.offers(
        host.interfaces, labels, status, shared, policies, resources, nics=nics, exclusive=exclusive
    )
    found = {name: replace(offer, rdma=offer.rdma and not exclusive) for name, offer in found.items()}
    others = {alias: offer for name, offer in found.items() if offer.vfs for alias in device_plugins.aliases(name)}
    return {**others, **found}


def is_exclusive() -> bool:
    with Rdma() as system:
        return system.exclusive


def pending(known: Object, reason: str) -> Object:
    """Return the pod as the scheduler leaves it."""
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": reason}
    status = {"phase": "Pending", "conditions": [condition]}
    return Object(known.kind, known.name, known.namespace, {**known.data, "status": status})


RXE = {"type": "rxe"}
SRIOV = "sriov"


def vlan_of(plugin: Mapping[str, Any]) -> int:
    """Return the VLAN that a plugin's VF has on its NIC; 0 for none."""
    found = plugin.get("vlan")
    return found if isinstance(found, int) else 0


class Given:
    """The devices of one pod, assigned to its networks in order."""

    def __init__(self, host: Host, held: Held) -> None:
        self._host, self._held = host, held
        self._shared, self._rdma = held.shared, held.rdma
        self._vfs: dict[str, Iterator[str]] = {name: iter(vfs) for name, vfs in held.vfs.items()}

    def device(self, definition: Object, network: Conflist) -> Conflist:
        """Return the network with the VF of its resource, or with the RDMA device that its master shares."""
        plugins = [dict(one) for one in network.plugins]
        resource = definition.annotations.get(RESOURCE_NAME, "")
        resource = next((name for name in (resource, *device_plugins.aliases(resource)) if name in self._vfs), "")
        if vf := next(self._vfs.get(resource, iter(())), None):
            plugins[0] |= {"deviceID": vf, **({"device": vf} if plugins[0]["type"] == "host-device" else {})}
            if plugins[0]["type"] == SRIOV:
                self._host.claim_vf(vf, self._held.vfs[resource][vf], vlan=vlan_of(plugins[0]))
            if resource in self._rdma and RXE["type"] not in network.types:
                plugins.append(RXE)
        elif RXE["type"] not in network.types and any(map(self._is_shared, plugins)):
            plugins.append(RXE)
        else:
            return network
        return conflist.make({**json.loads(network.data), "plugins": plugins})

    def without_network(self, networks: Sequence[Conflist]) -> list[str]:
        """Return the interfaces that share their RDMA device with a pod which has no network on them."""
        masters = {_parent(plugin) for network in networks for plugin in network.plugins}
        return [name for name in self._shared if name not in masters]

    def _is_shared(self, plugin: Mapping[str, Any]) -> bool:
        """Return whether the master is an interface that shares its RDMA device, or a VLAN device on one."""
        return _parent(plugin) in self._shared


def _parent(plugin: Mapping[str, Any]) -> str:
    """Return the node's interface below a plugin's master, which may be a VLAN device; empty without a master."""
    return str(plugin.get("master", "")).partition(".")[0]
