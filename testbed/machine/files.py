"""The user's files, read to be sent to a machine. An unreadable file is an input error."""

import contextlib
import errno
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

from testbed.errors import DISK_FULL, InputError, did_you_mean, nearest
from testbed.protocol import FILES_BYTES

SMALLER = "Remove the debug information of a program: `strip`, or `go build -ldflags '-s -w'`."
RUN = re.compile(r"[0-9]{8}-[0-9]{6}(-[0-9]+)?")
"""The name of a run directory (`runs.run_directory`)."""


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn a system error about a path into an InputError."""
    try:
        yield
    except OSError as error:
        _refuse(error, path)


@contextlib.contextmanager
def writing(path: Path, hint: str = "") -> Iterator[None]:
    """Turn a system error about a path that the user named into an InputError, but for a disk that is full or
    read-only."""
    try:
        yield
    except OSError as error:
        if error.errno in (*DISK_FULL, errno.EROFS):
            raise
        raise InputError(f"cannot be written: {error.strerror}", where=str(path), hint=hint) from None


def read(file: Path) -> bytes:
    """Read a file of FILES_BYTES at most. Never wait: pipes and devices are refused."""
    with reading(file):
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError("is not a regular file", where=str(file))
        if status.st_size > FILES_BYTES:
            text = f"the file has {-(-status.st_size >> 20)} MiB; a machine accepts {FILES_BYTES >> 20} MiB"
            raise InputError(text, where=str(file), hint=SMALLER)
        return file.read_bytes()


def shown(file: Path) -> str:
    """Return the name of a file for `read_or_input` in messages."""
    return "standard input" if str(file) == "-" else str(file)


def read_or_input(file: Path) -> bytes:
    """Read a file, or standard input if it is ``-``."""
    if str(file) != "-":
        return read(file)
    data = sys.stdin.buffer.read(FILES_BYTES + 1)
    if len(data) > FILES_BYTES:
        raise InputError(f"standard input has more than {FILES_BYTES >> 20} MiB", hint=SMALLER)
    return data


def below(root: Path) -> dict[str, bytes]:
    """Return the files below a directory by relative path; none that is hidden, compiled or a run's. Follow links."""
    found: dict[Path, int] = {}
    total = 0
    for path in _paths(root):
        with reading(path):
            if not path.is_file():
                continue
            found[path] = path.stat().st_size
        total += found[path]
        if total > FILES_BYTES:
            biggest = max(found, key=lambda one: found[one])
            raise InputError(
                f"the directory has more than {FILES_BYTES >> 20} MiB, the limit for a copy to a machine",
                where=str(root),
                hint=f"{biggest.relative_to(root)} has {found[biggest] >> 20} MiB. {SMALLER}",
            )
    return {str(path.relative_to(root)): read(path) for path in sorted(found)}


def executable(root: Path, names: Iterable[str]) -> list[str]:
    """Return those of the files `names` below `root` that somebody can execute."""
    return [name for name in names if can_be_executed(root / name)]


def can_be_executed(file: Path) -> bool:
    with reading(file):
        return bool(file.stat().st_mode & 0o111)


def _paths(root: Path) -> Iterator[Path]:
    for directory, directories, files in os.walk(root, onerror=lambda error: _refuse(error, Path(error.filename))):
        here = Path(directory)
        runs = (here / "latest").is_symlink()
        directories[:] = [
            name
            for name in directories
            if name != "__pycache__" and not name.startswith(".") and not (runs and RUN.fullmatch(name))
        ]
        yield from (here / name for name in files if not name.startswith("."))


def nearest_path(path: Path) -> Path | None:
    """Return the existing path spelled most like `path`; None if a part of it resembles nothing there."""
    there = Path(path.anchor)
    for part in path.parts[1 if path.anchor else 0 :]:
        step = there / part
        if not step.exists():
            try:
                name = nearest(part, os.listdir(there))
            except OSError:
                return None
            if name is None:
                return None
            step = there / name
        there = step
    return there


def _refuse(error: OSError, path: Path) -> NoReturn:
    if isinstance(error, FileNotFoundError):
        near = nearest_path(path)
        hint = did_you_mean(str(path), [str(near)] if near else []).strip()
        raise InputError("no such file", where=str(path), hint=hint) from None
    raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
