"""`testbed bench`: what container networks cost when many pods start."""

import time
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, TypeVar

from testbed.cni.runtime.pod_networks import PodNetworks
from testbed.errors import TestbedError
from testbed.lab import Host, Lab, Pod
from testbed.lab.context import Emit
from testbed.lab.pods import Network
from testbed.protocol import events
from testbed.switch.profile import DEFAULT
from testbed.topology import Topology

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
