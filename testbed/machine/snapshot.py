"""Warm starts: a machine saved at an exact instruction, and restored from there in a fraction of a second.

Snapshots stand on each other. The lowest holds the kernel and the third-party packages; the highest also holds this
version of testbed, imported, and the one below it the parts of testbed below labs (BASE). An edit of the code remakes
the snapshot with that code and those above, usually the highest alone: see making.py. Between them and the lowest there
is one in which torch is imported, for training jobs, and one in which Docker is up, for labs with containers.

A snapshot is one sparse file: the guest's RAM, a header, the state of the devices. A restored machine maps the RAM
copy-on-write, so only used pages are read, and machines side by side share what they do not change.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import os
import struct
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from testbed.errors import MachineError, UnsupportedError
from testbed.machine import cache, emulator, qemu
from testbed.machine.image import Image
from testbed.machine.memory_files import Bundle, Outcome
from testbed.machine.patience import patiently, threads_of
from testbed.machine.qemu import Flavour, Qemu, Ram, StateError
from testbed.protocol import BEGIN, BUNDLE_BYTES, COMPLETE, DOCKER, RESULT_BYTES, TORCH

PACKAGE = Path(__file__).parents[1]
OUTSIDE = ("machine", "cli", "report", "metrics", "shipped")
"""Packages the guest never imports: an edit there makes no new snapshot."""
BASE = tuple(
    f"testbed/{name}"
    for name in (
        "__init__.py", "errors.py", "stages.py", "version.py", "documents/", "kernel/", "nic/", "protocol/",
        "topology/", "cni/__init__.py", "cni/installed.py", "cni/ipam/", "cni/objects/", "cni/spec/",
    )
)  # fmt: skip
"""Packages that labs stand on: an edit elsewhere leaves a snapshot with these."""
HEADER = struct.Struct("<8s64sQ")
ICOUNT = b"\x0ctimer/icount\0\0\0\1"
"""Head of a section of QEMU's vmstate: the name with its length, and the version."""
COUNTS = struct.Struct(">qq")
"""Contents of that section: nanoseconds of virtual time in addition to the executed instructions, and these."""
TICK_NS = 4_000_000
"""The guest's tick (HZ=250): while a process runs, a timer expires within it."""
MAGIC = b"TBSNAP4\0"
OFFSET = qemu.MEMORY + 4096
"""Offset of the devices; the header is a page before that."""
_PYTHON = "fork_server.py", "process_group.py", "gloo_calls.py", "flight_file.py"
TORCH_FILES = tuple(f"workload/jobs/{name}" for name in (*_PYTHON, "shim.c", "flight.c", "orders.c", "shim.h"))
DOCKER_FILES = tuple(f"lab/docker/{name}" for name in ("daemon.py", "runtime.sh"))
PIECE = 8 << 20
"""Bytes copied at a time."""
PLACE = "snapshots"
KEEP = 12
"""Snapshots kept, by last use; each is 300 to 900 MB."""
BOOT_LIMIT_S = 300.0
SPACE = 1_000_000_000
AGAIN = "Run the command again: it makes a new one."


