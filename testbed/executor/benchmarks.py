"""`testbed bench`: what container networks cost when many pods start."""

import itertools
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, TypeVar

from testbed.cni.ipam.address_store import ADDRESSES, Store
from testbed.cni.runtime.libcni import SHARED
from testbed.cni.runtime.pod_networks import PodNetworks
from testbed.errors import TestbedError
from testbed.executor import Context
from testbed.lab import Host, Lab, Pod
from testbed.lab.pods import Network
from testbed.protocol import IpamRow, PodsRow, events
from testbed.protocol.events import Emit
from testbed.protocol.requests import IpamBench, PodsBench
from testbed.scenario.event_log import EventLog
from testbed.switch.profile import DEFAULT
from testbed.topology import Topology
from testbed.workload.queue_pair import ConnectError
from testbed.workload.verbs import connected

T = TypeVar("T")
FIRST = {4: IPv4Address("10.128.0.2"), 6: IPv6Address("fd00:128::2")}
"""The first address of the pods. The one before it is the gateway."""
SUBNETS = {4: "10.128.0.0/16", 6: "fd00:128::/64"}
NETWORK = "bench"


class Cluster:
    """Nodes on one switch, and pods that start and end side by side. `adds` are the seconds of each ADD so far."""

    def __init__(self, nodes: int, at_once: int, out: Path, emit: Emit) -> None:
        self.adds: list[float] = []
        self._at_once, self._on = at_once, emit
        out.mkdir(parents=True)
        self.lab = Lab(topology(nodes), out, self._emit, rdma_mode="exclusive", networks=PodNetworks(out))

    def _emit(self, data: events.Data, node: str, text: str, /, *, at_ns: int | None = None) -> None:
        if isinstance(data, events.Cni) and data.command == "ADD" and data.took_s is not None:
            self.adds.append(data.took_s)
        if not isinstance(data, events.Cni | events.Pod):  # of these there are thousands
            self._on(data, node, text, at_ns=at_ns)

    def hosts(self, nodes: int) -> list[Host]:
        return [self.lab.host(f"node{number}") for number in range(nodes)]

    def create(
        self, wanted: Sequence[tuple[Host, str, Sequence[Network]]], at_once: int | None = None
    ) -> list[Pod | TestbedError]:
        """Return each pod, or the error that refused it. Report the first refusal."""
        made = self.lab.pods.create_all(wanted, at_once or self._at_once)
        for error in [one for one in made if isinstance(one, TestbedError)][:1]:
            self._on(events.BENCH(), "", str(error))
        return made

    def delete(self, pods: Sequence[Pod]) -> None:
        self.lab.pods.delete_all(pods, self._at_once)

    def timed(self, what: str, act: Callable[[], T]) -> tuple[T, float]:
        """Return the result of `act`, and the seconds that it takes."""
        began = time.monotonic()
        found = act()
        took = time.monotonic() - began
        self._on(events.BENCH(), "", f"{what} after {took:.1f} s")
        return found, took


def topology(nodes: int) -> Topology:
    links = [{"endpoints": [f"leaf:e{number}", f"node{number}:eth1"], "vlan": 10} for number in range(nodes)]
    hosts = {f"node{number}": {"kind": "host", "rdma": False} for number in range(nodes)}
    switch = {"kind": "switch", "profile": DEFAULT, "vlans": {10: "10.0.0.1/16"}}
    return Topology.model_validate({"name": "bench", "topology": {"nodes": {"leaf": switch, **hosts}, "links": links}})


def host_local(start: int, size: int) -> dict[str, Any]:
    """Return host-local's configuration: `size` addresses of each family, from the `start`-th on."""
    ends = {family: (first + start, first + start + size - 1) for family, first in FIRST.items()}
    ranges = [
        [{"subnet": SUBNETS[family], "rangeStart": str(low), "rangeEnd": str(high)}]
        for family, (low, high) in ends.items()
    ]
    return {"type": "host-local", "ranges": ranges}


