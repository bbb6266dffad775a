"""A clock that tests move, and files of the user's."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest


class Clock:
    """CLOCK_MONOTONIC, which stands still until a test moves it."""

    def __init__(self) -> None:
        self.ns = 1_000_000_000

    def monotonic_ns(self) -> int:
        return self.ns


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    one = Clock()
    monkeypatch.setattr(
        "testbed.scenario.event_log.time", SimpleNamespace(monotonic_ns=one.monotonic_ns, time_ns=lambda: 0)
    )
    return one


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes a file of the user's, and takes back what loading it does to this Python."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))

    def make(text: str, name: str = "scenario.py") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return make
