"""Every test here leaves the kernel as it found it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.lab.leaks import inventory

ADDRESSES = "cluster/addresses.sqlite"
HELD = "SELECT address FROM address WHERE container <> ''"
"""Those that are kept for a pod of a StatefulSet are without a container."""


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """Set up before all other fixtures of a test and so looked at after them. Of files those that CNI keeps of pods,
    and the addresses that ippool has given."""
    before = inventory()
    yield
    left = inventory() - before
    left |= {f"file {path.name}" for path in tmp_path.glob("cni/*/lib/results/*")}
    left |= {f"file {path.name}" for path in tmp_path.glob("cni/*/lib/networks/*/[0-9]*")}
    if (store := tmp_path / ADDRESSES).exists():
        damaged = contextlib.suppress(sqlite3.DatabaseError)  # by the test
        with damaged, contextlib.closing(sqlite3.connect(store)) as database:
            left |= {f"address {address} of a pod" for (address,) in database.execute(HELD)}
    assert not left
