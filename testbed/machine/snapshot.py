"""Warm starts: a machine saved at an exact instruction, and restored from there in a fraction of a second.

Two snapshots stand on each other. The boot snapshot holds the kernel and the third-party packages; the code snapshot,
made from it, also
holds this version of testbed, imported. An edit of the code remakes only the second, in a few seconds.
"""

from __future__ import annotations

import os
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import MachineError
from testbed.machine import cache, qemu
from testbed.machine.image import Image
from testbed.machine.parcel import Errand, Outcome
from testbed.machine.qemu import Flavour, Qemu
from testbed.protocol import PREPARE

PACKAGE = Path(__file__).parents[1]
OUTSIDE = ("machine", "cli")
"""Rooms the guest never imports: an edit there makes no new snapshot."""
HEADER = struct.Struct("<8s64sQ")
MAGIC = b"TBSNAP1\0"
OFFSET = 4096
KEEP = 6
"""Snapshots kept, by last use; each is about 250 MB."""
BOOT_LIMIT_S = 300
SPACE = 600_000_000


@dataclass(frozen=True)
class Snapshot:
    key: str

    @property
    def path(self) -> Path:
        return cache.root() / "snapshots" / self.key[:24]

    def usable(self) -> bool:
        """Whole, and made for this very key: a file of another QEMU or image, or a cut one, is not."""
        try:
            with self.path.open("rb") as file:
                magic, key, size = HEADER.unpack(file.read(HEADER.size))
            os.utime(self.path)
            return (magic, key.decode(), size) == (MAGIC, self.key, self.path.stat().st_size)
        except (OSError, struct.error, UnicodeDecodeError):
            return False

    def open(self) -> int:
        handle = os.open(self.path, os.O_RDONLY)
        os.lseek(handle, OFFSET, os.SEEK_SET)
        return handle


def code_files() -> dict[str, bytes]:
    """The inside of the package, by its path in the guest."""
    files = (path for path in sorted(PACKAGE.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {
        f"testbed/{path.relative_to(PACKAGE)}": path.read_bytes()
        for path in files
        if path.relative_to(PACKAGE).parts[0] not in OUTSIDE
    }


def boot_key(image: Image, flavour: Flavour) -> str:
    status = image.file("root.erofs").stat()
    command = qemu.command_line(image, flavour, "parcel", "result", (0, 0))
    return cache.digest(
        image.digest, f"{status.st_mtime_ns} {status.st_ino}", qemu.identity(), *command, str(flavour.cpus), MAGIC
    )


def code_key(boot: str, files: dict[str, bytes]) -> str:
    return cache.digest(boot, *(part for item in files.items() for part in item))


@asynccontextmanager
async def running(
    image: Image, flavour: Flavour, snapshot: Snapshot | None, errand: Errand, outcome: Outcome
) -> AsyncIterator[Qemu]:
    """A machine restored from `snapshot` and still paused, or booting where there is none."""
    sizes = errand.size, outcome.size
    command = qemu.command_line(image, flavour, errand.path, outcome.path, sizes)
    async with qemu.start(command, files=(errand.handle, outcome.handle), incoming=snapshot is not None) as machine:
        if snapshot:
            handle = snapshot.open()
            try:
                await machine.load(handle)
            except MachineError as error:
                snapshot.path.unlink(missing_ok=True)
                raise MachineError(
                    "the snapshot could not be restored; it has been removed",
                    hint="Run the command again: it makes a new one.",
                ) from error
            finally:
                os.close(handle)
        yield machine


async def ensure(image: Image, flavour: Flavour, say: Callable[[str], None]) -> Snapshot:
    """The code snapshot for this image, QEMU, clock and code; made, with the one below it, where it is missing."""
    files = code_files()
    boot = Snapshot(boot_key(image, flavour))
    code = Snapshot(code_key(boot.key, files))
    if code.usable():
        return code
    parent = cache.directory("snapshots")
    async with cache.locked_async(parent):
        if not boot.usable():
            say("start the machine for the first time")
            cache.require_space(parent, SPACE, "a snapshot")
            image.verify()
            await take(image, flavour, None, boot, {}, {})
        if not code.usable():
            say("load this version of testbed into it")
            cache.require_space(parent, SPACE, "a snapshot")
            job = {"call": PREPARE, "install": "/run/testbed/code"}
            await take(image, flavour, boot, code, job, files)
        prune(parent)
    return code


async def take(
    image: Image,
    flavour: Flavour,
    base: Snapshot | None,
    target: Snapshot,
    job: Mapping[str, object],
    files: Mapping[str, bytes],
) -> None:
    """Lets the machine run to its next pause, then saves it under `target`. Nothing of it has a name until it is
    whole."""
    errand, outcome = Errand(), Outcome()
    try:
        if base:
            errand.write(job, files)
        async with running(image, flavour, base, errand, outcome) as machine:
            if base:
                await machine.command("cont")
            end = time.monotonic() + BOOT_LIMIT_S
            await machine.paused(lambda: time.monotonic() > end, 0.05)
            if base:
                raise_error(outcome)
            handle = os.open(target.path.parent, os.O_RDWR | os.O_TMPFILE, 0o644)
            try:
                os.lseek(handle, OFFSET, os.SEEK_SET)
                await machine.save(handle)
                os.pwrite(handle, HEADER.pack(MAGIC, target.key.encode(), os.fstat(handle).st_size), 0)
                publish(handle, target.path)
            finally:
                os.close(handle)
    finally:
        errand.close()
        outcome.close()


def raise_error(outcome: Outcome) -> None:
    with tempfile.TemporaryDirectory(prefix="testbed-") as directory:
        outcome.extract(Path(directory))
        error = Path(directory) / "error.txt"
        if error.exists():
            raise MachineError(f"the guest could not load testbed:\n{error.read_text()}")


def publish(handle: int, path: Path) -> None:
    """Gives the finished, nameless file its name."""
    path.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:  # a directory handle makes os.link use linkat, which follows the symbolic link in /proc
        os.link(f"/proc/self/fd/{handle}", path.name, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        os.close(directory)


def prune(parent: Path) -> None:
    """Forgets the snapshots not used for longest."""
    files = sorted(
        (path for path in parent.iterdir() if path.is_file()), key=lambda path: path.stat().st_mtime, reverse=True
    )
    for path in files[KEEP:]:
        path.unlink(missing_ok=True)


def clear() -> None:
    for path in (cache.root() / "snapshots").glob("*"):
        path.unlink(missing_ok=True)
