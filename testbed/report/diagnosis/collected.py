"""The observations of a real cluster, from a bundle of what was collected there."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from testbed.protocol import Event, InterfaceRow, events
from testbed.protocol.flight import Call
from testbed.records.bundle import Bundle, logs
from testbed.records.bundle.bundle import Job
from testbed.records.bundle.model import Entry, Interface, Node
from testbed.records.switch_tables import UNANSWERED, Tables
from testbed.report.diagnosis.captured import Wire, claimed_row
from testbed.report.diagnosis.observations import Counters, Observations
from testbed.report.diagnosis.rules.congestion_control import NOTIFICATIONS

End = tuple[str, str]
CHANNEL = re.compile(r"(?i)po(rt-?channel)?\d|bond")
"""Names of port channels: where one may lead is not known without its members."""
STORMS = "PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED"


def observations(bundle: Bundle) -> Observations:
    """Return what a bundle says, at times from its first one on: `epoch` of the result. What was read once is taken for
    all of the time."""
    times = [t for job in bundle.jobs for t in _times(bundle, job)]
    times += [bundle.common(end[0], one.t) for end, changes in bundle.changes.items() for one in changes]
    times += [bundle.common(node.name, t) for node in bundle.nodes.values() for t, _ in node.readings[:1]]
    times += [t for node in bundle.nodes.values() for _, _, _, t in _written(bundle, node)]
    peers = bundle.peers
    wire = Wire(bundle, peers)
    epoch = min([*times, *wire.began], default=0)
    found = [*_links(bundle, epoch), *_tables_since(bundle, epoch), *_mtus(bundle, peers)]
    found += [*_claims(wire, epoch), *_pauses(wire, epoch)]
    found += [event for job in bundle.jobs for event in _job(bundle, job, epoch)]
    tables = _tables(bundle, peers, wire)
    claimed = {(ip, mac): claimed_row(name, ip, mac) for _, name, ip, mac in wire.disputed()}.values()
    return Observations(
        sorted(found, key=lambda event: event["t"]),
        [*(row for node in bundle.nodes.values() for row in _rows(node, peers)), *claimed],
        list(_counted(bundle, wire, epoch)),
        {job.name: [_call(bundle, call, epoch) for call in job.calls] for job in bundle.jobs},
        {(job.name, rank): text for job in bundle.jobs for rank, text in job.logs.items()},
        lambda _: tables,
        epoch=epoch,
        whole=False,
        remarks=[*_remarks(bundle), *wire.remarks],
        sent=[replace(one, t=one.t - epoch) for one in wire.sent()],
        refusals=[replace(one, t=one.t - epoch) for one in wire.refusals()],
        ras={job.name: job.ras for job in bundle.jobs if job.ras},
        measured_ns=max([wire.longest, *map(_read_for, bundle.nodes.values())]) or None,
    )


def _remarks(bundle: Bundle) -> list[str]:
    clocks = [f"the clock of {name} is not known: its times are its own" for name in bundle.unknown_clocks]
    jobs = [
        f"when {job.name} ran is not known: no log or flight record of it has a time"
        for job in bundle.jobs
        if not any(_times(bundle, job))
    ]
    jobs += [
        f"{job.name} has the status 0, and ranks wait in a call by their records: its end is not known"
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
        host = job.hosts[rank]
        yield from (bundle.common(host, t) for t in logs.span(text, bundle.year(host), bundle.zone(host)) or ())


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
    """Yield the MTUs of links of which both ends are known. A member of a bond has that of the bond."""
    known = {
        (node.name, one.name): one.mtu or (node.interfaces[one.master].mtu if one.master else None)
        for node in bundle.nodes.values()
        for one in node.interfaces.values()
    }
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


def _claims(wire: Wire, epoch: int) -> Iterator[Event]:
    """Yield when another host claimed an address first that it has at the same time as its owner."""
    for t, name, ip, mac in wire.disputed():
        claim = events.GARP(interface=mac, ip=ip, mac=mac)
        yield _event(t - epoch, name, f"it claims {ip} with {mac}", claim)


def _pauses(wire: Wire, epoch: int) -> Iterator[Event]:
    for one in wire.pauses:
        data = events.PFC_PAUSED(interface=one.end[1], priority=one.priority, lasted_ns=one.longest, frames=one.frames)
        yield _event(one.began - epoch, one.end[0], f"{one.end[1]} is paused", data)


def _tables(bundle: Bundle, peers: Mapping[End, End], wire: Wire) -> Tables:
    found: Tables = {}
    for node in bundle.nodes.values():
        if not node.switch:
            found |= dict(_of_host(node, wire))
            continue
        for vlan, ip, entry in node.entries():
            port = entry.port or node.macs.get((vlan, entry.mac), "")
            text = UNANSWERED if entry.failed else entry.mac + (f" on {port}" if port else "")
            found[node.name, "nd" if ":" in ip else "arp", vlan, ip] = text
        bonds = node.bonds()
        ends = {
            port: [(node.name, one) for one in (port, *(member.name for member in bonds.get(port, ())))]
            for port in node.macs.values()
        }
        cabled = {(mac, port) for (_, mac), port in node.macs.items() if _leads(bundle, peers, ends[port], mac)}
        well = {mac for mac, _ in cabled}
        for (vlan, mac), port in node.macs.items():
            known = not CHANNEL.match(port) or port in bonds
            if (mac, port) in cabled or (known and mac not in well):
                found[node.name, "fdb", vlan, mac] = f"on {port}"
    return found


def _of_host(node: Node, wire: Wire) -> Iterator[tuple[tuple[str, str, int, str], str]]:
    """Yield the entries of a host for its own networks that nobody answers, or that have somebody else's MAC. A stale
    one is verified before it is used."""
    for vlan, ip, entry in node.entries():
        if not entry.stale and wire.near(node.name, ip) and (entry.failed or wire.strange(ip, entry.mac)):
            yield (node.name, "nd" if ":" in ip else "arp", vlan, ip), UNANSWERED if entry.failed else entry.mac


def _leads(bundle: Bundle, peers: Mapping[End, End], ends: Iterable[End], mac: str) -> bool:
    """Return whether a switch's port, or a member of its port channel, leads to the interface that has a MAC."""
    for end in ends:
        peer = peers.get(end, ("", ""))
        far = bundle.nodes.get(peer[0])
        if far and mac in {one.mac for name in (peer[1], bundle.master(peer)) if (one := far.interfaces.get(name))}:
            return True
    return False


