"""How a call of a plugin ends."""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.cni.runtime import plugin_call
from testbed.cni.runtime.plugin_call import CniError
from testbed.kernel.syscalls import readable
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
        running = plugin_call.Running(hanging, {}, {}, log)
        deadline = time.monotonic() + 60
        while not (written := tmp_path / "pid").exists() or not written.read_text():
            assert time.monotonic() < deadline
        terminate()
        with pytest.raises(SystemExit):
            run(readable, plugin_call.outcome(running, plugin_call.Limit(), "test"))
    with pytest.raises(ProcessLookupError):
        os.kill(int(written.read_text()), 0)


def test_a_plugin_that_closed_its_output_is_waited_for(hanging: Path) -> None:
    hanging.write_text("#!/bin/sh\necho '{\"a\": 1}'; exec >&-; sleep 0.2; exit 3\n")
    with tempfile.TemporaryFile() as log, pytest.raises(CniError, match="it ended with status 3"):
        run(readable, plugin_call.outcome(plugin_call.Running(hanging, {}, {}, log), plugin_call.Limit(), "test"))


class Writer:
    """Has a plugin open for writing, which execve(2) answers with ETXTBSY, until time has passed so often."""

    def __init__(self, file: Path, pauses: int) -> None:
        self._open, self._pauses = file.open("ab"), pauses
        self.paused: list[float] = []

    def ready(self, watched: Sequence[Any], within: float) -> bool:
        if watched:
            return readable(watched, within)
        self.paused.append(within)
        if len(self.paused) == self._pauses:
            self._open.close()
        return False

    def close(self) -> None:
        self._open.close()


@pytest.fixture
def being_written(tmp_path: Path) -> Iterator[Callable[[int], tuple[Path, Writer]]]:
    writers = []

    def make(pauses: int) -> tuple[Path, Writer]:
        file = tmp_path / "written"
        file.write_text('#!/bin/sh\necho \'{"supportedVersions": ["1.0.0"]}\'\n')
        file.chmod(0o755)
        writers.append(Writer(file, pauses))
        return file, writers[-1]

    yield make
    for writer in writers:
        writer.close()


@pytest.mark.parametrize("pauses", [1, 5])
def test_a_plugin_that_is_being_written_is_executed_again_as_by_libcni(
    being_written: Callable[[int], tuple[Path, Writer]], pauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_call, "BUSY_PAUSE", 0.01)
    file, writer = being_written(pauses)
    assert run(writer.ready, plugin_call.ask_versions(file, "test")) == ["1.0.0"]
    assert len(writer.paused) >= pauses


def test_a_plugin_that_is_being_written_for_ever_is_executed_six_times(
    being_written: Callable[[int], tuple[Path, Writer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_call, "BUSY_PAUSE", 0.01)
    file, _ = being_written(1000)
    tried = []

    def start() -> plugin_call.Running:
        tried.append(file)
        with tempfile.TemporaryFile() as log:
            return plugin_call.Running(file, {}, {}, log)

    with pytest.raises(CniError) as said:
        run(readable, plugin_call.started(start, "test"))
    assert (str(said.value), said.value.code) == ("test: it cannot be started: Text file busy (code 5)", 5)
    assert len(tried) == 6
