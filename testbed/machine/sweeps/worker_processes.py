"""Processes on a worker of a Dask cluster that run the testbed that was sent.

A process answers one request after the other, so that a run finds testbed loaded. As in remote.py, this code travels by
value and imports the standard library and Dask alone. Processes are started on the worker's event loop: the kernel ends
them with the *thread* that forked them, and that one lives as long as the worker.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
from asyncio import IncompleteReadError, TimerHandle
from asyncio.subprocess import PIPE
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

from distributed import WorkerPlugin, get_worker

from testbed.machine.sweeps.answers import LENGTH
from testbed.machine.sweeps.remote import lacking, place

IDLE_S = 10.0
"""Seconds without a request after which a process is ended: the sweep has no more runs for it, or was killed."""
Names = tuple[str, str, str]
"""Key of a process: the code and the work, by their names among what was sent, and the digest of the image."""


@dataclass(eq=False)
class Process:
    child: asyncio.subprocess.Process
    wrote: IO[bytes]
    """Its standard output and error."""

    @classmethod
    async def start(cls, names: Names) -> Process:
        code, *arguments = names
        command = ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-P", "-m", "testbed.machine.sweeps.worker"]
        environment = {**os.environ, "PYTHONPATH": str(place() / code)}
        wrote = tempfile.TemporaryFile()  # noqa: SIM115 - it is there for as long as the process
        child = await asyncio.create_subprocess_exec(
            *command, *arguments, cwd=place(), env=environment, stdin=PIPE, stdout=PIPE, stderr=wrote
        )
        return cls(child, wrote)

    async def answer(self, request: bytes) -> bytes:
        """Return the answer to a request. RuntimeError if the process ends without one."""
        assert self.child.stdin
        assert self.child.stdout
        try:
            self.child.stdin.write(request)
            await self.child.stdin.drain()
            length = int.from_bytes(await self.child.stdout.readexactly(LENGTH), "big")
            return await self.child.stdout.readexactly(length)
        except (ConnectionError, IncompleteReadError):
            status = await self.child.wait()
            self.wrote.seek(0)
            wrote = self.wrote.read().decode(errors="replace").strip()
            raise RuntimeError(f"testbed ended with status {status} on {socket.gethostname()}:\n{wrote}") from None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.child.kill()
        self.wrote.close()

    async def end(self) -> None:
        self.kill()
        await self.child.wait()


class Pool(WorkerPlugin):  # type: ignore[misc] # mypy does not look into Dask
    """The processes of a worker: of each kind as many as answer side by side."""

    def __init__(self) -> None:
        self._idle: defaultdict[Names, dict[Process, TimerHandle]] = defaultdict(dict)

    async def answer(self, names: Names, request: bytes) -> bytes:
        """Return the answer of a process. RuntimeError for a request that ends a fresh one: if it had answered before,
        an earlier request may be the cause, or somebody killed it while it was idle."""
        for name in names[:2]:
            os.utime(place() / name)
        if idle := self._idle[names]:
            process, timer = idle.popitem()
            timer.cancel()
            with suppress(RuntimeError):
                return await self._answer(names, process, request)
        return await self._answer(names, await Process.start(names), request)

    async def _answer(self, names: Names, process: Process, request: bytes) -> bytes:
        try:
            answer = await process.answer(request)
        except BaseException:  # it has ended, or nobody waits for its answer any more
            await process.end()
            raise
        timer = asyncio.get_running_loop().call_later(IDLE_S, self._leave, names, process)
        self._idle[names][process] = timer
        return answer

    def _leave(self, names: Names, process: Process) -> None:
        del self._idle[names][process]
        process.kill()

    async def teardown(self, worker: Any) -> None:
        """End the processes. Dask calls it when the worker ends, after it has cancelled the running tasks."""
        for idle in self._idle.values():
            for process, timer in idle.items():
                timer.cancel()
                await process.end()


def plugin_of(names: Names) -> str:
    """Return the name of the plugin that has the processes of this code."""
    return f"testbed-{names[0]}"


async def prepare(names: Names, request: bytes, dask_worker: Any) -> bytes:
    """Let the testbed that was sent answer a request beside the worker's tasks, which can call it from then on.

    The worker alone knows of the plugin: the scheduler would keep one that a killed command had registered, and give it
    to each later worker.
    """
    plugin = plugin_of(names)
    if plugin not in dask_worker.plugins:
        await dask_worker.plugin_add(Pool(), name=plugin)
    answer: bytes = await dask_worker.plugins[plugin].answer(names, request)
    return answer


async def run(names: Names, request: bytes) -> tuple[str, bytes | None]:
    """Run a point. Return the worker's address and the answer of the testbed that was sent; None if it is missing."""
    worker = get_worker()
    pool = worker.plugins.get(plugin_of(names))
    ready = pool is not None and not lacking(names[:2])
    return str(worker.address), await pool.answer(names, request) if ready else None
