"""`testbed bench ipam`: IPAM plugins when many pods start, compared as in Spiderpool's documentation.

Source: Spiderpool, docs/concepts/ipam-performance.md: 100 Deployments of 10 pods on 10 nodes, IPv4 and IPv6.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.cni.ipam.address_store import ADDRESSES, Store
from testbed.cni.runtime.libcni import SHARED
from testbed.errors import TestbedError
from testbed.executor import Context
from testbed.executor.bench import NETWORK, Cluster, host_local, ippool, macvlan, network, percentile, present
from testbed.lab import Host, Lab, Pod
from testbed.lab.context import Emit
from testbed.lab.pods import Network
from testbed.protocol import IpamRow
from testbed.protocol.requests import IpamBench
from testbed.scenario.event_log import EventLog

SHARE = 7
"""One in so many pods is deleted to measure the calls of the IPAM plugin alone; with 10 nodes that is pods of each."""
Wanted = tuple[Host, str, Sequence[Network]]


def run(request: IpamBench, context: Context) -> list[IpamRow]:
    log = EventLog(lambda event: context.emit({"event": event}))
    return [
        Comparison(request, ipam, spare, context.out / f"{ipam}-{spare}", log.emit).run()
        for spare, ipam in itertools.product(request.spare, request.ipam)
    ]


class Comparison:
    """One IPAM plugin, with a number of addresses beyond one for each pod."""

    def __init__(self, request: IpamBench, ipam: str, spare: int, out: Path, emit: Emit) -> None:
        self._request, self._ipam = request, ipam
        self._pods = request.apps * request.replicas
        self._addresses = self._pods + spare
        self._cluster = Cluster(request.nodes, request.at_once, out, emit)

    def run(self) -> IpamRow:
        cluster, label = self._cluster, f"{self._ipam}, {self._addresses} addresses: {self._pods} pods"
        with cluster.lab as lab:
            ipams = [self._configuration(number) for number in range(self._request.nodes)]
            wanted = list(self._wanted([macvlan(ipam) for ipam in ipams]))
            made, create_s = cluster.timed(f"{label} are there", lambda: cluster.create(wanted))
            adds = list(cluster.adds)

            def recreate() -> list[Pod | TestbedError]:
                cluster.delete(present(made))
                return cluster.create(wanted)

            again, recreate_s = cluster.timed(f"{label} are there again", recreate)
            alone, refused = self._alone([network({"type": self._ipam, "ipam": ipam}) for ipam in ipams], again)
            staying = [pod for number, pod in enumerate(again) if isinstance(pod, Pod) and number % SHARE]
            _, delete_s = cluster.timed(f"{label} are gone", lambda: cluster.delete(staying))
            leaks = self._held(lab)
        found = [faults(pods) for pods in (made, again)]
        return {
            "ipam": self._ipam,
            "addresses": self._addresses,
            "pods": self._pods,
            "create_s": create_s,
            "recreate_s": recreate_s,
            "delete_s": delete_s,
            "add_p50_ms": percentile(adds, 50) * 1000,
            "add_p99_ms": percentile(adds, 99) * 1000,
            "ipam_p50_ms": percentile(alone, 50) * 1000,
            "ipam_p99_ms": percentile(alone, 99) * 1000,
            "conflicts": sum(conflicts for _, conflicts in found),
            "waste": sum(waste for waste, _ in found) + refused,
            "leaks": leaks,
        }

    def _wanted(self, networks: Sequence[Mapping[str, Any]]) -> Iterator[Wanted]:
        """Yield the pods in the order in which they start. `networks` is by node."""
        apps, replicas = range(self._request.apps), range(self._request.replicas)
        names = (f"app{app}-{replica}" for app, replica in itertools.product(apps, replicas))
        places = zip(self._cluster.hosts(self._request.nodes), networks, strict=True)
        for name, (host, conflist) in zip(names, itertools.cycle(places), strict=False):
            yield host, name, [conflist]

    def _configuration(self, node: int) -> dict[str, Any]:
        """Return a node's IPAM configuration. host-local has a part of the addresses on each node, as with podCIDR."""
        if self._ipam == "ippool":
            return ippool(self._addresses)
        part = self._addresses // self._request.nodes
        return host_local(node * part, part)

    def _alone(
        self, networks: Sequence[Mapping[str, Any]], pods: Sequence[Pod | TestbedError]
    ) -> tuple[list[float], int]:
        """Have the IPAM plugin give some pods' addresses again, without an interface and one after the other. Return
        the seconds of each call, and the number of refused ones."""
        self._cluster.delete(present(pods[::SHARE]))
        before, wanted = len(self._cluster.adds), list(self._wanted(networks))[::SHARE]
        made = self._cluster.create(wanted, at_once=1)
        self._cluster.delete(present(made))
        return self._cluster.adds[before:], len(made) - len(present(made))

    def _held(self, lab: Lab) -> int:
        """Return the number of addresses that are still held when all pods are gone."""
        if self._ipam == "ippool":
            with Store(lab.file(SHARED) / ADDRESSES) as store:
                return len(store.leases())
        files = lab.file("cni").glob(f"*/lib/networks/{NETWORK}/*")
        return sum(file.name[0].isdigit() or file.name.startswith("fd00") for file in files)


def faults(made: Sequence[Pod | TestbedError]) -> tuple[int, int]:
    """Count the pods without an address though there is one for each, and the addresses that several pods have."""
    pods = present(made)
    held = Counter(address.ip for pod in pods for address in pod["eth0"].addresses.values())
    return len(made) - len(pods), sum(number > 1 for number in held.values())
