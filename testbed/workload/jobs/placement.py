"""Placement of the ranks of a job: the host or pod, RDMA device and GID of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import TypeVar

from testbed.errors import InputError, TestbedError
from testbed.lab import Host, HostInterface, Lab
from testbed.workload.queue_pair import GID_TABLE, gid_index, open_device, reported

Place = Host | HostInterface
"""The place of a rank: a host or a pod, or one of its interfaces with an RDMA device."""
NAME = 15
"""Characters of an RDMA device's name that UCX 1.18 keeps: UCT_MD_NAME_MAX is 16. It does not find a device with a
longer name, and reports only that it is not available."""
AnyPlace = TypeVar("AnyPlace", Host, Place)


@dataclass(frozen=True)
class Rank:
    """A rank's place: `device` and `gid` (its index) are those of the host's data address, of IPv4 if it has one."""

    number: int
    host: Host
    device: str = ""
    gid: int = 0

    def __str__(self) -> str:
        return f"rank {self.number} on {self.host}"


def each(places: Sequence[AnyPlace], ranks: int) -> list[AnyPlace]:
    """Return the place of every rank: `ranks` on each of `places`, those of the first one first."""
    if ranks < 1:
        raise InputError(f"ranks_per_host is {ranks}; at least 1 is needed")
    found = [place for place in places for _ in range(ranks)]
    if len(found) < 2:
        raise InputError(
            f"a job needs at least two ranks, not {len(found)}", hint="Name more hosts, or set ranks_per_host."
        )
    return found


def place(lab: Lab, places: Sequence[Place], data: str) -> list[Rank]:
    """Return a rank for each of `places`, which may name one several times; that of a host is on its interface `data`.
    Raise the error of the first rank that has no place."""
    return [_rank(lab, number, where, data) for number, where in enumerate(places)]


def _rank(lab: Lab, number: int, where: Place, data: str) -> Rank:
    host = lab.host(where.node.name) if isinstance(where, HostInterface) else where
    rank, interface = Rank(number, host), where.name if isinstance(where, HostInterface) else data
    devices = {name: end.rdma for name, end in host.interfaces.items() if end.rdma}
    if interface not in devices:
        found = ", ".join(f"{device} on {name}" for name, device in devices.items()) or "none"
        raise InputError(f"{rank}: no RDMA device on {interface}", hint=f"It has: {found}.")
    device, nic = devices[interface], host[interface]
    if len(device) > NAME:
        message = f"{rank}: UCX does not find {device}: it keeps only {NAME} characters of an RDMA device's name"
        raise InputError(
            message, hint="A device has the name NODE-INTERFACE: give the node or the interface a shorter name."
        )
    if not nic.addresses:
        raise InputError(
            f"{rank}: {interface} has no IP address, so {device} has no GID to use", hint="Add an address."
        )
    address = nic.address(4 if 4 in nic.addresses else 6)
    try:
        gid = gid_index(open_device(host.namespace, device), address.ip)
    except TestbedError as error:
        hint = error.hint or f"`rdma link` on {host} lists its devices."
        raise TestbedError(f"{rank}: {error.message}", hint=hint) from error
    return Rank(number, host, device, gid)


def gid_address(rank: Rank, index: int) -> str:
    """Return the address of the GID at an index of a rank's device, an IPv4 one as such; empty if there is none.
    TestbedError if the device is gone."""
    context = open_device(rank.host.namespace, rank.device)
    with reported(f"read the GIDs of {rank.device}"):
        entries = context.query_gid_table(GID_TABLE)
    found = next((entry for entry in entries if entry.gid_index == index), None)
    if found is None:
        return ""
    address = IPv6Address(bytes.fromhex(found.gid_str().replace(":", "")))
    return str(address.ipv4_mapped or address)


def management(first: Host, hosts: Sequence[Host], interface: str) -> list[HostInterface]:
    """Return the interface of `first`, and those of `hosts` in the same network, by any name: a pod's has the name that
    its runtime gave it. The job's own traffic uses this network."""
    if interface not in first.interfaces or 4 not in first[interface].addresses:
        raise InputError(f"{first} has no address on {interface}, the management network of the job")
    network = first[interface].address().network
    found = [first[interface]]
    for host in hosts:
        inside = [end for end in host.interfaces.values() if 4 in end.addresses and end.address().network == network]
        if not inside:
            message = f"{host} has no address in {network}, the management network of the job"
            raise InputError(
                message, hint=f"The management network is that of {interface} of {first}; give a pod a macvlan there."
            )
        found.append(inside[0])
    return found
