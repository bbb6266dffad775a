"""The names that a cluster's DNS gives Services and pods, as the hosts file of a pod.

Sources: Kubernetes' DNS specification 1.1 (kubernetes/dns, docs/specification.md); kubelet's hosts file
(pkg/kubelet/kubelet_pods.go).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.cni.objects.services import NONE, ReadyPod, ServiceSpec

DOMAIN = "cluster.local"
LOCAL = ("127.0.0.1\tlocalhost", "::1\tlocalhost ip6-localhost ip6-loopback")
BY_CLUSTER, BY_CLUSTER_ON_HOST = "ClusterFirst", "ClusterFirstWithHostNet"


@dataclass(frozen=True)
class Name:
    """A name with one of its addresses: of a Service, or of a pod in the domain of a headless one."""

    service: str
    namespace: str
    address: str
    pod: str = ""

    def forms(self, searches: Sequence[str]) -> list[str]:
        """Return the forms in which a pod with these search domains finds it, the shortest first."""
        full = f"{self.pod}.{self.service}" if self.pod else self.service
        full += f".{self.namespace}.svc.{DOMAIN}"
        short = [full.removesuffix(f".{one}") for one in searches if full.endswith(f".{one}")]
        return [*sorted(short, key=len), full]


def names(services: Iterable[tuple[str, str, Mapping[str, Any]]], pods: Sequence[ReadyPod]) -> list[Name]:
    """Return the names of Services, which are namespaces, names and specs: a headless one has the addresses of the pods
    that its selector chooses."""
    found = []
    for namespace, name, given in services:
        spec = ServiceSpec.model_validate(given)
        if spec.type == "ExternalName" or not spec.clusterIP:
            continue
        if spec.clusterIP != NONE:
            found.append(Name(name, namespace, spec.clusterIP))
            continue
        for pod in pods if spec.selector else ():
            if pod.namespace == namespace and pod.address and (spec.selector or {}).items() <= pod.labels.items():
                found.append(Name(name, namespace, str(pod.address)))
                if pod.subdomain == name and pod.hostname:
                    found.append(Name(name, namespace, str(pod.address), pod.hostname))
    return found


def asks_cluster(spec: Mapping[str, Any]) -> bool:
    """Return whether a pod asks the cluster's DNS: one with hostNetwork does so only if its policy says it."""
    policy = spec.get("dnsPolicy", BY_CLUSTER)
    return policy == BY_CLUSTER_ON_HOST or (policy == BY_CLUSTER and not spec.get("hostNetwork"))


def searches(namespace: str, spec: Mapping[str, Any]) -> list[str]:
    """Return the search domains of a pod."""
    more = (spec.get("dnsConfig") or {}).get("searches") or ()
    return [f"{namespace}.svc.{DOMAIN}", f"svc.{DOMAIN}", DOMAIN, *more]


def hosts_file(domains: Sequence[str], own: Sequence[tuple[str, str]], known: Iterable[Name]) -> str:
    """Return the content of the /etc/hosts of a pod with search domains. `own` are addresses and names that it has
    without DNS."""
    lines = [*LOCAL, *(f"{address}\t{name}" for address, name in own)]
    lines += [f"{one.address}\t{' '.join(one.forms(domains))}" for one in known]
    return "".join(f"{line}\n" for line in lines)
