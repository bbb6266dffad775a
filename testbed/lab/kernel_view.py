"""
What the kernel has of the nodes: their interfaces and addresses, by its notifications. Each change becomes an event.

Whoever changed it, the lab, a plugin, or a command of the user: nothing else in the lab keeps a MAC or an address. What
a CNI operation does to a host is in the view, and no event: the operation is one.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

from testbed.kernel import link_readings, netns
from testbed.kernel import rtnetlink as rt
from testbed.kernel.rtnetlink import Route, Rtnetlink
from testbed.protocol import events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testbed.kernel.link_readings import LinkState
    from testbed.protocol.events import Data
    from testbed.topology import IPInterface

GROUPS = rt.LINK, rt.IPV4_IFADDR, rt.IPV6_IFADDR, rt.IPV4_ROUTE, rt.IPV6_ROUTE
BUFFER = 8 << 20
"""Bytes of notifications that may wait."""


class Watched(Protocol):
    """A node."""

    name: str
    namespace: str
    kernel: Rtnetlink
    context: Any
    seen: Seen | None

    def came_up(self, index: int) -> None: ...


class Seen:
    """Interfaces of a namespace by index, and their addresses, without those of links.

    The kernel is asked at once; what it says is read when somebody looks: most nodes of a large lab never change.
    """

    def __init__(self, kernel: Rtnetlink) -> None:
        self._links, self._addresses, self._routes = kernel.dump_links(), kernel.dump_addresses(), kernel.dump_routes(4)
        self.gone: dict[int, LinkState] = {}
        """Interfaces that were here, as they were at last."""

    @cached_property
    def links(self) -> dict[int, LinkState]:
        return link_readings.link_states(self._links)

    @cached_property
    def addresses(self) -> dict[int, list[IPInterface]]:
        known: dict[int, list[IPInterface]] = {}
        for index, address in map(rt.address_of, self._addresses):
            if not _of_link(address):
                known.setdefault(index, []).append(address)
        return known

    @cached_property
    def routes(self) -> list[Route]:
        """Routes of IPv4 that were set by hand."""
        return [route for body in self._routes if (route := rt.route_by_hand(body))]

    def add(self, index: int, address: IPInterface) -> bool:
        """Add an address; return whether it is new."""
        known = self.addresses.setdefault(index, [])
        if _of_link(address) or address in known:
            return False
        known.append(address)
        return True

    def remove(self, index: int, address: IPInterface) -> bool:
        if address not in (known := self.addresses.get(index, [])):
            return False
        known.remove(address)
        return True


def _of_link(address: IPInterface) -> bool:
    """Return whether it is the address that an interface has by itself. IPv4's link-local ones are set by somebody."""
    return address.version == 6 and address.is_link_local


