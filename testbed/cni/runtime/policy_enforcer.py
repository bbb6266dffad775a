"""NetworkPolicies of a lab: a table of nftables in each pod that a policy chooses.

A cluster's enforcers filter at the pod's end of the network, or at the node's, which a pod on the fabric passes by;
this one is in the pod, as multi-networkpolicy's. RoCE of a NIC that does RDMA itself passes no netfilter, wherever the
rules are: so on hosts with `nic: hardware` it passes the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.cni.objects import policies
from testbed.cni.objects.pod_spec import PodSpec
from testbed.cni.objects.policies import MULTI, POLICY, Filter, PolicyPod
from testbed.cni.spec import selection
from testbed.kernel import nftables
from testbed.protocol import events

if TYPE_CHECKING:
    from testbed.cni.objects.lab_objects import Cluster
    from testbed.cni.objects.manifests import Object
    from testbed.lab import Pod
    from testbed.lab.context import Context
    from testbed.lab.pods import Maker


class PolicyEnforcer:
    """What pods may receive and send. `sync` brings their tables to what the objects and the pods are now."""

    def __init__(self, context: Context, maker: Maker, cluster: Cluster) -> None:
        self._context, self._maker, self._cluster = context, maker, cluster
        self._given: dict[Pod, dict[str, Filter]] = {}

    def sync(self) -> None:
        given = [one for kind in (POLICY, MULTI) for one in self._cluster.all(kind)]
        if not given and not self._given:
            return
        of_objects = [(one.kind, one.namespace, one.name, one.annotations, one.spec) for one in given]
        pods = {pod: seen(one, pod) for one in self._cluster.all("Pod") if (pod := self._running(one))}
        namespaces = {one.name: one.labels for one in self._cluster.all("Namespace")}
        self._given = {pod: filters for pod, filters in self._given.items() if pod in pods}
        for pod, one in pods.items():
            filters = policies.filters(one, of_objects, list(pods.values()), namespaces)
            if filters != self._given.get(pod, {}):
                self._put(pod, filters)
                self._given[pod] = filters

    def _running(self, one: Object) -> Pod | None:
        pod = self._maker.pod(one.name)
        is_it = pod and pod.uid == one.data["metadata"].get("uid") and not pod.metadata.host_network
        return pod if is_it else None

    def _put(self, pod: Pod, filters: dict[str, Filter]) -> None:
        given = {}
        for direction in ("ingress", "egress"):
            found = {name: getattr(one, direction) for name, one in filters.items()}
            given[direction] = {
                name: [(one.peers, one.without, one.ports) for one in allowed]
                for name, allowed in found.items()
                if allowed is not None
            }
        with pod.entered():
            commands = nftables.network_policy(given["ingress"], given["egress"], rdma_passes=pod.nic == "hardware")
            nftables.run(commands)
        names = [f"{interface} {', '.join(one.names)}" for interface, one in filters.items()]
        text = f"policies: {'; '.join(names) or 'none'}"
        pod.context.emit(events.POD(host=pod.host.name), pod.name, text)


def seen(one: Object, pod: Pod) -> PolicyPod:
    """Return a pod as policies see it."""
    addresses = {name: [str(ip.ip) for ip in end.all_addresses] for name, end in pod.interfaces.items()}
    networks = {}
    for number, chosen in enumerate(selection.selected(one.annotations, one.namespace), 1):
        networks[chosen.interface or f"net{number}"] = f"{chosen.namespace}/{chosen.name}"
    ports = {}
    if pod.metadata.manifest:
        spec = PodSpec.model_validate(pod.metadata.manifest["spec"])
        ports = {port.name: port.containerPort for of in spec.containers for port in of.ports or () if port.name}
    return PolicyPod(one.namespace, pod.name, one.labels, addresses, networks, ports)
