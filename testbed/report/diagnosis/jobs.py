"""The jobs of a run: those of launchers, groups of ranks that do collectives, and queue pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from testbed.protocol import Event
from testbed.protocol.flight import Call
from testbed.report.diagnosis.observations import Observations, at

READING_NS = 50_000_000
"""Nanoseconds after the event of a job's beginning in which the counters are read for it."""
LONGEST_S = 1e9
"""Of a collective that can be."""


@dataclass(frozen=True)
class Job:
    """`hosts` are those of the ranks, `devices` their RDMA devices, empty for TCP. `rank`, `status` and `failure` are
    the first rank that said why it ended, the status of its completion, and its words. `collectives` are those of a
    group, whose counters are read behind each; a launched job has its flight records."""

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
    """The jobs of several ranks and the groups of ranks that did collectives, in the order of their ends. Where there
    are none each queue pair is a job of the two hosts at its ends; beside jobs it only tests the network for them."""
    found = [*_launched(seen), *_groups(seen)] or _connections(seen)
    return sorted(found, key=lambda job: job.ended)


def _launched(seen: Observations) -> Iterator[Job]:
    end = max((event["t"] for event in seen.events), default=0)
    begun: dict[str, tuple[int, Sequence[str], Sequence[str]]] = {}
    for event in seen.of("job"):
        data = event["data"]
        match event["kind"], data:
            case "job", {"name": str(name), "hosts": list(), "devices": list()}:
                begun[name] = at(event), *_placed(data)
            case "job", {"name": str(name), "ok": bool(ok)} if name in begun:
                job = _job(name, *begun.pop(name), at(event), ok, data)
                if len(job.hosts) > 1:
                    yield replace(job, counted_ns=READING_NS)
    for name, (began, hosts, devices) in begun.items():
        if len(hosts) > 1:
            yield Job(name, hosts, devices, began, end, counted_ns=READING_NS)


def _groups(seen: Observations) -> Iterator[Job]:
    """The collectives over queue pairs of ranks on the same NICs are a job, up to the first that fails: it ends the
    group."""
    found: list[list[Event]] = []
    going: dict[str, list[Event]] = {}
    for event in seen.of("collective"):
        match event["data"]:
            case {"ok": bool(ok), "hosts": list(), "devices": list()}:
                ranks = str(_placed(event["data"]))
                if ranks not in going:
                    going[ranks] = []
                    found.append(going[ranks])
                going[ranks].append(event)
                if not ok:
                    del going[ranks]
    for number, events in enumerate(found, 1):
        hosts, devices = _placed(events[0]["data"])
        calls = [call for sequence, event in enumerate(events, 1) for call in _of_group(sequence, event, hosts)]
        last = events[-1]
        began = min((call.began for call in calls), default=at(events[0]))
        job = _job(f"group-{number}", began, hosts, devices, at(last), last["data"]["ok"], last["data"])
        times = [_list_of_times(event["data"].get("computed_s")) for event in events]
        computed = [sum(one[rank] or 0 for one in times if rank < len(one)) for rank in range(len(hosts))]
        yield replace(job, collectives=calls, computed=computed)


def _of_group(sequence: int, event: Event, hosts: Sequence[str]) -> Iterator[Call]:
    """A collective of a group, as its ranks would have recorded it."""
    data = event["data"]
    began = at(event) - (_nanoseconds(data.get("elapsed_s")) or 0)
    lasted = [*_list_of_times(data.get("finished_s")), *(None for _ in hosts)]
    operation, ranks = str(data.get("operation") or ""), f"0-{len(hosts) - 1}"
    for rank, (host, took) in enumerate(zip(hosts, lasted, strict=False)):
        ended = None if took is None else began + took
        yield Call(rank, host, sequence, operation, ranks, sequence, 0, None, began, ended)


def _connections(seen: Observations) -> Iterator[Job]:
    """Two hosts, of which the first one has a queue pair to the other one and sends over it."""
    found: dict[str, list[Event]] = {}
    for event in seen.of("completion"):
        match event["data"]:
            case {"near": [str(), int()] as near, "far": [str(), int()] as far}:
                found.setdefault(str([event["node"], near, far]), []).append(event)
    for events in found.values():
        first, last = events[0], events[-1]
        hosts, devices = zip(*(seen.device_of(last["data"][end][0], at(last)) for end in ("near", "far")), strict=True)
        began = at(first) - (_nanoseconds(first["data"].get("elapsed_s")) or 0)
        status = str(last["data"].get("status"))
        how = {} if status == "SUCCESS" else {"rank": 0, "peer": 1, "status": status}
        job = _job(f"{hosts[0]} to {hosts[1]}", began, hosts, devices, at(last), not how, how)
        yield replace(job, counted_ns=None)


def _placed(data: Mapping[str, Any]) -> tuple[Sequence[str], Sequence[str]]:
    """Hosts and devices of the ranks."""
    return [str(host) for host in data["hosts"]], [str(device) for device in data["devices"]]


def _job(
    name: str, began: int, hosts: Sequence[str], devices: Sequence[str], ended: int, ok: bool, how: Mapping[str, Any]
) -> Job:
    rank, peer = (_rank(how.get(key), len(hosts)) for key in ("rank", "peer"))
    status, failure = str(how.get("status") or ""), str(how.get("failure") or "")
    return Job(name, hosts, devices, began, ended, ok, bool(how.get("late")), rank, peer, status, failure)


def _nanoseconds(found: object) -> int | None:
    """Those of a number of seconds; None of anything else."""
    return round(found * 1e9) if isinstance(found, float | int) and 0 <= found < LONGEST_S else None


def _list_of_times(found: object) -> list[int | None]:
    return [*map(_nanoseconds, found)] if isinstance(found, list) else []


def _rank(found: object, ranks: int) -> int | None:
    return found if isinstance(found, int) and 0 <= found < ranks else None
