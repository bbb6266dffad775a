"""Kills a process that uses a store before its first statement, its second, and so on, and prints what is left.

`kills.py ACT DIRECTORY`: a list of outcomes; the last is that of the act without a kill.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.cni.ipam import pool as pools
from testbed.cni.ipam.store import Holder, Store
from testbed.cni.objects.manifests import Object
from testbed.cni.objects.store import Store as Objects

POD = Holder("rdma", "c1", "eth0", "default", "web", "node1")
AGAIN = replace(POD, container="c9")
"""The next container of the pod."""
POOLS = [["p"], ["six"]]
ACTS = {
    "take": lambda store: store.take(AGAIN, POOLS, "round-robin"),
    "take-fixed": lambda store: store.take(AGAIN, POOLS, "round-robin", fixed=True),
    "give-back": lambda store: store.give_back(POD),
    "keep": lambda store: store.keep(POD),
    "put": lambda store: fill(store, 2, 9),
    "put-objects": lambda store: store.put([node("a", 2), node("c", 1)], [node("b", 1)]),
}


class Killing(sqlite3.Connection):
    """Ends the process before its statement of this number."""

    left = 0

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        Killing.left -= 1
        if Killing.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(*arguments)

    def executemany(self, statement: str, rows: Iterable[Any]) -> sqlite3.Cursor:
        for row in rows:
            self.execute(statement, row)
        return self.cursor()


def fill(store: Store, first: int, last: int) -> None:
    store.put(pools.make("p", "10.0.10.0/24", [f"10.0.10.{first}-10.0.10.{last}"], (), "10.0.10.254"))


def node(name: str, number: int) -> Object:
    return Object("Node", name, "", {"number": number})


class OfAddresses:
    """The store of addresses, in which the pod has some."""

    Opened = Store

    @staticmethod
    def prepare(store: Store) -> None:
        fill(store, 1, 4)
        store.put(pools.make("six", "fd00::/64", ["fd00::1-fd00::9"]))
        store.take(POD, POOLS, "lowest-free")

    @staticmethod
    def left(store: Store) -> Any:
        """Who has what, how many are free; and all can be given back and taken again."""
        held = [(str(lease.address), lease.holder.container) for lease in store.leases()]
        found = held, store.free("p"), store.free("six")
        for container in {container for _, container in held}:
            store.give_back(replace(POD, container=container))
        store.take(replace(POD, container="c5"), POOLS, "lowest-free")
        return found


class OfObjects:
    """The store of objects, in which two nodes are."""

    Opened = Objects

    @staticmethod
    def prepare(store: Objects) -> None:
        store.put([node("a", 1), node("b", 1)])

    @staticmethod
    def left(store: Objects) -> Any:
        """The objects with their versions; and all can be replaced."""
        found = [(one.name, one.data["number"]) for one in store.all("Node")], store.versions("Node")
        store.put([node("a", 3)], [node("b", 1), node("c", 1)])
        assert [one.data for one in store.all("Node")] == [{"number": 3}]
        return found


def outcomes(act: str, directory: Path) -> Iterator[Any]:
    connect = sqlite3.connect
    of: Any = OfObjects if act == "put-objects" else OfAddresses
    for number in itertools.count():
        file = directory / f"store{number}"
        with of.Opened(file) as store:
            of.prepare(store)
        if not (child := os.fork()):
            sqlite3.connect = lambda *a, **k: connect(*a, factory=Killing, **k)  # type: ignore[assignment, misc]
            Killing.left = 10**6
            store = of.Opened(file)
            Killing.left = number
            ACTS[act](store)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert ended in (0, -signal.SIGKILL), ended
        with of.Opened(file) as store:
            yield of.left(store)
        if ended == 0:
            return


if __name__ == "__main__":
    json.dump(list(outcomes(sys.argv[1], Path(sys.argv[2]))), sys.stdout)
