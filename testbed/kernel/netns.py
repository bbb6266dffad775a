"""Network namespaces by name, made and entered in this process: no child per namespace, no `ip` binary."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

from testbed.errors import TestbedError

RUN = Path("/run/netns")
CLONE_NEWNET = 0x40000000
CLONE_NEWNS = 0x20000
CLONE_FS = 0x200
MS_BIND, MS_REC, MS_PRIVATE, MS_SHARED = 4096, 16384, 1 << 18, 1 << 20
MNT_DETACH = 2
T = TypeVar("T")

# os.setns and os.unshare came with Python 3.12; a local machine may have 3.11.
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise TestbedError(f"{what}: {os.strerror(number)}")


def _mount(source: str | Path, target: str | Path, flags: int = 0, kind: str = "none") -> int:
    result: int = _libc.mount(os.fsencode(source), os.fsencode(target), kind.encode(), flags, None)
    return result


def mount(source: str | Path, target: str | Path, flags: int = 0, kind: str = "none") -> None:
    """mount(2)."""
    _check(_mount(source, target, flags, kind), f"mount {target}")


def unmount(target: str | Path) -> None:
    """Takes a mount away at once, and lets go of it when nobody uses it any more."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"unmount {target}")


def path(name: str) -> Path:
    """Where a namespace is; of one without a name its path is the name: `/proc/<pid>/ns/net`."""
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
        _check(_mount("/proc/thread-self/ns/net", target, MS_BIND), f"name network namespace {name}")


def delete(name: str) -> None:
    target = path(name)
    unmount(target)
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


@contextlib.contextmanager
def own_mounts() -> Iterator[None]:
    """Runs the block in a mount namespace of its own, which programs that it starts keep. What it mounts in /dev and
    /sys is for them alone; other mounts propagate as they do elsewhere."""
    before = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    directory = os.open(".", os.O_PATH | os.O_CLOEXEC)
    try:
        _check(_libc.unshare(CLONE_NEWNS), "make a mount namespace")
        try:
            for place in "/dev", "/sys":
                mount("none", place if os.path.ismount(place) else "/", MS_PRIVATE)
            yield
        finally:
            _check(_libc.setns(before, CLONE_NEWNS), "return to the mount namespace")
            os.fchdir(directory)  # which setns has left for the root
    finally:
        os.close(directory)
        os.close(before)


def within(process: int, action: Callable[[], T]) -> T:
    """`action()` in the network and mount namespaces of a process."""

    def enter() -> T:
        _check(_libc.unshare(CLONE_FS), "leave the other threads' directory")
        for handle, kind in zip(handles, (CLONE_NEWNET, CLONE_NEWNS), strict=True):
            _check(_libc.setns(handle, kind), f"enter the namespaces of process {process}")
        return action()

    with contextlib.ExitStack() as opened:
        handles = [os.open(f"/proc/{process}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in ("net", "mnt")]
        for handle in handles:
            opened.callback(os.close, handle)
        return _in_a_thread(enter)


def isolated(name: str, binds: Mapping[str, Path], action: Callable[[], T]) -> T:
    """`action()` as a machine of its own would run it: in the namespace, with its sysfs, and with the directories
    `binds` names (where, what) instead of this machine's. Processes it starts stay in there."""

    def enter() -> T:
        with entered(name):
            _check(_libc.unshare(CLONE_NEWNS), "make a mount namespace")
            mount("none", "/", MS_REC | MS_PRIVATE)
            mount("sysfs", "/sys", kind="sysfs")
            for where, what in binds.items():
                mount(what, where, MS_BIND)
            return action()

    return _in_a_thread(enter)


def _in_a_thread(action: Callable[[], T]) -> T:
    """A thread shares its root directory, and with it the mounts, with the others until it unshares; it cannot go
    back."""
    done: Future[T] = Future()

    def body() -> None:
        try:
            done.set_result(action())
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=body, name="namespaces")
    thread.start()
    thread.join()
    return done.result()
