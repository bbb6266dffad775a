"""Warm starts: a machine saved at an exact instruction, and restored from there in a fraction of a second.

Snapshots stand on each other. The lowest holds the kernel and the third-party packages; the highest also holds this
version of testbed, imported. An edit of the code remakes only the highest, in a few seconds. Between the two there is
one in which torch is imported, for training jobs, and one in which Docker is up, for labs with containers.

A snapshot is one sparse file: the guest's RAM, a header, the state of the devices. A machine that is restored maps the
RAM copy-on-write, so nothing is read that it does not use, and machines side by side share what they do not change.
"""

from __future__ import annotations

import errno
import functools
import itertools
import os
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from testbed.errors import MachineError, UnsupportedError
from testbed.machine import cache, qemu
from testbed.machine.devices import Bundle, Outcome
from testbed.machine.image import Image
from testbed.machine.patience import patiently, threads_of
from testbed.machine.qemu import Flavour, Qemu, Ram, StateError
from testbed.protocol import BUNDLE_BYTES, DOCKER, PREPARE, RESULT_BYTES, TORCH

PACKAGE = Path(__file__).parents[1]
OUTSIDE = ("machine", "cli", "report", "metrics", "shipped")
"""Packages the guest never imports: an edit there makes no new snapshot."""
HEADER = struct.Struct("<8s64sQ")
ICOUNT = b"\x0ctimer/icount\0\0\0\1"
"""The head of a section of QEMU's vmstate: the name with its length, and the version."""
COUNTS = struct.Struct(">qq")
"""In that section: the nanoseconds of virtual time beside the executed instructions, and these."""
TICK_NS = 4_000_000
"""The guest's tick (HZ=250): while a process runs, a timer expires within it."""
MAGIC = b"TBSNAP4\0"
OFFSET = qemu.MEMORY + 4096
"""The offset of the devices; the header is a page before that."""
TORCH_FILES = tuple(f"workload/jobs/{name}" for name in ("ranks.py", "shim.c", "flight.c", "shim.h"))
DOCKER_FILES = tuple(f"lab/docker/{name}" for name in ("daemon.py", "runtime.sh"))
KEEP = 8
"""Snapshots kept, by last use; each is 300 to 900 MB."""
BOOT_LIMIT_S = 300.0
SPACE = 1_000_000_000
AGAIN = "Run the command again: it makes a new one."


@dataclass(frozen=True)
class Snapshot:
    """A machine in the cache; `job` and `files` make it of the one `below`, if any. `text` is what making it does."""

    key: str
    text: str = ""
    below: Snapshot | None = None
    job: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return cache.root() / "snapshots" / self.key[:24]

    def usable(self) -> bool:
        """Whole, and made for this very key: a file of another QEMU or image, or a cut one, is not."""
        try:
            with self.path.open("rb") as file:
                file.seek(qemu.MEMORY)
                magic, key, size = HEADER.unpack(file.read(HEADER.size))
            os.utime(self.path)
            return (magic, key.decode(), size) == (MAGIC, self.key, self.path.stat().st_size)
        except (OSError, struct.error, UnicodeDecodeError):
            return False

    @contextmanager
    def opened(self) -> Iterator[int]:
        """The open file to restore it from. One that QEMU cannot read is removed; the next run makes it anew."""
        try:  # for writing, because QEMU opens even what it maps copy-on-write so
            handle = os.open(self.path, os.O_RDWR)
        except FileNotFoundError:
            text = "the snapshot has been removed while this command ran"
            raise MachineError(text, where=str(self.path), hint=AGAIN) from None
        try:
            yield handle
        except StateError as error:
            self.path.unlink(missing_ok=True)
            text = f"the snapshot could not be restored and has been removed: {error.message}"
            raise MachineError(text, hint=AGAIN) from error
        finally:
            os.close(handle)


def stack(image: Image, flavour: Flavour, *, training: bool = False) -> list[Snapshot]:
    """The snapshots for this image, QEMU, clock and code, the lowest first."""
    statuses = [file.stat() for _, file in image.mounted()]
    command = qemu.command_line(image, flavour, Ram(0, shared=True), "bundle", "result", (BUNDLE_BYTES, RESULT_BYTES))
    key = cache.digest(
        image.digest,
        *(str(status.st_mtime_ns) for status in statuses),
        qemu.identity(),
        *command,
        str(flavour.cpus),
        MAGIC,
    )
    found = [Snapshot(key, "start the machine for the first time")]
    if image.containers:
        text = "start Docker in it, with the images of the containers"
        found.append(above(found[-1], text, DOCKER, "/run/testbed/docker", inside(DOCKER_FILES)))
    if training:
        found.append(above(found[-1], "import torch in it", TORCH, "/run/testbed/torch", inside(TORCH_FILES)))
    found.append(above(found[-1], "load this version of testbed into it", PREPARE, "/run/testbed/code", code_files()))
    return found


def above(below: Snapshot, text: str, call: str, directory: str, files: Mapping[str, bytes]) -> Snapshot:
    """The snapshot in which the function `call` of these files, installed in `directory`, has run."""
    key = cache.digest(below.key, *(part for item in files.items() for part in item))
    return Snapshot(key, text, below, {"call": call, "install": directory}, files)


def inside(names: Sequence[str]) -> Mapping[str, bytes]:
    """Files of the package by their names without directories."""
    return {Path(name).name: (PACKAGE / name).read_bytes() for name in names}


