"""Rules for forwarding: entries of switches for the addresses and NICs of ranks, and routes."""

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

from testbed.protocol import Event, events
from testbed.records.switch_tables import ASKING, SET, UNANSWERED
from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.observations import at
from testbed.report.diagnosis.rules.facts import Finding, evidence, hits, retries, stalls, stopped
from testbed.report.diagnosis.rules.link_failures import own_link

D = TypeVar("D", bound=events.Data)
NO_ROUTE = re.compile(r"Destination is unreachable|Network is unreachable|No route to host")
"""Texts of UCX and of the kernel."""


def stale_neighbour(case: Case) -> Finding | None:
    """Find a switch with a MAC for a rank's address that is not its NIC's."""
    for (switch, table, _vlan, ip), text in sorted(case.seen.tables_at(case.job.ended).items()):
        if ip not in case.addresses or table not in ("arp", "nd"):
            continue
        mac, ranks = case.addresses[ip].owner.mac, case.addresses[ip].ranks
        known = text.split()[0] if text else ""
        if known in ("", mac) or known.count(":") != 5:
            continue
        wrote = [event for event, data in _written(case, switch, events.Claim) if (data.ip, data.mac) == (ip, known)]
        learned, owned = _last(wrote), _owned_since(case, ip)
        whose = case.seen.owners.name(known)
        other = f"{known}{f', the MAC of {whose}' if whose else ''}"
        since = max(learned or 0, owned)
        stall = f"{case.ranks(ranks)} stalled first: {switch} has {other}, for its address {ip}"
        facts = evidence(
            *([(learned, f"{switch}: {table.upper()} {ip} is at {known}")] if learned is not None else []),
            *([(owned, f"{case.job.hosts[ranks[0]]} has {ip}, with {mac}")] if owned else []),
            stalls(case),
            hits(case),
            retries(case),
        )
        return Finding("stale-neighbour", since, stall, ranks, own_link(case, ranks[0]), ip, facts)
    return None


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
            port = case.seen.owners.port(address.owner.node, address.owner.interface, switch)
            if address.owner.mac == mac and port and here != port:
                ranks, owned = address.ranks, _owned_since(case, ip)
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
