"""Rules for ranks: one that died, that has a wrong GID, or that is slow."""

import itertools
import re
from collections import defaultdict
from ipaddress import ip_address, ip_interface
from statistics import median

from testbed.protocol import events
from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.rules.facts import SHARE, SLOWER, Finding, of_the_network, stopped
from testbed.report.diagnosis.rules.link_failures import downs, goes_on, link_name, own_link, ranks_at

DIED = re.compile(r"ended (by|with|without) |called MPI_Abort|[\w.]+(Error|Exception|Interrupt)\b")
"""The end of a rank in its launcher's text, or a Python exception."""
NO_GID = re.compile(
    r"network device '[^']*' is not available|ibv_create_ah\(.*\bdgid=(?P<gid>fe80:[0-9a-f:]+).*failed.*"
)
"""UCX's texts for a device without a GID at the index, and for a link-local one."""
LOST_CONTACT = "lost contact"
"""In the words of a launcher."""
FEWEST = 5
"""Minimum of collectives to judge the pace of ranks."""


def rank_died(case: Case) -> Finding | None:
    """Find a rank that ended with a text that is not about the network."""
    job = case.job
    if job.rank is None or job.status or of_the_network(job.failure) or not DIED.match(job.failure):
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
        if line and not line["gid"] and (found := _no_port(case, rank, line[0])):
            return found
        if line and (host, device) in case.seen.devices:
            which = f"the GID {line['gid']} is link-local" if line["gid"] else "the device has none at the given index"
            text = f"{case.rank(rank)} has a wrong GID index for {device}: {which}"
            facts = [(case.job.ended, f"{case.rank(rank)}: {line[0]}")]
            return Finding("wrong-gid", case.job.began, text, [rank], own_link(case, rank), evidence=facts)
    return None


def _no_port(case: Case, rank: int, line: str) -> Finding | None:
    """Find that the link of a rank which cannot use its device was down: UCX says the same of a port that is down."""
    every = downs(case)
    own = (down for down in every if rank in ranks_at(case, down.node, down.interface))
    down = next((down for down in own if not goes_on(case, down, every)), None)
    if down is None:
        return None
    until = "is down" if down.until is None else f"was down for {(down.until - down.since) / 1e9:.1f} s"
    text = f"{case.rank(rank)} cannot use its RDMA device: its link {own_link(case, rank)} {until}"
    facts = [(down.since, f"{down.node}: {down.why}"), (case.job.ended, f"{case.rank(rank)}: {line}")]
    cause = "link-down" if down.until is None else "link-flap"
    return Finding(cause, down.since, text, [rank], own_link(case, rank), evidence=facts)


def _is_address(text: str) -> bool:
    try:
        return bool(ip_address(text))
    except ValueError:
        return False


def unrouted_gid(case: Case) -> Finding | None:
    """Find a rank whose GID is an address in no network of the others, so that no answer reaches it."""
    networks = {
        ip_interface(row[key]).network for row in case.seen.interfaces for key in ("address", "address6") if row[key]
    }
    for _, stalled in case.seen.of(events.Stalled):
        own = stalled.addresses if stalled.name == case.job.name else None
        for rank, (_, device, ip) in enumerate(zip(case.job.hosts, case.job.devices, own or (), strict=False)):
            if not _is_address(ip) or any(ip_address(ip) in network for network in networks):
                continue
            text = (
                f"{case.rank(rank)} has a wrong GID index for {device}: its address {ip} is in no network of a switch"
            )
            facts = [(case.job.began, f"{device}: {case.rank(rank)} uses the GID of {ip}")]
            return Finding("wrong-gid", case.job.began, text, [rank], own_link(case, rank), ip, facts)
    return None


def metadata_network(case: Case) -> Finding | None:
    """Find a rank whose launcher lost contact with its host, while its RDMA device and its link are well."""
    job = case.job
    if job.rank is None or LOST_CONTACT not in job.failure:
        return None
    calls = [call for call in case.calls if call.rank == job.rank]
    last = max((call.ended or call.began for call in calls), default=job.began)
    if case.sent_again_since(min(last, stopped(case))):
        return None
    host = job.hosts[job.rank]
    data = {interface for node, interface in case.ports if node == host}
    other = [
        end for end in case.seen.wires if end[0] == host and data.isdisjoint((end[1], case.seen.bonds.get(end, end)[1]))
    ]
    link = link_name(case, *other[0]) if len(other) == 1 else ""
    text = (
        f"the launcher lost contact with {case.rank(job.rank)}; its RDMA device and its link of the data network are "
        "well: the network of the launcher does not reach it, or its daemon has ended"
    )
    facts = [(last, f"{case.rank(job.rank)}: its last call of MPI is {calls[-1].operation}")] if calls else []
    return Finding("metadata-network", last, text, [job.rank], link, evidence=facts)


def slow_rank(case: Case) -> Finding | None:
    """Find a rank that computes far longer than the others, or takes longer between collectives: all wait for it."""
    paces = _paces(case)
    if len(paces) < 2:
        return None
    slow = max(paces, key=lambda rank: paces[rank])
    others = median(pace for rank, pace in paces.items() if rank != slow)
    whole = max(call.ended or call.began for call in case.calls) - min(call.began for call in case.calls)
    if paces[slow] < SLOWER * others or paces[slow] - others < SHARE * whole or not _stays_slow(case, slow):
        return None
    since = min(call.began for call in case.calls)
    times = f"{paces[slow] / 1e6:.0f} ms, the others {others / 1e6:.0f} ms"
    text = f"{case.rank(slow)} slows all ranks down: apart from communication it takes {times}"
    shown = [(since, f"{len(case.collectives)} collectives")]
    return Finding("slow-rank", since, text, [slow], own_link(case, slow), evidence=shown)


def _stays_slow(case: Case, slow: int) -> bool:
    """Return whether a rank is slow before most collectives from the first on before which it is: one that saves a
    checkpoint now and then is not."""
    if case.job.computed:
        return True
    before: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for rank in range(len(case.job.hosts)):
        own = [call for call in case.calls if call.rank == rank and call.ended is not None]
        for last, call in itertools.pairwise(own):
            if call.sequence:
                before[call.communicator, call.sequence][rank] = max(0, call.began - (last.ended or 0))
    late = [
        times[slow] >= SLOWER * median(time for rank, time in times.items() if rank != slow)
        for times in before.values()
        if slow in times and len(times) > 1
    ]
    since = late[late.index(True) :] if True in late else []
    return sum(since) * 2 >= len(since) > 0


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
