"""The memory files that pass a job bundle to a guest and its files back. guest/boot.py is the other end."""

import io
import json
import mmap
import os
import struct
import tarfile
import traceback
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from testbed.errors import DISK_FULL, InputError, MachineError, naming
from testbed.protocol import BUNDLE_BYTES, EVENTS, HOST_FILES, JOB, RESULT_BYTES, WIRE_BYTES, messages

IN_MAGIC = b"TBBUNDLE"
OUT_MAGIC = b"TBRESULT"
BLOCK = 4096
PROGRESS_END = 64 << 20
PULSE = PROGRESS_END - BLOCK
"""Offset of the counter that the guest's first process increments every 30 seconds of its time."""
ENTRY = struct.Struct("<cHQ")
"""Header of each file or directory that comes back: its kind, and the lengths of its name and contents in bytes."""
FILE, DIRECTORY, END = b"F", b"D", b"E"
MOST_ENTRIES = 100_000
FINISHED = 1


class Device:
    """An anonymous, sparse file of fixed size that QEMU maps as a pmem device: gone with its last user."""

    def __init__(self, name: str, magic: bytes, size: int) -> None:
        self.handle = os.memfd_create(name)
        os.truncate(self.handle, size)
        self.size = size
        self.map = mmap.mmap(self.handle, size)
        self._magic = magic
        self.map[: len(magic)] = magic

    def clear(self) -> None:
        """Empty the device; no running machine may have it mapped."""
        os.truncate(self.handle, 0)
        os.truncate(self.handle, self.size)
        self.map[: len(self._magic)] = self._magic

    @property
    def path(self) -> str:
        return f"/dev/fd/{self.handle}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.map.close()
        os.close(self.handle)


class Bundle(Device):
    """The device that a guest reads: a tar with job.json and the files of the job."""

    def __init__(self) -> None:
        super().__init__("testbed-bundle", IN_MAGIC, BUNDLE_BYTES)

    def write(self, job: Mapping[str, Any], files: Mapping[str, bytes], executable: Collection[str] = ()) -> None:
        """Write the tar as a function of its contents alone: no owner, no time, sorted names."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, data in sorted({**files, JOB: json.dumps(job, sort_keys=True).encode()}.items()):
                info = tarfile.TarInfo(name)
                if name.endswith("/"):  # a directory without files
                    info.type = tarfile.DIRTYPE
                info.size = len(data)
                info.mode = 0o755 if name in executable or info.isdir() else 0o644
                tar.addfile(info, io.BytesIO(data))
        data = buffer.getvalue()
        if BLOCK + len(data) > self.size - WIRE_BYTES:
            raise InputError(
                f"the files are too large: {len(data) >> 20} MiB of at most {(self.size - WIRE_BYTES) >> 20}"
            )
        self.map[8:16] = struct.pack("<Q", len(data))
        self.map[BLOCK : BLOCK + len(data)] = data


class Outcome(Device):
    def __init__(self) -> None:
        super().__init__("testbed-result", OUT_MAGIC, RESULT_BYTES)
        self._seen = 0
        self._rest = b""

    def _header(self) -> tuple[int, int, int]:
        return struct.unpack("<QQQ", self.map[8:32])

    @property
    def finished(self) -> bool:
        return self._header()[2] == FINISHED

    @property
    def pulse(self) -> int:
        """Return how many times the guest's first process has checked the job."""
        return int(struct.unpack_from("<Q", self.map, PULSE)[0])

    def progress(self) -> Iterator[dict[str, Any]]:
        """Yield the messages that came since the last call."""
        length = self._header()[1]
        if not self._seen <= length <= PULSE - BLOCK:
            raise MachineError(f"the length of the guest's progress is damaged: {length} after {self._seen}")
        data = self._rest + self.map[BLOCK + self._seen : BLOCK + length]
        self._seen = length
        *lines, self._rest = data.split(b"\n")
        for line in lines:
            yield messages.load(line)

    def rewind(self) -> None:
        """Read messages from the start again: the guest went back to an earlier moment and repeats what followed."""
        self._seen = min(self._seen, self._header()[1])
        self._rest = b""

    def extract(self, directory: Path) -> None:
        """Unpack the guest's files. It ran the user's code: MachineError for anything wrong in them, such as a
        file of the host."""
        if not self.finished:
            raise MachineError("the guest paused without returning its results")
        if self._rest:
            raise MachineError(f"the guest's progress is cut off: {self._rest[:80]!r}")
        length = self._header()[0]
        with memoryview(self.map) as whole, whole[PROGRESS_END : PROGRESS_END + length] as data:
            try:
                unpack(data, directory)
            except (ValueError, OSError) as error:
                traceback.clear_frames(error.__traceback__)  # they have parts of the map, which could not be closed
                if isinstance(error, OSError) and error.errno in DISK_FULL:
                    raise
                raise MachineError(f"the guest's results are damaged: {error}") from error


def unpack(data: memoryview, directory: Path) -> None:
    """Write the files of `data` below `directory`, never outside it; ValueError if they are invalid. The format is our
    own and not tar: the standard library has no time bound on a hostile tar."""
    directory.mkdir(parents=True, exist_ok=True)
    position = 0
    for _ in range(MOST_ENTRIES):
        if position + ENTRY.size > len(data):
            raise ValueError(f"there is no entry at byte {position}")
        kind, name_length, size = ENTRY.unpack_from(data, position)
        start = position + ENTRY.size + name_length
        if start + size > len(data):
            raise ValueError(f"the entry at byte {position} is longer than the data")
        if kind == END:
            return
        path = directory / inner(bytes(data[start - name_length : start]))
        if kind == DIRECTORY:
            path.mkdir(parents=True, exist_ok=True)
        elif kind == FILE:
            path.parent.mkdir(parents=True, exist_ok=True)
            again = path == directory / EVENTS  # the host has those of a live lab as they came: from the same guest
            with naming(path), path.open("wb" if again else "xb") as file:
                file.write(data[start : start + size])
        else:
            raise ValueError(f"the entry at byte {position} is of no known kind")
        position = start + size
    raise ValueError(f"there are more than {MOST_ENTRIES} entries")


def inner(name: bytes) -> str:
    """Return a path in a run's directory as a guest names it; ValueError for one that leads elsewhere."""
    text = os.fsdecode(name)
    if "\0" in text or any(part in ("", ".", "..") for part in text.split("/")):
        raise ValueError(f"{text!r} cannot be a file of a run")
    if text.partition("/")[0] in HOST_FILES:
        raise ValueError(f"{text!r} is a file of the host")
    return text
