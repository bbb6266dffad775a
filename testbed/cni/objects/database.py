"""The SQLite file that the lab and the agents of all nodes share in place of an API server, with a few tables each.

Each change is one transaction, so a program that is killed at any point leaves all of a change or nothing.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from testbed.cni.objects.manifests import Object
from testbed.errors import TestbedError

BUSY_S = 30.0
"""The maximum wait for the transactions of others, in seconds."""
OBJECTS = "objects.sqlite"
"""The file's name in the directory that all nodes share."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS object (
    kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, data TEXT NOT NULL, version INTEGER NOT NULL,
    PRIMARY KEY (kind, namespace, name)
);
CREATE TABLE IF NOT EXISTS version (last INTEGER NOT NULL);
INSERT INTO version SELECT 0 WHERE NOT EXISTS (SELECT * FROM version);
"""


class StoreError(TestbedError):
    """The file is not the lab's, or it cannot be read or written: damaged, full, or locked for too long."""


class Database:
    """One connection to the file. Raises StoreError."""

    SCHEMA = ""

    def __init__(self, file: Path) -> None:
        self.file = file
        with self.explained(), contextlib.ExitStack() as refused:
            self._database = sqlite3.connect(file, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            refused.callback(self._database.close)
            self._database.execute("PRAGMA synchronous = OFF")  # killed programs lose nothing; power cuts do not occur
            self._database.executescript(self.SCHEMA)
            refused.pop_all()

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"the cluster's store cannot be used: {error}", where=str(self.file)) from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with self.explained():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:  # a full disk ends it (sqlite.org/lang_transaction.html)
                    self._database.execute("ROLLBACK")
                raise


class Store(Database):
    """The table of objects."""

    SCHEMA = SCHEMA

    def put(self, objects: Sequence[Object], gone: Sequence[Object] = ()) -> None:
        """Put all objects, or none if one fails. An object with the same name is replaced; `gone` are deleted."""
        rows = [(one.kind, one.namespace, one.name, json.dumps(one.data)) for one in objects]
        with self.transaction() as database:
            database.execute("UPDATE version SET last = last + 1")
            database.executemany("INSERT OR REPLACE INTO object SELECT ?, ?, ?, ?, last FROM version", rows)
            keys = [(one.kind, one.namespace, one.name) for one in gone]
            database.executemany("DELETE FROM object WHERE kind = ? AND namespace = ? AND name = ?", keys)

    def versions(self, kind: str) -> dict[str, int]:
        """Return versions by name; an object that is put again gets a new one. For kinds without namespaces."""
        with self.explained():
            return dict(
                self._database.execute("SELECT name, version FROM object WHERE kind = ? ORDER BY name", (kind,))
            )

    def get(self, kind: str, name: str, namespace: str = "") -> Object | None:
        with self.explained():
            found = self._database.execute(
                "SELECT data FROM object WHERE kind = ? AND namespace = ? AND name = ?", (kind, namespace, name)
            ).fetchone()
        return Object(kind, name, namespace, json.loads(found[0])) if found else None

    def all(self, kind: str) -> list[Object]:
        """Return all objects of a kind, ordered by namespace and name."""
        with self.explained():
            rows = self._database.execute(
                "SELECT name, namespace, data FROM object WHERE kind = ? ORDER BY namespace, name", (kind,)
            ).fetchall()
        return [Object(kind, name, namespace, json.loads(data)) for name, namespace, data in rows]

    def delete(self, kind: str, name: str, namespace: str = "") -> bool:
        """Delete an object; return whether it existed."""
        with self.transaction() as database:
            done = database.execute(
                "DELETE FROM object WHERE kind = ? AND namespace = ? AND name = ?", (kind, namespace, name)
            )
        return done.rowcount > 0
