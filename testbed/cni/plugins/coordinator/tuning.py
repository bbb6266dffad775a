"""The steps `mac`, `queue`, `rp_filter`, `routes` and `policy_routes`: settings of the pod.

With `routes`, each interface of a pod sends its replies itself, by a routing table of its own (Spiderpool's
tunePodRoutes). The main table keeps the default route of one interface; packets from the addresses of the others use
the tables of those.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from ipaddress import ip_network

from testbed.cni.plugins.contract import Refusal
from testbed.cni.plugins.coordinator.nic import FIRST, FIRST_TABLE, Nic
from testbed.cni.spec import OWN
from testbed.kernel import netlink, rdma, sysctl
from testbed.kernel.link_readings import IFLA_TXQLEN
from testbed.kernel.policy_routing import PolicyRouting, Route, Rule
from testbed.kernel.rtnetlink import MAIN
from testbed.topology import Family, IPAddress, IPInterface

RP_FILTER = "net/ipv4/conf/all/rp_filter"


def tune_routes(nic: Nic, undo: ExitStack) -> None:
    if not nic.settings.tunePodRoutes or nic.first:
        return
    for family in nic.families:
        routes = list(nic.kernel.routes_in(MAIN, family))
        other = _other_default(nic, routes)
        if other is None:
            continue
        if not nic.underlay and _first_index(nic) == other:  # else its replies leave by the default route (#3683)
            _rules(nic, undo, _sources(nic, other, family), FIRST_TABLE)
            for route in routes:
                if route.index == other and route.default:
                    _put(nic, undo, route, FIRST_TABLE)
        moved = other if nic.default_route_nic == nic.name else nic.index
        _rules(nic, undo, _sources(nic, moved, family), nic.table)
        own = [route for route in routes if route.index == moved]
        for route in sorted(own, key=lambda route: route.gateway is not None):  # a gateway must be attached first
            _put(nic, undo, route, nic.table)
            if route.default and nic.kernel.take_route(route, MAIN):
                undo.callback(nic.kernel.put_route, route, MAIN)


def check_routes(nic: Nic) -> Iterator[str]:
    if not nic.settings.tunePodRoutes or nic.first:
        return
    for family in nic.families:
        routes = list(nic.kernel.routes_in(MAIN, family))
        if nic.default_route_nic == nic.name:
            defaults = [route.index for route in routes if route.default]
            if defaults and nic.index not in defaults:
                yield f"the default route of IPv{family} is not over it"
        elif _other_default(nic, routes) is not None:
            yield from _missing(nic, family)


def _missing(nic: Nic, family: Family) -> Iterator[str]:
    rules = list(nic.kernel.rules(family))
    for ip in _sources(nic, nic.index, family):
        tables = [rule.table for rule in rules if rule.source == ip_network(ip)]
        if not tables:
            yield f"the rule from {ip} is missing"
        elif not any(route.index == nic.index for route in nic.kernel.routes_in(tables[0], family)):
            yield f"table {tables[0]} has no route over it"


def delete_routes(kernel: PolicyRouting, addresses: Sequence[IPInterface]) -> None:
    """Delete the rules of a pod for these addresses. The routes go with the interface."""
    for address in addresses:
        for rule in list(kernel.rules(address.version)):
            if rule.source == ip_network(address.ip):
                kernel.take_rule(rule)


def _other_default(nic: Nic, routes: Sequence[Route]) -> int | None:
    """Return the index of another interface that has a default route."""
    return next((route.index for route in routes if route.default and route.index != nic.index), None)


def _first_index(nic: Nic) -> int | None:
    return nic.kernel.index(FIRST) if nic.has(FIRST) else None


def _sources(nic: Nic, index: int, family: Family) -> list[IPAddress]:
    found = (address.ip for at, address in nic.kernel.addresses() if at == index and address.version == family)
    return [ip for ip in found if not ip.is_link_local]


def _rules(nic: Nic, undo: ExitStack, sources: Sequence[IPAddress], table: int) -> None:
    for ip in sources:
        rule = Rule(ip_network(ip), table)
        if nic.kernel.put_rule(rule):
            undo.callback(nic.kernel.take_rule, rule)


def _put(nic: Nic, undo: ExitStack, route: Route, table: int) -> None:
    nic.kernel.put_route(route, table)
    undo.callback(nic.kernel.take_route, route, table)


def mac_of(prefix: str, ip: IPAddress) -> str:
    """Return the MAC derived from an address: two bytes of prefix, and the last four of the address."""
    return f"{prefix}:{ip.packed[-4:].hex(':')}"


def _planned(nic: Nic) -> str | None:
    prefix = nic.settings.podMACPrefix
    return mac_of(prefix, nic.addresses[0].ip) if prefix and nic.addresses else None


def set_mac(nic: Nic, undo: ExitStack) -> None:
    mac = _planned(nic)
    if mac is None or mac == nic.mac:
        return
    with rdma.Rdma() as here:
        if nic.name in here.links():
            hint = "put coordinator before rxe in the list"
            raise Refusal(OWN, f"{nic.name} has an RDMA device, which does not survive a change of the MAC", hint)
    undo.callback(nic.kernel.set_link, nic.index, mac=nic.mac)
    nic.kernel.set_link(nic.index, mac=mac)
    nic.mac = mac


def check_mac(nic: Nic) -> Iterator[str]:
    mac = _planned(nic)
    if mac and mac != nic.mac:
        yield f"it has MAC {nic.mac}, not {mac}"


def set_queue(nic: Nic, undo: ExitStack) -> None:
    """Set the pod's interface's, as documented. Spiderpool 1.0 sets that of the node's interface of this name."""
    if nic.settings.txQueueLen:
        undo.callback(nic.kernel.set_queue_length, nic.index, _queue(nic))
        nic.kernel.set_queue_length(nic.index, nic.settings.txQueueLen)


