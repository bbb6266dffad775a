"""What workers of a Dask cluster are asked to do: to keep what is sent, and to call the testbed that was sent.

These functions travel by value and import the standard library alone: a worker may have another testbed. What is sent
once has a name with its digest, and is in the cache of the worker's user: workers on one host share it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path


def place() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(base) / "testbed" / "workers"
    path.mkdir(parents=True, exist_ok=True)
    return path


def whereabouts() -> tuple[str, str]:
    """The host and the cache: workers with the same ones share what is sent."""
    return socket.gethostname(), str(place())


def lacking(names: Sequence[str]) -> list[str]:
    return [name for name in names if not (place() / name).exists()]


def receive(part: str, offset: int, data: bytes) -> None:
    """Take a part of a file that has no name yet; `part` names it until `finish`."""
    handle = os.open(place() / part, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        with os.fdopen(handle, "wb", closefd=False) as file:
            file.seek(offset)
            file.write(data)
    except OSError:
        (place() / part).unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


async def finish(part: str, name: str, digest: str) -> None:
    """Give a file its name, once it is whole; a zip becomes a directory."""
    await asyncio.to_thread(_finish, place() / part, place() / name, digest)


def _finish(part: Path, path: Path, digest: str) -> None:
    try:
        with part.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise ValueError(f"{path.name} was damaged on its way")
        if not zipfile.is_zipfile(part):
            part.rename(path)
        elif not path.exists():
            work = Path(tempfile.mkdtemp(dir=path.parent, prefix="making-"))
            zipfile.ZipFile(part).extractall(work)
            try:
                work.rename(path)
            except OSError:  # another sweep was first
                shutil.rmtree(work)
    finally:
        part.unlink(missing_ok=True)


def call(code: str, arguments: Sequence[str], given: bytes = b"") -> bytes:
    """Call the testbed that was sent, in a process that ends with this one; what it answers."""
    for name in (code, *arguments):
        if (place() / name).exists():
            os.utime(place() / name)
    command = ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-P", "-m", "testbed.machine.sweeps.worker"]
    environment = {**os.environ, "PYTHONPATH": str(place() / code)}
    done = subprocess.run(
        [*command, *arguments], cwd=place(), env=environment, input=given, capture_output=True, check=False
    )
    if done.returncode:
        wrote = done.stderr.decode(errors="replace").strip()
        raise RuntimeError(f"testbed ended with status {done.returncode} on {socket.gethostname()}:\n{wrote}")
    return done.stdout


async def call_aside(code: str, arguments: Sequence[str]) -> bytes:
    """The same without keeping the worker from what else it does."""
    return await asyncio.to_thread(call, code, arguments)


def run(code: str, work: str, arguments: Sequence[str], given: bytes) -> tuple[str, bytes | None]:
    """Run a point. The worker's address, and what the testbed that was sent answered; None if it is not there."""
    from distributed import get_worker

    address = str(get_worker().address)
    if lacking([code, work]):
        return address, None
    return address, call(code, ["run", work, *arguments], given)
