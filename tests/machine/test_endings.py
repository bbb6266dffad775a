"""However a run ends, nothing of it is left: no process, no file, no lock."""

import contextlib
import glob
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from conftest import COMMAND, LIMIT_S

from testbed.machine.child_processes import PREFIX

SCRATCH = f"{PREFIX}*"
"""Directories of ours. Python tries once whether it can write into a temporary directory, by a file of its own."""


def processes_of(marker: str) -> list[tuple[int, str]]:
    """Numbers and command lines of this machine's processes that have `marker` in their environment."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit() and int(directory.name) != os.getpid():
            try:
                if marker.encode() in (directory / "environ").read_bytes():
                    command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found.append((int(directory.name), command))
            except OSError:
                continue
    return found


def send_to_all(marker: str, number: signal.Signals) -> int:
    """Sends the signal to each process that has `marker` in its environment; returns how many these are."""
    found = processes_of(marker)
    for process, _ in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
    return len(found)


def wait_for(condition, within: float) -> bool:
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def start(tmp_path):
    """Starts the command with a mark in its environment, by which its processes are found, and TMPDIR in `tmp`."""
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "TESTBED_TEST": str(tmp_path), "TMPDIR": str(tmp_path / "tmp")}

    def call(*arguments: str, **more: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            env={**environment, **more},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    return call


@pytest.fixture
def unread(misbehave, tmp_path):
    """The same scenario at a place of which no description is kept."""
    return shutil.copytree(misbehave.parent, tmp_path / "unread") / misbehave.name


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)],
    ids=["INT", "TERM", "KILL"],
)
@pytest.mark.parametrize("moment", ["the scenario is read", "the machine runs"])
def test_a_signal_ends_a_run_and_leaves_nothing(number, status, moment, tmp_path, start, unread):
    """A variant that would run for minutes is ended at two moments."""
    marker = f"TESTBED_TEST={tmp_path}"
    process = start("run", str(unread), "--variant", "spins")

    def reached() -> bool:
        if moment == "the scenario is read":
            return any((tmp_path / "tmp").glob(SCRATCH))
        return any("/qemu-system" in command for _, command in processes_of(marker))

    assert wait_for(reached, 60)
    process.send_signal(number)
    assert process.wait(timeout=LIMIT_S) == status
    assert wait_for(lambda: not processes_of(marker), 10), processes_of(marker)
    assert not list((tmp_path / "tmp").glob(SCRATCH))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)], ids=["INT", "KILL"])
def test_a_signal_ends_a_build_and_leaves_nothing(number, status, tmp_path, start):
    """The build is ended while the base system is being unpacked."""
    marker = f"TESTBED_TEST={tmp_path}"
    process = start("image", "build", XDG_CACHE_HOME=str(tmp_path / "cache"))
    # glob.glob, not Path.glob, which before Python 3.13 fails on a directory that goes while it is read.
    assert wait_for(lambda: glob.glob("*/mmdebstrap.*/usr", root_dir=tmp_path / "tmp"), 120)
    process.send_signal(number)
    assert process.wait(timeout=LIMIT_S) == status
    assert wait_for(lambda: not processes_of(marker), 10), processes_of(marker)
    assert not list((tmp_path / "tmp").glob(SCRATCH))
    assert not list((tmp_path / "cache" / "testbed" / "images").iterdir())


def test_what_is_left_when_all_processes_are_killed_at_once_is_removed_by_the_next_run(tmp_path, start, unread):
    """As a CI runner, or the OOM killer of a cgroup, ends a job: nobody is left to clean up."""
    marker = f"TESTBED_TEST={tmp_path}"
    process = start("run", str(unread), "--variant", "sleeps")
    assert wait_for(lambda: any((tmp_path / "tmp").glob(SCRATCH)), 60)
    send_to_all(marker, signal.SIGSTOP)  # so that none is quick enough
    # Again and again: the environment of a process that is within execve cannot be read, and it is not found.
    assert wait_for(lambda: not send_to_all(marker, signal.SIGKILL), 10), processes_of(marker)
    assert process.wait(timeout=LIMIT_S) == -signal.SIGKILL
    left = list((tmp_path / "tmp").glob(SCRATCH))
    assert start("describe", str(unread)).wait(timeout=LIMIT_S) == 0
    assert left
    assert not list((tmp_path / "tmp").glob(SCRATCH))
