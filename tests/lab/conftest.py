"""Every test here leaves the kernel as it found it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.lab.leaks import inventory


@pytest.fixture(autouse=True)
def _nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """Set up before all other fixtures of a test and so looked at after them. Of files those that CNI keeps of pods."""
    before = inventory()
    yield
    left = inventory() - before
    left |= {f"file {path.name}" for path in tmp_path.glob("cni/*/lib/results/*")}
    left |= {f"file {path.name}" for path in tmp_path.glob("cni/*/lib/networks/*/[0-9]*")}
    assert not left
