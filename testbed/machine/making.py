"""Making of snapshots. The machine that makes one continues as the first that begins from it: after an edit of the code
a run costs what importing the edited code does, and its trace equals that of any other run."""

import asyncio
import os
import shutil
from collections import ChainMap
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from testbed.errors import MachineError, TestbedError
from testbed.machine import cache, child_processes, qemu, snapshot
from testbed.machine import image as images
from testbed.machine.image import Image
from testbed.machine.memory_files import Bundle, Outcome
from testbed.machine.moments import Opened
from testbed.machine.qemu import Flavour
from testbed.machine.ram import PAGE, Ram
from testbed.machine.recipe import PYTHON
from testbed.machine.snapshot import Snapshot
from testbed.protocol import COMPILE

T = TypeVar("T")
Log = Callable[[str], None]
VIRTUAL = Flavour("virtual")
BOOT_LIMIT_S = 300.0
BYTECODE = "bytecode"
KEEP_BYTECODE = 3000
"""Compiled files kept, of 13 kilobytes each."""
COMPILER = "executor/bytecode.py"
SUFFIX = f".cpython-{PYTHON.replace('.', '')}.pyc"


_ahead: dict[str, asyncio.Task[tuple[Opened | None, AsyncExitStack]]] = {}
"""Machines that make a snapshot, by its key, for the first user of it."""


@contextmanager
def event_loop(*, ahead: bool) -> Iterator[Callable[[Coroutine[Any, Any, T]], T]]:
    """Yield `asyncio.run` for a command that plans a run and then executes it. With `ahead`, virtual-clock snapshots
    that an edit made stale are made meanwhile; errors are raised where the machine begins."""
    with asyncio.Runner() as runner:
        with suppress(TestbedError, OSError):
            if ahead and (found := images.find()):
                boot, *_, source = snapshot.stack(found, VIRTUAL)
                if boot.usable() and not source.usable():
                    making = make_locked(found, VIRTUAL, source, lambda _: None)
                    _ahead[source.key] = runner.get_loop().create_task(making)
        try:
            yield runner.run
        finally:
            runner.run(_end_ahead())


async def _end_ahead() -> None:
    while _ahead:
        _, task = _ahead.popitem()
        task.cancel()
        with suppress(TestbedError, OSError, asyncio.CancelledError):
            _, machine = await task
            await machine.aclose()


async def ensure(image: Image, flavour: Flavour, source: Snapshot, log: Log) -> None:
    """Make the snapshot and those below it, where missing."""
    if source.missing():
        async with begun(image, flavour, source, log):
            pass


@asynccontextmanager
async def begun(image: Image, flavour: Flavour, source: Snapshot, log: Log) -> AsyncIterator[Opened]:
    """Yield a machine paused at the snapshot. If that is missing the machine makes it first, with those below; other
    commands and tasks wait until it is there."""
    if ahead := _ahead.pop(source.key, None):
        log(source.text)
    opened, machine = await (ahead or make_locked(image, flavour, source, log))
    async with machine:
        if opened is None:
            opened = await machine.enter_async_context(Opened(image, flavour, source))
            await opened.begin()
        yield opened


async def make_locked(
    image: Image, flavour: Flavour, source: Snapshot, log: Log
) -> tuple[Opened | None, AsyncExitStack]:
    """Make the snapshot if it is missing. Return the machine that made it, if any, and the stack that ends it."""
    async with AsyncExitStack() as stack:
        opened = None
        if source.missing():
            async with cache.locked_async(cache.directory(snapshot.PLACE)):
                if missing := source.missing():
                    opened = await make(image, flavour, missing, log, stack)
        return opened, stack.pop_all()


async def make(
    image: Image, flavour: Flavour, missing: list[Snapshot], log: Log, stack: AsyncExitStack
) -> Opened | None:
    """Make snapshots that stand on each other. Return the last one's machine, unless it is the first that boots."""
    lowest = missing[0].below
    if lowest is None:
        lowest = missing.pop(0)
        image.verify()
        log(lowest.text)
        await boot(image, flavour, lowest)
    if not missing:
        return None
    bytecode = await compiled(image, flavour, missing, log)
    opened = await stack.enter_async_context(Opened(image, flavour, lowest))
    await opened.begin()
    for target in missing:
        log(target.text)
        await advance(opened, target, bytecode)
    return opened


