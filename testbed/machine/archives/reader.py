"""Image archives, tars or directories: a file whose name has its digest is checked while it is read."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import stat
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from testbed.errors import InputError
from testbed.machine import files
from testbed.protocol.messages import first_problem

CHUNK = 1 << 20
MOST_JSON = 16 << 20
NAMED = re.compile(r"(?:.*/sha256/)?([0-9a-f]{64})(?:\.json)?")
"""A blob of an OCI layout, or the configuration in what older versions of `docker save` wrote."""
Model = TypeVar("Model", bound=BaseModel)


class Store(Protocol):
    """The files of an archive by their names."""

    def open(self, name: str) -> IO[bytes] | None:
        """Return the contents of a file, None where there is none of this name."""


class TarStore:
    """Files of a tar. A link leads to another file of the tar, and nowhere else."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._members = {member.name.removeprefix("./"): member for member in tar}

    def open(self, name: str) -> IO[bytes] | None:
        with contextlib.suppress(KeyError):  # a link to a file that is not there
            return self._tar.extractfile(self._members[name])
        return None


class DirectoryStore:
    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def open(self, name: str) -> IO[bytes] | None:
        path = (self._root / name).resolve()
        return path.open("rb") if path.is_relative_to(self._root) and path.is_file() else None


class Archive:
    """An open archive. InputError, with the file in it, if something is wrong; `hint` is how to get another one."""

    def __init__(self, store: Store, where: str, hint: str) -> None:
        self._store = store
        self.where = where
        self._hint = hint

    def damaged(self, what: str) -> InputError:
        return InputError(f"the image is damaged: {what}", where=self.where, hint=self._hint)

    def has(self, name: str) -> bool:
        file = self._store.open(name)
        if file:
            file.close()
        return file is not None

    @contextlib.contextmanager
    def checked(self, name: str) -> Iterator[io.BufferedReader[_Hashed]]:
        """Yield the contents of a file. If its name has a digest, they are checked against it at the end."""
        file = self._store.open(name)
        if file is None:
            raise self.damaged(f"{name} is missing")
        with file:
            hashed = _Hashed(file)
            reader = io.BufferedReader(hashed, CHUNK)
            yield reader
            while reader.read(CHUNK):
                pass
        named = NAMED.fullmatch(name)
        if named and hashed.state.hexdigest() != named[1]:
            raise self.changed(name)

    def changed(self, name: str) -> InputError:
        return self.damaged(f"the contents of {name} do not match its digest")

    def read(self, name: str) -> bytes:
        with self.checked(name) as file:
            data = file.read(MOST_JSON + 1)
            if len(data) > MOST_JSON:
                raise self.damaged(f"{name} has more than {MOST_JSON >> 20} MiB")
        return data

    def parse(self, name: str, model: type[Model]) -> Model:
        return self.parse_contents(name, self.read(name), model)

    def parse_contents(self, name: str, data: bytes, model: type[Model]) -> Model:
        """Parse the contents of a small JSON file."""
        try:
            return model.model_validate_json(data)
        except ValidationError as error:
            raise self.damaged(f"{name} is invalid: {first_problem(error)}") from None


class _Hashed(io.RawIOBase):
    """A file that is read from start to end, and hashed."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.state = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self.state.update(data)
        return len(data)


@contextlib.contextmanager
def opened(path: Path, hint: str) -> Iterator[Archive]:
    """Open the archive in a tar, compressed by gzip or not, or in a directory."""
    if path.is_dir():
        yield Archive(DirectoryStore(path), str(path), hint)
        return
    with files.reading(path):
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError("is neither a file nor a directory", where=str(path))
        file = path.open("rb")
    try:
        with file, tarfile.open(fileobj=file, mode="r:*") as tar:
            yield Archive(TarStore(tar), str(path), hint)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        why = str(error).partition(":\n")[0]  # a line for each kind of compression follows
        text = f"the image is damaged: the file is cut off or is not a tar: {why}"
        raise InputError(text, where=str(path), hint=hint) from None


def size(path: Path) -> int:
    found = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in found if file.is_file())