class KernelView:
    """The view of a lab's nodes, and a source of events for its scheduler."""

    def __init__(self) -> None:
        self._kernels, self._asking = Rtnetlink(), Rtnetlink()
        self._closed = False
        self._kernels.listen(GROUPS, buffer=BUFFER, everywhere=True)
        self._watched: dict[int, tuple[Watched, Seen]] = {}
        """By the number of the namespace."""
        self._quiet: Counter[str] = Counter()

    def fileno(self) -> int:
        return self._kernels.fileno()

    def stop(self) -> None:
        """Follow no node any more."""
        self.drain()
        self._watched.clear()

    def close(self) -> None:
        self._closed = True
        self._kernels.close()
        self._asking.close()

    def watch(self, node: Watched) -> None:
        """Follow a node from now on."""
        self.drain()
        node.seen = Seen(node.kernel)
        self._watched[self._asking.number_namespace(netns.path(node.namespace))] = node, node.seen

    def forget(self, node: Watched) -> None:
        """Stop to follow a node, whose namespace is to go. What was seen last stays."""
        self.drain()
        self._watched = {number: one for number, one in self._watched.items() if one[0] is not node}

    @contextlib.contextmanager
    def quietly(self, *nodes: Watched) -> Iterator[None]:
        """Emit no events of these nodes in the block."""
        self.drain()
        self._quiet.update(node.name for node in nodes)
        try:
            yield
        finally:
            self.drain()
            self._quiet.subtract(node.name for node in nodes)

    def catch_up(self) -> None:
        """Nothing: notifications are there when a change is made."""

    def drain(self) -> None:
        """Take in the changes until now, and emit them."""
        if self._closed:
            return
        changed: set[int] = set()
        for number, kind, body in self._kernels.news_by_namespace():
            if watched := self._watched.get(number):
                self._take_in(*watched, kind, body)
                changed.add(number)
        for node, seen in [self._watched[number] for number in sorted(changed)]:
            if seen.routes:  # else none can have gone
                self._follow_routes(node, seen)
        if self._kernels.lost():
            for watched in self._watched.values():
                self._read_again(*watched)

    def _take_in(self, node: Watched, seen: Seen, kind: int, body: bytes) -> None:
        match kind:
            case rt.RTM_NEWADDR | rt.RTM_DELADDR:
                self._address(node, seen, *rt.address_of(body), has=kind == rt.RTM_NEWADDR)
            case rt.RTM_NEWROUTE | rt.RTM_DELROUTE:
                self._route(node, seen, body, has=kind == rt.RTM_NEWROUTE)
            case link_readings.RTM_NEWLINK | link_readings.RTM_DELLINK:
                if found := link_readings.link_state(body):
                    self._link(node, seen, found[0], found[1] if kind == link_readings.RTM_NEWLINK else None)

    def _read_again(self, node: Watched, seen: Seen) -> None:
        """Compare with the kernel: notifications were lost."""
        now = Seen(node.kernel)
        for index in sorted(seen.links.keys() | now.links.keys()):
            self._link(node, seen, index, now.links.get(index))
        for index in sorted(seen.addresses.keys() | now.addresses.keys()):
            there = now.addresses.get(index, [])
            for address in [one for one in seen.addresses.get(index, []) if one not in there]:
                self._address(node, seen, index, address, has=False)
            for address in there:
                self._address(node, seen, index, address, has=True)
        self._follow_routes(node, seen)

    def _address(self, node: Watched, seen: Seen, index: int, address: IPInterface, *, has: bool) -> None:
        if (seen.add if has else seen.remove)(index, address) and index in seen.links:
            name = seen.links[index].name
            text = f"{name} {'has' if has else 'no longer has'} {address}"
            self._emit(node, events.ADDRESS(interface=name, ip=str(address.ip), has=has), text)

    def _link(self, node: Watched, seen: Seen, index: int, now: LinkState | None) -> None:
        before = seen.links.get(index)
        if now is None:
            if before:
                seen.gone[index] = seen.links.pop(index)
                self._emit(node, events.LINK(interface=before.name, state="gone"), f"{before.name} is gone")
            return
        seen.links[index] = now
        name = now.name
        if before is None:
            self._emit(node, events.LINK(interface=name, state="new"), f"{name} is new")
            return
        if name != before.name:
            self._emit(node, events.LINK(interface=before.name, name=name), f"{before.name} is named {name} now")
        if now.up != before.up:
            state: Literal["up", "down"] = "up" if now.up else "down"
            self._emit(node, events.LINK(interface=name, state=state), f"{name} {state}")
            if now.up:
                node.came_up(index)
        if now.carrier != before.carrier and now.up and before.up:
            text = "has a carrier" if now.carrier else "has no carrier"
            self._emit(node, events.LINK(interface=name, carrier=now.carrier), f"{name} {text}")
        if now.mac != before.mac:
            self._emit(node, events.LINK(interface=name, mac=now.mac), f"{name} has MAC {now.mac}")
        if now.mtu != before.mtu:
            self._emit(node, events.LINK(interface=name, mtu=now.mtu), f"{name} has MTU {now.mtu}")
        if now.master != before.master:
            master = seen.links[now.master].name if now.master in seen.links else ""
            text = f"{name} is in {master}" if master else f"{name} is in no bridge or bond"
            self._emit(node, events.LINK(interface=name, master=master), text)
        if now.active is not None and now.active != before.active:
            bond = seen.links[now.master].name if now.master in seen.links else "its bond"
            text = f"{name} carries {'' if now.active else 'no '}traffic of {bond}"
            self._emit(node, events.LINK(interface=name, active=now.active), text)

    def _route(self, node: Watched, seen: Seen, body: bytes, *, has: bool) -> None:
        """Emit a route that was set by hand. Those that follow from addresses, or are FRR's, are not."""
        if route := rt.route_by_hand(body):
            if route.to.version == 4:
                seen.routes = [one for one in seen.routes if one != route] + has * [route]
            self._emit_route(node, seen, route, has=has)

    def _follow_routes(self, node: Watched, seen: Seen) -> None:
        """Emit what the kernel did to routes of IPv4 without a message: those that have gone with an address or a link,
        and those that have fewer next hops (fib_sync_down_addr and fib_sync_down_dev in net/ipv4/fib_semantics.c)."""
        before, seen.routes = seen.routes, node.kernel.routes_by_hand(4)
        for route in [one for one in seen.routes if one not in before]:
            self._emit_route(node, seen, route, has=True)
        there = [(one.to, one.options) for one in seen.routes]
        for route in [one for one in before if (one.to, one.options) not in there]:
            self._emit_route(node, seen, route, has=False)

    def _emit_route(self, node: Watched, seen: Seen, route: Route, *, has: bool) -> None:
        names = {index: link.name for index, link in seen.links.items()}
        hops = [str(hop) if hop else names.get(index, str(index)) for index, hop in route.hops]
        to = str(route.to) if route.to.prefixlen else "default"
        kind = "" if route.kind == "unicast" else f"{route.kind} "
        over = " by " + ", ".join(hops) if hops else ""
        text = " ".join((f"{'' if has else 'no '}{kind}route to {to}{over}", *route.options))
        nowhere = {} if route.kind == "unicast" else {"type": route.kind}
        self._emit(node, events.ROUTE(to=to, via=hops, has=has, **nowhere), text)

    def _emit(self, node: Watched, data: Data, text: str) -> None:
        if not self._quiet[node.name]:
            node.context.emit(data, node.name, text)
