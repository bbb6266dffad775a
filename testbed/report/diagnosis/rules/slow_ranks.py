"""Rules for ranks: one that died, that hangs, or that is slow."""

import itertools
import re
from statistics import median

from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.rules.facts import BEHIND_NS, OF_THE_NETWORK, SHARE, SLOWER, Finding, retries
from testbed.report.diagnosis.rules.link_failures import own_link

DIED = re.compile(r"ended (by|with|without) |called MPI_Abort|[\w.]+(Error|Exception|Interrupt)\b")
"""The end of a rank in its launcher's text, or a Python exception."""
NO_GID = re.compile(
    r"network device '[^']*' is not available|ibv_create_ah\(.*\bdgid=(?P<gid>fe80:[0-9a-f:]+).*failed.*"
)
"""UCX's texts for a device without a GID at the index, and for a link-local one."""
FEWEST = 5
"""Minimum of collectives to judge the pace of ranks."""


def rank_died(case: Case) -> Finding | None:
    """Find a rank that ended with a text that is not about the network."""
    job = case.job
    if job.rank is None or job.status or OF_THE_NETWORK.search(job.failure) or not DIED.match(job.failure):
        return None
    calls = [call for call in case.calls if call.rank == job.rank]
    last = max((call.ended or call.began for call in calls), default=job.ended)
    where = f"its last call of MPI is {calls[-1].operation}" if calls else "it made no call of MPI"
    text = f"{case.rank(job.rank)} died: {job.failure}"
    return Finding("rank-died", last, text, [job.rank], evidence=[(last, f"{case.rank(job.rank)}: {where}")])


def wrong_gid(case: Case) -> Finding | None:
    """Find a rank that cannot use its RDMA device, which is there, or whose GID there is link-local."""
    for rank, (host, device) in enumerate(zip(case.job.hosts, case.job.devices, strict=False)):
        line = NO_GID.search(case.log(rank))
        if line and (host, device) in case.seen.devices:
            which = f"the GID {line['gid']} is link-local" if line["gid"] else "the device has none at the given index"
            text = f"{case.rank(rank)} has a wrong GID index for {device}: {which}"
            facts = [(case.job.ended, f"{case.rank(rank)}: {line[0]}")]
            return Finding("wrong-gid", case.job.began, text, [rank], own_link(case, rank), evidence=facts)
    return None


def rank_hangs(case: Case) -> Finding | None:
    """Find a collective that a rank, which made calls of MPI before, did not enter, without any retransmission."""
    stuck = case.stuck
    if stuck is None or not stuck.absent or any(True for _ in retries(case)):
        return None
    late = {rank: max((c.ended or 0 for c in case.calls if c.rank == rank), default=0) for rank in stuck.absent}
    rank = min(late, key=lambda one: (late[one], one))
    if not late[rank] or case.job.ended - late[rank] < BEHIND_NS:
        return None
    text = f"{case.rank(rank)} stalled first: it did not enter {stuck}, in which the others wait"
    return Finding("rank-hangs", late[rank], text, [rank], evidence=[(late[rank], f"{case.rank(rank)} leaves MPI")])


def slow_rank(case: Case) -> Finding | None:
    """Find a rank that computes far longer than the others, or takes longer between collectives: all wait for it."""
    paces = _paces(case)
    if len(paces) < 2:
        return None
    slow = max(paces, key=lambda rank: paces[rank])
    others = median(pace for rank, pace in paces.items() if rank != slow)
    whole = max(call.ended or call.began for call in case.calls) - min(call.began for call in case.calls)
    if paces[slow] < SLOWER * others or paces[slow] - others < SHARE * whole:
        return None
    since = min(call.began for call in case.calls)
    times = f"{paces[slow] / 1e6:.0f} ms, the others {others / 1e6:.0f} ms"
    text = f"{case.rank(slow)} slows all ranks down: apart from communication it takes {times}"
    shown = [(since, f"{len(case.collectives)} collectives")]
    return Finding("slow-rank", since, text, [slow], own_link(case, slow), evidence=shown)


def _paces(case: Case) -> dict[int, int]:
    """Return the nanoseconds of each rank outside of MPI between its first and last call; in a group those that it
    computed."""
    if case.job.computed:
        return dict(enumerate(case.job.computed))
    found: dict[int, int] = {}
    for rank in range(len(case.job.hosts)):
        calls = [call for call in case.calls if call.rank == rank and call.ended is not None]
        if sum(call.sequence > 0 for call in calls) >= FEWEST:
            found[rank] = sum(max(0, after.began - (before.ended or 0)) for before, after in itertools.pairwise(calls))
    return found
