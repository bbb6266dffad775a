"""The workers of a Dask cluster as the machines of a sweep.

A host gets testbed's code, the scenario and the image once, by their digests; each run is a task that calls that code
in a process of the worker (worker_processes.py). If a worker dies, Dask starts its tasks again on another one.
"""

from __future__ import annotations

import asyncio
import io
import logging
import mmap
import pickle
import re
import shlex
import zipfile
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import cloudpickle
import distributed
from distributed.comm import CommClosedError
from distributed.scheduler import KilledWorker

from testbed.errors import DISK_FULL, InputError, MachineError, TestbedError, UnsupportedError
from testbed.machine import cache, child_processes
from testbed.machine.archives.boot_image import export
from testbed.machine.image import Image
from testbed.machine.record import Identity, RunResult, digest
from testbed.machine.shipped import LOCK, PACKAGE
from testbed.machine.sweeps import answers, remote, worker_processes
from testbed.machine.sweeps.points import SCRATCH, OnResult, Point, Room, Work
from testbed.machine.sweeps.worker_processes import run as run_remotely
from testbed.machine.task_group import TaskGroup
from testbed.version import version

ADDRESS = re.compile(r"dask://([^/\s]+:\d+)/?")
W = TypeVar("W", Point, Sequence[str])
CONNECT_S = 20.0
CHUNK = 8 << 20
AHEAD = 2
"""Runs submitted for each thread of a worker, so that no thread waits for its next one."""
LOOK_S = 10.0
GONE = (CancelledError, CommClosedError, ConnectionError, TimeoutError)
"""The exceptions of Dask when the scheduler is no longer there."""

for module in remote, worker_processes:
    cloudpickle.register_pickle_by_value(module)


def address_of(engine: str) -> str:
    match = ADDRESS.fullmatch(engine)
    if match is None:
        raise InputError(f"--engine: {engine!r} is not of the form dask://HOST:PORT")
    return f"tcp://{match[1]}"


