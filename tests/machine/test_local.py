"""A job on this kernel that is ended takes down what it built, whatever the signal."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import LIMIT_S

from testbed import executor
from testbed.executor.variant import before_teardown

TEARDOWN = """
import os
import time
from contextlib import ExitStack
from pathlib import Path

HERE = Path({here!r})

def step(name):
    time.sleep(0.1)
    (HERE / name).touch()

def test_until_the_end():
    with ExitStack() as steps:
        for name in "third", "second", "first":
            steps.callback(step, name)
        (HERE / "ready").write_text(str(os.getpid()))
        time.sleep(60)
"""
JOB = """
import asyncio, sys
from pathlib import Path
from testbed.machine.jobs import Job
from testbed.machine.local import LocalMachine
from testbed.protocol.requests import Pytest

out, test = map(Path, sys.argv[1:])
request = Pytest(arguments=["test_it.py"])
job = Job([request], {"test_it.py": test.read_bytes()}, limit_s=60)
asyncio.run(LocalMachine().run(job, out))
"""


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """Where a job leaves an empty file for each thing it did."""
    place = tmp_path / "steps"
    place.mkdir()
    return place


def job_of(steps: Path) -> str:
    """The process of the job; nothing before it has begun."""
    ready = steps / "ready"
    return ready.read_text() if ready.exists() else ""


@pytest.fixture
def running(tmp_path: Path, steps: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs a job on this kernel, in the foreground of a terminal of its own as far as signals go; the
    job has begun."""
    (tmp_path / "out").mkdir()
    test = tmp_path / "test_it.py"
    test.write_text(TEARDOWN.format(here=str(steps)))
    process = subprocess.Popen(
        [sys.executable, "-c", JOB, tmp_path / "out", test], start_new_session=True, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + LIMIT_S
    while not job_of(steps):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield process
    with process:
        process.kill()


def done(steps: Path) -> list[str]:
    return [path.name for path in sorted(steps.iterdir(), key=lambda path: path.stat().st_mtime_ns)]


def test_ctrl_c_in_the_terminal_ends_a_job_after_its_teardown(running: subprocess.Popen[bytes], steps: Path) -> None:
    os.killpg(running.pid, signal.SIGINT)
    running.wait(LIMIT_S)
    assert done(steps) == ["ready", "first", "second", "third"]


def test_only_the_first_sigterm_counts(running: subprocess.Popen[bytes], steps: Path) -> None:
    job = int(job_of(steps))
    os.kill(job, signal.SIGTERM)
    time.sleep(0.1)
    os.kill(job, signal.SIGTERM)
    running.wait(LIMIT_S)
    assert done(steps) == ["ready", "first", "second", "third"]


@pytest.fixture
def sigterm_ends_this_job() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, executor.end)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("sigterm_ends_this_job")
def test_a_run_is_ended_by_sigterm_and_the_teardown_behind_it_is_not() -> None:
    with pytest.raises(SystemExit), before_teardown():
        os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.usefixtures("sigterm_ends_this_job")
def test_the_teardown_of_a_run_that_ended_by_itself_is_not_cut_short() -> None:
    with before_teardown():
        pass
    os.kill(os.getpid(), signal.SIGTERM)
