"""The observations of a real cluster, from a bundle of what was collected there."""

import re
from collections.abc import Iterator, Mapping

from testbed.protocol import Event, InterfaceRow, events
from testbed.protocol.flight import Call
from testbed.records.bundle import Bundle, logs
from testbed.records.bundle.bundle import Job
from testbed.records.bundle.model import Entry, Interface, Node
from testbed.records.switch_tables import UNANSWERED, Tables
from testbed.report.diagnosis.observations import Counters, Observations

End = tuple[str, str]
CHANNEL = re.compile(r"(?i)po(rt-?channel)?\d|bond")
"""Names of port channels, whose members are not known."""


def observations(bundle: Bundle) -> Observations:
    """Return what a bundle says, at times from its first one on: `epoch` of the result. What was read once is taken for
    all of the time."""
    times = [t for job in bundle.jobs for t in _times(bundle, job)]
    times += [bundle.common(end[0], one.t) for end, changes in bundle.changes.items() for one in changes]
    times += [bundle.common(node.name, t) for node in bundle.nodes.values() for t, _ in node.readings[:1]]
    times += [t for node in bundle.nodes.values() for _, _, _, t in _written(bundle, node)]
    epoch = min(times, default=0)
    peers = bundle.peers
    found = [*_links(bundle, epoch), *_tables_since(bundle, epoch), *_mtus(bundle, peers)]
    found += [event for job in bundle.jobs for event in _job(bundle, job, epoch)]
    tables = _tables(bundle, peers)
    return Observations(
        sorted(found, key=lambda event: event["t"]),
        [_row(node, one, peers) for node in bundle.nodes.values() for one in node.interfaces.values()],
        list(_counted(bundle, epoch)),
        {job.name: [_call(bundle, call, epoch) for call in job.calls] for job in bundle.jobs},
        {(job.name, rank): text for job in bundle.jobs for rank, text in job.logs.items()},
        lambda _: tables,
        epoch=epoch,
        whole=False,
        remarks=_remarks(bundle),
    )


def _remarks(bundle: Bundle) -> list[str]:
    clocks = [f"the clock of {name} is not known: its times are its own" for name in bundle.unknown_clocks]
    jobs = [
        f"when {job.name} ran is not known: no log or flight record of it has a time"
        for job in bundle.jobs
        if not any(_times(bundle, job))
    ]
    jobs += [
        f"{job.name} has the status 0, and ranks wait in a call by their flight records: its end is not known"
        for job in bundle.jobs
        if _contradicted(job)
    ]
    return [*bundle.remarks, *jobs, *clocks]


def _times(bundle: Bundle, job: Job) -> Iterator[int]:
    """Yield times of a job: of its calls, and of its logs' lines."""
    for call in job.calls:
        yield bundle.common(call.host, call.began)
        if call.ended is not None:
            yield bundle.common(call.host, call.ended)
    for rank, text in job.logs.items():
        yield from (bundle.common(job.hosts[rank], t) for t in logs.span(text, bundle.year(job.hosts[rank])) or ())


def _call(bundle: Bundle, call: Call, epoch: int) -> Call:
    began, ended = (None if t is None else bundle.common(call.host, t) - epoch for t in (call.began, call.ended))
    assert began is not None
    return Call(
        call.rank, call.host, call.number, call.operation, call.communicator, call.sequence, call.bytes, call.peer,
        began, ended,
    )  # fmt: skip


def _event(t: int, node: str, text: str, data: events.Data) -> Event:
    fields = {key: value for key, value in vars(data).items() if key not in ("kind", "kind_name") and value is not None}
    return Event(t=t, kind=data.kind_name, node=node, text=text, data=fields)


def _links(bundle: Bundle, epoch: int) -> Iterator[Event]:
    """Yield changes of links, from logs; at the begin those that are down in the end and of which no log says since
    when. What was collected is later than a log. A host's log tells of the carrier: the other end may be down."""
    lasting = bundle.lasting
    for (name, interface), changes in lasting.items():
        switch = bundle.nodes[name].switch
        for one in changes:
            t = bundle.common(name, one.t) - epoch
            state = events.LINK(interface=interface, state="up" if one.up else "down")
            carrier = events.LINK(interface=interface, carrier=one.up)
            yield _event(t, name, one.text, state if switch else carrier)
    for node in bundle.nodes.values():
        for own in node.interfaces.values():
            changes = lasting.get((node.name, own.name), [])
            if not own.mac or (changes and not changes[-1].up):
                continue
            if own.enabled is False:
                down, what = events.LINK(interface=own.name, state="down"), "is set down"
            elif own.carrier is False:
                down, what = events.LINK(interface=own.name, carrier=False), "has no carrier"
            else:
                continue
            t = bundle.common(node.name, changes[-1].t) - epoch + 1 if changes else 0
            yield _event(t, node.name, f"{own.name} {what}, since when is not known", down)


def _mtus(bundle: Bundle, peers: Mapping[End, End]) -> Iterator[Event]:
    """Yield the MTUs of links of which both ends are known."""
    known = {(node.name, one.name): one.mtu for node in bundle.nodes.values() for one in node.interfaces.values()}
    for end, mtu in known.items():
        if mtu and known.get(peers.get(end, ("", ""))):
            yield _event(0, end[0], f"{end[1]} has MTU {mtu}", events.LINK(interface=end[1], mtu=mtu))


