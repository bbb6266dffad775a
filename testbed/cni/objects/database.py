"""The SQLite file that the lab and the agents of all nodes share in place of an API server, with a few tables each.

Each change is one transaction, so a program that is killed at any point leaves all of a change or nothing.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from testbed.errors import TestbedError

BUSY_S = 30.0
"""The maximum wait for the transactions of others, in seconds."""


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
