"""The labs of this user that live: one directory each, which their keepers hold locked while they live.

A lab's directory has lab.json, which says what it is and in which state, the keeper's socket, and its log. It stays
when the keeper dies, so that whoever asks learns of it; `down` removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from testbed.errors import InputError, TestbedError, did_you_mean

State = Literal["starting", "up", "stopped", "ending", "dead"]
RECORD, SOCKET, LOG = "lab.json", "socket", "keeper.log"
NAME_BYTES = 63
KILLED = "its keeper was killed"


@dataclass(frozen=True)
class Lab:
    """What lab.json says. `since` is in seconds since 1970; `stopped_at` is where a run was stopped, in words."""

    name: str
    topology: str
    clock: str
    since: float
    pid: int
    version: str
    out: str
    state: State
    why: str = ""
    seed: int = 1

    @property
    def directory(self) -> Path:
        return root() / self.name

    def alive(self) -> bool:
        return self.state != "dead"

    def write(self) -> None:
        new = self.directory / f".{RECORD}"
        new.write_text(json.dumps(asdict(self)))
        new.replace(self.directory / RECORD)

    def now(self, state: State, why: str = "") -> Lab:
        """The same in another state, which is written."""
        changed = replace(self, state=state, why=why)
        changed.write()
        return changed


def root() -> Path:
    """Nobody but the user may look in."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    path = Path(base) / "testbed" / "labs"
    if not path.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir(0o700)
    return path


def read(name: str) -> Lab | None:
    """A lab by its name, dead if nobody keeps it; None if there is none."""
    directory = root() / name
    try:
        record: dict[str, Any] = json.loads((directory / RECORD).read_text())
        lab = Lab(**record)
    except (OSError, ValueError, TypeError):
        if not directory.is_dir() or kept(directory):
            return None
        return Lab(name, "", "", directory.stat().st_mtime, 0, "", "", "dead", "its record is damaged")
    if lab.alive() and not kept(directory):
        return replace(lab, state="dead", why=KILLED)
    return lab


def kept(directory: Path) -> bool:
    """Whether a keeper lives, which holds the directory locked."""
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(handle)


def every() -> list[Lab]:
    """All labs, the oldest first."""
    names = sorted(entry.name for entry in root().iterdir() if entry.is_dir())
    return sorted(filter(None, map(read, names)), key=lambda lab: lab.since)


def named(name: str) -> Lab:
    """The lab of that name, or the only one for no name; InputError, which says what there is, if that is not clear."""
    labs = every()
    there = f"There are: {', '.join(lab.name for lab in labs)}." if labs else "None is up: `testbed up FILE` makes one."
    if name:
        found = next((lab for lab in labs if lab.name == name), None)
        if found is None:
            hint = f"{did_you_mean(name, [lab.name for lab in labs])}{there}"
            raise InputError(f"there is no lab {name}", hint=hint)
        return found
    if len(labs) != 1:
        what = "there are several labs" if labs else "there is no lab"
        raise InputError(what, hint=f"Name one with --lab. {there}" if labs else there)
    return labs[0]


def living(name: str) -> Lab:
    """The same of one that lives."""
    lab = named(name)
    if not lab.alive():
        raise TestbedError(
            f"lab {lab.name} is dead: {lab.why}", hint=f"`testbed down {lab.name}` removes what is left."
        )
    return lab


@contextlib.contextmanager
def claimed(name: str) -> Iterator[int]:
    """The directory of a new lab, locked: the descriptor that holds it. InputError if there is a lab of that name."""
    directory = root() / name
    while True:
        try:
            directory.mkdir(0o700)
        except FileExistsError:
            lab = read(name)
            state = "is dead" if lab and not lab.alive() else "is there"
            hint = f"`testbed down {name}` ends it, or choose another name with --name."
            raise InputError(f"a lab {name} {state}", hint=hint) from None
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        break
    try:
        yield handle
    finally:
        os.close(handle)


def remove(lab: Lab) -> None:
    shutil.rmtree(lab.directory, ignore_errors=True)


def stamp() -> float:
    return round(time.time(), 3)
