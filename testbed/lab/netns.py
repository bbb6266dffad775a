"""Network namespaces by name, made and entered in this process: no child per namespace, no `ip` binary."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from testbed.errors import TestbedError

RUN = Path("/run/netns")
CLONE_NEWNET = 0x40000000
MS_BIND = 4096
MNT_DETACH = 2

# os.setns and os.unshare came with Python 3.12; a local machine may have 3.11.
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise TestbedError(f"{what}: {os.strerror(number)}")


def path(name: str) -> Path:
    return RUN / name


def exists(name: str) -> bool:
    return path(name).exists()


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Puts the calling thread back into the namespace it came from."""
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        _check(_libc.setns(before, CLONE_NEWNET), "return to the network namespace")
        os.close(before)


def create(name: str) -> None:
    """Makes a namespace that `ip netns` knows too."""
    RUN.mkdir(exist_ok=True)
    target = path(name)
    try:
        os.close(os.open(target, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o444))
    except FileExistsError:
        raise TestbedError(
            f"network namespace {name} is there already", hint=f"If no other lab runs: ip netns delete {name}"
        ) from None
    with restored():
        _check(_libc.unshare(CLONE_NEWNET), f"make network namespace {name}")
        _check(
            _libc.mount(b"/proc/thread-self/ns/net", os.fsencode(target), b"none", MS_BIND, None),
            f"name network namespace {name}",
        )


def delete(name: str) -> None:
    target = path(name)
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"delete network namespace {name}")
    target.unlink()


@contextlib.contextmanager
def entered(name: str) -> Iterator[None]:
    """Runs the block in the namespace. Sockets and devices opened in it stay there."""
    with restored():
        handle = os.open(path(name), os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(handle, CLONE_NEWNET), f"enter network namespace {name}")
        finally:
            os.close(handle)
        yield
