"""
Policy routing: routes of any table, and rules that select a table by source address.

Source: include/uapi/linux/rtnetlink.h, fib_rules.h.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from testbed.kernel import netlink, rtnetlink
from testbed.topology import Family, IPAddress, IPNetwork

_RTA_PRIORITY, _RTA_PREFSRC, _RTA_TABLE = 6, 7, 15
_FRA_SRC, _FRA_TABLE = 2, 15
_RTM_F_CLONED = 0x200
_TABLE_IN_ATTRIBUTE = 252
"""RT_TABLE_COMPAT: the header has one byte for a table number; the attribute allows larger ones."""


@dataclass(frozen=True, slots=True)
class Route:
    """A unicast route over one interface; each next hop of a multipath route is one."""

    to: IPNetwork
    index: int
    gateway: IPAddress | None = None
    source: IPAddress | None = None
    metric: int = 0
    protocol: int = rtnetlink.STATIC
    scope: int = 0

    @property
    def default(self) -> bool:
        return self.to.prefixlen == 0


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that sends packets from `source` to a table. The kernel's default priority is before all others."""

    source: IPNetwork
    """0.0.0.0/0 or ::/0 match all."""
    table: int
    priority: int | None = None


class PolicyRouting(rtnetlink.Rtnetlink):
    """An rtnetlink socket for routes and rules."""

    def all_routes(self, family: Family) -> Iterator[tuple[int, Route]]:
        """Yield (table, route) of all unicast routes."""
        header = rtnetlink.RTMSG.pack(rtnetlink.FAMILIES[family], *bytes(7), 0)
        for _, body in self.request(rtnetlink.RTM_GETROUTE, header, netlink.DUMP):
            if found := _route(body, family):
                table, routes = found
                yield from ((table, route) for route in routes)

    def routes_in(self, table: int, family: Family) -> Iterator[Route]:
        """Yield the unicast routes of a table."""
        return (route for number, route in self.all_routes(family) if number == table)

    def put_route(self, route: Route, table: int) -> None:
        """Add a route before those to the same destination, or leave an identical one."""
        with contextlib.suppress(FileExistsError):
            self.request(rtnetlink.RTM_NEWROUTE, _packed(route, table, route.scope), netlink.CREATE)

    def take_route(self, route: Route, table: int) -> bool:
        """Delete a route; return False if it was not there."""
        return self._delete(rtnetlink.RTM_DELROUTE, _packed(route, table, rtnetlink.NOWHERE))

    def source_to(self, ip: IPAddress) -> IPAddress | None:
        """Return the source address of packets to `ip`, as in ``ip route get``."""
        header = rtnetlink.RTMSG.pack(rtnetlink.FAMILIES[ip.version], ip.max_prefixlen, *bytes(6), 0)
        try:
            ((_, body),) = self.request(
                rtnetlink.RTM_GETROUTE, header + netlink.attribute(rtnetlink.RTA_DST, ip.packed)
            )
        except OSError:  # no route: several errors mean it
            return None
        values = netlink.attributes(body, rtnetlink.RTMSG.size)
        return ip_address(values[_RTA_PREFSRC]) if _RTA_PREFSRC in values else None

    def rules(self, family: Family) -> Iterator[Rule]:
        """Yield the rules that name a table, by priority."""
        anywhere = bytes(4 if family == 4 else 16)
        for _, body in self.request(
            rtnetlink.RTM_GETRULE, rtnetlink.RULE.pack(rtnetlink.FAMILIES[family], *bytes(7), 0), netlink.DUMP
        ):
            _, _, length, _, table, _, _, action, _ = rtnetlink.RULE.unpack_from(body)
            values = netlink.attributes(body, rtnetlink.RULE.size)
            if action == rtnetlink.FR_ACT_TO_TBL:
                source = ip_network((values.get(_FRA_SRC, anywhere), length))
                number = netlink.number(values[_FRA_TABLE]) if _FRA_TABLE in values else table
                yield Rule(source, number, netlink.number(values.get(rtnetlink.FRA_PRIORITY, b"\0")))

    def put_rule(self, rule: Rule) -> bool:
        """Add a rule; return False if it exists, with any priority if none is given."""
        if any(_equal(rule, other) for other in self.rules(rule.source.version)):
            return False
        self.request(rtnetlink.RTM_NEWRULE, _packed_rule(rule), netlink.CREATE)
        return True

    def take_rule(self, rule: Rule) -> bool:
        """Delete a rule; return False if it was not there."""
        return self._delete(rtnetlink.RTM_DELRULE, _packed_rule(rule))

    def free_table(self, first: int, families: Iterable[Family]) -> int:
        """Return the first table number from `first` on without a rule or a route."""
        used = set()
        for family in families:
            used |= {rule.table for rule in self.rules(family)}
            used |= {table for table, _ in self.all_routes(family)}
        return next(number for number in range(first, rtnetlink.MAIN) if number not in used)


