"""The Services of a lab on its nodes: kube-proxy with nftables, or BPF at the socket.

Both get the same endpoints, of pods that run. With nftables the table is in each node's network namespace, so it meets
what programs of the node send, and what pods send by the node: a pod on the fabric needs a route to the Services by its
node, as the coordinator sets it (`hijackCIDR`). With BPF a connection goes to the endpoint from the start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from typing import TYPE_CHECKING

from testbed.cni.objects import services
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.names import Name, names
from testbed.cni.objects.pod_spec import PodSpec
from testbed.cni.objects.services import NONE, Proxy, ReadyPod, ServedPort, ServiceSpec
from testbed.kernel import nftables
from testbed.kernel.services.sockets import Port, SocketServices
from testbed.protocol import events

if TYPE_CHECKING:
    from testbed.cni.objects.lab_objects import Cluster
    from testbed.lab import Host, Pod
    from testbed.lab.context import Context
    from testbed.lab.pods import Maker

KIND = "Service"


class ServiceProxy:
    """What nodes do with Services. `sync` brings them to what the objects and the pods are now."""

    def __init__(self, context: Context, maker: Maker, cluster: Cluster) -> None:
        self._context, self._maker, self._cluster = context, maker, cluster
        self._sockets: SocketServices | None = None
        self._given: object = None
        """What the nodes have."""
        self._reported: list[ServedPort] = []
        self.held: set[str] = set()
        """The nodes on which kube-proxy and the DNS cache do not work."""
        self.names: Sequence[Name] = ()
        """What DNS knows of the Services."""

    def sync(self) -> list[ServedPort]:
        """Give addresses to new Services, and all of them to the nodes. Return their ports with their endpoints."""
        if not self._cluster.all(KIND) and self._given is None:
            return []
        self._give_addresses()
        pods = [(one, pod) for one in self._cluster.all("Pod") if (pod := self._running(one))]
        of_objects = [(one.namespace, one.name, one.spec) for one in self._cluster.all(KIND)]
        there = [ready(one, pod) for one, pod in pods]
        ports = services.served(of_objects, there)
        self.names = names(of_objects, there)
        maps = self._cluster.all("ConfigMap")
        proxy = services.proxy((one.namespace, one.name, one.data.get("data") or {}) for one in maps)
        hosts = self._maker.hosts()
        working = [host for host in hosts if host.name not in self.held]
        given = (proxy, ports, [(host.name, host.boots) for host in working], [pod.uid for _, pod in pods])
        if given != self._given:
            self._given = given
            self._carry_out(proxy, ports, working, [pod for _, pod in pods])
        return ports

    def _running(self, one: Object) -> Pod | None:
        pod = self._maker.pod(one.name)
        mine = pod and pod.uid == one.data["metadata"].get("uid")
        return pod if pod and mine and pod.exit_status() is None else None

    def _give_addresses(self) -> None:
        there = self._cluster.all(KIND)
        taken = {str(one): one.spec["clusterIP"] for one in there if one.spec.get("clusterIP", NONE) != NONE}
        for one in there:
            spec = ServiceSpec.model_validate(one.spec)
            if not spec.clusterIP and spec.type != "ExternalName":
                taken[str(one)] = address = services.free_address(taken.values())
                data = {**one.data, "spec": {**one.spec, "clusterIP": address}}
                self._cluster.put(Object(one.kind, one.name, one.namespace, data))

    def _carry_out(self, proxy: Proxy, ports: Sequence[ServedPort], hosts: Sequence[Host], pods: Sequence[Pod]) -> None:
        ends = {
            (one.address, one.protocol, one.port): [(end.address, end.port) for end in one.endpoints]
            for one in ports
            if one.address
        }
        of_nodes = ends if proxy.kind == "nftables" else {}
        for host in hosts:
            with host.entered():
                nftables.run(nftables.kube_proxy(of_nodes, proxy.local))
            host.sysctl("net/ipv4/ip_forward", 1)
        if proxy.kind == "ebpf":
            if self._sockets is None:
                self._sockets = SocketServices(self._keep_log)
                hosts[0].defer(self._close)
            self._sockets.include([node.namespace for node in (*hosts, *pods)])
            self._sockets.set(
                {
                    Port(address, port, protocol): [Port(to, number, protocol) for to, number in found]
                    for (address, protocol, port), found in ends.items()
                }
            )
        else:
            self._close()
        for one in [one for one in ports if one.address]:
            if one not in self._reported:
                to = ", ".join(f"{end.pod} {end.address}:{end.port}" for end in one.endpoints)
                text = f"service {one.service} {one.address}:{one.port} goes to {to or 'nothing'} by {proxy.kind}"
                self._context.emit(events.SERVICE(address=str(one.address), port=one.port), "", text)
        self._reported = list(ports)

    def _keep_log(self, text: str) -> None:
        self._context.file("services-verifier.log").write_text(text)

    def _close(self) -> None:
        """Detach the programs; `sync` attaches them again."""
        if self._sockets:
            self._sockets.close()
            self._sockets = self._given = None


def ready(one: Object, pod: Pod) -> ReadyPod:
    """Return a pod as Services see it: by its address on eth0, with `hostNetwork` its node's."""
    ends = pod.host.interfaces if pod.metadata.host_network else pod.interfaces
    first = next(iter(ends.values()), None) if pod.metadata.host_network else ends.get("eth0")
    address = first.addresses.get(4) if first else None
    ports: Mapping[str, int] = {}
    if pod.metadata.manifest:
        spec = PodSpec.model_validate(pod.metadata.manifest["spec"])
        ports = {port.name: port.containerPort for of in spec.containers for port in of.ports or () if port.name}
    ip = address.ip if address and isinstance(address.ip, IPv4Address) else None
    domain = (str(one.spec.get(key) or "") for key in ("hostname", "subdomain"))
    return ReadyPod(one.namespace, pod.name, pod.host.name, one.labels, ip, ports, *domain)
