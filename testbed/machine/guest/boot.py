"""The guest's process 1: waits in the snapshot, has a job bundle run, hands its files back, pauses again.

It speaks with the host through two pmem devices, the bundle in and the result out, and through the exact instruction at
which it pauses. The guest reads and writes them with O_DIRECT, so nothing of them stays in a cache across a snapshot.

in   8 bytes magic, u64 length, then a tar from offset 4096: job.json and what the job needs
out  8 bytes magic, u64 length of the files, u64 length of the progress, u64 finished, then from 4096 the progress
     (the lines of testbed/protocol/messages.py), at PULSE a u64 that grows while this process is well, and from
     PROGRESS_END the files below /run/testbed/out: of each its kind (F or D), u16 length of its name, u64 size, name,
     contents; E is the end
"""

import contextlib
import faulthandler
import fcntl
import importlib
import io
import itertools
import json
import mmap
import os
import re
import select
import shutil
import signal
import socket
import stat
import struct
import sys
import tarfile
import time
import traceback
from collections.abc import Iterator
from typing import Any, NoReturn

IN_MAGIC, OUT_MAGIC = b"TBBUNDLE", b"TBRESULT"
BLOCK = 4096
PROGRESS_END = 64 << 20
PULSE = PROGRESS_END - BLOCK
MESSAGE_BYTES = 16 << 20
ENTRY = struct.Struct("<cHQ")
CHUNK = 1 << 20
PAUSE_PORT = 0x505
RUNNING, FINISHED = 0, 1
IN, OUT = "/run/testbed/in", "/run/testbed/out"
LOOK_S = 30
"""Virtual seconds between two looks at a job, at most."""
SATURATED = 0.9
"""The share of time that a job which spins leaves nothing of."""
GRACE_S, STACK_S = 20, 1
"""Virtual seconds that a job has to end itself, and to say where it is."""
CGROUP = "/sys/fs/cgroup"
JOB_GROUP = CGROUP + "/job"
MOST_PROCESSES = 16384
RNDRESEEDCRNG = 0x5207
WARM = "pydantic", "pyroute2", "pytest", "yaml", *(f"pyverbs.{name}" for name in ("cq", "device", "mr", "pd", "qp"))


