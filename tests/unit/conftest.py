"""Property tests try the same few examples in every run, on every machine; child processes can be forks."""

import asyncio
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import IO, Any

import pytest
from hypothesis import HealthCheck, settings

from testbed import executor
from testbed.machine import local, questions

SLOW_HOST = (HealthCheck.too_slow,)  # wall time says nothing of the code
for profile, examples in ("unit", 60), ("deep", 600):  # `make fuzz` takes the other one, by its option
    settings.register_profile(
        profile, derandomize=True, database=None, deadline=None, max_examples=examples, suppress_health_check=SLOW_HOST
    )
settings.load_profile("unit")


class Here:
    """In the place of the ContextVar: unit tests have no micro-VM, and code of their scenarios runs on this kernel."""

    def get(self) -> bool:
        return True

    def set(self, _: bool) -> None: ...


questions.ON_THIS_KERNEL = Here()  # type: ignore[assignment]


class Fork:
    """As much of asyncio's Process as is used of it."""

    def __init__(self, pid: int) -> None:
        self.returncode: int | None = None
        self.pid = pid

    async def wait(self) -> int:
        if self.returncode is None:
            _, status = await asyncio.to_thread(os.waitpid, self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


async def fork(arguments: Sequence[str], progress: int, output: IO[bytes]) -> Fork:
    if pid := os.fork():
        return Fork(pid)
    try:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        os.dup2(progress, 3)
        os.closerange(4, 256)
        sys.argv[1:] = arguments
        executor.main()
        os._exit(0)
    finally:
        os._exit(1)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What is asked of a child process is asked of a fork, in which all is imported. Returns what starts a real one,
    for `own_process`."""
    for module in (*executor.SHARED, "testbed.cni.tool", "testbed.topology.fabrics", "testbed.topology.graph"):
        importlib.import_module(module)
    spawn = local.spawn
    monkeypatch.setattr(local, "spawn", fork)
    return spawn


@pytest.fixture
def own_process(forked: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a module of tests with forks this one starts a real child process."""
    monkeypatch.setattr(local, "spawn", forked)
