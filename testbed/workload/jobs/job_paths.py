"""The paths that the flows between the ranks of a job take, as its switches are asked for them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

from testbed.errors import TestbedError
from testbed.lab import HostInterface, Interface, Switch
from testbed.nic.connections import source_port
from testbed.protocol import events
from testbed.workload.jobs.job import Job
from testbed.workload.jobs.placement import Rank
from testbed.workload.paths import paths

UCX_FLOW_LABEL = 0xFFFFFFFF
"""That of UCX's queue pairs: all flows of two addresses have one UDP source port."""
MOST_RANKS = 32
"""More ranks have the flows of neighbours by number only."""


Flow = tuple[HostInterface, HostInterface, int]


def emit_paths(job: Job) -> Counter[str]:
    """Emit the paths of the flows between ranks, as they are now. Ranks without an RDMA device have none. Return how
    many flows are sent by each port between switches."""
    nics = [nic_of(rank) for rank in job.ranks]
    flows: list[tuple[int, int, Flow]] = []
    for one, other in _pairs(len(nics)):
        near, far = nics[one], nics[other]
        if near and far and near is not far:
            flows += [(one, other, (near, far, port)) for port in ports(near, far)]
    between: Counter[str] = Counter()
    if not flows:
        return between
    unknown: list[str] = []
    found: list[list[Any]] = []
    for (one, other, (_, _, port)), ends in zip(flows, asked([flow for _, _, flow in flows]), strict=True):
        if isinstance(ends, str):
            unknown.append(f"rank {one} to rank {other}: {ends}")
        else:
            found.append([one, other, port, [str(end) for end in ends]])
            switched = (end for end in ends[1:] if end.peer and isinstance(end.peer.node, Switch))
            between.update(map(str, switched))
    text = f"{len(found)} flows between the ranks of {job.name} have known paths, {len(unknown)} have not"
    job.lab.emit(events.JOB_PATHS(name=job.name, flows=found, unknown=unknown), "", text)
    return between


def asked(flows: Sequence[Flow]) -> list[list[Interface] | str]:
    """Return the path of each flow, or why it is not known. All at once, for a switch is asked by a program."""
    try:
        return [*paths(flows)]
    except TestbedError as error:
        if len(flows) == 1:
            return [error.message]
    half = len(flows) // 2
    return asked(flows[:half]) + asked(flows[half:])


def _pairs(ranks: int) -> Iterator[tuple[int, int]]:
    if ranks <= MOST_RANKS:
        yield from permutations(range(ranks), 2)
    else:
        for rank in range(ranks):
            yield rank, (rank + 1) % ranks
            yield (rank + 1) % ranks, rank


def nic_of(rank: Rank) -> HostInterface | None:
    return next((end for end in rank.host.interfaces.values() if rank.device and end.rdma == rank.device), None)


def ports(near: HostInterface, far: HostInterface) -> list[int]:
    """Return the UDP source ports of the queue pairs from one NIC to another. A hardware NIC knows them."""
    if near.nic is None:
        return [source_port(UCX_FLOW_LABEL, 0, 0)]
    addresses = {address.ip for address in far.all_addresses}
    return sorted({pin.sport for pin in near.nic.pins.values() if pin.remote_ip in addresses})