class Pmem:
    """A pmem block device, read and written past the page cache in whole blocks."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_DIRECT)
        self.size = os.lseek(self.fd, 0, os.SEEK_END)
        # Private: the job is a fork, and this process interrupts it at any moment to write here, too.
        self.buffer = mmap.mmap(-1, CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def read(self, offset: int, length: int) -> bytes:
        start = offset - offset % BLOCK
        end = -(-(offset + length) // BLOCK) * BLOCK
        out = bytearray()
        with memoryview(self.buffer) as view:
            while start + len(out) < end:
                count = os.preadv(self.fd, [view[: min(CHUNK, end - start - len(out))]], start + len(out))
                if not count:
                    raise OSError(f"there are no {length} bytes at {offset} of a device of {self.size} bytes")
                out += view[:count]
        return bytes(out[offset - start : offset - start + length])

    def write(self, offset: int, data: bytes) -> None:
        """`offset` and the length are multiples of a block."""
        for at in range(0, len(data), CHUNK):
            piece = data[at : at + CHUNK]
            self.buffer[: len(piece)] = piece
            with memoryview(self.buffer) as view:
                os.pwritev(self.fd, [view[: len(piece)]], offset + at)


class Result:
    """The device out: progress while the job runs, then the files, written front to back."""

    def __init__(self, pmem: Pmem) -> None:
        self.pmem = pmem
        self.tar = 0
        self.pending = bytearray()

    def begin(self) -> None:
        """Has nothing in it, of a bundle that is taken up."""
        self.tar = 0
        self.header(progress=0, state=RUNNING)

    def header(self, progress: int, state: int) -> None:
        fields = struct.pack("<8sQQQ", OUT_MAGIC, self.tar, progress, state)
        self.pmem.write(0, fields.ljust(BLOCK, b"\0"))

    def progress(self) -> int:
        length: int = struct.unpack("<Q", self.pmem.read(16, 8))[0]
        return length

    def message(self, line: bytes, last: bool) -> None:
        """Shows a message to the host now. Reports that do not fit are not shown, and leave room for the `last` one.

        The length is kept in the device, under a lock: the job's process and any it forks may have something to report.
        """
        line += b"\n"
        fcntl.lockf(self.pmem.fd, fcntl.LOCK_EX)
        try:
            length = self.progress()
            if BLOCK + length + len(line) <= (PULSE if last else PULSE - MESSAGE_BYTES):
                begun = length % BLOCK
                data = self.pmem.read(BLOCK + length - begun, begun) + line
                self.pmem.write(BLOCK + length - begun, data.ljust(-(-len(data) // BLOCK) * BLOCK, b"\0"))
                self.header(length + len(line), RUNNING)
        finally:
            fcntl.lockf(self.pmem.fd, fcntl.LOCK_UN)

    def crash(self, text: str) -> None:
        """Reports how the job failed."""
        self.message(json.dumps({"crash": text}).encode(), True)

    def beat(self, count: int) -> None:
        self.pmem.write(PULSE, struct.pack("<Q", count).ljust(BLOCK, b"\0"))

    def write(self, data: bytes) -> None:
        self.pending += data
        whole = len(self.pending) - len(self.pending) % BLOCK
        if whole >= CHUNK:
            self.flush_blocks(whole)

    def flush_blocks(self, length: int) -> None:
        if PROGRESS_END + self.tar + length > self.pmem.size:
            raise OSError(f"the run's files do not fit the device ({self.pmem.size >> 20} MiB)")
        self.pmem.write(PROGRESS_END + self.tar, bytes(self.pending[:length]))
        self.tar += length
        del self.pending[:length]

    def finish(self, directory: str) -> None:
        for name, path, status in tree(directory):
            if stat.S_ISDIR(status.st_mode):
                self.write(ENTRY.pack(b"D", len(name), 0) + name)
            elif stat.S_ISREG(status.st_mode):
                self.write(ENTRY.pack(b"F", len(name), status.st_size) + name)
                self.copy(path, status.st_size)
        self.write(ENTRY.pack(b"E", 0, 0))
        self.pending += bytes(-len(self.pending) % BLOCK)
        self.flush_blocks(len(self.pending))
        self.header(self.progress(), FINISHED)

    def copy(self, path: str, size: int) -> None:
        """Writes exactly `size` bytes of a file, whatever somebody does to it meanwhile."""
        with open(path, "rb") as file:
            while size:
                data = file.read(min(CHUNK, size)) or bytes(min(CHUNK, size))
                self.write(data)
                size -= len(data)


def tree(directory: str, above: bytes = b"") -> Iterator[tuple[bytes, str, os.stat_result]]:
    """What is below a directory, by name, each directory before what is in it."""
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        name = above + os.fsencode(entry.name)
        yield name, entry.path, entry.stat(follow_symlinks=False)
        if entry.is_dir(follow_symlinks=False):
            yield from tree(entry.path, name + b"/")


def empty(directory: str) -> None:
    for entry in list(os.scandir(directory)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def devices() -> tuple[Pmem, Result]:
    """The bundle in and the result out, told apart by their magic."""
    found = {}
    for name in sorted(os.listdir("/dev")):
        if name.startswith("pmem"):
            pmem = Pmem("/dev/" + name)
            found[pmem.read(0, 8)] = pmem
    return found[IN_MAGIC], Result(found[OUT_MAGIC])


def unpack(bundle: Pmem, directory: str) -> Any:
    length = struct.unpack("<Q", bundle.read(8, 8))[0]
    with tarfile.open(fileobj=io.BytesIO(bundle.read(BLOCK, length)), mode="r:") as tar:
        tar.extractall(directory, filter="fully_trusted")
    return job_in(directory)


def job_in(directory: str) -> Any:
    with open(os.path.join(directory, "job.json")) as file:
        return json.load(file)


def seed(value: str) -> None:
    """Makes every random source of this kernel a function of `value`."""
    with open("/dev/urandom", "wb", buffering=0) as urandom:
        urandom.write(value.encode().ljust(256, b"\0"))
        fcntl.ioctl(urandom, RNDRESEEDCRNG)


def call(job: dict[str, Any], out: str, result: Result, bundle: Pmem) -> None:
    module, _, function = job["call"].partition(":")
    getattr(importlib.import_module(module), function)(job, out, result.message, (bundle, result.pmem))


class Worker:
    """The process that has testbed imported and that runs the job, so that neither a crash nor a hang of the job takes
    the machine down. It begins small and imports for itself: of memory that it shared with process 1, each page would
    be copied when the job first writes to it."""

    def __init__(self, bundle: Pmem, result: Result) -> None:
        self.channel, there = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            self.channel.close()
            serve(there, bundle, result)
        there.close()
        self.wait()

    def wait(self) -> None:
        """Returns when the worker is ready for a bundle."""
        if not self.channel.recv(1):
            raise RuntimeError("the process that loads testbed has ended")

    def ask(self) -> None:
        self.channel.send(b".")


def serve(channel: socket.socket, bundle: Pmem, result: Result) -> NoReturn:
    """The worker: installs the code of snapshots, until it runs a job."""
    try:
        for name in WARM:
            importlib.import_module(name)
        channel.send(b".")
        while channel.recv(1):
            job = job_in(IN)
            if "install" not in job:
                run(job, bundle, result)
            install(job, bundle, result)
            channel.send(b".")
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def install(job: dict[str, Any], bundle: Pmem, result: Result) -> None:
    try:
        shutil.copytree(IN, job["install"])
        sys.path.insert(0, job["install"])
        call(job, OUT, result, bundle)
    except Exception:
        result.crash(traceback.format_exc())


def run(job: dict[str, Any], bundle: Pmem, result: Result) -> NoReturn:
    status = 1
    try:
        with open(JOB_GROUP + "/cgroup.procs", "w") as file:
            file.write("0")
        log = os.open(OUT + "/output.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.setsid()
        faulthandler.register(signal.SIGQUIT, open(OUT + "/stack.txt", "w"))  # noqa: SIM115 (it stays open)
        call(job, OUT, result, bundle)
        status = 0
    except BaseException:
        result.crash(traceback.format_exc())
    finally:
        os._exit(status)


class Job:
    """A job that the worker runs, and its limits."""

    def __init__(self, job: dict[str, Any], result: Result, worker: Worker) -> None:
        self.result = result
        self.limit_s: float = job["limit_s"]
        self.busy_s: float = job.get("busy_s", float("inf"))
        os.makedirs(JOB_GROUP, exist_ok=True)
        with open(JOB_GROUP + "/pids.max", "w") as file:
            file.write(str(MOST_PROCESSES))
        self.child = worker.pid
        self.pidfd = os.pidfd_open(self.child)
        signal.signal(signal.SIGCHLD, self.reap)
        worker.ask()
        # Whatever the job does, a fork bomb among it, must not keep this process from its CPU.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))

    def wait(self) -> None:
        """Returns when the job has ended, by itself or by one of its limits."""
        if overdue := self.overdue():
            self.result.crash(f"{overdue}{self.place()}")
            self.end()
        _, status = os.waitpid(self.child, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        if overdue:
            return
        if os.WIFSIGNALED(status):
            self.result.crash(f"ended by signal {os.WTERMSIG(status)}")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(OUT + "/stack.txt")

    def overdue(self) -> str:
        """The limit that the job has reached; nothing when it has ended."""
        deadline = time.monotonic() + self.limit_s
        busy_s, shown = 0.0, self.result.progress()
        for beat in itertools.count(1):
            self.result.beat(beat)
            used, began = cpu_s(), time.monotonic()
            if began >= deadline:
                return f"still running after {self.limit_s:g} virtual seconds"
            if busy_s >= self.busy_s:
                return f"busy for {busy_s:.0f} virtual seconds in a row without an event (the limit is {self.busy_s:g})"
            if self.ended(min(LOOK_S, self.busy_s / 2, deadline - began)):
                return ""
            elapsed = time.monotonic() - began
            idle = cpu_s() - used < SATURATED * elapsed
            before, shown = shown, self.result.progress()
            busy_s = 0.0 if idle or shown != before else busy_s + elapsed
        raise AssertionError

    def reap(self, *_: object) -> None:
        """Takes what processes of the job left to process 1; the job itself is for `wait`."""
        look = os.WEXITED | os.WNOHANG | os.WNOWAIT
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitid(os.P_ALL, 0, look)) and found.si_pid != self.child:
                os.waitpid(found.si_pid, 0)

    def ended(self, within: float) -> bool:
        return bool(select.select([self.pidfd], [], [], max(0.0, within))[0])

    def place(self) -> str:
        """Where in the user's files the job is at work, as words to append."""
        os.kill(self.child, signal.SIGQUIT)
        self.ended(STACK_S)
        with open(OUT + "/stack.txt", errors="replace") as file:
            found = re.search(rf'File "{IN}/[^/"]+/([^"]+)", line (\d+) in (\S+)', file.read())
        return f", at {found[1]}:{found[2]} ({found[3]})" if found else ""

    def end(self) -> None:
        """Lets the job end itself, then ends all that it started."""
        os.kill(self.child, signal.SIGTERM)
        self.ended(GRACE_S)
        with open(JOB_GROUP + "/cgroup.kill", "w") as file:
            file.write("1")


def cpu_s() -> float:
    """Seconds that this machine's CPU has worked since it started."""
    with open(CGROUP + "/cpu.stat") as file:
        return int(file.readline().split()[1]) / 1e6


def work(bundle: Pmem, result: Result, worker: Worker) -> None:
    """Has the worker do what the bundle asks for, and hands back the files."""
    result.begin()
    empty(IN)
    empty(OUT)
    try:
        job = unpack(bundle, IN)
        if "install" in job:
            worker.ask()
            worker.wait()
        else:
            seed(json.dumps(job["seed"]))
            Job(job, result, worker).wait()
    except Exception:
        result.crash(traceback.format_exc())
    result.finish(OUT)


def main() -> None:
    bundle, result = devices()
    worker = Worker(bundle, result)
    port = os.open("/dev/port", os.O_RDWR)
    with open(CGROUP + "/cgroup.subtree_control", "w") as file:
        file.write("+pids")
    while True:
        # The host sees GUEST_PANICKED, and the machine is stopped right behind this instruction.
        os.pwrite(port, b"\1", PAUSE_PORT)
        work(bundle, result, worker)


if __name__ == "__main__":
    main()
