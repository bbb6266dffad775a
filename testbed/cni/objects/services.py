"""Services: their addresses, and the pods behind them.

Sources: Kubernetes API 1.31, core/v1; its validation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, ip_address
from typing import Annotated, Any, Literal

from pydantic import Field

from testbed.cni.objects.kinds import Free, Metadata, Spec, Texts
from testbed.documents.yaml import parse
from testbed.errors import InputError

NETWORK = IPv4Network("10.96.0.0/12")
"""The addresses of Services, as kubeadm has them."""
RESERVED = 16
"""Addresses at its start that are given to no Service by itself: static ones come from them, such as those of DNS."""
NONE = "None"


class ServicePort(Free):
    port: Annotated[int, Field(ge=1, le=65535)]
    targetPort: int | str | None = None  # noqa: N815 (Kubernetes' names, here and below)
    protocol: Literal["TCP", "UDP"] = "TCP"
    name: str = ""
    nodePort: Annotated[int, Field(ge=0, le=65535)] = 0  # noqa: N815


class ServiceSpec(Free, Spec):
    type: Literal["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"] = "ClusterIP"
    clusterIP: str = ""  # noqa: N815
    ports: list[ServicePort] | None = None
    selector: Texts | None = None

    def check(self, metadata: Metadata) -> None:
        if self.type == "ExternalName":
            return
        headless = self.clusterIP == NONE
        if not self.ports and not headless:
            raise InputError("Required value", where="spec.ports")
        names = [one.name for one in self.ports or ()]
        if len(names) > 1 and ("" in names or len(set(names)) < len(names)):
            raise InputError("each of several ports needs a name of its own", where="spec.ports")
        if self.clusterIP and not headless:
            try:
                address = ip_address(self.clusterIP)
            except ValueError:
                raise InputError(
                    f"Invalid value: {self.clusterIP!r}: must be a valid IP address", where="spec.clusterIP"
                ) from None
            if address.version == 6:
                raise InputError("services of a lab are of IPv4", where="spec.clusterIP")


@dataclass(frozen=True)
class Endpoint:
    """A port of a pod that is ready."""

    address: IPv4Address
    port: int
    pod: str
    node: str


@dataclass(frozen=True)
class ServedPort:
    """A port of a Service."""

    service: str
    """Namespace and name."""
    address: IPv4Address | None
    """None of a headless Service."""
    port: int
    protocol: str
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True)
class ReadyPod:
    """A pod that runs: its labels, its address, the ports of its containers by their names."""

    namespace: str
    name: str
    node: str
    labels: Mapping[str, str]
    address: IPv4Address | None
    ports: Mapping[str, int]
    hostname: str = ""
    subdomain: str = ""


@dataclass(frozen=True)
class Proxy:
    """The way in which nodes send connections to endpoints."""

    kind: Literal["nftables", "ebpf"]
    local: IPv4Network | None
    """The network of pods, whose connections keep their source address."""


PODS = IPv4Network("10.244.0.0/16")
"""kubeadm's usual network of pods. Pods on the fabric are not in it."""


def proxy(maps: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Proxy:
    """Return how nodes send connections, from ConfigMaps: namespaces, names and contents. Cilium's `cilium-config` with
    `kube-proxy-replacement` does it at the socket; kube-proxy's `config.conf` has the network of pods. InputError."""
    kind: Literal["nftables", "ebpf"] = "nftables"
    local: IPv4Network | None = PODS
    for namespace, name, data in maps:
        if namespace == "kube-system" and name == "cilium-config":
            kind = "ebpf" if data.get("kube-proxy-replacement") in ("true", "strict") else kind
        if namespace == "kube-system" and name == "kube-proxy" and isinstance(text := data.get("config.conf"), str):
            (document,) = parse(text, "ConfigMap/kube-system/kube-proxy: config.conf", "kube-proxy's configuration")
            found = document.value()
            cidr = str(found.get("clusterCIDR") or "") if isinstance(found, dict) else ""
            first = next((one for one in cidr.split(",") if one and ":" not in one), "")
            local = IPv4Network(first) if first else None
    return Proxy(kind, local)


def free_address(taken: Iterable[str]) -> str:
    """Return the next address for a Service that names none."""
    used = set(taken)
    free = (str(NETWORK[number]) for number in range(RESERVED, NETWORK.num_addresses - 1))
    return next(one for one in free if one not in used)


def served(services: Iterable[tuple[str, str, Mapping[str, Any]]], pods: Sequence[ReadyPod]) -> list[ServedPort]:
    """Return the ports of Services, each with the endpoints that its selector chooses, in the order of pods.
    `services` are their namespaces, names and specs, with an address."""
    found = []
    for namespace, name, given in services:
        spec = ServiceSpec.model_validate(given)
        if spec.type == "ExternalName" or not spec.clusterIP or not spec.selector:
            continue
        chosen = [
            pod
            for pod in pods
            if pod.namespace == namespace and pod.address and spec.selector.items() <= pod.labels.items()
        ]
        for port in spec.ports or ():
            endpoints = tuple(
                Endpoint(pod.address, number, pod.name, pod.node)
                for pod in chosen
                if pod.address and (number := _target(port, pod))
            )
            address = None if spec.clusterIP == NONE else IPv4Address(spec.clusterIP)
            found.append(ServedPort(f"{namespace}/{name}", address, port.port, port.protocol, endpoints))
    return found


def _target(port: ServicePort, pod: ReadyPod) -> int:
    """Return the port of a pod; 0 if it has none of that name."""
    if isinstance(port.targetPort, str):
        return pod.ports.get(port.targetPort, 0)
    return port.targetPort or port.port