@functools.cache
def code_files() -> Mapping[str, bytes]:
    """The inside of the package, by its path in the guest, as it is when this command first asks."""
    files = (path for path in sorted(PACKAGE.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {
        f"testbed/{path.relative_to(PACKAGE)}": path.read_bytes()
        for path in files
        if path.relative_to(PACKAGE).parts[0] not in OUTSIDE
    }


def code_digest() -> str:
    return cache.digest(*(part for item in code_files().items() for part in item))


@asynccontextmanager
async def running(
    image: Image, flavour: Flavour, state: int | None, ram: Ram, bundle: Bundle, outcome: Outcome, *others: int
) -> AsyncIterator[Qemu]:
    """A QEMU that boots, or is paused with the state behind OFFSET of the file `state`; it inherits `others` too."""
    command = qemu.command_line(image, flavour, ram, bundle.path, outcome.path, (bundle.size, outcome.size))
    files = (ram.handle, bundle.handle, outcome.handle, *others)
    async with qemu.start(command, files=files, incoming=state is not None) as machine:
        if state is not None:
            os.lseek(state, OFFSET, os.SEEK_SET)
            await machine.load(state)
        yield machine


async def ensure(image: Image, flavour: Flavour, log: Callable[[str], None], *, training: bool = False) -> Snapshot:
    """The highest snapshot; made, with those below it, where they are missing."""
    found = stack(image, flavour, training=training)
    if not found[-1].usable():
        parent = cache.directory("snapshots")
        async with cache.locked_async(parent):
            missing = list(itertools.takewhile(lambda snapshot: not snapshot.usable(), reversed(found)))
            if len(missing) == len(found):
                image.verify()
            for snapshot in reversed(missing):
                log(snapshot.text)
                cache.require_space(parent, SPACE, "a snapshot")
                await take(image, flavour, snapshot)
            cache.prune(parent, KEEP)
    return found[-1]


async def take(image: Image, flavour: Flavour, target: Snapshot) -> None:
    """Saves the machine below at its next pause under `target`. Nothing of it has a name until it is whole."""
    handle = os.open(target.path.parent, os.O_RDWR | os.O_TMPFILE, 0o644)
    try:
        await save(image, flavour, target, handle)
        header = HEADER.pack(MAGIC, target.key.encode(), os.fstat(handle).st_size)
        os.pwrite(handle, header, qemu.MEMORY)
        cache.publish(handle, target.path)
    except (MachineError, OSError) as error:
        if os.strerror(errno.ENOSPC) not in str(error):
            raise
        text = f"the disk filled up while a snapshot was written; it needs {SPACE / 1e9:.1f} GB"
        raise UnsupportedError(text, where=str(target.path.parent), hint=cache.LARGER_DISK) from error
    finally:
        os.close(handle)


async def save(image: Image, flavour: Flavour, target: Snapshot, handle: int) -> None:
    """Writes the machine at its next pause to the open file `handle`."""
    base = target.below
    with (
        Bundle() as bundle,
        Outcome() as outcome,
        base.opened() if base else nullcontext() as state,
        memory(qemu.MEMORY) as ram,
        memory(0) as devices,
    ):
        if state is not None:
            bundle.write(target.job, target.files)
            copy_data(state, ram)
        async with running(image, flavour, state, Ram(ram, shared=True), bundle, outcome, devices) as machine:
            if state is not None:
                await machine.command("cont")
            await pause_within(machine, BOOT_LIMIT_S)
            for message in outcome.progress():
                if "crash" in message:
                    raise MachineError(f"the guest could not load testbed:\n{message['crash']}")
            copy_data(ram, handle)
            await machine.save(devices)
        os.pwrite(handle, settled(os.pread(devices, os.fstat(devices).st_size, 0)), OFFSET)


def settled(state: bytes) -> bytes:
    """The state of a machine's devices, its clock at the next timer.

    QEMU's main thread hears of a pause, and lets virtual time jump to the next timer if the vCPU has come to rest by
    then. Which of the two is first depends on the host, so a clock that has not jumped is set. The timer is the local
    APIC's, whose state has the time at which it expires twice in a row (next_time and timer_expiry).
    """
    place = state.find(ICOUNT) + len(ICOUNT)
    if place < len(ICOUNT):  # the real clock
        return state
    bias, executed = COUNTS.unpack_from(state, place)
    now = bias + executed
    pairs = (COUNTS.unpack_from(state, at) for at in range(place + COUNTS.size, len(state) - COUNTS.size))
    timers = [one for one, other in pairs if one == other and now <= one <= now + TICK_NS]
    if not timers:
        raise MachineError("the guest paused without a timer", hint="Report this with the output of `testbed doctor`.")
    return state[:place] + COUNTS.pack(min(timers) - executed, executed) + state[place + COUNTS.size :]


@contextmanager
def memory(size: int) -> Iterator[int]:
    """An open file of so many bytes in memory, gone with its last user."""
    handle = os.memfd_create("testbed")
    try:
        os.truncate(handle, size)
        yield handle
    finally:
        os.close(handle)


def copy_data(source: int, target: int) -> None:
    """Copies the RAM from one open file to another, holes as holes."""
    end = 0
    while end < qemu.MEMORY:
        try:
            start = os.lseek(source, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # no data from here on
                return
            raise
        end = min(os.lseek(source, start, os.SEEK_HOLE), qemu.MEMORY)
        os.lseek(target, start, os.SEEK_SET)
        while start < end:
            start += os.sendfile(target, source, start, end - start)


async def pause_within(machine: Qemu, seconds: float) -> None:
    """Waits for the guest's pause, which takes `seconds` with a CPU at most."""

    async def look() -> None: ...

    try:
        await patiently(machine.paused(look, lambda: seconds), seconds, threads_of(machine.process.pid))
    except TimeoutError:
        text = f"the guest did not come to its pause in {seconds:g} s. Its last output:\n{machine.last_output()}"
        raise MachineError(text) from None


def clear() -> None:
    for path in (cache.root() / "snapshots").glob("*"):
        path.unlink(missing_ok=True)
