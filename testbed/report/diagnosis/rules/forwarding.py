"""Rules for forwarding: entries of switches for the addresses and NICs of ranks, and routes."""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from testbed.protocol import Event, events
from testbed.records.switch_tables import ASKING, SET, UNANSWERED
from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.observations import at
from testbed.report.diagnosis.rules.facts import LOST, Finding, evidence, hits, refused, retries, stalls, stopped
from testbed.report.diagnosis.rules.link_failures import downs, own_link

D = TypeVar("D", bound=events.Data)
NO_ROUTE = re.compile(r"Destination is unreachable|Network is unreachable|No route to host")
"""Texts of UCX and of the kernel."""


@dataclass(frozen=True)
class _Wrong:
    """A MAC that a node has for an address of ranks, or sends its packets to, and that is not its owner's."""

    node: str
    ip: str
    mac: str
    verb: str
    since: int | None
    text: str


def stale_neighbour(case: Case) -> Finding | None:
    """Find a switch with a MAC for a rank's address that is not its NIC's, or packets that go to such a MAC."""
    one = next(itertools.chain(_wrong_entries(case), _sent_astray(case, differs=False)), None)
    return _astray(case, "stale-neighbour", one) if one else None


def _wrong_entries(case: Case) -> Iterator[_Wrong]:
    for (switch, table, _vlan, ip), text in sorted(case.seen.tables_at(case.job.ended).items()):
        if ip not in case.addresses or table not in ("arp", "nd"):
            continue
        known = text.split()[0] if text else ""
        if known in ("", case.addresses[ip].owner.mac) or known.count(":") != 5:
            continue
        yield _Wrong(
            switch, ip, known, "has", _learned(case, switch, ip, known), f"{switch}: {table.upper()} {ip} is at {known}"
        )


def _sent_astray(case: Case, *, differs: bool) -> Iterator[_Wrong]:
    """Yield nodes that send packets to a wrong MAC; with `differs` only those whose table had the right one."""
    for one in case.seen.sent:
        if one.ip in case.addresses:
            right = _learned(case, one.node, one.ip, case.addresses[one.ip].owner.mac)
            if (right is not None and right <= one.t) == differs:
                yield _Wrong(one.node, one.ip, one.mac, "sends to", one.t, f"{one.node}: {one}")


def _astray(case: Case, cause: str, one: _Wrong) -> Finding:
    address, ip = case.addresses[one.ip], one.ip
    owned, ranks = _owned_since(case, ip), address.ranks
    whose = case.seen.owners.name(one.mac)
    other = f"{one.mac}{f', the MAC of {whose}' if whose else ''}"
    right = "has the right MAC in its table, and " if cause == "asic-differs" else ""
    stall = f"{case.ranks(ranks)} stalled first: {one.node} {right}{one.verb} {other}, for its address {ip}"
    facts = evidence(
        *([(one.since, one.text)] if one.since is not None else []),
        *([(owned, f"{case.job.hosts[ranks[0]]} has {ip}, with {address.owner.mac}")] if owned else []),
        stalls(case),
        hits(case),
        retries(case),
    )
    return Finding(cause, max(one.since or 0, owned), stall, ranks, own_link(case, ranks[0]), ip, facts)


def _learned(case: Case, node: str, ip: str, mac: str) -> int | None:
    """Return when a node wrote an entry last, if that is known."""
    return _last([event for event, data in _written(case, node, events.Claim) if (data.ip, data.mac) == (ip, mac)])


def duplicate_ip(case: Case) -> Finding | None:
    """Find an address of a rank that another interface, whose link is up, has at the same time."""
    down = {(one.node, one.interface) for one in downs(case) if one.lasts(case.job.ended)}
    silent = down | {case.seen.peers[end] for end in down if end in case.seen.peers}
    for ip, address in sorted(case.addresses.items()):
        owners = case.seen.owners.owners(ip, case.job.ended)
        others = [one for one in owners if one.mac != address.owner.mac and (one.node, one.interface) not in silent]
        if not others:
            continue
        other, since = others[0], max(others[0].since, address.owner.since)
        learned = [
            (at(event), f"{event['node']}: ARP {ip} is at {other.mac}")
            for event, data in case.seen.of(events.Claim)
            if (data.ip, data.mac) == (ip, other.mac) and data.kind in SET and at(event) <= case.job.ended
        ]
        claimed = [
            (at(event), f"{event['node']}: {event['text']}")
            for event, data in case.seen.of(events.Announcement)
            if (data.ip, data.mac) == (ip, other.mac)
        ]
        since = since or min((t for t, _ in claimed), default=0)
        who = f"{address.owner.node} ({address.owner.mac}) and {other.node} ({other.mac})"
        text = f"{case.ranks(address.ranks)} stalled first: its address {ip} is on two hosts at once, {who}"
        facts = evidence(
            (since, f"{other.node}:{other.interface} has {ip}, with {other.mac}"),
            iter(learned[-2:]),
            iter(claimed[:2]),
            stalls(case),
            hits(case),
            retries(case),
        )
        link = own_link(case, address.ranks[0])
        return Finding("duplicate-ip", since, text, address.ranks, link, ip, facts)
    return None