async def boot(image: Image, flavour: Flavour, target: Snapshot) -> None:
    """Make the lowest snapshot: the machine at its first pause."""
    with (
        snapshot.created(target) as handle,
        Bundle() as bundle,
        Outcome() as outcome,
        snapshot.memory(qemu.MEMORY) as ram,
        snapshot.memory(0) as devices,
    ):
        shared = qemu.Ram(ram, shared=True)
        async with snapshot.running(image, flavour, None, shared, bundle, outcome, devices) as machine:
            await snapshot.pause_within(machine, BOOT_LIMIT_S)
            await snapshot.copy_data(ram, handle)
            os.pwrite(handle, await snapshot.devices_of(machine, devices), snapshot.OFFSET)


async def advance(opened: Opened, target: Snapshot, bytecode: Mapping[str, bytes]) -> None:
    """Run a machine up to the snapshot, and save it as that. The machine's RAM is on the file of one below: the new
    file is a copy of that one, with the changed pages."""
    with snapshot.created(target) as handle:
        copying = asyncio.ensure_future(snapshot.copy_data(opened.handle, handle))
        try:
            await install(opened, target.job, target.files, bytecode)
            await opened.settle(None)
            await copying
        finally:
            copying.cancel()
        ram = Ram(opened.machine.process.pid, opened.handle)
        for page, data in ram.pages(ram.changed()):
            os.pwrite(handle, data, page * PAGE)
        os.pwrite(handle, await opened.devices_state(), snapshot.OFFSET)
    opened.forget()


async def install(
    opened: Opened, job: Mapping[str, str], files: Mapping[str, bytes], bytecode: Mapping[str, bytes] = {}
) -> None:
    """Let a paused machine install files and call a function of theirs, up to its next pause."""
    own = {place_of(name): bytecode[name] for name in files if name in bytecode}
    opened.bundle.write(job, {**files, **own})
    await opened.machine.command("cont")
    await snapshot.pause_within(opened.machine, BOOT_LIMIT_S)
    for message in opened.outcome.progress():
        if "crash" in message:
            raise MachineError(f"the guest could not load testbed:\n{message['crash']}")


def place_of(name: str) -> str:
    """Return the path where Python looks for the bytecode of a file."""
    path = Path(name)
    return str(path.parent / "__pycache__" / f"{path.stem}{SUFFIX}")


async def compiled(image: Image, flavour: Flavour, targets: list[Snapshot], log: Log) -> dict[str, bytes]:
    """Return the bytecode of the snapshots' files, by name; a file that cannot be compiled has none: the import reports
    why. Compiling is most of the work of an import, and a file's bytecode does not depend on what was compiled before:
    it is cached, and made in its own machine."""
    compiler = snapshot.inside([COMPILER])
    digest = str(image.manifest["digest"])
    keys = {
        name: cache.digest(digest, name, source, *compiler.values())
        for target in targets
        for name, source in target.files.items()
        if name.endswith(".py")
    }
    place = cache.directory(BYTECODE)
    if missing := {name: key for name, key in keys.items() if not (place / key).exists()}:
        every = ChainMap(*(dict(target.files) for target in targets))
        files = {f"sources/{name}": every[name] for name in missing}
        lowest = targets[0]
        while lowest.below:
            lowest = lowest.below
        if not lowest.usable():  # others were used since, and it was the oldest one
            log(lowest.text)
            await boot(image, flavour, lowest)
        async with Opened(image, flavour, lowest) as opened:
            await opened.begin()
            await install(opened, {"call": COMPILE, "install": "/run/testbed/bytecode"}, {**files, **compiler})
            with child_processes.scratch(place) as directory:
                opened.outcome.extract(directory)
                for name, key in missing.items():
                    with suppress(FileNotFoundError):
                        (directory / name).rename(place / key)
    found = {}
    for name, key in keys.items():
        if (path := place / key).exists():
            os.utime(path)
            found[name] = path.read_bytes()
    cache.prune(place, KEEP_BYTECODE)
    return found


def clear() -> None:
    for place in snapshot.PLACE, BYTECODE:
        for path in (cache.root() / place).glob("*"):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
