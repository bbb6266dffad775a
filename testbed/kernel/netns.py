"""Network namespaces by name, made and entered in this process: no child per namespace, no `ip` binary."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from testbed.errors import TestbedError
from testbed.kernel import syscalls
from testbed.kernel.mounts import MS_BIND, mount, unmount
from testbed.kernel.syscalls import CLONE_NEWNET
from testbed.kernel.turns import turn

RUN = Path("/run/netns")


def path(name: str) -> Path:
    """Return where a namespace is; of one without a name its path is the name: `/proc/<pid>/ns/net`."""
    return RUN / name


def names() -> list[str]:
    return sorted(os.listdir(RUN)) if RUN.exists() else []


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Put the calling thread back into the namespace it came from."""
    with syscalls.closing_fd(os.open("/proc/thread-self/ns/net", os.O_RDONLY)) as before:
        try:
            yield
        finally:
            syscalls.setns(before, CLONE_NEWNET)


def create(name: str) -> None:
    """Make a namespace that `ip netns` knows too."""
    RUN.mkdir(exist_ok=True)
    target = path(name)
    try:
        os.close(os.open(target, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o444))
    except FileExistsError:
        raise TestbedError(
            f"network namespace {name} is there already", hint=f"If no other lab runs: ip netns delete {name}"
        ) from None
    with turn(), syscalls.explained(f"network namespace {name} cannot be made"), restored():
        syscalls.unshare(CLONE_NEWNET)
        mount("/proc/thread-self/ns/net", target, MS_BIND)


def delete(name: str) -> None:
    target = path(name)
    with turn():
        unmount(target)
    target.unlink()


@contextlib.contextmanager
def entered(name: str) -> Iterator[None]:
    """Run the block in the namespace. Sockets and devices opened in it stay there."""
    with restored():
        with syscalls.explained(f"network namespace {name} cannot be entered"):
            syscalls.enter(path(name), CLONE_NEWNET)
        yield
