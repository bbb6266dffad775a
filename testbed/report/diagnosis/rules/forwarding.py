"""Rules for forwarding: what switches have of the addresses and NICs of ranks, and routes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from testbed.records.tables import ASKING, SET, UNANSWERED
from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.observations import at
from testbed.report.diagnosis.rules.ends import own_link
from testbed.report.diagnosis.rules.facts import evidence, hits, retries, stalls, stopped
from testbed.report.diagnosis.rules.finding import Finding

NO_ROUTE = re.compile(r"Destination is unreachable|Network is unreachable|No route to host")
"""Words of UCX and of the kernel."""


def stale_neighbour(case: Case) -> Finding | None:
    """A switch has a MAC for a rank's address that is not its NIC's."""
    for (switch, table, _vlan, ip), text in sorted(case.seen.tables_at(case.job.ended).items()):
        if ip not in case.addresses or table not in ("arp", "nd"):
            continue
        mac, ranks = case.addresses[ip].owner.mac, case.addresses[ip].ranks
        known = text.split()[0] if text else ""
        if known in ("", mac) or known.count(":") != 5:
            continue
        learned, owned = _learned(case, switch, ("arp", "nd"), ip=ip, mac=known), _owned_since(case, ip)
        whose = case.seen.owners.name(known)
        other = f"{known}{f', the MAC of {whose}' if whose else ''}"
        since = max(learned or 0, owned)
        said = f"{case.ranks(ranks)} stalled first: {switch} has {other}, for its address {ip}"
        facts = evidence(
            *([(learned, f"{switch}: {table.upper()} {ip} is at {known}")] if learned is not None else []),
            *([(owned, f"{case.job.hosts[ranks[0]]} has {ip}, with {mac}")] if owned else []),
            stalls(case), hits(case), retries(case),
        )  # fmt: skip
        return Finding("stale-neighbour", since, said, ranks, own_link(case, ranks[0]), ip, facts)
    return None


def _learned(case: Case, switch: str, tables: Sequence[str], **entry: str) -> int | None:
    """When a switch wrote an entry that it had at the end of the job."""
    found = [
        at(event)
        for event in case.seen.of(*tables)
        if event["node"] == switch and entry.items() <= event["data"].items()
        if event["kind"].partition(".")[2] in SET and at(event) <= case.job.ended
    ]
    return found[-1] if found else None


def _owned_since(case: Case, ip: str) -> int:
    return max((one.since for one in case.seen.owners.owners(ip, case.job.ended)), default=0)


def wrong_port(case: Case) -> Finding | None:
    """A switch has the MAC of a rank's NIC on another port than the one to which the NIC leads."""
    for (switch, table, _vlan, mac), text in sorted(case.seen.tables_at(case.job.ended).items()):
        if table != "fdb":
            continue
        here = text.removeprefix("on ")
        for ip, address in case.addresses.items():
            port = case.seen.owners.port(address.owner.node, address.owner.interface, switch)
            if address.owner.mac == mac and port and here != port:
                ranks, owned = address.ranks, _owned_since(case, ip)
                said = f"{case.ranks(ranks)} stalled first: {switch} has its MAC {mac} on {here}; it is at {port}"
                learned = _learned(case, switch, ("fdb",), mac=mac, port=here)
                facts = evidence(
                    *([(learned, f"{switch}: FDB {mac} is on {here}")] if learned is not None else []),
                    *([(owned, f"{address.owner.node} has {ip}, with {mac}")] if owned else []),
                    hits(case), retries(case),
                )  # fmt: skip
                since = max(learned or 0, owned)
                return Finding("wrong-port", since, said, ranks, own_link(case, ranks[0]), ip, facts)
    return None


def unresolved(case: Case) -> Finding | None:
    """A switch asks for the MAC of a rank's address, and nobody answers."""
    for (switch, table, _vlan, ip), text in sorted(case.seen.tables_at(case.job.ended).items()):
        if table in ("arp", "nd") and ip in case.addresses and text in (ASKING, UNANSWERED):
            ranks = case.addresses[ip].ranks
            asked = _asked(case, table, switch, ip)
            said = f"{case.ranks(ranks)} stalled first: {switch} asks for its address {ip} and gets no answer"
            since = case.job.began if asked is None else asked
            facts = evidence((since, f"{switch}: {table.upper()} {ip}: {text}"), hits(case), retries(case))
            return Finding("unresolved", since, said, ranks, own_link(case, ranks[0]), ip, facts)
    return None


def _asked(case: Case, table: str, switch: str, ip: str) -> int | None:
    """When a switch began to ask for what it has not had an answer for at the end of the job."""
    since: int | None = None
    for event in case.seen.of(table):
        if event["node"] == switch and event["data"].get("ip") == ip and at(event) <= case.job.ended:
            what = event["kind"].partition(".")[2]
            if what in SET:
                since = None
            elif since is None and what in ("miss", "failed"):
                since = at(event)
    return since


def no_route(case: Case) -> Finding | None:
    """A rank has no way to a peer."""
    found = [rank for rank in range(len(case.job.hosts)) if NO_ROUTE.search(case.log(rank))]
    if not found and not NO_ROUTE.search(case.job.failure):
        return None
    ranks = found[:1] or [rank for rank in (case.job.rank,) if rank is not None]
    gone = [(at(event), f"{event['node']}: {event['text']}") for event in case.seen.of("route", "routing")]
    text = f"{case.ranks(ranks) or 'a rank'} has no route to a peer: {case.job.failure}"
    return Finding("no-route", stopped(case), text, ranks, evidence=evidence(iter(gone[-3:]), stalls(case), hits(case)))