def _rows(node: Node, peers: Mapping[End, End]) -> Iterator[InterfaceRow]:
    bonds = node.bonds()
    for one in node.interfaces.values():
        row = _row(node, one, peers)
        if one.master:
            row["master"] = one.master
        if one.name in bonds:
            row["members"] = [member.name for member in bonds[one.name]]
        yield row


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


def _counted(bundle: Bundle, wire: Wire, epoch: int) -> Iterator[tuple[int, Counters]]:
    """Yield readings. The first of a node is that of all the time before: what it had counted until then is of no
    job. Those after the end of all jobs are one: nodes are not read at once. What a NIC counted itself stands before
    what captures tell."""
    first: dict[tuple[str, str, str], int] = {}
    later: list[tuple[int, dict[tuple[str, str, str], int]]] = []
    for node in bundle.nodes.values():
        for number, (t, found) in enumerate(_readings(node)):
            named = {(node.name, *key): value for key, value in found.items()}
            if number:
                later.append((bundle.common(node.name, t) - epoch, named))
            else:
                first |= named
        speeds = {(node.name, one.name, "queue_rate_bps"): one.speed for one in node.interfaces.values() if one.speed}
        first |= {key: value for key, value in speeds.items() if value}
    grew = {key for _, found in later for key, value in found.items() if value > first.get(key, 0)}
    seen = [(t - epoch, {key: n for key, n in found.items() if key not in grew}) for t, found in wire.counted()]
    of_wire = {key for _, found in seen for key in found}
    later = [(t, {key: n for key, n in found.items() if key not in of_wire}) for t, found in later]
    later += [(t, {key: first.get(key, 0) + n for key, n in found.items()}) for t, found in seen]
    later += [
        (max(1, _last(bundle) - epoch), {(node.name, port, f"{STORMS}:{priority}"): 1})
        for node in bundle.nodes.values()
        for port, priority in node.stormed
    ]
    if first or later:
        yield 0, first
    ended = max((t for job in bundle.jobs for t in _times(bundle, job)), default=epoch) - epoch
    last: dict[tuple[str, str, str], int] = {}
    for t, reading in sorted(later, key=lambda one: one[0]):
        if t < ended:
            yield t, reading
        else:
            last |= reading
    if last:
        yield max(t for t, _ in later), last


