"""Rules for routes: those that hosts and switches lost, that drop packets, or that lead to nobody."""

from collections.abc import Iterator, Sequence
from ipaddress import ip_address, ip_network
from typing import NamedTuple

from testbed.protocol import events
from testbed.report.diagnosis.case import Case
from testbed.report.diagnosis.observations import at
from testbed.report.diagnosis.rules.facts import Finding, evidence, hits, retries, stalls
from testbed.report.diagnosis.rules.link_failures import downs, own_link

DEFAULT = "default"


class _Missing(NamedTuple):
    """What ended a route, or leads it astray, from a time to the end of the job."""

    since: int
    node: str
    text: str
    ranks: Sequence[int]
    """Those on the node, or those that it does not reach."""


def route_missing(case: Case) -> Finding | None:
    """Find a host or switch that has no route to ranks when the job ends, or one that leads nowhere; that of the first
    one that lost it, where others followed."""
    found = sorted((*_by_hand(case), *_gateways_down(case), *_lost(case), *_refused(case)), key=lambda one: one.since)
    if not found:
        return None
    first = found[0]
    facts = [(one.since, f"{one.node}: {one.text}") for one in found[:3]]
    text = f"{case.ranks(first.ranks)} stalled first: {first.node}: {first.text}"
    link = own_link(case, first.ranks[0])
    shown = evidence(iter(facts), stalls(case), hits(case), retries(case))
    return Finding("no-route", first.since, text, first.ranks, link, evidence=shown)


def _by_hand(case: Case) -> Iterator[_Missing]:
    """Yield routes that somebody deleted or set, as they are at the end of the job."""
    last: dict[tuple[str, str], tuple[int, str, events.HostRoute]] = {}
    for event, route in case.seen.of(events.HostRoute):
        if at(event) <= case.job.ended:
            last[event["node"], route.to] = at(event), event["text"], route
    for (node, to), (since, text, route) in last.items():
        if own := case.ranks_on(node):
            ranks = own if any(_covers(to, ip) for ip in _elsewhere(case, own)) else []
        else:
            ranks = [rank for ip, address in case.addresses.items() if _covers(to, ip) for rank in address.ranks]
        if not ranks or since < case.job.began:
            continue
        if not route.has or route.type is not None:
            yield _Missing(since, node, text, ranks)
        elif own and (nobody := [hop for hop in route.via if _is_nobody(case, hop)]):
            yield _Missing(since, node, f"{text}, and nothing is known to have {nobody[0]}", ranks)


def _refused(case: Case) -> Iterator[_Missing]:
    """Yield what ICMP says of the routes to ranks."""
    for one in case.seen.refusals:
        if one.reason in ("no route", "prohibited") and one.ip in case.addresses:
            yield _Missing(one.t, one.node, str(one), case.addresses[one.ip].ranks)


def _elsewhere(case: Case, own: Sequence[int]) -> list[str]:
    """Return the addresses of ranks on other hosts."""
    return [ip for ip, address in case.addresses.items() if {*address.ranks}.isdisjoint(own)]


def _covers(to: str, ip: str) -> bool:
    try:
        return to == DEFAULT or ip_address(ip) in ip_network(to)
    except ValueError:
        return False


def _is_nobody(case: Case, hop: str) -> bool:
    """Return whether a next hop is an address that no interface has, and no other host's gateway."""
    try:
        ip_address(hop)
    except ValueError:
        return False  # an interface
    gateways = {row[key] for row in case.seen.interfaces for key in ("gateway", "gateway6")}
    return case.seen.whole and hop not in gateways and not case.seen.owners.owners(hop, case.job.ended)


def _gateways_down(case: Case) -> Iterator[_Missing]:
    """Yield the interfaces of VLANs of switches that are down, with the ranks in the VLAN."""
    for down in downs(case):
        if down.until is not None or down.since < case.job.began:
            continue
        ranks = [
            rank
            for end, ranks in case.ports.items()
            for port in [case.seen.peers.get(end, ("", ""))]
            if port[0] == down.node and f"vlan{_vlan(case, port)}" == down.interface.lower()
            for rank in ranks
        ]
        if ranks:
            yield _Missing(down.since, down.node, f"{down.interface}, their gateway, is down", ranks)


def _vlan(case: Case, port: tuple[str, str]) -> int | None:
    row = case.seen.rows.get(port)
    return row["vlan"] if row else None


def _lost(case: Case) -> Iterator[_Missing]:
    """Yield the networks of ranks to which a switch lost its route and did not find another one."""
    last: dict[tuple[str, str], tuple[int, str, events.Route]] = {}
    for event, route in case.seen.of(events.Route):
        if case.job.began <= at(event) <= case.job.ended:
            last[event["node"], route.to] = at(event), event["text"], route
    for (node, to), (since, text, route) in last.items():
        ranks = [rank for ip, address in case.addresses.items() if _covers(to, ip) for rank in address.ranks]
        if not route.ports and ranks:
            yield _Missing(since, node, text, ranks)
