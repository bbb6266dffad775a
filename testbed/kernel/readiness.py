"""Wait for readable files by ppoll(2): Python's select takes only descriptors below 1024, which a lab of hundreds of
nodes exceeds, and its poll counts whole milliseconds."""

import contextlib
import ctypes
import math
import select
import time
from collections.abc import Sequence
from typing import Any

from testbed.kernel import syscalls


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _PollFd(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


def readable(watched: Sequence[Any], within: float) -> bool:
    """Return whether one of `watched` (descriptors, or with a `fileno`) is readable or ends `within` seconds."""
    numbers = [file if isinstance(file, int) else file.fileno() for file in watched]
    files = (_PollFd * len(numbers))(*(_PollFd(number, select.POLLIN, 0) for number in numbers))
    deadline = time.monotonic() + within
    while True:
        limit = None
        if within < math.inf:
            fraction, seconds = math.modf(max(0.0, deadline - time.monotonic()))
            limit = ctypes.byref(_Timespec(int(seconds), int(fraction * 1e9)))
        with contextlib.suppress(InterruptedError):
            return syscalls.call("ppoll", files, len(numbers), limit, None) > 0