def check_queue(nic: Nic) -> Iterator[str]:
    if nic.settings.txQueueLen not in (0, found := _queue(nic)):
        yield f"its txqueuelen is {found}, not {nic.settings.txQueueLen}"


def _queue(nic: Nic) -> int:
    return netlink.number(nic.kernel.read(nic.index)[2][IFLA_TXQLEN])


def put_policy_routes(nic: Nic, undo: ExitStack) -> None:
    """Put the routes of `policyRoutes` into the interface's table; of the pod's first one, into the main table."""
    for route in _policy_routes(nic):
        _put(nic, undo, route, _policy_table(nic))


def check_policy_routes(nic: Nic) -> Iterator[str]:
    for route in _policy_routes(nic):
        there = nic.kernel.routes_in(_policy_table(nic), route.to.version)
        if not any((one.to, one.index, one.gateway) == (route.to, nic.index, route.gateway) for one in there):
            yield f"the route to {route.to} by {route.gateway} is missing"


def _policy_routes(nic: Nic) -> list[Route]:
    given = [(one.dst, one.gw) for one in nic.settings.policyRoutes if one.dst.version in nic.families]
    return [Route(to, nic.index, gateway=gateway) for to, gateway in given]


def _policy_table(nic: Nic) -> int:
    return MAIN if nic.first else nic.table


def set_rp_filter(nic: Nic, undo: ExitStack) -> None:
    if nic.settings.podRPFilter >= 0:
        undo.callback(sysctl.write, RP_FILTER, sysctl.read(RP_FILTER))
        sysctl.write(RP_FILTER, nic.settings.podRPFilter)


def check_rp_filter(nic: Nic) -> Iterator[str]:
    wanted, found = nic.settings.podRPFilter, sysctl.read(RP_FILTER)
    if wanted >= 0 and found != str(wanted):
        yield f"net.ipv4.conf.all.rp_filter is {found}, not {wanted}"
