"""What the kernel must be asked one at a time: in shared RDMA mode devices and network namespaces that come and go side
by side fail (ENODEV, ENFILE) or leave devices behind. Measured on 7.3."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

LOCK = Path("/run/testbed.lock")


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """Wait for the other processes' blocks, and keep them waiting. Not twice in one thread."""
    with LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