def _written(bundle: Bundle, node: Node) -> Iterator[tuple[int, str, Entry, int]]:
    """Yield the entries of which a switch says when they were written: VLAN, address, entry, and that time."""
    for vlan, ip, entry in node.entries() if node.switch else ():
        if entry.age_s is not None and entry.mac and node.collected:
            yield vlan, ip, entry, bundle.common(node.name, node.collected) - round(entry.age_s * 1e9)


def _tables_since(bundle: Bundle, epoch: int) -> Iterator[Event]:
    for node in bundle.nodes.values():
        for vlan, ip, entry, t in _written(bundle, node):
            data = events.LEARNED(vlan=vlan, ip=ip, mac=entry.mac, port=entry.port or None, reason="")
            yield _event(t - epoch, node.name, f"{ip} is at {entry.mac}", data)


def _tables(bundle: Bundle, peers: Mapping[End, End]) -> Tables:
    found: Tables = {}
    for node in bundle.nodes.values():
        if not node.switch:
            continue
        for vlan, ip, entry in node.entries():
            port = entry.port or node.macs.get((vlan, entry.mac), "")
            text = UNANSWERED if entry.failed else entry.mac + (f" on {port}" if port else "")
            found[node.name, "nd" if ":" in ip else "arp", vlan, ip] = text
        cabled = {(mac, port) for (_, mac), port in node.macs.items() if _leads(bundle, peers, (node.name, port), mac)}
        well = {mac for mac, _ in cabled}
        for (vlan, mac), port in node.macs.items():
            if not CHANNEL.match(port) and ((mac, port) in cabled or mac not in well):
                found[node.name, "fdb", vlan, mac] = f"on {port}"
    return found


def _leads(bundle: Bundle, peers: Mapping[End, End], end: End, mac: str) -> bool:
    """Return whether a switch's port leads to the interface that has a MAC."""
    peer = peers.get(end)
    own = bundle.nodes[peer[0]].interfaces.get(peer[1]) if peer and peer[0] in bundle.nodes else None
    return own is not None and own.mac == mac


def _row(node: Node, one: Interface, peers: Mapping[End, End]) -> InterfaceRow:
    peer = peers.get((node.name, one.name))
    four, six = (next((ip for ip in one.addresses if (":" in ip) is of), "") for of in (False, True))
    return InterfaceRow(
        node=node.name,
        kind="switch" if node.switch else "host",
        interface=one.name,
        peer=":".join(peer) if peer else "",
        mac=one.mac,
        address=four,
        address6=six,
        gateway="",
        gateway6="",
        vlan=one.vlan,
        trunk=[],
        routed=False,
        rdma=one.rdma or None,
    )


def _counted(bundle: Bundle, epoch: int) -> Iterator[tuple[int, Counters]]:
    """Yield readings. The first of a node is that of all the time before: what it had counted until then is of no
    job."""
    first: dict[tuple[str, str, str], int] = {}
    later: list[tuple[int, Counters]] = []
    for node in bundle.nodes.values():
        own = {one.rdma for one in node.interfaces.values()} | {*node.interfaces}
        readings = [(t, {key: n for key, n in found.items() if key[0] in own}) for t, found in node.readings if found]
        for number, (t, found) in enumerate(readings):
            named = {(node.name, *key): value for key, value in found.items()}
            if number:
                later.append((bundle.common(node.name, t) - epoch, named))
            else:
                first |= named
        speeds = {(node.name, one.name, "queue_rate_bps"): one.speed for one in node.interfaces.values() if one.speed}
        first |= {key: value for key, value in speeds.items() if value}
    if first:
        yield 0, first
    yield from sorted(later, key=lambda reading: reading[0])


def _last(bundle: Bundle) -> int:
    """Return the time of the last reading of all."""
    return max(
        (bundle.common(node.name, node.collected) for node in bundle.nodes.values() if node.collected), default=0
    )


def _job(bundle: Bundle, job: Job, epoch: int) -> Iterator[Event]:
    """Yield the begin of a job, and its end, if a log or its status says so."""
    times = sorted(_times(bundle, job)) or [epoch, _last(bundle)]
    began, ended = times[0] - epoch, max(times[-1] - epoch, 1)
    started = events.JOB(name=job.name, ranks=len(job.hosts), hosts=job.hosts, devices=job.devices)
    yield _event(began, "", f"{job.name} starts", started)
    ends = {rank: logs.end(text, bundle.year(job.hosts[rank])) for rank, text in job.logs.items()}
    known = {rank: one for rank, one in ends.items() if one and (one.certain or job.status != 0)}
    if known:
        first = min(known, key=lambda rank: _order(bundle, job, rank, known[rank]))
        failed = events.JOB(
            name=job.name, ok=False, rank=first, host=job.hosts[first], status=known[first].status,
            failure=known[first].text,
        )  # fmt: skip
        yield _event(ended, "", f"{job.name} ends", failed)
    elif job.status is not None and not _contradicted(job):
        yield _event(ended, "", f"{job.name} ends", events.JOB(name=job.name, ok=job.status == 0))


def _order(bundle: Bundle, job: Job, rank: int, end: logs.End) -> tuple[bool, int, bool, int]:
    """Return a rank's place among those that tell of their end: by its time, where that is known."""
    t = bundle.common(job.hosts[rank], end.t) if end.t is not None else 0
    return end.t is None, t, not end.status, rank


def _contradicted(job: Job) -> bool:
    """Return whether a job ended well by its status, and a rank is in a collective by its flight record."""
    return job.status == 0 and any(call.ended is None for call in job.calls)