def ippool(size: int) -> dict[str, Any]:
    """Return ippool's configuration: `size` addresses of each family, from the first on."""
    pools = [
        {
            "name": f"v{family}",
            "subnet": subnet,
            "ips": [f"{FIRST[family]}-{FIRST[family] + size - 1}"],
            "gateway": str(FIRST[family] - 1),
        }
        for family, subnet in SUBNETS.items()
    ]
    return {"type": "ippool", "pools": pools}


def macvlan(ipam: Mapping[str, Any], *more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the network of the pods, with `more` plugins."""
    return network({"type": "macvlan", "master": "eth1", "capabilities": {"mac": True}, "ipam": ipam}, *more)


def network(*plugins: Mapping[str, Any]) -> dict[str, Any]:
    return {"cniVersion": "1.0.0", "name": NETWORK, "plugins": plugins}


def present(made: Sequence[Pod | TestbedError]) -> list[Pod]:
    return [pod for pod in made if isinstance(pod, Pod)]


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the value that `percent` % of `values` do not exceed (nearest rank)."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)] if values else 0.0


def measure_pods(request: PodsBench, context: Context) -> PodsRow:
    log = EventLog(lambda event: context.emit({"event": event}))
    cluster = Cluster(request.nodes, request.at_once, context.out / "lab", log.emit)
    with cluster.lab:
        network = macvlan(ippool(request.pods), {"type": "rxe"})
        hosts = itertools.cycle(cluster.hosts(request.nodes))
        wanted = [(host, f"pod{number}", [network]) for number, host in zip(range(request.pods), hosts, strict=False)]
        before = memory_mb()
        made, create_s = cluster.timed(f"{request.pods} pods are there", lambda: cluster.create(wanted))
        pods = present(made)
        after = memory_mb()
        # Each is in a pair with the next one, which is on the next node; the last of an odd number with the first.
        pairs = list(zip(pods[::2], [*pods[1::2], *pods[:1]], strict=False))
        failed, _ = cluster.timed(f"{len(pairs)} pairs have written", lambda: sum(not writes(*pair) for pair in pairs))
        _, delete_s = cluster.timed("all are gone", lambda: cluster.delete(pods))
    return {
        "pods": request.pods,
        "nodes": request.nodes,
        "create_s": create_s,
        "delete_s": delete_s,
        "add_p50_ms": percentile(cluster.adds, 50) * 1000,
        "add_p99_ms": percentile(cluster.adds, 99) * 1000,
        "memory_mb": after,
        "pod_mb": (after - before) / request.pods,
        "writes": len(pairs),
        "failed": failed + sum(not isinstance(pod, Pod) or not pod["eth0"].rdma for pod in made),
    }


def writes(near: Pod, far: Pod) -> bool:
    """Return whether an RDMA WRITE from one pod to the other arrives."""
    try:
        with connected(near["eth0"], far["eth0"]) as (here, there):
            return here.write(4096, within=5).ok and there.load(0, 4096) == here.load(0, 4096)
    except ConnectError:
        return False


def memory_mb() -> float:
    """Return the machine's memory that is in use."""
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE))
    return (int(found["MemTotal"]) - int(found["MemAvailable"])) / 1024


SHARE = 7
"""One in so many pods is deleted to measure the calls of the IPAM plugin alone; with 10 nodes that is pods of each."""
Wanted = tuple[Host, str, Sequence[Network]]


def measure_ipam(request: IpamBench, context: Context) -> list[IpamRow]:
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
        found = [lacks_and_duplicates(pods) for pods in (made, again)]
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


def lacks_and_duplicates(made: Sequence[Pod | TestbedError]) -> tuple[int, int]:
    """Count the pods without an address though there is one for each, and the addresses that several pods have."""
    pods = present(made)
    held = Counter(address.ip for pod in pods for address in pod["eth0"].addresses.values())
    return len(made) - len(pods), sum(number > 1 for number in held.values())
