"""Functions that workers of a Dask cluster call, to store what is sent.

They travel by value and import the standard library alone: a worker may have another testbed. What is sent once has a
name with its digest, and is in the cache of the worker's user: workers on one host share it.
"""

import asyncio
import hashlib
import os
import shutil
import socket
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
    """Return the host and the cache: workers with the same ones share what is sent."""
    return socket.gethostname(), str(place())


def lacking(names: Sequence[str]) -> list[str]:
    return [name for name in names if not (place() / name).exists()]


def receive(part: str, offset: int, data: bytes) -> None:
    """Receive a part of a file that has no name yet; `part` names it until `finish`."""
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
    """Give a file its name, once it is complete; a zip becomes a directory."""
    await asyncio.to_thread(_finish, place() / part, place() / name, digest)


def _finish(part: Path, path: Path, digest: str) -> None:
    try:
        with part.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise ValueError(f"{path.name} was damaged during the transfer")
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
