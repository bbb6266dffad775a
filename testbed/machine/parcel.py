"""The two memory files through which a guest gets its errand and hands back what it made. guest/boot.py is the other
end."""

from __future__ import annotations

import io
import json
import mmap
import os
import shutil
import struct
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.errors import DISK_FULL, InputError, MachineError
from testbed.machine.local import record

IN_MAGIC = b"TBPARCEL"
OUT_MAGIC = b"TBRESULT"
BLOCK = 4096
PROGRESS_END = 64 << 20
IN_SIZE = 256 << 20
OUT_SIZE = 1 << 30
FINISHED, JUMPED, ABOUT = 1, 2, 3


class Parcel:
    """An anonymous file of fixed size that QEMU maps as a pmem device: gone with its last user, sparse until
    written."""

    def __init__(self, name: str, magic: bytes, size: int) -> None:
        self.handle = os.memfd_create(name)
        os.truncate(self.handle, size)
        self.size = size
        self.map = mmap.mmap(self.handle, size)
        self.map[: len(magic)] = magic

    @property
    def path(self) -> str:
        return f"/dev/fd/{self.handle}"

    def close(self) -> None:
        self.map.close()
        os.close(self.handle)


class Errand(Parcel):
    def __init__(self) -> None:
        super().__init__("testbed-parcel", IN_MAGIC, IN_SIZE)

    def write(self, job: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
        """The tar is a function of its contents alone: no owner, no time, sorted names."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, data in sorted({**files, "job.json": json.dumps(job, sort_keys=True).encode()}.items()):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        data = buffer.getvalue()
        if BLOCK + len(data) > self.size:
            raise InputError(f"the scenario's files are too large: {len(data) >> 20} MiB of at most {self.size >> 20}")
        self.map[8:16] = struct.pack("<Q", len(data))
        self.map[BLOCK : BLOCK + len(data)] = data


class Outcome(Parcel):
    def __init__(self) -> None:
        super().__init__("testbed-result", OUT_MAGIC, OUT_SIZE)
        self._seen = 0
        self._rest = b""

    def _header(self) -> tuple[int, int, int]:
        return struct.unpack("<QQQ", self.map[8:32])

    @property
    def finished(self) -> bool:
        return self._header()[2] == FINISHED

    @property
    def jumped(self) -> bool:
        """The machine comes from a snapshot in which time jumped while it was taken."""
        return self._header()[2] == JUMPED

    @property
    def about_to_pause(self) -> bool:
        """The guest spins for some tenths of a second and then pauses for a snapshot."""
        return self._header()[2] == ABOUT

    def progress(self) -> Iterator[dict[str, Any]]:
        """The records that came since the last call."""
        length = self._header()[1]
        if not self._seen <= length <= PROGRESS_END - BLOCK:
            raise MachineError(f"the length of the guest's progress is damaged: {length} after {self._seen}")
        data = self._rest + self.map[BLOCK + self._seen : BLOCK + length]
        self._seen = length
        *lines, self._rest = data.split(b"\n")
        for line in lines:
            yield record(line)

    def extract(self, directory: Path) -> None:
        """Unpacks what the guest left. The guest ran the user's code, so it may be anything: nothing lands outside
        `directory`, and whatever is wrong with it is a MachineError."""
        if not self.finished:
            raise MachineError("the guest paused without handing back its results")
        if self._rest:
            raise MachineError(f"the guest's progress is cut off: {self._rest[:80]!r}")
        data = self.map[PROGRESS_END : PROGRESS_END + self._header()[0]]
        try:
            unpack(data, directory)
        except Exception as error:  # a damaged tar makes tarfile raise nearly anything
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                raise
            raise MachineError(f"the guest's results are damaged: {error}") from error


def unpack(data: bytes, directory: Path) -> None:
    """Writes the files and directories of a tar below `directory`; not its links and devices, nor owners and modes.

    A name that leads out of `directory`, and an end before the end, is a tarfile.ReadError.
    """
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
        for member in tar:
            name = os.path.normpath(member.name)
            # Without end is what has a negative size (CVE-2025-8194), and what is sparse may be: it fills the disk.
            if name == ".." or name.startswith(("/", "../")) or member.size < 0 or member.issparse():
                raise tarfile.ReadError(f"{member.name!r} cannot be a file of a run")
            path = directory / name
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif member.isreg() and (content := tar.extractfile(member)):
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    shutil.copyfileobj(content, file)
        if data[tar.offset : tar.offset + tarfile.BLOCKSIZE] != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError(f"no header at byte {tar.offset}")
