"""No test here sees the user's cache. The two memory files of a machine, for a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.machine.memory_files import Bundle, Outcome


@pytest.fixture(autouse=True)
def cache_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's cache is, once something is in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "testbed"


@pytest.fixture
def bundle() -> Iterator[Bundle]:
    with Bundle() as one:
        yield one


@pytest.fixture
def outcome() -> Iterator[Outcome]:
    with Outcome() as one:
        yield one
