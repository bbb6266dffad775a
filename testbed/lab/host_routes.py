"""
A host's routes with a gateway, which the kernel forgets when their NIC is set down: they come back with it.

With several next hops IPv4 keeps those behind a NIC that is down and marks them dead; IPv6 forgets them one by one.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from testbed.kernel.rtnetlink import FAMILIES
from testbed.lab.namespace import Namespace
from testbed.lab.overlay import Overlay
from testbed.topology import Family, IPAddress

Route = dict[str, Any]
"""A route as ``ip -json route`` shows it."""
_Key = tuple[Family, str, int]
"""Family, destination, metric."""
DEFAULT = "default"


class HostRoutes:
    def __init__(self, host: Namespace, lives: Callable[[Route], bool]) -> None:
        """`lives` returns whether the interface of a next hop is up."""
        self._host = host
        self._lives = lives
        self._lost: dict[_Key, Route] = {}
        self._defaults = {family: self._overlay(family) for family in FAMILIES}

    def shown(self, family: Family) -> list[Route]:
        """Return the main table."""
        found: list[Route] = json.loads(self._host.use("ip", "-j", f"-{family}", "route").stdout)
        return found

    def change_default(self, family: Family, *via: IPAddress) -> Callable[[], None]:
        """Set another default route, or none, beside other changes. The returned function undoes this change."""
        hops = [{"gateway": str(hop)} for hop in via]
        routes = [{"dst": DEFAULT, "protocol": "static", "nexthops": hops}] if hops else []
        return self._defaults[family].change({DEFAULT: routes})

    def go(self, interface: str) -> None:
        """Save an interface's routes. Call it before the interface is set down."""
        for family in FAMILIES:
            for route in self.shown(family):
                if any(hop["dev"] == interface for hop in _hops(route)):
                    self._lost.setdefault(_key(family, route), route)

    def come_back(self) -> None:
        """Restore routes. Call it when an interface is up again: a multipath route is made of the hops there are."""
        for key, route in list(self._lost.items()):
            self._make(key, route)

    def _make(self, key: _Key, route: Route) -> None:
        hops = _hops(route)
        if living := [hop for hop in hops if self._lives(hop)]:
            self._host.use(*_command(key[0], "replace", route, living))
        if len(living) == len(hops):
            self._lost.pop(key, None)
        else:
            self._lost[key] = route

    def _overlay(self, family: Family) -> Overlay:
        return Overlay(
            lambda _: {DEFAULT: self._default(family)}, lambda values: self._set_default(family, values[DEFAULT])
        )

    def _default(self, family: Family) -> list[Route]:
        shown = {_key(family, route): route for route in self.shown(family) if route["dst"] == DEFAULT}
        lost = {key: route for key, route in self._lost.items() if key[:2] == (family, DEFAULT)}
        return list({**shown, **lost}.values())

    def _set_default(self, family: Family, wanted: list[Route]) -> None:
        for route in self.shown(family):
            if route["dst"] == DEFAULT:
                self._host.use(*_command(family, "delete", route, []))
        self._lost = {key: route for key, route in self._lost.items() if key[:2] != (family, DEFAULT)}
        for route in wanted:
            self._make(_key(family, route), route)


def _key(family: Family, route: Route) -> _Key:
    return family, route["dst"], route.get("metric", 0)


def _hops(route: Route) -> list[Route]:
    return [hop for hop in route.get("nexthops", [route]) if "gateway" in hop]


def _command(family: Family, what: str, route: Route, hops: Sequence[Route]) -> list[str]:
    given = {"proto": route.get("protocol"), "metric": route.get("metric"), "src": route.get("prefsrc")}
    words = ["ip", f"-{family}", "route", what, route["dst"]]
    words += [str(word) for key, value in given.items() if value is not None for word in (key, value)]
    for hop in hops:
        words += ["nexthop"] if len(hops) > 1 else []
        words += ["via", hop["gateway"], *(["dev", hop["dev"]] if "dev" in hop else [])]
        words += ["weight", str(hop["weight"])] if len(hops) > 1 and "weight" in hop else []
    return words
