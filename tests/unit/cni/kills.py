"""Kills a process that uses a store before its first statement, its second, and so on, and prints what is left.

`kills.py ACT DIRECTORY`: a list of outcomes; the last is that of the act without a kill. With `--no-transaction` behind
them each statement is a transaction of its own. With `--writes` it prints the statements of the act that write.
"""

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
from testbed.cni.ipam.address_store import Holder, Store
from testbed.cni.objects.database import Store as Objects
from testbed.cni.objects.manifests import Object
from testbed.errors import TestbedError

POD = Holder("rdma", "c1", "eth0", "default", "web", "node1")
AGAIN = replace(POD, container="c9")
"""The next container of the pod."""
POOLS = [["p"], ["six"]]
ACTS = {
    "take": lambda store: store.allocate(AGAIN, POOLS, "round-robin"),
    "take-fixed": lambda store: store.allocate(AGAIN, POOLS, "round-robin", fixed=True),
    "give-back": lambda store: store.give_back(POD),
    "keep": lambda store: store.keep(POD),
    "put": lambda store: fill(store, 3, 9),
    "put-objects": lambda store: store.put([node("a", 2), node("c", 1)], [node("b", 1)]),
}


WRITES = ("INSERT", "UPDATE", "DELETE")
READS = ("SELECT", "PRAGMA")
"""A kill before one of these leaves what a kill before the next statement leaves."""


class Killing(sqlite3.Connection):
    """Ends the process when `left` statements that are no reads have been carried out."""

    left = 0
    transactions = True

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        if not statement.lstrip().startswith(READS):
            Killing.step()
        if not self.transactions and statement in ("BEGIN IMMEDIATE", "COMMIT"):
            return self.cursor()
        return super().execute(statement, *arguments)

    @staticmethod
    def step() -> None:
        Killing.left -= 1
        if Killing.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    @staticmethod
    def install() -> None:
        """Have all stores that this process opens from now on killed so."""
        connect = sqlite3.connect
        sqlite3.connect = lambda *a, **k: connect(*a, factory=Killing, **k)  # type: ignore[assignment, misc]

    def executemany(self, statement: str, rows: Iterable[Any]) -> sqlite3.Cursor:
        for row in rows:
            self.execute(statement, row)
        return self.cursor()


def fill(store: Store, first: int, last: int) -> None:
    store.put(pools.make("p", "10.0.10.0/24", [f"10.0.10.{first}-10.0.10.{last}"], (), "10.0.10.254"))


def node(name: str, number: int) -> Object:
    return Object("Node", name, "", {"number": number})


class OfAddresses:
    """The store of addresses, in which the pod has some. One of them has left its pool since."""

    Opened = Store

    @staticmethod
    def prepare(store: Store) -> None:
        fill(store, 1, 4)
        store.put(pools.make("six", "fd00::/64", ["fd00::1-fd00::9"]))
        store.allocate(POD, POOLS, "lowest-free")
        fill(store, 2, 4)

    @staticmethod
    def left(store: Store) -> Any:
        """Who has what, how many are free, what new pods get, and what one gets when all is given back."""
        held = [(str(lease.address), lease.holder.container) for lease in store.leases()]
        free = {name: store.free(name) for name in ("p", "six")}
        new = [replace(POD, container=f"new{number}", pod=f"new{number}") for number in range(free["p"])]
        found = held, free, [taken(store, pod, POOLS[:1]) for pod in new]
        for container in {container for _, container in held} | {pod.container for pod in new}:
            store.give_back(replace(POD, container=container))
        return *found, taken(store, replace(POD, container="c5"), POOLS)


def taken(store: Store, pod: Holder, families: list[list[str]]) -> list[str] | str:
    """The addresses that a pod gets, or why it gets none."""
    try:
        return [str(lease.address) for lease in store.allocate(pod, families, "round-robin")]
    except TestbedError as error:
        return str(error)


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


def of(act: str) -> Any:
    return OfObjects if act == "put-objects" else OfAddresses


def outcomes(act: str, directory: Path) -> Iterator[Any]:
    kind = of(act)
    for number in itertools.count():
        file = directory / f"store{number}"
        with kind.Opened(file) as store:
            kind.prepare(store)
        if not (child := os.fork()):
            Killing.install()
            Killing.left = 10**6
            store = kind.Opened(file)
            Killing.left = number
            ACTS[act](store)
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert ended in (0, -signal.SIGKILL), ended
        with kind.Opened(file) as store:
            yield kind.left(store)
        if ended == 0:
            return


def writes(act: str, directory: Path) -> list[str]:
    statements: list[str] = []
    with of(act).Opened(directory / "store") as store:
        of(act).prepare(store)
        store._database.set_trace_callback(statements.append)
        ACTS[act](store)
    return [statement for statement in statements if statement.split()[0] in WRITES]


if __name__ == "__main__":
    act, directory, *options = sys.argv[1:]
    Killing.transactions = "--no-transaction" not in options
    found = writes if "--writes" in options else outcomes
    json.dump(list(found(act, Path(directory))), sys.stdout)