@asynccontextmanager
async def connected(
    engine: str, work: Work, image: Image, parent: Path, log: Callable[[str], None]
) -> AsyncIterator[Cluster]:
    """Connect to the Dask scheduler at ``dask://HOST:PORT``. What is left of runs is unpacked below `parent`."""
    address = address_of(engine)
    for name in "distributed", "distributed.client":
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = await distributed.Client(address, asynchronous=True, timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        hint = "Start one with `dask scheduler`, and workers with `dask worker HOST:PORT`."
        raise UnsupportedError(f"no Dask scheduler answers at {engine}", hint=hint) from error
    try:
        with child_processes.scratch(parent, SCRATCH) as scratch:
            yield Cluster(client, work, image, scratch, log)
    except GONE as error:
        hint = "When it is back, run the same command: it runs the rest."
        raise UnsupportedError(f"the Dask cluster at {engine} disappeared", hint=hint) from error
    finally:
        await client.close()


class Cluster:
    def __init__(self, client: Any, work: Work, image: Image, scratch: Path, log: Callable[[str], None]) -> None:
        self._client = client
        self._image = image
        self._scratch = scratch
        self._log = log
        self._code, self._work = code_file(), work_file(work)
        self._names = self._code.name, self._work.name, image.digest
        self._preparing: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._exporting = asyncio.Lock()

    async def identity(self) -> Identity:
        """Return the machines and the code of all workers. InputError if two differ."""
        found: dict[str, Identity] = {}
        while not found:
            async with TaskGroup() as group:
                workers = await self._workers()
                tasks = {address: group.create_task(self._prepare(address)) for address in workers}
            found = {address: identity for address, task in tasks.items() if (identity := task.result())}
        first = next(iter(found.values()))
        for address, other in found.items():
            if other != first:
                text = f"the workers have different versions of QEMU: {first.qemu} and {other.qemu}"
                raise InputError(text, where=address, hint="Install the same version of QEMU on all workers.")
        return first

    async def run(self, points: Iterable[Point], on_result: OnResult, room: Room) -> None:
        async def deliver(point: Point, address: str, result: RunResult, packed: bytes) -> None:
            await self._deliver(point, address, result, packed, on_result)

        await self._each(points, lambda point: ("run", point, room()), deliver)

    async def run_commands(
        self, commands: Iterable[Sequence[str]], on_printed: Callable[[Sequence[str], str], Awaitable[None]]
    ) -> None:
        """Run commands of the testbed that was sent, given by the words after its name, one on each thread. They get
        `--out` with a directory that is removed at their end."""

        async def deliver(words: Sequence[str], _: str, printed: str, __: bytes) -> None:
            await on_printed(words, printed)

        await self._each(commands, lambda words: ("command", *words), deliver)

    async def _each(
        self,
        work: Iterable[W],
        request_of: Callable[[W], tuple[Any, ...]],
        deliver: Callable[[W, str, Any, bytes], Awaitable[None]],
    ) -> None:
        """Have workers answer a request for each piece of work, and deliver the answers as they come."""
        waiting = deque(work)
        running: dict[Any, W] = {}
        while waiting or running:
            ahead = AHEAD * sum((await self._workers()).values())
            while waiting and len(running) < ahead:
                one = waiting.popleft()
                running[self._submit(request_of(one))] = one
            for future in await self._ended([*running]):
                one = running.pop(future)
                address, answer = await self._answer(future, one)
                if answer is None:
                    await self._prepare(address)
                    waiting.appendleft(one)
                else:
                    await deliver(one, address, *answer)

    def _submit(self, asked: tuple[Any, ...]) -> Any:
        names, request = self._names, pickle.dumps(asked)

        async def carry_out() -> tuple[str, bytes | None]:  # a function of a function travels by value
            return await run_remotely(names, request)

        return self._client.submit(carry_out, pure=False)

    async def _ended(self, futures: Sequence[Any]) -> Collection[Any]:
        while True:
            with suppress(TimeoutError):
                found = await distributed.wait(futures, return_when="FIRST_COMPLETED", timeout=LOOK_S)
                return list(found.done)
            await self._workers()

    async def _answer(self, future: Any, work: Point | Sequence[str]) -> tuple[str, tuple[Any, bytes] | None]:
        """Return the worker and its answer; None from a host that lacks something."""
        try:
            address, answer = await future
        except KilledWorker as error:
            hint = "A run needs up to 1 GB: workers may not have enough memory."
            text = f"{named(work)}: every worker that ran it died"
            raise TestbedError(text, hint=hint) from error
        except RuntimeError as error:
            raise TestbedError(str(error)) from error
        if not answer:
            return address, None
        kind, result, packed = answers.read(answer, address)
        return address, None if kind == "lacks" else (result, packed)

    async def _deliver(self, point: Point, address: str, result: RunResult, packed: bytes, on_result: OnResult) -> None:
        directory = None
        if packed:
            directory = self._scratch / uuid4().hex
            await asyncio.to_thread(answers.unpack, packed, directory, address)
        await on_result(point, result, directory)

    async def _workers(self) -> Mapping[str, int]:
        """Return the threads of each worker, by its address. Wait for the first one."""
        while not (found := await self._client.nthreads()):
            self._log("the cluster has no worker: wait for one")
            await asyncio.sleep(1)
        return dict(found)

    async def _prepare(self, address: str) -> Identity | None:
        """Send what the host of a worker lacks. Return the identity of its runs; None if the worker is gone."""
        try:
            where = await self._ask(address, remote.whereabouts)
            async with self._preparing[where]:
                return await self._prepare_host(address, where[0])
        except (ConnectionError, CommClosedError, TimeoutError):
            if self._client.status != "running":
                raise
            return None

    async def _prepare_host(self, address: str, host: str) -> Identity:
        needed = {one.name: one for one in (self._code, self._work)}
        for name in await self._ask(address, remote.lacking, [*needed]):
            self._log(f"send {name.partition('-')[0]} to {host}")
            await self._send(address, needed[name])
        identity = await self._identity(address, "prepare")
        if identity is None:
            async with self._exported() as exported:
                self._log(f"send the image to {host}, {len(exported.data) / 1e6:.0f} MB")
                await self._send(address, exported)
            identity = await self._identity(address, "image", exported.name)
        if identity is None:
            raise MachineError("the worker has no image, right after it was sent", where=address)
        return identity

    async def _identity(self, address: str, *request: str) -> Identity | None:
        """Return a worker's answer to a request; None if it lacks something."""
        kind, found, _ = answers.read(await self._call(address, *request), address)
        return found if kind == "identity" else None

    @asynccontextmanager
    async def _exported(self) -> AsyncIterator[HostFile]:
        """Yield the image with its layer as a file that can be imported."""
        path = self._scratch / "image.tar"
        async with self._exporting:
            if not path.exists():
                base, layer = replace(self._image, layer=None), self._image.layer
                await asyncio.to_thread(export, base, path, [layer] if layer else [])
        digest = path.with_name(f"{path.name}.sha256").read_text().split()[0]
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            yield HostFile(f"sent-{digest}.tar", digest, data)

    async def _send(self, address: str, one: HostFile) -> None:
        part = f"part-{uuid4().hex}"
        for offset in range(0, len(one.data), CHUNK):
            await self._ask(address, remote.receive, part, offset, one.data[offset : offset + CHUNK])
        await self._ask(address, remote.finish, part, one.name, one.digest)

    async def _call(self, address: str, action: str, *arguments: str) -> bytes:
        request = pickle.dumps((action, *arguments))
        answer: bytes = await self._ask(address, worker_processes.prepare, self._names, request)
        return answer

    async def _ask(self, address: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            found = await self._client.run(function, *arguments, workers=[address])
        except OSError as error:
            if error.errno in DISK_FULL:
                text = "the worker's disk is full: it needs space for the image and testbed's code"
                raise UnsupportedError(text, where=address, hint=cache.LARGER_DISK) from error
            raise
        except (RuntimeError, ValueError) as error:
            raise TestbedError(str(error), where=address) from error
        if address not in found:
            raise CommClosedError(f"{address} is gone")
        return found[address]


def named(work: Point | Sequence[str]) -> str:
    return f"{work.label} with seed {work.seed}" if isinstance(work, Point) else shlex.join(["testbed", *work])


@dataclass(frozen=True)
class HostFile:
    """A file for hosts of a cluster. On them `name` is that of a file, or of a directory for a zip."""

    name: str
    digest: str
    data: bytes | mmap.mmap

    @classmethod
    def of(cls, kind: str, data: bytes) -> HostFile:
        return cls(f"{kind}-{digest(data)}", digest(data), data)


def code_file() -> HostFile:
    """Return this testbed as a zip, the same bytes for the same code: files beside the package that machines need are
    where an installed one has them."""
    names = (path.relative_to(PACKAGE) for path in sorted(PACKAGE.rglob("*")) if path.is_file())
    files = {f"testbed/{name}": (PACKAGE / name).read_bytes() for name in names if not _left_out(name.parts)}
    files["testbed/shipped/requirements.lock"] = LOCK.read_bytes()
    files["pyproject.toml"] = f'[project]\nversion = "{version()}"\n'.encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
    return HostFile.of("code", packed.getvalue())


def _left_out(parts: tuple[str, ...]) -> bool:
    return parts[0] == "shipped" or "__pycache__" in parts


def work_file(asked: Work) -> HostFile:
    return HostFile.of("work", pickle.dumps(asked))
