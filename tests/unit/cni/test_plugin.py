"""How a call of a plugin ends."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.cni.runtime import plugin
from testbed.cni.runtime.plugin import CniError
from testbed.kernel.readiness import readable
from testbed.lab.steps import run


@pytest.fixture
def hanging(tmp_path: Path) -> Path:
    """A plugin that never answers."""
    file = tmp_path / "hanging"
    file.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nsleep 60\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def terminate() -> Iterator[Callable[[], None]]:
    """Has a signal come that ends this process as SIGTERM ends a job."""
    before = signal.signal(signal.SIGALRM, lambda *_: sys.exit(1))
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 0.1)
    signal.signal(signal.SIGALRM, before)


def test_a_plugin_does_not_outlive_the_call_that_a_signal_ended(
    hanging: Path, tmp_path: Path, terminate: Callable[[], None]
) -> None:
    with tempfile.TemporaryFile() as log:
        running = plugin.Running(hanging, {}, {}, log, "test")
        deadline = time.monotonic() + 60
        while not (written := tmp_path / "pid").exists() or not written.read_text():
            assert time.monotonic() < deadline
        terminate()
        with pytest.raises(SystemExit):
            run(readable, plugin.outcome(running, plugin.Limit(), "test"))
    with pytest.raises(ProcessLookupError):
        os.kill(int(written.read_text()), 0)


def test_a_plugin_that_closed_its_output_is_waited_for(hanging: Path) -> None:
    hanging.write_text("#!/bin/sh\necho '{\"a\": 1}'; exec >&-; sleep 0.2; exit 3\n")
    with tempfile.TemporaryFile() as log, pytest.raises(CniError, match="it ended with status 3"):
        run(readable, plugin.outcome(plugin.Running(hanging, {}, {}, log, "test"), plugin.Limit(), "test"))
