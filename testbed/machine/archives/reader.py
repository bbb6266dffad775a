"""Image archives, tars or directories: a file whose name has its digest is checked while it is read."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import io
import lzma
import re
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from testbed.errors import InputError
from testbed.machine import files
from testbed.protocol.messages import first_problem

CHUNK = 1 << 20
MOST_JSON = 16 << 20
MOST_HEADER = 1 << 20
"""Bytes of one read while a tar is listed: of a long name, or of a pax header."""
MOST_READS = 1 << 15
"""Reads while a tar is listed: two or three for each of its files."""
RATIO, SPARE = 100, 64 << 20
"""Compressed contents have at most RATIO times their bytes, and SPARE more. Those of a layer have 2 to 20 times."""
COMPRESSED: dict[bytes, Callable[[Any], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
DAMAGE = tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile
"""Errors of tarfile and the decompressors."""
NAMED = re.compile(r"(?:.*/sha256/)?([0-9a-f]{64})(?:\.json)?")
"""A blob of an OCI layout, or the configuration in what older versions of `docker save` wrote."""
Model = TypeVar("Model", bound=BaseModel)


class Store(Protocol):
    """The files of an archive by their names."""

    def open(self, name: str) -> IO[bytes] | None:
        """Return the contents of a file, None where there is none of this name."""


class TarStore:
    """Files of a tar. A link leads to another file of the tar, and nowhere else. ReadError for a tar that has more than
    an image needs: tarfile itself has no bounds."""

    def __init__(self, file: IO[bytes], packed: int) -> None:
        bounded = _Bounded(file, packed * RATIO + SPARE)
        try:
            self._tar: tarfile.TarFile = tarfile.open(fileobj=bounded, mode="r:")  # type: ignore[call-overload]  # noqa: SIM115
            self._members = {member.name.removeprefix("./"): member for member in self._tar if not member.issparse()}
        except (ValueError, OverflowError, RecursionError) as error:  # tarfile's, for what no tool writes
            raise tarfile.ReadError(f"a header is invalid: {error}") from error
        bounded.listed = True

    def open(self, name: str) -> IO[bytes] | None:
        with contextlib.suppress(KeyError, RecursionError):  # a link to a file that is not there, or to itself
            return self._tar.extractfile(self._members[name])
        return None


class _Bounded:
    """A file that ends with ReadError what would need time or memory without bound."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._size, self._reads = file, size, 0
        self.listed = False

    def read(self, size: int) -> bytes:
        self._reads += not self.listed
        if self._reads > MOST_READS or (size > MOST_HEADER and not self.listed):
            what = "files" if self._reads > MOST_READS else "bytes in a header"
            raise tarfile.ReadError(f"it has more {what} than an image has")
        if self._file.tell() + size > self._size + tarfile.RECORDSIZE:
            raise tarfile.ReadError(f"its contents have more than {self._size >> 20} MiB, {RATIO} times its size")
        return self._file.read(size)

    def seek(self, position: int) -> int:
        if not 0 <= position <= self._size:
            raise tarfile.ReadError(f"its contents have more than {self._size >> 20} MiB, {RATIO} times its size")
        return self._file.seek(position)

    def tell(self) -> int:
        return self._file.tell()


class DirectoryStore:
    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def open(self, name: str) -> IO[bytes] | None:
        try:
            path = (self._root / name).resolve()
            there = path.is_relative_to(self._root) and path.is_file()
        except (OSError, RuntimeError, ValueError):  # a name that no file has, or links that lead to each other
            return None
        with files.reading(path):
            return path.open("rb") if there else None


class Archive:
    """An open archive. InputError, with the file in it, if something is wrong; `hint` is how to get another one."""

    def __init__(self, store: Store, where: str, hint: str, packed: int) -> None:
        self._store = store
        self.where = where
        self.most = packed * RATIO + SPARE
        """Bytes that all its layers may have, unpacked."""
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
        self.size = 0
        """Bytes that were read."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self.state.update(data)
        self.size += len(data)
        return len(data)


@contextlib.contextmanager
def opened(path: Path, hint: str) -> Iterator[Archive]:
    """Open the archive in a tar, compressed by gzip or not, or in a directory."""
    if path.is_dir():
        yield Archive(DirectoryStore(path), str(path), hint, size(path))
        return
    with files.reading(path):
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError("is neither a file nor a directory", where=str(path))
        file = path.open("rb")
    try:
        with file, _unpacked(file) as contents:
            store = TarStore(contents, path.stat().st_size)
            yield Archive(store, str(path), hint, path.stat().st_size)
    except (*DAMAGE, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # bz2 has none for what it cannot unpack
            raise
        text = f"the image is damaged: the file is cut off or is not a tar: {error}"
        raise InputError(text, where=str(path), hint=hint) from None


def _unpacked(file: IO[bytes]) -> IO[bytes]:
    head = file.read(8)
    file.seek(0)
    found: IO[bytes] = next((opening(file) for magic, opening in COMPRESSED.items() if head.startswith(magic)), file)
    return found


def unpack(reader: io.BufferedReader[_Hashed], out: IO[bytes], most: int) -> None:
    """Write the contents that are compressed by gzip. ReadError if there are more than RATIO allows, or `most`."""
    stream = gzip.GzipFile(fileobj=reader)
    while data := stream.read(CHUNK):
        out.write(data)
        if out.tell() > min(most, reader.raw.size * RATIO + SPARE):
            raise tarfile.ReadError(f"it has more than {RATIO} times its bytes, or the image has")


def size(path: Path) -> int:
    found = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in found if file.is_file())