@dataclass(frozen=True)
class Snapshot:
    """A machine in the cache, made by `job` and `files` from the one `below`, if any. `text` names the making."""

    key: str
    text: str = ""
    below: Snapshot | None = None
    job: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return cache.root() / PLACE / self.key[:24]

    def usable(self) -> bool:
        """Return True if the file is complete and for this very key: one of another QEMU or image is not."""
        try:
            with self.path.open("rb") as file:
                file.seek(qemu.MEMORY)
                magic, key, size = HEADER.unpack(file.read(HEADER.size))
            os.utime(self.path)
            return (magic, key.decode(), size) == (MAGIC, self.key, self.path.stat().st_size)
        except (OSError, struct.error, UnicodeDecodeError):
            return False

    def missing(self) -> list[Snapshot]:
        """Return this one and those below it, the lowest first, down to one that is usable."""
        if self.usable():
            return []
        return [*(self.below.missing() if self.below else ()), self]

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Yield the open file to restore it from. One that QEMU cannot read is removed; the next run makes it anew."""
        try:  # for writing, because QEMU opens even what it maps copy-on-write so
            handle = os.open(self.path, os.O_RDWR)
        except FileNotFoundError:
            text = "the snapshot was removed while this command ran"
            raise MachineError(text, where=str(self.path), hint=AGAIN) from None
        try:
            yield handle
        except StateError as error:
            self.path.unlink(missing_ok=True)
            text = f"the snapshot could not be restored and was removed: {error.message}"
            raise MachineError(text, hint=AGAIN) from error
        finally:
            os.close(handle)


def stack(image: Image, flavour: Flavour, *, training: bool = False) -> list[Snapshot]:
    """Return the snapshots for this image, QEMU, clock and code, the lowest first."""
    command = qemu.command_line(image, flavour, Ram(0, shared=True), "bundle", "result", (BUNDLE_BYTES, RESULT_BYTES))
    times = [str(file.stat().st_mtime_ns) for _, file in image.mounted()]
    key = cache.digest(image.digest, *times, emulator.emulator().identity, *command, str(flavour.cpus), MAGIC)
    found = [Snapshot(key, "start the machine for the first time")]
    if image.containers:
        text = "start Docker in it, with the images of the containers"
        found.append(above(found[-1], text, DOCKER, "/run/testbed/docker", inside(DOCKER_FILES)))
    if training:
        found.append(above(found[-1], "import torch in it", TORCH, "/run/testbed/torch", inside(TORCH_FILES)))
    base = {name: data for name, data in code_files().items() if name.startswith(BASE)}
    rest = {name: data for name, data in code_files().items() if name not in base}
    found.append(above(found[-1], "load the packages below labs into it", BEGIN, "/run/testbed/code", base))
    found.append(above(found[-1], "load this version of testbed into it", COMPLETE, "/run/testbed/rest", rest))
    return found


def above(below: Snapshot, text: str, call: str, directory: str, files: Mapping[str, bytes]) -> Snapshot:
    """Return the snapshot in which the function `call` of these files, installed in `directory`, has run."""
    key = cache.digest(below.key, *(part for item in files.items() for part in item))
    return Snapshot(key, text, below, {"call": call, "install": directory}, files)


def inside(names: Sequence[str]) -> Mapping[str, bytes]:
    """Return files of the package by their names without directories."""
    return {Path(name).name: (PACKAGE / name).read_bytes() for name in names}


@functools.cache
def code_files() -> Mapping[str, bytes]:
    """Return the inside of the package, by its path in the guest, as it is when this command first asks."""
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
    """Run a QEMU that boots, or is paused with the state after OFFSET in the file `state`; it inherits `others` too."""
    command = qemu.command_line(image, flavour, ram, bundle.path, outcome.path, (bundle.size, outcome.size))
    files = (ram.handle, bundle.handle, outcome.handle, *others)
    async with qemu.start(command, files=files, incoming=state is not None) as machine:
        if state is not None:
            os.lseek(state, OFFSET, os.SEEK_SET)
            await machine.load(state)
        yield machine


@contextmanager
def created(target: Snapshot) -> Iterator[int]:
    """Yield the open file of a new snapshot. It has no name until the block succeeds."""
    parent = cache.directory(PLACE)
    cache.require_space(parent, SPACE, "a snapshot")
    handle = os.open(parent, os.O_RDWR | os.O_TMPFILE, 0o644)
    try:
        yield handle
        header = HEADER.pack(MAGIC, target.key.encode(), os.fstat(handle).st_size)
        os.pwrite(handle, header, qemu.MEMORY)
        cache.publish(handle, target.path)
        cache.prune(parent, KEEP)
    except (MachineError, OSError) as error:
        if os.strerror(errno.ENOSPC) not in str(error):
            raise
        text = f"the disk filled up while a snapshot was written; it needs {SPACE / 1e9:.1f} GB"
        raise UnsupportedError(text, where=str(parent), hint=cache.LARGER_DISK) from error
    finally:
        os.close(handle)


async def devices_of(machine: Qemu, scratch: int) -> bytes:
    """Return a paused machine's device state, as a snapshot has it; `scratch` is a file that QEMU also has open."""
    os.ftruncate(scratch, 0)
    await machine.save(scratch)
    return settled(os.pread(scratch, os.fstat(scratch).st_size, 0))


def settled(state: bytes) -> bytes:
    """Return the state of a machine's devices with its clock at the next timer.

    QEMU's main thread learns of a pause, and lets virtual time jump to the next timer if the vCPU is already at rest.
    Which of the two is first depends on the host, so a clock that has not jumped is set. The timer is the local APIC's,
    whose state has the expiry time twice in a row (next_time and timer_expiry).
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
    """Yield an open file of so many bytes in memory, gone with its last user."""
    handle = os.memfd_create("testbed")
    try:
        os.truncate(handle, size)
        yield handle
    finally:
        os.close(handle)


async def copy_data(source: int, target: int) -> None:
    """Copy the RAM from one open file to another, holes as holes, piece by piece."""
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
            start += os.sendfile(target, source, start, min(PIECE, end - start))
            await asyncio.sleep(0)


async def pause_within(machine: Qemu, seconds: float) -> None:
    """Wait for the guest's pause, which takes `seconds` with a CPU at most."""

    async def look() -> None: ...

    try:
        await patiently(machine.paused(look, lambda: seconds), seconds, threads_of(machine.process.pid))
    except TimeoutError:
        text = f"the guest did not reach its pause within {seconds:g} s. Its last output:\n{machine.last_output()}"
        raise MachineError(text) from None