def no_path(case: Case) -> Finding | None:
    """Find two ranks whose NICs no cable joins, by way of switches."""
    if not case.seen.whole:
        return None
    parts = case.parts
    first: tuple[int, tuple[str, str]] | None = None
    for end, ranks in sorted(case.ports.items(), key=lambda one: one[1]):
        if first is None:
            first = ranks[0], end
        elif parts[end] != parts[first[1]]:
            text = (
                f"no path leads from {case.rank(first[0])} to {case.rank(ranks[0])}: no switch or cable joins the "
                f"networks of {first[1][0]}:{first[1][1]} and {end[0]}:{end[1]}"
            )
            facts = evidence((case.job.began, text), hits(case))
            return Finding("no-route", case.job.began, text, [first[0], ranks[0]], evidence=facts)
    return None


def asic_differs(case: Case) -> Finding | None:
    """Find a switch that floods what it routes to a rank, though its tables have the rank's MAC on its port: the frames
    have another MAC."""
    if sent := next(_sent_astray(case, differs=True), None):
        return _astray(case, "asic-differs", sent)
    tables = case.seen.tables_at(case.job.ended)
    unheard = {rank for ranks in case.unanswered.values() for rank in ranks}
    # Packets to the one do not arrive, or answers to the other.
    for ip, address in case.addresses.items():
        if ip not in case.unanswered and unheard.isdisjoint(address.ranks):
            continue
        mac, (node, interface) = address.owner.mac, (address.owner.node, address.owner.interface)
        switch, port = case.seen.peers.get(case.seen.cabled(node, interface), ("", ""))
        known = [text for (of, table, _, found), text in tables.items() if of == switch and found == ip]
        if not any(text.startswith(mac) for text in known):
            continue
        flooded = [(end, count) for end, count in _strange(case, switch, port) if count >= LOST]
        if len(flooded) < 2:
            continue
        ranks = address.ranks
        ends = ", ".join(f"{end[0]}:{end[1]}" for end, _ in flooded)
        text = (
            f"{case.ranks(ranks)} stalled first: {switch} has the right MAC for its address {ip}, and floods what it "
            f"sends there to {ends}: those frames have another MAC than the table"
        )
        facts = [
            (case.counted_at, f"{end[0]}:{end[1]}: {count} packets for no RDMA device there") for end, count in flooded
        ]
        shown = evidence((case.job.ended, f"{switch}: {ip} is at {known[0]}"), iter(facts), stalls(case), hits(case))
        return Finding("asic-differs", stopped(case), text, ranks, own_link(case, ranks[0]), ip, shown)
    return None


