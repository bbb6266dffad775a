"""How a call of a plugin ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cni.runtime import plugin


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """A plugin that never answers."""
    file = tmp_path / "hanging"
    file.write_text("#!/bin/sh\nsleep 60\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def terminated_soon() -> Iterator[None]:
    """A signal comes that ends this process as SIGTERM ends a job."""
    before = signal.signal(signal.SIGALRM, lambda *_: sys.exit(1))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("terminated_soon")
def test_a_plugin_does_not_outlive_the_call_that_a_signal_ended(hanging: Path) -> None:
    process = plugin.start(hanging, {}, subprocess.DEVNULL, "test")
    with pytest.raises(SystemExit):
        plugin.finish(process, {}, "test")
    assert process.returncode == -signal.SIGKILL
