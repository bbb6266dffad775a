"""The pools that an agent knows: those written in configurations, and the cluster's objects."""

import json
from collections.abc import Sequence

from testbed.cni.ipam import address_store as addresses
from testbed.cni.ipam.pool import Address
from testbed.cni.objects.database import Store
from testbed.cni.objects.kinds import IPPool, ReservedIP
from testbed.cni.objects.manifests import is_terminating

NONE: list[Address] = []


class Catalogue:
    """The pools that an agent knows. It puts each new or changed pool into the store of addresses."""

    def __init__(self, store: addresses.Store, objects: Store) -> None:
        self._store, self._objects = store, objects
        self._pools: dict[str, IPPool] = {}
        self._versions: dict[str, int] = {}
        self._reserved_versions: dict[str, int] = {}
        self._reserved: set[Address] = set()

    def inline(self, network: str, given: Sequence[tuple[str | None, IPPool]]) -> dict[str, IPPool]:
        """Return a configuration's pools by name; the first may have no name. InputError if one is wrong."""
        found = {name or (f"{network}-{n}" if n else network): pool for n, (name, pool) in enumerate(given)}
        text = json.dumps({name: pool.model_dump() for name, pool in found.items()})
        if any(self._store.source(name) != text for name in found):
            self._store.put(*(pool.made(name) for name, pool in found.items()), source=text)
        return found

    def of_cluster(self) -> dict[str, IPPool]:
        """Return the current SpiderIPPools by name, without the addresses of SpiderReservedIPs."""
        reserved = self._objects.versions("SpiderReservedIP")
        if reserved != self._reserved_versions:
            specs = [ReservedIP.model_validate(one.spec) for one in self._objects.all("SpiderReservedIP")]
            self._reserved = {address for spec in specs for address in spec.addresses()}
            self._reserved_versions, self._versions = reserved, dict.fromkeys(self._versions, 0)
        versions = self._objects.versions("SpiderIPPool")
        if versions != self._versions:
            self._read(versions)
        return self._pools

    def _read(self, versions: dict[str, int]) -> None:
        there = [one for one in self._objects.all("SpiderIPPool") if not is_terminating(one)]
        pools = {one.name: IPPool.model_validate(one.spec) for one in there}
        made = [pool.made(name) for name, pool in pools.items() if versions.get(name) != self._versions.get(name)]
        left = [(pool, [one for one in addresses if one not in self._reserved]) for pool, addresses in made]
        gone = [(pool, NONE) for pool in self._store.of_cluster() if pool.name not in pools]
        self._store.put(*gone, *left, of_cluster=True)
        self._pools, self._versions = pools, versions