def _readings(node: Node) -> list[tuple[int, dict[tuple[str, str], int]]]:
    """Return the readings of a node's interfaces and devices. What mlx5 counts of congestion notifications for a device
    is counted for its interface."""
    own = {one.rdma: one.name for one in node.interfaces.values() if one.rdma}
    known = own.keys() | node.interfaces.keys()
    return [
        (
            t,
            {
                (own.get(place, place) if name in NOTIFICATIONS else place, name): value
                for (place, name), value in found.items()
                if place in known
            },
        )
        for t, found in node.readings
        if found
    ]


def _read_for(node: Node) -> int:
    """Return the nanoseconds between the first and the last reading of a node's counters."""
    times = [t for t, _ in _readings(node)]
    return times[-1] - times[0] if times else 0


def _last(bundle: Bundle) -> int:
    """Return the last time that is known of nodes: of what was collected, and of links that changed."""
    read = [bundle.common(node.name, node.collected) for node in bundle.nodes.values() if node.collected]
    changed = [bundle.common(end[0], changes[-1].t) for end, changes in bundle.changes.items() if changes]
    return max([*read, *(t + 1 for t in changed)], default=0)


def _job(bundle: Bundle, job: Job, epoch: int) -> Iterator[Event]:
    """Yield the begin of a job, and its end, if a log or its status says so."""
    times = sorted(_times(bundle, job)) or [epoch, _last(bundle)]
    began, ended = times[0] - epoch, max(times[-1] - epoch, 1)
    started = events.JOB(name=job.name, ranks=len(job.hosts), hosts=job.hosts, devices=job.devices)
    yield _event(began, "", f"{job.name} starts", started)
    ends = {
        rank: logs.end(text, bundle.year(host), bundle.zone(host))
        for rank, text in job.logs.items()
        for host in [job.hosts[rank]]
    }
    known = {rank: one for rank, one in ends.items() if one and (one.certain or job.status != 0)}
    if known:
        first = min(known, key=lambda rank: _order(bundle, job, rank, known[rank]))
        failed = events.JOB(
            name=job.name, ok=False, rank=first, host=job.hosts[first], status=known[first].status,
            failure=known[first].text,
        )  # fmt: skip
        yield _event(ended, "", f"{job.name} ends", failed)
    elif (end := logs.end(job.output, bundle.year(""))) and end.certain:
        failed = events.JOB(name=job.name, ok=False, status=end.status, failure=end.text)
        yield _event(ended, "", f"{job.name} ends", failed)
    elif job.status is not None and not _contradicted(job):
        yield _event(ended, "", f"{job.name} ends", events.JOB(name=job.name, ok=job.status == 0))


def _order(bundle: Bundle, job: Job, rank: int, end: logs.End) -> tuple[bool, int, bool, bool, int]:
    """Return a rank's place among those that tell of their end: by its time, where that is known; else one with an
    error of its own before those that the network or others ended."""
    t = bundle.common(job.hosts[rank], end.t) if end.t is not None else 0
    return end.t is None, t, not end.own, not end.status, rank


def _contradicted(job: Job) -> bool:
    """Return whether a job ended well by its status, and a rank is in a collective by its flight record."""
    return job.status == 0 and any(call.ended is None for call in job.calls)
