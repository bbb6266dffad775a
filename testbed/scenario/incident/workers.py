"""The pods of the scene `pods`: those of the ranks, and the networks that they and pods of others are attached to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from testbed.lab import Lab
from testbed.scenario.incident.site import RANKS, Place
from testbed.workload.jobs.placement import Place as RankPlace

MANAGEMENT = "mgmt0"
FREE = (150, 199)
"""The last byte of addresses for pods of others, from and to."""


@dataclass(frozen=True)
class Worker:
    """The pod of a rank, on the GPU node of its number. eth0 is on the management network, net1 has the RDMA device."""

    rank: int

    @property
    def pod(self) -> str:
        return f"worker{self.rank}"

    @property
    def node(self) -> Place:
        return Place(RANKS[self.rank])

    @property
    def host(self) -> str:
        return self.node.host

    @property
    def leaf(self) -> str:
        return self.node.leaf

    @property
    def vlan(self) -> int:
        """Return the VLAN of the pods of its rack."""
        return 100 + 10 * int(self.leaf[-1])

    @property
    def parent(self) -> str:
        """Return the interface of its node that net1 is on."""
        return f"eth1.{self.vlan}"

    @property
    def network(self) -> str:
        return f"10.1.{self.leaf[-1]}0"

    @property
    def ip(self) -> str:
        return f"{self.network}.{100 + self.node.number}"

    @property
    def gateway(self) -> str:
        return f"{self.network}.1"

    @property
    def mac(self) -> str:
        return f"02:00:00:01:{self.leaf[-1]}0:{self.node.number:02}"

    @property
    def mate(self) -> "Worker":
        """Return the other one of its rack."""
        return Worker(self.rank ^ 1)

    @property
    def names(self) -> list[str]:
        """Return what an answer may name for it."""
        return [self.pod, f"{self.pod}:net1", *self.node.names]

    @property
    def part(self) -> frozenset[str]:
        return frozenset({self.pod})

    def attached(self, name: str, ip: str, *more: dict[str, Any]) -> dict[str, Any]:
        """Return a network in its subnet with this one address, on a node of its rack."""
        return network(name, macvlan(self.parent, f"{self.network}.0/24", ip, self.gateway), *more)


WORKERS = [Worker(rank) for rank in range(len(RANKS))]


def network(name: str, *plugins: dict[str, Any]) -> dict[str, Any]:
    return {"cniVersion": "1.0.0", "name": name, "plugins": [*plugins]}


def macvlan(master: str, subnet: str, ip: str, gateway: str = "") -> dict[str, Any]:
    addresses = {"subnet": subnet, "rangeStart": ip, "rangeEnd": ip}
    ipam: dict[str, Any] = {"type": "host-local", "ranges": [[addresses]]}
    if gateway:
        addresses["gateway"] = gateway
        ipam["routes"] = [{"dst": "0.0.0.0/0"}]
    return {"type": "macvlan", "master": master, "ipam": ipam}


def place(lab: Lab) -> Sequence[RankPlace]:
    """Make the pods of the ranks, and return the interfaces with their RDMA devices."""
    return [made(lab, worker) for worker in WORKERS]


def made(lab: Lab, worker: Worker) -> RankPlace:
    host = lab.host(worker.host)
    management = host[MANAGEMENT].address()
    metadata = network("metadata", macvlan(MANAGEMENT, str(management.network), str(management.ip + 100)))
    data = worker.attached("rdma", worker.ip, {"type": "tuning", "mac": worker.mac}, {"type": "rxe"})
    data["plugins"].insert(0, {"type": "ifacer", "interfaces": ["eth1"], "vlanID": worker.vlan})
    return lab.pods.create(host, worker.pod, [metadata, data])["net1"]