def _strange(case: Case, switch: str, port: str) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield the host ports of the VLAN of a switch's port with the packets that they sent since the job stopped and
    that no RDMA device there took."""
    growth = case.growth_since(stopped(case))
    if (switch, port) not in case.seen.rows:
        return
    vlan = case.seen.rows[switch, port]["vlan"]
    devices = {end: (of, name) for (of, name), interface in case.seen.devices.items() for end in [(of, interface)]}
    for end, peer in case.seen.peers.items():
        row = case.seen.rows[end]
        if end[0] == switch and row["vlan"] == vlan and peer[0] not in case.seen.gateways:
            taken = growth.get((*devices.get(peer, peer), "rcvd_pkts"), 0)
            yield end, growth.get((*end, "tx_packets"), 0) - taken


def _written(case: Case, switch: str, kind: type[D]) -> Iterator[tuple[Event, D]]:
    """Yield the entries that a switch wrote up to the end of the job."""
    for event, data in case.seen.of(kind):
        if event["node"] == switch and data.kind in SET and at(event) <= case.job.ended:
            yield event, data


def _last(found: Sequence[Event]) -> int | None:
    return at(found[-1]) if found else None


def _owned_since(case: Case, ip: str) -> int:
    return max((one.since for one in case.seen.owners.owners(ip, case.job.ended)), default=0)


def wrong_port(case: Case) -> Finding | None:
    """Find a switch with the MAC of a rank's NIC on another port than the one to which the NIC leads."""
    for (switch, table, _vlan, mac), text in sorted(case.seen.tables_at(case.job.ended).items()):
        if table != "fdb":
            continue
        here = text.removeprefix("on ")
        for ip, address in case.addresses.items():
            own = address.owner.node, address.owner.interface
            right = case.seen.ports_to(*own, switch) if address.owner.mac == mac else frozenset()
            if right and here not in right and _elsewhere(case, own, (switch, here)):
                ranks, owned = address.ranks, _owned_since(case, ip)
                port = min(right, key=lambda name: ((switch, name) not in case.seen.members, name))
                stall = f"{case.ranks(ranks)} stalled first: {switch} has its MAC {mac} on {here}; it is at {port}"
                wrote = [
                    event for event, data in _written(case, switch, events.Fdb) if (data.mac, data.port) == (mac, here)
                ]
                learned = _last(wrote)
                facts = evidence(
                    *([(learned, f"{switch}: FDB {mac} is on {here}")] if learned is not None else []),
                    *([(owned, f"{address.owner.node} has {ip}, with {mac}")] if owned else []),
                    hits(case),
                    retries(case),
                )
                since = max(learned or 0, owned)
                return Finding("wrong-port", since, stall, ranks, own_link(case, ranks[0]), ip, facts)
    return None


def _elsewhere(case: Case, own: tuple[str, str], end: tuple[str, str]) -> bool:
    """Return whether no frame for a NIC may go by a switch's port that does not lead to it: another switch may have its
    other links, and no other host has."""
    if case.seen.ends_at(*own) == {end[0]} or own[0] in case.seen.owners.hosts:
        return True
    far = {case.seen.peers[one][0] for one in (end, *case.seen.members.get(end, ())) if one in case.seen.peers}
    return bool(far - case.seen.gateways - {own[0]})


def unresolved(case: Case) -> Finding | None:
    """Find a switch that asks for the MAC of a rank's address without an answer."""
    for (switch, table, _vlan, ip), text in sorted(case.seen.tables_at(case.job.ended).items()):
        if table in ("arp", "nd") and ip in case.addresses and text in (ASKING, UNANSWERED):
            ranks = case.addresses[ip].ranks
            asked = _asked(case, switch, ip)
            stall = f"{case.ranks(ranks)} stalled first: {switch} asks for its address {ip} and gets no answer"
            since = case.job.began if asked is None else asked
            facts = evidence((since, f"{switch}: {table.upper()} {ip}: {text}"), hits(case), retries(case))
            return Finding("unresolved", since, stall, ranks, own_link(case, ranks[0]), ip, facts)
    for one in case.seen.refusals:
        if one.reason == "host" and one.ip in case.addresses:
            ranks = case.addresses[one.ip].ranks
            text = f"{case.ranks(ranks)} stalled first: {one.node} finds no MAC for its address {one.ip}"
            facts = evidence(refused(case), hits(case), retries(case))
            return Finding("unresolved", one.t, text, ranks, own_link(case, ranks[0]), one.ip, facts)
    return None


def _asked(case: Case, switch: str, ip: str) -> int | None:
    """Return when a switch began to ask for an address that is unanswered at the end of the job."""
    since: int | None = None
    for event, data in case.seen.of(events.Neighbour):
        if event["node"] == switch and data.ip == ip and at(event) <= case.job.ended:
            if data.kind in SET:
                since = None
            elif since is None and data.kind in (events.MISS, events.FAILED):
                since = at(event)
    return since


def no_route(case: Case) -> Finding | None:
    """Find a rank without a route to a peer."""
    found = [rank for rank in range(len(case.job.hosts)) if NO_ROUTE.search(case.log(rank))]
    if not found and not NO_ROUTE.search(case.job.failure):
        return None
    ranks = found[:1] or [rank for rank in (case.job.rank,) if rank is not None]
    routes = case.seen.of(events.Route, events.Converged)
    gone = [(at(event), f"{event['node']}: {event['text']}") for event, _ in routes]
    text = f"{case.ranks(ranks) or 'a rank'} has no route to a peer: {case.job.failure}"
    return Finding("no-route", stopped(case), text, ranks, evidence=evidence(iter(gone[-3:]), stalls(case), hits(case)))
