"""Placement of the ranks of a job: the host, RDMA device and GID of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface

from testbed.errors import InputError
from testbed.lab import Host
from testbed.workload.queue_pair import gid_index, open_device


@dataclass(frozen=True)
class Rank:
    """`device` and `gid` (its index) are those of the host's address on the data network, of IPv4 where it has one."""

    number: int
    host: Host
    device: str
    gid: int

    def __str__(self) -> str:
        return f"rank {self.number} on {self.host}"


def each(hosts: Sequence[Host], ranks: int) -> list[Host]:
    """The host of every rank: `ranks` on each of `hosts`, those of the first host first."""
    if ranks < 1:
        raise InputError(f"ranks_per_host is {ranks}; at least 1 is needed")
    return [host for host in hosts for _ in range(ranks)]


def place(hosts: Sequence[Host], interface: str) -> list[Rank]:
    """A rank for each of `hosts`, which may name a host several times, on its RDMA device on `interface`. Raises
    InputError with the first rank that has no place."""
    if len(hosts) < 2:
        raise InputError(f"a job needs two ranks at least, not {len(hosts)}")
    ranks: list[Rank] = []
    for number, host in enumerate(hosts):
        devices = {name: end.rdma for name, end in host.interfaces.items() if end.rdma}
        if interface not in devices:
            found = ", ".join(f"{device} on {name}" for name, device in devices.items()) or "none"
            raise InputError(f"rank {number} on {host}: no RDMA device on {interface}", hint=f"It has: {found}.")
        device, nic = devices[interface], host[interface]
        address = nic.address(4 if 4 in nic.addresses else 6)
        gid = gid_index(open_device(host.namespace, device), address.ip)
        ranks.append(Rank(number, host, device, gid))
    return ranks


def management(hosts: Sequence[Host], interface: str) -> IPv4Interface:
    """The network that the launcher's own traffic uses: the one all hosts have an address in on `interface`."""
    for host in hosts:
        if interface not in host.interfaces or 4 not in host[interface].addresses:
            raise InputError(f"{host} has no address on {interface}, the management network of the job")
    networks = {host[interface].address().network for host in hosts}
    if len(networks) > 1:
        raise InputError(f"the hosts of a job are in several management networks: {', '.join(map(str, networks))}")
    return IPv4Interface(hosts[0][interface].address())
