"""The jobs of a run: those of launchers, groups of ranks that do collectives, and queue pairs."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from testbed.protocol import Event, events
from testbed.protocol.flight import Call
from testbed.report.diagnosis.observations import Observations, at

READING_NS = 50_000_000
"""Nanoseconds after the event of a job's beginning in which the counters are read for it."""


@dataclass(frozen=True)
class Job:
    """A job. `hosts` are those of the ranks, `devices` their RDMA devices, empty for TCP. `rank`, `status` and
    `failure` are the first rank that reported its failure, the status of its completion, and its text. `collectives`
    are those of a group, whose counters are read behind each; a launched job has its flight records."""

    name: str
    hosts: Sequence[str]
    devices: Sequence[str]
    began: int
    ended: int
    ok: bool | None = None
    late: bool = False
    rank: int | None = None
    peer: int | None = None
    status: str = ""
    failure: str = ""
    collectives: Sequence[Call] = ()
    computed: Sequence[int] = ()
    """Nanoseconds for which each rank of a group computed within its collectives."""
    counted_ns: int | None = 0
    """Nanoseconds after `began` in which the counters are read for it; None if they are not."""


def jobs(seen: Observations) -> list[Job]:
    """Return jobs of several ranks and groups of ranks that did collectives, in the order of their ends. Without any,
    each queue pair is a job of the two hosts at its ends; beside jobs it only tests the network for them."""
    found = [*_launched(seen), *_groups(seen)] or _connections(seen)
    return sorted(found, key=lambda job: job.ended)


def _launched(seen: Observations) -> Iterator[Job]:
    end = max((event["t"] for event in seen.events), default=0)
    counted = READING_NS if seen.whole else 0
    begun: dict[str, tuple[int, Sequence[str], Sequence[str]]] = {}
    for event, data in seen.of(events.Job):
        if data.hosts is not None and data.devices is not None:
            begun[data.name] = at(event), data.hosts, data.devices
        elif data.ok is not None and data.name in begun:
            job = _job(data.name, *begun.pop(data.name), at(event), data.ok, data)
            if len(job.hosts) > 1:
                yield replace(job, failure=data.failure or "", counted_ns=counted)
    for name, (began, hosts, devices) in begun.items():
        if len(hosts) > 1:
            yield Job(name, hosts, devices, began, end, counted_ns=counted)


def _groups(seen: Observations) -> Iterator[Job]:
    """Yield the collectives over queue pairs of ranks on the same NICs as a job, up to the first failed one, which ends
    it."""
    found: list[list[tuple[Event, events.Collective]]] = []
    going: dict[str, list[tuple[Event, events.Collective]]] = {}
    for event, data in seen.of(events.Collective):
        ranks = str((data.hosts, data.devices))
        if ranks not in going:
            going[ranks] = []
            found.append(going[ranks])
        going[ranks].append((event, data))
        if not data.ok:
            del going[ranks]
    for number, group in enumerate(found, 1):
        last, data = group[-1]
        calls = [call for sequence, one in enumerate(group, 1) for call in _of_group(sequence, *one)]
        began = min((call.began for call in calls), default=at(group[0][0]))
        job = _job(f"group-{number}", began, data.hosts, data.devices, at(last), data.ok, data)
        computed = [
            sum(_ns(one.computed_s[rank]) for _, one in group if rank < len(one.computed_s))
            for rank in range(len(data.hosts))
        ]
        yield replace(job, peer=_rank(data.peer, len(data.hosts)), collectives=calls, computed=computed)


def _of_group(sequence: int, event: Event, data: events.Collective) -> Iterator[Call]:
    """Yield the calls of a group's collective, as its ranks would have recorded them."""
    began = at(event) - _ns(data.elapsed_s)
    ranks = f"0-{len(data.hosts) - 1}"
    for rank, (host, took) in enumerate(itertools.zip_longest(data.hosts, data.finished_s[: len(data.hosts)])):
        ended = None if took is None else began + _ns(took)
        yield Call(rank, host, sequence, data.operation, ranks, sequence, 0, None, began, ended)


def _connections(seen: Observations) -> Iterator[Job]:
    """Yield a job for each two hosts of which the first has a queue pair to the other one and sends over it."""
    found: dict[object, list[tuple[Event, events.Completion]]] = {}
    for event, data in seen.of(events.Completion):
        if data.near and data.far:
            found.setdefault((event["node"], *data.near, *data.far), []).append((event, data))
    for (first, earliest), *_, (last, latest) in ([*one, one[-1]] for one in found.values()):
        assert latest.near
        assert latest.far
        ends = (seen.device_of(ip, at(last)) for ip, _ in (latest.near, latest.far))
        hosts, devices = zip(*ends, strict=True)
        began, name = at(first) - _ns(earliest.elapsed_s), f"{hosts[0]} to {hosts[1]}"
        job = Job(name, hosts, devices, began, at(last), latest.status == "SUCCESS", counted_ns=None)
        yield job if job.ok else replace(job, rank=0, peer=1, status=latest.status)


def _job(
    name: str, began: int, hosts: Sequence[str], devices: Sequence[str], ended: int, ok: bool, data: events.Ranks
) -> Job:
    rank = _rank(data.rank, len(hosts))
    return Job(name, hosts, devices, began, ended, ok, data.late, rank, status=data.status or "")


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _rank(found: int | None, ranks: int) -> int | None:
    return found if found is not None and 0 <= found < ranks else None
