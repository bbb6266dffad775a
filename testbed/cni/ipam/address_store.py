"""The holders of addresses: tables of pools and addresses in the file that the agents of all nodes share.

An agent or a plugin that is killed at any point leaves an address held or free, never both. An address is in one pool
only.
"""

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from ipaddress import ip_address, ip_network
from random import SystemRandom
from typing import Any, Literal

from testbed.cni.ipam.pool import Address, Pool, Route
from testbed.cni.objects.database import Database
from testbed.errors import InputError, TestbedError

Policy = Literal["lowest-free", "round-robin", "random", "cool-down"]
ADDRESSES = "addresses.sqlite"
"""The file's name in the directory that all nodes share."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS pool (
    name TEXT PRIMARY KEY, data TEXT NOT NULL, of_cluster INTEGER NOT NULL, source TEXT NOT NULL,
    last INTEGER NOT NULL DEFAULT -1
);
CREATE TABLE IF NOT EXISTS address (
    pool TEXT NOT NULL REFERENCES pool, place INTEGER NOT NULL, address TEXT NOT NULL UNIQUE, released_ns INTEGER,
    network TEXT, container TEXT, interface TEXT, namespace TEXT, pod TEXT, uid TEXT, node TEXT, since_ns INTEGER,
    PRIMARY KEY (pool, place)
);
CREATE INDEX IF NOT EXISTS free ON address (pool, place) WHERE container IS NULL;
CREATE INDEX IF NOT EXISTS held ON address (network, container, interface) WHERE container IS NOT NULL;
CREATE INDEX IF NOT EXISTS of_pod ON address (namespace, pod, network, interface) WHERE container IS NOT NULL;
CREATE INDEX IF NOT EXISTS taken_out ON address (place) WHERE place < 0;
"""
PUT_POOL = """
INSERT INTO pool (name, data, of_cluster, source) VALUES (?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET data = excluded.data, of_cluster = excluded.of_cluster, source = excluded.source
"""
OF_CLUSTER = """
SELECT name, data FROM pool
WHERE of_cluster AND EXISTS (SELECT * FROM address WHERE pool = name AND place >= 0) ORDER BY name
"""
MOVE = "UPDATE address SET pool = ?, place = ? WHERE address = ? AND place < 0"
"""The update of an address that is in no pool: its place is negative."""
OF_HOLDER = """
network = :network AND container = :container AND interface = :interface
    AND (container <> '' OR namespace = :namespace AND pod = :pod)
"""
HELD_BY = f"SELECT pool, address FROM address WHERE {OF_HOLDER} ORDER BY pool, place"  # noqa: S608
SAME_POD = """
SELECT pool, place, address FROM address
WHERE network = :network AND interface = :interface AND namespace = :namespace AND pod = :pod AND container NOT NULL
    AND (:fixed OR uid = :uid AND uid <> '')
"""
OTHER_UID = """
SELECT uid FROM address
WHERE namespace = :namespace AND pod = :pod AND container NOT NULL AND uid <> :uid AND uid <> '' AND :uid <> '' LIMIT 1
"""
ALLOCATE = """
UPDATE address SET network = :network, container = :container, interface = :interface, namespace = :namespace,
    pod = :pod, uid = :uid, node = :node, since_ns = :now WHERE pool = :from AND place = :place
"""
KEEP = f"UPDATE address SET container = '' WHERE {OF_HOLDER}"  # noqa: S608
GIVE_BACK = f"""
UPDATE address SET network = NULL, container = NULL, interface = NULL, namespace = NULL, pod = NULL, uid = NULL,
    node = NULL, since_ns = NULL, released_ns = :now
WHERE {OF_HOLDER}
"""  # noqa: S608
DROP = "DELETE FROM address WHERE place < 0 AND container IS NULL"
NEXT = """
SELECT place, address FROM address
WHERE pool = :pool AND container IS NULL AND place > :after AND (released_ns IS NULL OR released_ns <= :warm)
ORDER BY place LIMIT 1 OFFSET :skip
"""
COUNT_FREE = "SELECT count(*) FROM address WHERE pool = ? AND container IS NULL"
OF_CONTAINER = "SELECT interface, pool FROM address WHERE container = ? ORDER BY since_ns, interface"
LEASES = """
SELECT pool, address, network, container, interface, namespace, pod, node, uid FROM address
WHERE container NOT NULL AND (network = :network OR :network = '') AND (node = :node OR :node = '')
ORDER BY pool, place
"""


