"""The guest's process 1: waits in the snapshot, runs what a parcel asks for, hands the artefacts back, pauses again.

It speaks with the host through two pmem devices, a parcel in and a parcel out, and through the exact instruction at
which it pauses.
The guest reads and writes them with O_DIRECT, so nothing of them stays in a cache across a snapshot.

in   8 bytes magic, u64 length, then a tar from offset 4096: job.json and what the job needs
out  8 bytes magic, u64 length of the tar, u64 length of the progress, u64 finished, then from 4096 the progress (lines
of
     JSON) and from PROGRESS_END the tar of /run/testbed/out
"""

import fcntl
import importlib
import io
import json
import mmap
import os
import select
import shutil
import signal
import struct
import sys
import tarfile
import time
import traceback
from collections.abc import Callable
from typing import Any

Emit = Callable[[dict[str, Any]], None]
IN_MAGIC = b"TBPARCEL"
OUT_MAGIC = b"TBRESULT"
BLOCK = 4096
PROGRESS_END = 64 << 20
CHUNK = 1 << 20
PAUSE_PORT = 0x505
TICK_NS = 4_000_000
"""The kernel's tick (HZ=250), at multiples of it of CLOCK_MONOTONIC."""
PAUSE_NS = 500_000
"""More than the way to the port and back takes, less than the time to the next tick."""
SPIN = 200_000
"""Rounds, some 0.3 s of wall time on an emulated CPU."""
RUNNING, FINISHED, JUMPED, ABOUT = 0, 1, 2, 3
with open("/proc/cmdline") as _file:
    REAL_CLOCK = "testbed.clock=real" in _file.read()
"""Time passes there as it likes, and nothing has to be exact."""
IN = "/run/testbed/in"
OUT = "/run/testbed/out"
RNDRESEEDCRNG = 0x5207
WARM = (
    "pydantic",
    "pyroute2",
    "pytest",
    "pyverbs.cq",
    "pyverbs.device",
    "pyverbs.mr",
    "pyverbs.pd",
    "pyverbs.qp",
    "yaml",
)


