"""The IPAM plugin `ippool`: addresses of pools that all nodes share. docs/cni.md describes its configuration.

It keeps nothing of its own: who has which address is in the store (`cni/ipam/store.py`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from ipaddress import ip_interface
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from testbed.cni.ipam import pool as pools
from testbed.cni.ipam.pool import Route
from testbed.cni.ipam.store import ExhaustedError, Holder, Policy, Store
from testbed.cni.plugins.configuration import Part, validated
from testbed.cni.plugins.contract import LATER, OWN, UNAVAILABLE, Call, Refusal
from testbed.cni.spec import versions


class RouteConfiguration(Part):
    dst: str
    gw: str


class PoolConfiguration(Part):
    name: str | None = None
    subnet: str
    ips: list[str] = Field(default_factory=list)
    excludeIPs: list[str] = Field(default_factory=list)  # noqa: N815 (Spiderpool's name)
    gateway: str = ""
    routes: list[RouteConfiguration] = Field(default_factory=list)


class Configuration(Part):
    """The key `ipam` of a plugin's configuration."""

    type: str
    pools: Annotated[list[PoolConfiguration], Field(min_length=1)]
    policy: Policy = "lowest-free"
    cool_down_s: Annotated[float, Field(ge=0, strict=False)] = Field(0.0, alias="coolDown")
    routes: list[RouteConfiguration] = Field(default_factory=list)
    dns: dict[str, Any] = Field(default_factory=dict)


class Ippool:
    """The plugin on one node. Calls may come side by side."""

    def __init__(self, file: Path, node: str) -> None:
        self._file, self._node = file, node
        self._turn = threading.Lock()
        self._store: Store | None = None
        self._known: dict[str, list[list[str]]] = {}
        """Of each list of pools that was read, their names by address family."""

    def call(self, asked: Call) -> Mapping[str, Any] | None:
        """See `contract.Plugin`."""
        settings = validated(Configuration, asked.config.get("ipam", {}), "ipam")
        with self._turn:
            self._store = self._store or Store(self._file)
            families = self._put(asked.network, settings.pools)
            match asked.command:
                case "ADD":
                    return self._add(asked, settings, families, self._store)
                case "CHECK":
                    self._check(asked, self._store)
                case "DEL":
                    self._store.give_back(self._holder(asked))
                case "GC":
                    self._collect(asked, self._store)
                case "STATUS":
                    self._status(families, self._store)
        return None

    def _put(self, network: str, given: Sequence[PoolConfiguration]) -> list[list[str]]:
        """The names of pools by family, with IPv4 first. They are in the store then."""
        text = json.dumps([network, *(one.model_dump() for one in given)])
        if text not in self._known:
            assert self._store
            names: dict[int, list[str]] = {}
            for number, one in enumerate(given):
                routes = [Route(route.dst, route.gw) for route in one.routes]
                name = one.name or (f"{network}-{number}" if number else network)
                made, addresses = pools.make(name, one.subnet, one.ips, one.excludeIPs, one.gateway, routes)
                self._store.put(made, addresses)
                names.setdefault(made.family, []).append(name)
            self._known[text] = [names[family] for family in sorted(names)]
        return self._known[text]

    def _holder(self, asked: Call) -> Holder:
        namespace, pod = (asked.arguments.get(f"K8S_POD_{name}", "") for name in ("NAMESPACE", "NAME"))
        return Holder(asked.network, asked.container, asked.interface, namespace, pod, self._node)

    def _add(
        self, asked: Call, settings: Configuration, families: Sequence[Sequence[str]], store: Store
    ) -> Mapping[str, Any]:
        try:
            leases = store.take(self._holder(asked), families, settings.policy, settings.cool_down_s)
        except ExhaustedError as error:
            raise Refusal(LATER if error.cooling else OWN, error.message) from None
        ips, routes = [], [route.model_dump() for route in settings.routes]
        for lease in leases:
            pool = store.pool(lease.pool)
            assert pool, "a lease is of a pool"
            gateway = {"gateway": str(pool.gateway)} if pool.gateway else {}
            ips.append({"address": f"{lease.address}/{pool.subnet.prefixlen}", **gateway})
            routes += [{"dst": route.dst, "gw": route.gw} for route in pool.routes]
        return versions.convert({"ips": ips, "routes": routes, "dns": settings.dns}, asked.version)

    def _check(self, asked: Call, store: Store) -> None:
        held = store.held_by(self._holder(asked))
        if not held:
            raise Refusal(OWN, f"the store has no address for {asked.interface} of {asked.container}")
        given = [ip_interface(entry["address"]).ip for entry in asked.config.get("prevResult", {}).get("ips", [])]
        if foreign := [str(address) for address in held if given and address not in given]:
            raise Refusal(OWN, f"{asked.interface} has not {', '.join(foreign)}, which is the pod's in the store")

    def _collect(self, asked: Call, store: Store) -> None:
        valid = asked.valid()
        for lease in store.leases(asked.network, self._node):
            if (lease.holder.container, lease.holder.interface) not in valid:
                store.give_back(lease.holder)

    def _status(self, families: Sequence[Sequence[str]], store: Store) -> None:
        for names in families:
            if not any(map(store.free, names)):
                raise Refusal(UNAVAILABLE, f"no address is free in {', '.join(names)}")
