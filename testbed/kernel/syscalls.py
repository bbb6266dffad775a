"""Functions of the C library that Python lacks, or has only since 3.12 (setns, unshare), and forked children."""

import contextlib
import ctypes
import functools
import gc
import math
import os
import select
import signal
import socket
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from testbed.errors import TestbedError

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
CLONE_FS, CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x200, 0x20000, 0x4000000, 0x40000000
CLONE_NEWIPC, CLONE_NEWPID = 0x8000000, 0x20000000


@functools.cache
def libc() -> Any:
    """Load the C library."""
    return ctypes.CDLL(None, use_errno=True)


def call(function: str, *arguments: Any) -> int:
    """Call a function of the C library; OSError if it returns -1."""
    result: int = getattr(libc(), function)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


@contextlib.contextmanager
def closing_fd(handle: int) -> Iterator[int]:
    """Close a descriptor at the end of the block, as contextlib.closing does an object."""
    try:
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn an OSError of the block into a TestbedError that names the failed action."""
    try:
        yield
    except OSError as error:
        raise TestbedError(f"{what}: {error.strerror}") from error


def setns(handle: int, kind: int) -> None:
    """Move the calling thread into the namespace behind a descriptor."""
    if hasattr(os, "setns"):
        os.setns(handle, kind)
    else:
        call("setns", handle, kind)


def enter(path: str | os.PathLike[str], kind: int) -> None:
    """Move the calling thread into the namespace of a file."""
    with closing_fd(os.open(path, os.O_RDONLY)) as handle:
        setns(handle, kind)


@contextlib.contextmanager
def own_host_name(name: str) -> Iterator[None]:
    """Run the block in a UTS namespace with this host name, which programs that it starts keep."""
    with closing_fd(os.open("/proc/thread-self/ns/uts", os.O_RDONLY)) as before:
        unshare(CLONE_NEWUTS)
        try:
            socket.sethostname(name)
            yield
        finally:
            setns(before, CLONE_NEWUTS)


def unshare(flags: int) -> None:
    """Give the calling thread its own namespaces (CLONE_NEW…) or root and working directory (CLONE_FS)."""
    call("unshare", flags)


def end_with(parent: int) -> None:
    """Make the kernel kill this child when the thread of process `parent` that forked it ends."""
    call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)


def name_process(name: str) -> None:
    """Set the calling thread's name, at most 15 bytes, for ps and similar tools."""
    call("prctl", PR_SET_NAME, name.encode())


def fork(run: Callable[[], None], report: Callable[[str], None]) -> int:
    """
    Run `run` in a child and return its process ID. The child ends with the calling thread at the latest.

    If an exception ends it, `report` gets the traceback and the exit status is 1. The parent handles Ctrl-C. Other
    threads of the parent must hold nothing that the child uses.
    """
    parent, collects = os.getpid(), gc.isenabled()
    gc.disable()  # the parent's objects must not be finalised in the child
    try:
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # about threads: see above
            pid = os.fork()
        if pid == 0:
            gc.freeze()
    finally:
        if collects:
            gc.enable()
    if pid:
        return pid
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    end_with(parent)
    try:
        run()
    except BaseException:
        report(traceback.format_exc())
        os._exit(1)
    os._exit(0)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _PollFd(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


def readable(watched: Sequence[Any], within: float) -> bool:
    """Return whether one of `watched` (descriptors, or with a `fileno`) is readable or ends `within` seconds."""
    return readable_until(watched, time.monotonic() + within)


def readable_until(watched: Sequence[Any], deadline: float) -> bool:
    """Return whether one of `watched` is readable or ends before the moment `deadline` of time.monotonic.

    This is ppoll(2): Python's select takes only descriptors below 1024, which a lab of hundreds of nodes exceeds, and
    its poll counts whole milliseconds. It waits for a time, not until a moment: all that takes time, the collection of
    garbage too, which objects that are made begin, is before the clock is read."""
    numbers = [file if isinstance(file, int) else file.fileno() for file in watched]
    files = (_PollFd * len(numbers))(*(_PollFd(number, select.POLLIN, 0) for number in numbers))
    limit = _Timespec()
    forever = deadline == math.inf
    pointer = None if forever else ctypes.byref(limit)
    while True:
        if not forever:
            left = max(0.0, deadline - time.monotonic())
            limit.seconds, limit.nanoseconds = int(left), int(left % 1 * 1e9)
        with contextlib.suppress(InterruptedError):
            return call("ppoll", files, len(numbers), pointer, None) > 0


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """Let no program have the CPU before the end of the block, unless it waits."""
    policy, parameter = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameter)