class ExhaustedError(TestbedError):
    """No pool has an address to give. `cooling` are free addresses that were given back too recently."""

    def __init__(self, pools: Sequence[str], cooling: int) -> None:
        more = f"; {cooling} cool down" if cooling else ""
        super().__init__(f"no address is free in {', '.join(pools)}{more}")
        self.cooling = cooling


@dataclass(frozen=True)
class Holder:
    """An interface of a pod on a network. CNI's key is the first three fields."""

    network: str
    container: str
    """Empty: the address is kept for the pod's next container; of a StatefulSet's by its name, of others by its UID."""
    interface: str
    namespace: str = ""
    pod: str = ""
    node: str = ""
    uid: str = ""
    """The pod's UID."""


@dataclass(frozen=True)
class Lease:
    pool: str
    address: Address
    holder: Holder


class Store(Database):
    """The tables of pools and addresses."""

    SCHEMA = SCHEMA

    def put(self, *pools: tuple[Pool, Sequence[Address]], of_cluster: bool = False, source: str = "") -> None:
        """Add or change pools with their addresses: all, or none. An address that is no longer in any pool stays with
        its holder until it is given back; one that moves to another pool takes its holder along. `of_cluster` marks
        pools that are objects; `source` defines the others. InputError if an address is in a pool that keeps it."""
        with self.transaction() as database:
            for pool, _ in pools:
                database.execute(PUT_POOL, (pool.name, json.dumps(written(pool)), of_cluster, source))
                database.execute("UPDATE address SET place = -rowid WHERE pool = ?", (pool.name,))
            for pool, addresses in pools:
                for place, address in enumerate(map(str, addresses)):
                    if database.execute(MOVE, (pool.name, place, address)).rowcount:
                        continue
                    try:
                        database.execute(
                            "INSERT INTO address (pool, place, address) VALUES (?, ?, ?)", (pool.name, place, address)
                        )
                    except sqlite3.IntegrityError:
                        other = database.execute("SELECT pool FROM address WHERE address = ?", (address,)).fetchone()
                        raise InputError(f"{address} is in pool {other[0]}, too", where=f"pool {pool.name}") from None
            database.execute(DROP)

    def pool(self, name: str) -> Pool | None:
        with self.explained():
            found = self._database.execute("SELECT data FROM pool WHERE name = ?", (name,)).fetchone()
        return read(name, json.loads(found[0])) if found else None

    def source(self, name: str) -> str | None:
        """Return the text that defines a pool now, whichever agent put it last."""
        with self.explained():
            found = self._database.execute("SELECT source FROM pool WHERE name = ?", (name,)).fetchone()
        return found[0] if found else None

    def of_cluster(self) -> list[Pool]:
        """Return the pools that were put as the cluster's and have addresses, whichever agent put them."""
        with self.explained():
            return [read(name, json.loads(data)) for name, data in self._database.execute(OF_CLUSTER)]

    def allocate(
        self,
        holder: Holder,
        families: Sequence[Sequence[str]],
        policy: Policy,
        cool_down_s: float = 0.0,
        fixed: bool = False,
    ) -> list[Lease]:
        """Return an address for each of `families`, which list pools by preference: the holder's own address, the one
        that its pod had in another container, by its UID or if `fixed` by its name, else the next of the first pool
        with a free one. All or none: ExhaustedError."""
        with self.transaction():
            return [self._allocate(holder, pools, policy, cool_down_s, fixed) for pools in families]

    def _allocate(self, holder: Holder, pools: Sequence[str], policy: Policy, cool_down_s: float, fixed: bool) -> Lease:
        for pool, address in self._database.execute(HELD_BY, asdict(holder)):
            if pool in pools:
                return Lease(pool, ip_address(address), holder)
        now = time.monotonic_ns()
        kept = self._database.execute(SAME_POD, {**asdict(holder), "fixed": fixed}).fetchall() if holder.pod else []
        for pool, place, address in kept:
            if pool in pools:
                self._database.execute(ALLOCATE, {**asdict(holder), "from": pool, "place": place, "now": now})
                return Lease(pool, ip_address(address), holder)
        warm = now - int(cool_down_s * 1e9) if policy == "cool-down" else now
        for pool in pools:
            if found := self._next(pool, policy, warm):
                place, address = found
                self._database.execute(ALLOCATE, {**asdict(holder), "from": pool, "place": place, "now": now})
                self._database.execute("UPDATE pool SET last = ? WHERE name = ?", (place, pool))
                return Lease(pool, ip_address(address), holder)
        raise ExhaustedError(pools, sum(map(self._count_free, pools)))

    def _next(self, pool: str, policy: Policy, warm: int) -> tuple[int, str] | None:
        """Return the place and the address that is next, and was not given back after `warm`."""
        search = {"pool": pool, "warm": warm, "after": -1, "skip": 0}
        if policy == "random":
            search["skip"] = SystemRandom().randrange(max(1, self._count_free(pool)))
        if policy == "round-robin":
            (search["after"],) = self._database.execute("SELECT last FROM pool WHERE name = ?", (pool,)).fetchone()
        found: tuple[int, str] | None = self._database.execute(NEXT, search).fetchone()
        if found is None and policy == "round-robin":
            found = self._database.execute(NEXT, {**search, "after": -1}).fetchone()
        return found

    def _count_free(self, pool: str) -> int:
        return int(self._database.execute(COUNT_FREE, (pool,)).fetchone()[0])

    def free(self, pool: str) -> int:
        """Return the number of free addresses."""
        with self.explained():
            return self._count_free(pool)

    def held_by(self, holder: Holder) -> list[Address]:
        with self.explained():
            return [ip_address(address) for _, address in self._database.execute(HELD_BY, asdict(holder))]

    def other_uid(self, holder: Holder) -> str:
        """Return the UID of another pod with the holder's namespace and name that has addresses, or nothing."""
        with self.explained():
            found = self._database.execute(OTHER_UID, asdict(holder)).fetchone()
        return str(found[0]) if found else ""

    def of_container(self, container: str) -> dict[str, list[str]]:
        """Return the names of pools of which a container's interfaces have addresses, by interfaces."""
        found: dict[str, list[str]] = {}
        with self.explained():
            for interface, pool in self._database.execute(OF_CONTAINER, (container,)):
                found.setdefault(interface, []).append(pool)
        return found

    def leases(self, network: str = "", node: str = "") -> list[Lease]:
        """Return all leases, or those of a network or a node, in the order of pools and addresses."""
        with self.explained():
            rows = self._database.execute(LEASES, {"network": network, "node": node}).fetchall()
        return [Lease(pool, ip_address(address), Holder(*holder)) for pool, address, *holder in rows]

    def keep(self, holder: Holder) -> None:
        """Keep the addresses for a pod of the holder's name and namespace; its container has ended."""
        with self.transaction() as database:
            database.execute(KEEP, asdict(holder))

    def give_back(self, holder: Holder) -> list[Address]:
        """Free all addresses of the holder and return them; a second call does nothing."""
        with self.transaction() as database:
            given = [ip_address(address) for _, address in database.execute(HELD_BY, asdict(holder))]
            database.execute(GIVE_BACK, {**asdict(holder), "now": time.monotonic_ns()})
            database.execute(DROP)
        return given


def written(pool: Pool) -> dict[str, Any]:
    """Return a pool as JSON data."""
    return {
        "subnet": str(pool.subnet),
        "gateway": str(pool.gateway) if pool.gateway else None,
        "routes": [asdict(route) for route in pool.routes],
    }


def read(name: str, data: dict[str, Any]) -> Pool:
    gateway = ip_address(data["gateway"]) if data["gateway"] else None
    return Pool(name, ip_network(data["subnet"]), gateway, tuple(Route(**route) for route in data["routes"]))
