"""What commands changed in a lab that lives, as commands that do it again: for the file that `save` writes."""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from testbed.kernel.link_readings import LinkState
from testbed.kernel.rtnetlink import Route
from testbed.lab import Lab
from testbed.lab.node import Node
from testbed.topology import IPInterface
from testbed.topology import Node as NodePlan

T = TypeVar("T")


@dataclass(frozen=True)
class State:
    """What the kernel has of a node's links, by their names, and of its routes by hand."""

    links: dict[str, LinkState]
    others: list[str]
    """Interfaces that no link made."""
    beside: dict[str, list[IPInterface]]
    """Addresses of those, by their names."""
    addresses: dict[str, list[IPInterface]]
    routes: list[Route]
    names: dict[int, str]


def state(node: Node[Any]) -> State:
    now = node.now()
    names = {index: link.name for index, link in now.links.items()}
    ends = {end.index: end.name for end in node.interfaces.values() if end.plan}
    return State(
        {name: now.links[index] for index, name in ends.items() if index in now.links},
        [link.name for index, link in now.links.items() if index not in ends],
        {link.name: [*now.addresses.get(index, [])] for index, link in now.links.items() if index not in ends},
        {name: [*now.addresses.get(index, [])] for index, name in ends.items()},
        node.kernel.routes_by_hand(),
        names,
    )


class ByHand:
    """The changes since a lab came up."""

    def __init__(self, lab: Lab) -> None:
        self._before = {name: state(node) for name, node in lab.nodes.items()}

    def applied(self, lab: Lab, before: Mapping[str, State], anew: Collection[str]) -> None:
        """Take what `testbed apply` has changed for the file's: `before` are the states before it."""
        old = self._before
        self._before = {}
        for name, node in lab.nodes.items():
            now = state(node)
            known = name in old and name in before and name not in anew
            self._before[name] = _moved(old[name], before[name], now) if known else now

    def commands(self, node: Node[Any]) -> list[str]:
        """Return commands that bring the node from what its file says to what it has, for `exec` in the file."""
        before, now = self._before[node.name], state(node)
        return [shlex.join(words) for words in (*_of_links(before, now), *_of_routes(before, now))]

    def left_out(self, node: Node[Any]) -> list[str]:
        """Return in words what such commands cannot express."""
        before, now = self._before[node.name], state(node)
        made = [name for name in now.others if name not in before.others]
        gone = [name for name in before.links if name not in now.links]
        links = [(name, before.links[name], link) for name, link in now.links.items()]
        beside = {name: before.beside.get(name, []) for name in {**before.beside, **now.beside} if name not in made}
        return [
            *(f"its interface {name}, made by a command" for name in made),
            *(f"its interface {name} is gone" for name in gone),
            *(f"the MAC of its interface {name}, {link.mac}" for name, old, link in links if link.mac != old.mac),
            *(f"its interface {name} is named {link.name} now" for name, _, link in links if link.name != name),
            *(
                f"its interface {name} is {'up' if link.up else 'down'}"
                for name, old, link in links
                if link.up != old.up
            ),
            *(
                f"{name} {'has' if address in now.beside.get(name, []) else 'no longer has'} {address}"
                for name, had in beside.items()
                for address in [*had, *now.beside.get(name, [])]
                if (address in had) != (address in now.beside.get(name, []))
            ),
            *(
                f"a {route.kind} route to {route.to} over an interface made by a command"
                for route in now.routes
                if route not in before.routes and not _can_be_made(route, now)
            ),
        ]


def given_again(node: Node[Any], before: State, planned: NodePlan) -> Iterator[list[str]]:
    """Yield commands for the addresses set by hand and the routes that have gone with an interface that was made anew;
    `planned` is the node's plan before. Routes that its plan has no more stay away."""
    now = state(node)
    for end in planned.interfaces:
        for address in before.addresses.get(end.name, []):
            if address not in (*now.addresses.get(end.name, [address]), *end.addresses):
                yield ["ip", "address", "add", str(address), "dev", end.name]
    stay = {route.destination for route in node.plan.routes} if node.plan else set()
    there = {*(route.to for route in now.routes), *({route.destination for route in planned.routes} - stay)}
    for route in before.routes:
        over = {before.names.get(index) for index, _ in route.hops}
        if route.to not in there and over <= now.addresses.keys():
            yield _route(route, before)


def _moved(base: State, before: State, now: State) -> State:
    """Return a base with the changes from one state to another."""

    def links(name: str) -> LinkState:
        same = before.links.get(name) == now.links[name]
        return base.links.get(name, now.links[name]) if same else now.links[name]

    return replace(
        base,
        links={name: links(name) for name in now.links},
        others=_shifted(base.others, before.others, now.others),
        addresses={
            name: _shifted(base.addresses.get(name, []), before.addresses.get(name, []), there)
            for name, there in now.addresses.items()
        },
        routes=_shifted(base.routes, before.routes, now.routes),
        names=now.names,
    )


def _shifted(base: Sequence[T], before: Sequence[T], now: Sequence[T]) -> list[T]:
    kept = [one for one in base if one in now or one not in before]
    return kept + [one for one in now if one not in before and one not in kept]


def _of_links(before: State, now: State) -> Iterator[list[str]]:
    for name, link in now.links.items():
        old = before.links[name]
        if link.mtu != old.mtu:
            yield ["ip", "link", "set", name, "mtu", str(link.mtu)]
        for address in before.addresses[name]:
            if address not in now.addresses[name]:
                yield ["ip", "address", "del", str(address), "dev", name]
        for address in now.addresses[name]:
            if address not in before.addresses[name]:
                yield ["ip", "address", "add", str(address), "dev", name]


def _of_routes(before: State, now: State) -> Iterator[list[str]]:
    """Yield what makes the routes of now. A route goes with an address that is deleted, also one of the file: it is
    made again."""
    for route in before.routes:
        if route.to not in [other.to for other in now.routes]:
            gone = shlex.join(["ip", f"-{route.to.version}", "route", "del", str(route.to)])
            yield ["sh", "-c", f"{gone} || true"]  # it may have gone with an address
    lost = {name for name, had in before.addresses.items() if {*had} - {*now.addresses.get(name, ())}}
    for route in now.routes:
        over = {now.names[index] for index, _ in route.hops if index in now.names}
        if (route not in before.routes or over & lost) and _can_be_made(route, now):
            yield _route(route, now)


def _route(route: Route, now: State) -> list[str]:
    kind = [] if route.kind == "unicast" else [route.kind]
    hops = [word for one in route.hops for word in _hop(one, now, several=len(route.hops) > 1)]
    options = [word for option in route.options for word in option.split()]
    return ["ip", f"-{route.to.version}", "route", "replace", *kind, str(route.to), *hops, *options]


def _can_be_made(route: Route, now: State) -> bool:
    """Return whether a route is over ends of links only: others are not there when the file's commands run."""
    return all(now.names.get(index) in now.addresses for index, _ in route.hops)


def _hop(hop: tuple[int, object], now: State, *, several: bool) -> list[str]:
    index, gateway = hop
    words = ["nexthop"] if several else []
    return [*words, *(["via", str(gateway)] if gateway else []), "dev", now.names[index]]
