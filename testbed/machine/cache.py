"""The user's cache directory: everything in it is complete, or is not there.

An unfinished file has no name (O_TMPFILE) and an unfinished directory is locked by its maker, so a killed maker leaves
nothing that looks like a result; the next one removes it. Locks are flocks on directories: they vanish with their
holder.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path

from testbed.errors import DISK_FULL, UnsupportedError
from testbed.machine import child_processes

MAKING = "making-"
WAITING: ContextVar[Callable[[str], None]] = ContextVar("waiting", default=lambda _: None)  # a function
"""What gets the line that names the process for which this one waits."""
REPORT_S = 1.0
LOCK_WORDS, MOST_COMMAND = 5, 80
OWN = "Set XDG_CACHE_HOME to one of your own directories."
LARGER_DISK = "Free some space there, or set XDG_CACHE_HOME to a larger disk."


def root() -> Path:
    """Return the directory of the cache, which may not exist. UnsupportedError for that of another user: machines
    would run what it has."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    path = Path(base) / "testbed"
    with contextlib.suppress(OSError):
        if path.stat().st_uid not in (0, os.geteuid()):
            raise UnsupportedError("this cache belongs to another user", where=str(path), hint=OWN)
    return path


def directory(name: str) -> Path:
    """Return a directory of the cache. UnsupportedError if it cannot be made."""
    path = root() / name
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        raise UnsupportedError(f"the cache cannot be made: {error.strerror}", where=str(path), hint=OWN) from None
    return path


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Lock the directory `path` against other processes. Wait for its holder, or raise BlockingIOError."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise
            WAITING.get()(waiting_for(path))
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def held(path: Path) -> int:
    """Hold the directory `path` until this process ends, or the returned handle is closed: `locked` fails meanwhile.
    FileNotFoundError if it was removed."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    return handle


def waiting_for(path: Path) -> str:
    """Return in words that a directory is locked, with the process that holds it if it is one of this user."""
    here = path.stat()
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] == "FLOCK" and len(words) > LOCK_WORDS and words[5].endswith(f":{here.st_ino}"):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{words[4]}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                return f"wait for another testbed, process {words[4]}: {command.strip()[:MOST_COMMAND]}"
    return f"wait for another testbed, which works in {path}"


@contextlib.asynccontextmanager
async def locked_async(path: Path) -> AsyncIterator[None]:
    """Lock the directory without blocking the event loop, whose own tasks may hold the lock."""
    reported = time.monotonic() + REPORT_S
    with contextlib.ExitStack() as stack:
        while True:
            try:
                stack.enter_context(locked(path, wait=False))
                break
            except BlockingIOError:
                if time.monotonic() > reported:
                    reported = float("inf")
                    WAITING.get()(waiting_for(path))
                await asyncio.sleep(0.05)
        yield


@contextlib.contextmanager
def making(place: Path) -> Iterator[Path]:
    """Yield a directory that is renamed to `place` when the block succeeds. First remove what killed makers left."""
    with child_processes.scratch(place.parent, MAKING) as path:
        path.chmod(0o755)
        yield path
        shutil.rmtree(place, ignore_errors=True)
        path.rename(place)


def publish(handle: int, path: Path) -> None:
    """Give the finished, nameless file its name."""
    path.unlink(missing_ok=True)
    # With a handle in src_dir_fd os.link uses linkat, which follows the symbolic link in /proc.
    os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle)


def prune(parent: Path, keep: int) -> None:
    """Remove the least recently written or touched files until `keep` are left."""
    for path in by_use(path for path in parent.iterdir() if path.is_file())[:-keep]:
        path.unlink(missing_ok=True)


def by_use(paths: Iterable[Path]) -> list[Path]:
    """Return paths, the least recently written or touched one first. What is of the future, because the clock was set
    back, counts as the oldest: else all that is made until then would be removed at once."""
    now = time.time() + 1  # a file system may round up
    times = {}
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # another command removed it
            times[path] = path.lstat().st_mtime
    return sorted(times, key=lambda path: times[path] if times[path] <= now else -times[path])


def require_space(path: Path, needed: int, what: str) -> None:
    """Raise UnsupportedError if `path` has less than `needed` bytes of free space."""
    free = shutil.disk_usage(path).free
    if free < needed:
        text = f"{what} needs {needed / 1e9:.1f} GB and {path} has {free / 1e9:.1f} GB free"
        raise UnsupportedError(text, hint=LARGER_DISK)


def digest(*parts: bytes | str) -> str:
    """Return the SHA-256 over the parts, each with its length, as 64 hex digits."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogateescape") if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
