"""The store of objects."""

import json
from collections.abc import Sequence

from testbed.cni.objects.database import Database
from testbed.cni.objects.manifests import Object

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