class Pmem:
    """A pmem block device, read and written past the page cache in whole blocks."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_DIRECT)
        self.size = os.lseek(self.fd, 0, os.SEEK_END)
        self.buffer = mmap.mmap(-1, CHUNK)

    def read(self, offset: int, length: int) -> bytes:
        start = offset - offset % BLOCK
        end = -(-(offset + length) // BLOCK) * BLOCK
        out = bytearray()
        with memoryview(self.buffer) as view:
            while start + len(out) < end:
                count = os.preadv(self.fd, [view[: min(CHUNK, end - start - len(out))]], start + len(out))
                out += view[:count]
        return bytes(out[offset - start : offset - start + length])

    def write(self, offset: int, data: bytes) -> None:
        """`offset` and the length are multiples of a block."""
        for at in range(0, len(data), CHUNK):
            piece = data[at : at + CHUNK]
            self.buffer[: len(piece)] = piece
            with memoryview(self.buffer) as view:
                os.pwritev(self.fd, [view[: len(piece)]], offset + at)


class Result(io.RawIOBase):
    """The parcel out: progress while the job runs, then the tar, written front to back."""

    def __init__(self, pmem: Pmem) -> None:
        self.pmem = pmem
        self.tar = 0
        self.pending = bytearray()
        self.header(progress=0, state=RUNNING)

    def header(self, progress: int, state: int) -> None:
        fields = struct.pack("<8sQQQ", OUT_MAGIC, self.tar, progress, state)
        self.pmem.write(0, fields.ljust(BLOCK, b"\0"))

    def progress(self) -> int:
        length: int = struct.unpack("<Q", self.pmem.read(16, 8))[0]
        return length

    def emit(self, record: dict[str, Any]) -> None:
        """Shows one record to the host now. What does not fit is only not shown live: it is in the artefacts.

        The length is kept in the device, under a lock: the job's process and any it forks may have something to show.
        """
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        fcntl.lockf(self.pmem.fd, fcntl.LOCK_EX)
        try:
            length = self.progress()
            if BLOCK + length + len(line) <= PROGRESS_END:
                begun = length % BLOCK
                data = self.pmem.read(BLOCK + length - begun, begun) + line
                self.pmem.write(BLOCK + length - begun, data.ljust(-(-len(data) // BLOCK) * BLOCK, b"\0"))
                self.header(length + len(line), RUNNING)
        finally:
            fcntl.lockf(self.pmem.fd, fcntl.LOCK_UN)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.pending += data
        whole = len(self.pending) - len(self.pending) % BLOCK
        if whole >= CHUNK:
            self.flush_blocks(whole)
        return len(data)

    def flush_blocks(self, length: int) -> None:
        if PROGRESS_END + self.tar + length > self.pmem.size:
            raise OSError(f"the run's files do not fit the parcel out ({self.pmem.size >> 20} MiB)")
        self.pmem.write(PROGRESS_END + self.tar, bytes(self.pending[:length]))
        self.tar += length
        del self.pending[:length]

    def finish(self, directory: str) -> None:
        with tarfile.open(fileobj=self, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            tar.add(directory, arcname=".")
        self.pending += bytes(-len(self.pending) % BLOCK)
        self.flush_blocks(len(self.pending))
        self.header(self.progress(), FINISHED)


def empty(directory: str) -> None:
    for entry in list(os.scandir(directory)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def devices() -> tuple[Pmem, Pmem]:
    """The parcel in and the parcel out, told apart by their magic."""
    found = {}
    for name in sorted(os.listdir("/dev")):
        if name.startswith("pmem"):
            pmem = Pmem("/dev/" + name)
            found[pmem.read(0, 8)] = pmem
    return found[IN_MAGIC], found[OUT_MAGIC]


def pause(port: int) -> bool:
    """The host sees GUEST_PANICKED, the machine is stopped right behind this instruction; False if time jumped there.

    It is done in the second quarter between two ticks, which is waited for without idling.
    """
    while not TICK_NS // 4 < time.monotonic_ns() % TICK_NS < TICK_NS // 2:
        pass
    before = time.monotonic_ns()
    os.pwrite(port, b"\1", PAUSE_PORT)
    return time.monotonic_ns() - before < PAUSE_NS or REAL_CLOCK


def pause_for_snapshot(port: int, result: Result) -> bool:
    result.header(result.progress(), ABOUT)
    for _ in range(SPIN):
        pass
    result.header(result.progress(), FINISHED)
    return pause(port)


def unpack(parcel: Pmem, directory: str) -> dict[str, Any]:
    length = struct.unpack("<Q", parcel.read(8, 8))[0]
    with tarfile.open(fileobj=io.BytesIO(parcel.read(BLOCK, length))) as tar:
        tar.extractall(directory, filter="fully_trusted")
    with open(os.path.join(directory, "job.json")) as file:
        job: dict[str, Any] = json.load(file)
        return job


def seed(value: str) -> None:
    """Makes every random source of this kernel a function of `value`."""
    with open("/dev/urandom", "wb", buffering=0) as urandom:
        urandom.write(value.encode().ljust(256, b"\0"))
        fcntl.ioctl(urandom, RNDRESEEDCRNG)


def call(job: dict[str, Any], out: str, emit: Emit) -> None:
    module, _, function = job["call"].partition(":")
    getattr(importlib.import_module(module), function)(job, out, emit)


def report(out: str, text: str) -> None:
    with open(out + "/error.txt", "w") as file:
        file.write(text)


def in_child(job: dict[str, Any], out: str, emit: Emit) -> None:
    """Runs the job in a process of its own, so that neither a crash nor a hang of it takes the machine down."""
    child = os.fork()
    if child == 0:
        log = os.open(out + "/output.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.setsid()
        status = 1
        try:
            call(job, out, emit)
            status = 0
        except BaseException:
            report(out, traceback.format_exc())
        finally:
            os._exit(status)
    deadline = time.monotonic() + job["limit_s"]
    pidfd = os.pidfd_open(child)
    if not select.select([pidfd], [], [], deadline - time.monotonic())[0]:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        report(out, f"still running after {job['limit_s']:g} virtual seconds")
        return
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        report(out, f"ended by signal {os.WTERMSIG(status)}")


def main() -> None:
    parcel, result_device = devices()
    port = os.open("/dev/port", os.O_RDWR)
    for name in WARM:
        importlib.import_module(name)
    exact = pause_for_snapshot(port, Result(result_device))
    while True:
        result = Result(result_device)
        if not exact:
            result.header(0, JUMPED)
            exact = pause(port)
            continue
        for directory in IN, OUT:
            empty(directory)
        job = unpack(parcel, IN)
        if "install" in job:
            shutil.copytree(IN, job["install"])
            sys.path.insert(0, job["install"])
            try:
                call(job, OUT, result.emit)
            except Exception:
                report(OUT, traceback.format_exc())
            result.finish(OUT)
            exact = pause_for_snapshot(port, result)
            continue
        if "call" in job:
            seed(json.dumps(job.get("seed", 0)))
            in_child(job, OUT, result.emit)
        result.finish(OUT)
        exact = pause(port)


if __name__ == "__main__":
    main()
