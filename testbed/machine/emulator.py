"""The QEMU that runs machines: that of the image, which gives one trace on every x86-64 Linux, or this machine's.

The image's is a program of Debian with its libraries and firmware; its own loader starts it, so nothing of this machine
is used. TESTBED_QEMU chooses another one: `host`, or a path.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from testbed.errors import UnsupportedError
from testbed.machine import cache, image
from testbed.machine.image import Image

CHOICE, HOST = "TESTBED_QEMU", "host"
BINARY = "qemu-system-x86_64"
ARCHIVE, DIRECTORY = "qemu.tar", "qemu"
MEMBER = re.compile(r"(\./)?[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)?")
MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Emulator:
    """A QEMU. `command` are the words that start it, `identity` distinguishes it from others without running it."""

    command: tuple[str, ...]
    identity: str
    where: str
    """Its place, for people."""
    environment: Mapping[str, str] = field(default_factory=dict)


def chosen() -> str:
    """Return the user's choice; empty for the image's QEMU. QEMU of the image is a program for x86-64."""
    return os.environ.get(CHOICE) or ("" if platform.machine() == "x86_64" else HOST)


def require() -> None:
    """Raise UnsupportedError if this machine's QEMU is to be used and is not there."""
    if wanted := chosen():
        _of_machine(wanted)


def emulator() -> Emulator:
    """Return the QEMU to use. UnsupportedError if there is none."""
    wanted = chosen()
    if not wanted and (found := image.find()):
        return _of_image(found.path, str(found.manifest["files"][ARCHIVE]["sha256"]))
    return _of_machine(wanted)


def release() -> str:
    """Return the version with that of its package: `10.0.2 (Debian 1:10.0.2+ds-2)`. It may be replaced meanwhile."""
    return _release_of(emulator().identity)


def version() -> str:
    return release().split()[0]


def numbers(release: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, for comparison."""
    return tuple(int(part) for part in re.findall(r"\d+", release)[:2])


@functools.cache
def _release_of(_: str) -> str:
    command = [*emulator().command, "--version"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return printed.splitlines()[0].partition("version ")[2]


def _of_machine(wanted: str) -> Emulator:
    found = shutil.which(wanted if wanted and wanted != HOST else BINARY)
    if not found:
        hint = "Run: sudo apt-get install qemu-system-x86"
        if wanted and wanted != HOST:
            raise UnsupportedError(f"there is no program {wanted}", where=CHOICE, hint=f"{CHOICE}=host takes PATH's.")
        raise UnsupportedError(f"{BINARY} is not installed", hint=hint)
    path = Path(found).resolve()
    status = path.stat()
    return Emulator((found,), f"{path} {status.st_size} {status.st_mtime_ns}", found)


@functools.cache
def _of_image(path: Path, sha256: str) -> Emulator:
    place = unpacked(Image(path, {}))
    loader = (str(place / "lib" / "ld-linux-x86-64.so.2"), "--library-path", str(place / "lib"))
    command = (*loader, str(place / BINARY), "-L", str(place / "firmware"))
    return Emulator(command, sha256, "of the image", {"QEMU_MODULE_DIR": str(place / "modules")})


def unpacked(image: Image) -> Path:
    """Return the directory of an image's QEMU, unpacked from its archive at the first call."""
    place = image.path / DIRECTORY
    if not place.is_dir():
        with cache.locked(image.path):
            if not place.is_dir():
                with cache.making(place) as work:
                    _unpack(image.path / ARCHIVE, work)
    return place


def _unpack(archive: Path, work: Path) -> None:
    """Unpack the archive, which may come from somebody else: files below the directory, and nothing else."""
    left = MOST_BYTES
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isdir():
                continue
            left -= member.size
            named = MEMBER.fullmatch(member.name) and ".." not in member.name.split("/")
            if not (member.isfile() and named and left > 0):
                raise image.damaged("the image", f"{ARCHIVE} has {member.name!r}", archive.parent)
            target = work / member.name
            target.parent.mkdir(exist_ok=True)
            data = tar.extractfile(member)
            assert data
            with target.open("wb") as file:
                shutil.copyfileobj(data, file)
            target.chmod(0o755 if member.mode & 0o100 else 0o644)
