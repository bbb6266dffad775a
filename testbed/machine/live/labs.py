"""The running labs of this user: one directory each, which their keepers hold locked while they live.

A lab's directory has lab.json with its description and state, the keeper's socket, and its log. It stays when the
keeper dies, so that later commands report it; `down` removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from testbed.errors import DISK_FULL, InputError, TestbedError, UnsupportedError, did_you_mean
from testbed.version import version

Recorded = Literal["starting", "up", "stopped", "ending", "dead"]
RECORD, SOCKET, LOG = "lab.json", "socket", "keeper.log"
PEER = struct.Struct("3i")
"""Process, user and group at the other end of a socket: struct ucred."""
KEEPER = "testbed.machine.live.keeper"
"""The module that a keeper runs."""
LOOK_S = 0.02
KILLED = "its keeper was killed"
DAMAGED = "its record is damaged"
ELSEWHERE = "Set XDG_STATE_HOME to one of your own directories."


@dataclass(frozen=True)
class Lab:
    """Contents of lab.json. `since` is seconds since 1970, `pid` the keeper, `metrics` the scraped address and port."""

    name: str
    topology: str
    clock: str
    since: float
    pid: int
    version: str
    out: str
    state: Recorded
    why: str = ""
    seed: int = 1
    metrics: str = ""

    @classmethod
    def starting(cls, name: str, topology: str, clock: str, seed: int, out: Path, metrics: str) -> Lab:
        return cls(name, topology, clock, stamp(), 0, version(), str(out), "starting", seed=seed, metrics=metrics)

    @property
    def directory(self) -> Path:
        return root() / self.name

    def alive(self) -> bool:
        return self.state != "dead"

    def write(self) -> None:
        new = self.directory / f".{RECORD}"
        new.write_text(json.dumps(asdict(self)))
        new.replace(self.directory / RECORD)

    def now(self, state: Recorded, why: str = "") -> Lab:
        """Write the record with another state, and return it."""
        changed = replace(self, state=state, why=why)
        changed.write()
        return changed


def root() -> Path:
    """Return the directory of labs, which only the user may read."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    path = Path(base) / "testbed" / "labs"
    with writable(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(0o700)
        if path.stat().st_uid != os.geteuid():
            raise UnsupportedError("this directory belongs to another user", where=str(path), hint=ELSEWHERE)
    return path


@contextlib.contextmanager
def writable(path: Path) -> Iterator[None]:
    """Raise UnsupportedError when the block cannot write there."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        where = str(error.filename or path)
        raise UnsupportedError(f"labs cannot use it: {error.strerror}", where=where, hint=ELSEWHERE) from None


@contextlib.contextmanager
def locked(how: int) -> Iterator[Path]:
    """Yield the directory of labs, in which no lab is added or removed during the block."""
    path = root()
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, how)
        yield path
    finally:
        os.close(handle)


def read(name: str) -> Lab | None:
    """Return a lab by its name, dead if it has no keeper; None if there is none."""
    with locked(fcntl.LOCK_SH) as directory:
        return _read(directory / name)


def _read(directory: Path) -> Lab | None:
    if not directory.is_dir():
        return None
    lives = kept(directory)
    try:
        record: dict[str, Any] = json.loads((directory / RECORD).read_text())
        lab = _of(record, directory.name)
    except (OSError, ValueError, TypeError):
        state: Recorded = "up" if lives else "dead"
        return Lab(directory.name, "", "", round(directory.stat().st_mtime, 3), 0, "", "", state, DAMAGED)
    if lab.alive() and not lives:
        return replace(lab, state="dead", why=KILLED)
    return lab


def _of(record: dict[str, Any], name: str) -> Lab:
    """Build the lab of any version's record: ignore extra fields, leave missing ones empty. TypeError if invalid."""
    empty: dict[str, Any] = {"str": "", "int": 0, "float": 0.0, "Recorded": "up"}
    found = {}
    for one in fields(Lab):
        default = empty[str(one.type)] if one.default is MISSING else one.default
        found[one.name] = value = dict.get(record, one.name, default)
        if not isinstance(value, (int, float) if one.type == "float" else type(default)):
            raise TypeError(one.name)
    return Lab(**{**found, "name": name})


def kept(directory: Path) -> bool:
    """Return True if a keeper lives, which holds the directory locked."""
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(handle)


def every() -> list[Lab]:
    """Return all labs, the oldest first."""
    with locked(fcntl.LOCK_SH) as directory:
        found = [lab for path in sorted(directory.iterdir()) if (lab := _read(path))]
    return sorted(found, key=lambda lab: lab.since)


def named(name: str) -> Lab:
    """Return the lab of that name, or the only one for no name. InputError, with the existing labs, if unclear."""
    labs = every()
    there = (
        f"There are: {', '.join(lab.name for lab in labs)}." if labs else "None is up: `testbed up FILE` starts one."
    )
    if name:
        found = next((lab for lab in labs if lab.name == name), None)
        if found is None:
            hint = f"{did_you_mean(name, [lab.name for lab in labs])}{there}"
            raise InputError(f"lab {name} does not exist", hint=hint)
        return found
    if len(labs) != 1:
        what = "several labs are up" if labs else "no lab is up"
        raise InputError(what, hint=f"Name one with --lab. {there}" if labs else there)
    return labs[0]


def living(name: str) -> Lab:
    """Return the lab of that name, as `named` does, if it lives."""
    lab = named(name)
    if not lab.alive():
        raise TestbedError(f"lab {lab.name} is dead: {lab.why}", hint=f"`testbed down {lab.name}` removes its remains.")
    return lab


def require_free(name: str) -> None:
    """Raise InputError if there is a lab of that name."""
    if lab := read(name):
        state = "is there" if lab.alive() else "is dead"
        hint = f"`testbed down {name}` {'ends' if lab.alive() else 'removes'} it, or choose another name with --name."
        raise InputError(f"a lab {name} {state}", hint=hint)


@contextlib.contextmanager
def claimed(lab: Lab) -> Iterator[int]:
    """Create the locked directory of a new lab with its record, and yield the descriptor that holds it. InputError if
    there is a lab of that name; nothing is left if the block fails."""
    with locked(fcntl.LOCK_EX), writable(lab.directory):
        handle = _made(lab)
    if handle is None:
        require_free(lab.name)
        raise InputError(f"a lab {lab.name} has just gone", hint="Try again.")
    try:
        yield handle
    except BaseException:
        remove(lab)
        raise
    finally:
        os.close(handle)


def _made(lab: Lab) -> int | None:
    """Create both under the lock, so that no lab appears without its record. None if there is one of that name."""
    try:
        lab.directory.mkdir(0o700)
    except FileExistsError:
        return None
    handle = os.open(lab.directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        lab.write()
    except BaseException:
        os.close(handle)
        shutil.rmtree(lab.directory, ignore_errors=True)
        raise
    return handle


def keeper(lab: Lab) -> int | None:
    """Return the keeper's process, which holds the lab's directory open; None if it has gone."""
    try:
        here = lab.directory.stat()
    except FileNotFoundError:
        return None
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if KEEPER.encode() in (process / "cmdline").read_bytes():
                for handle in (process / "fd").iterdir():
                    if os.path.samestat(handle.stat(), here):
                        return int(process.name)
    return None


def wait_dead(lab: Lab, within: float) -> bool:
    """Wait until the keeper of a lab is gone, for so many seconds."""
    deadline = time.monotonic() + within
    while kept(lab.directory):
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_S)
    return True


def remove(lab: Lab) -> None:
    with locked(fcntl.LOCK_EX):
        shutil.rmtree(lab.directory, ignore_errors=True)


@contextlib.contextmanager
def _near(lab: Lab) -> Iterator[str]:
    """Yield a short path of a lab's socket: the limit is 107 bytes."""
    handle = os.open(lab.directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{SOCKET}"
    finally:
        os.close(handle)


def reachable(lab: Lab) -> bool:
    """Return False if the socket of a keeper that listens was removed."""
    return lab.state == "starting" or (lab.directory / SOCKET).exists()


def listener(lab: Lab) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    with _near(lab) as path:
        made.bind(path)
    return made


def connected(lab: Lab) -> socket.socket:
    """Return a connection to a lab's keeper. OSError if it has gone."""
    made = socket.socket(socket.AF_UNIX)
    try:
        with _near(lab) as path:
            made.connect(path)
    except OSError:
        made.close()
        raise
    return made


def stamp() -> float:
    return round(time.time(), 3)