def _equal(rule: Rule, other: Rule) -> bool:
    same = (rule.source, rule.table) == (other.source, other.table)
    return same and rule.priority in (None, other.priority)


def _route(body: bytes, family: Family) -> tuple[int, list[Route]] | None:
    """Read RTM_NEWROUTE: table and routes; None if it is not unicast, or the kernel made it for one packet."""
    _, length, _, _, table, protocol, scope, kind, flags = rtnetlink.RTMSG.unpack_from(body)
    if kind != rtnetlink.UNICAST or flags & _RTM_F_CLONED:
        return None
    values = netlink.attributes(body, rtnetlink.RTMSG.size)
    to = ip_network((values.get(rtnetlink.RTA_DST, bytes(4 if family == 4 else 16)), length))
    metric = netlink.number(values.get(_RTA_PRIORITY, b"\0"))
    source = _address(values, _RTA_PREFSRC)
    hops = [
        Route(to, index, _address(hop, rtnetlink.RTA_GATEWAY), source, metric, protocol, scope)
        for index, hop in rtnetlink.next_hops(values)
    ]
    return (netlink.number(values[_RTA_TABLE]) if _RTA_TABLE in values else table), hops


def _address(values: Mapping[int, bytes], kind: int) -> IPAddress | None:
    return ip_address(values[kind]) if kind in values else None


def _packed(route: Route, table: int, scope: int) -> bytes:
    small = table if table < 256 else _TABLE_IN_ATTRIBUTE
    family, length = rtnetlink.FAMILIES[route.to.version], route.to.prefixlen
    body = rtnetlink.RTMSG.pack(family, length, 0, 0, small, route.protocol, scope, rtnetlink.UNICAST, 0)
    body += netlink.attribute(rtnetlink.RTA_DST, route.to.network_address.packed) + netlink.u32(
        rtnetlink.RTA_OIF, route.index
    )
    for kind, ip in (rtnetlink.RTA_GATEWAY, route.gateway), (_RTA_PREFSRC, route.source):
        body += netlink.attribute(kind, ip.packed) if ip else b""
    body += netlink.u32(_RTA_PRIORITY, route.metric) if route.metric else b""
    return body + netlink.u32(_RTA_TABLE, table)


def _packed_rule(rule: Rule) -> bytes:
    small = rule.table if rule.table < 256 else 0
    family, length = rtnetlink.FAMILIES[rule.source.version], rule.source.prefixlen
    body = rtnetlink.RULE.pack(family, 0, length, 0, small, 0, 0, rtnetlink.FR_ACT_TO_TBL, 0)
    body += netlink.attribute(_FRA_SRC, rule.source.network_address.packed) if length else b""
    body += netlink.u32(rtnetlink.FRA_PRIORITY, rule.priority) if rule.priority is not None else b""
    return body + netlink.u32(_FRA_TABLE, rule.table)
