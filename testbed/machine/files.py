"""The user's files, read to travel to a machine. What cannot be read is wrong input."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from testbed.errors import InputError, did_you_mean, nearest

LARGEST = 32 << 20
RUN = re.compile(r"[0-9]{8}-[0-9]{6}(-[0-9]+)?")
"""The name of a run directory (`runs.run_directory`)."""


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns what the system says of a path into an InputError."""
    try:
        yield
    except OSError as error:
        _refuse(error, path)


def read(file: Path) -> bytes:
    """What a file holds; it is LARGEST at most. Never waits: pipes and devices are refused."""
    with reading(file):
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError("is not a regular file", where=str(file))
        if status.st_size > LARGEST:
            raise InputError(f"the file is larger than {LARGEST >> 20} MiB", where=str(file))
        return file.read_bytes()


def below(root: Path) -> dict[str, bytes]:
    """Everything below a directory but what is hidden, compiled, or left by a run; by its path there."""
    found, total = [], 0
    for path in _paths(root):
        with reading(path):
            if not path.is_file():
                continue
            total += path.stat().st_size
        if total > LARGEST:
            raise InputError(f"the scenario's directory holds more than {LARGEST >> 20} MiB", where=str(root))
        found.append(path)
    return {str(path.relative_to(root)): read(path) for path in sorted(found)}


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
    """What is there under a path spelled most like `path`; None if a part of it is like nothing there."""
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
