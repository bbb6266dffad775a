"""Mounts, and mount namespaces for programs."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from testbed.kernel import syscalls
from testbed.kernel.syscalls import CLONE_FS, CLONE_NEWNET, CLONE_NEWNS, closing_fd, explained, setns, unshare

MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE, MS_SHARED = 4096, 16384, 1 << 18, 1 << 19, 1 << 20
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT = 1, 2, 4, 32
MNT_DETACH = 2
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
OPEN_TREE, OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 428, 1, os.O_CLOEXEC
MOVE_MOUNT, MOVE_MOUNT_F_EMPTY_PATH = 429, 4
"""System calls, which have the same number on all architectures: glibc has functions for them since 2.36 only."""
PIVOT_ROOT = 155
"""On x86-64."""
T = TypeVar("T")


def mount(source: str | Path, target: str | Path, flags: int = 0, kind: str = "none", options: str = "") -> None:
    """Call mount(2)."""
    with explained(f"mount {target}"):
        given = options.encode() or None
        syscalls.call("mount", os.fsencode(source), os.fsencode(target), kind.encode(), flags, given)


def bind(source: str | Path, target: str | Path, *, read_only: bool = True, all_below: bool = False) -> None:
    """Show a file or a directory at another place, with `all_below` also what is mounted in it, writable as it is
    there."""
    mount(source, target, MS_BIND | (MS_REC if all_below else 0))
    mount("none", target, MS_BIND | MS_REMOUNT | (MS_RDONLY if read_only else 0))


def pivot_root(root: str | Path, old: str | Path) -> None:
    """Call pivot_root(2) in this mount namespace. The working directory is the new root then."""
    with explained(f"pivot to {root}"):
        syscalls.call("syscall", PIVOT_ROOT, os.fsencode(root), os.fsencode(old))
    os.chdir("/")


def unmount(target: str | Path) -> None:
    """Unmount lazily: detach now, and free when nobody uses it any more."""
    with explained(f"unmount {target}"):
        syscalls.call("umount2", os.fsencode(target), MNT_DETACH)


def clone(path: str | Path) -> int:
    """Return a descriptor of a copy of what is mounted at a path and below, to be attached."""
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE
    with explained(f"clone the mounts at {path}"):
        return syscalls.call("syscall", OPEN_TREE, AT_FDCWD, os.fsencode(path), flags)


def attach(tree: int, target: str | Path) -> None:
    """Mount a copy at a path."""
    with explained(f"mount {target}"):
        syscalls.call("syscall", MOVE_MOUNT, tree, b"", AT_FDCWD, os.fsencode(target), MOVE_MOUNT_F_EMPTY_PATH)


@contextlib.contextmanager
def own_mounts() -> Iterator[None]:
    """Run the block in a new mount namespace, which programs that it starts keep. Mounts in /dev and /sys stay private
    to them; other mounts propagate as usual."""
    own = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY)
    with closing_fd(own) as before, closing_fd(os.open(".", os.O_PATH)) as directory:
        unshare(CLONE_NEWNS)
        try:
            for place in "/dev", "/sys":
                mount("none", place if os.path.ismount(place) else "/", MS_PRIVATE)
            yield
        finally:
            setns(before, CLONE_NEWNS)
            os.fchdir(directory)  # setns moved to the root


def within(process: int, action: Callable[[], T]) -> T:
    """Run `action` in the network and mount namespaces of a process."""

    def enter() -> T:
        unshare(CLONE_FS)  # other threads keep their working directory
        setns(own_net, CLONE_NEWNET)
        setns(own_mnt, CLONE_NEWNS)
        return action()

    net, mnt = (f"/proc/{process}/ns/{kind}" for kind in ("net", "mnt"))
    with closing_fd(os.open(net, os.O_RDONLY)) as own_net, closing_fd(os.open(mnt, os.O_RDONLY)) as own_mnt:
        return _in_a_thread(enter)


class Isolated:
    """The namespaces of an isolated machine: the network namespace with this path and its sysfs, and mounts in which
    the directories of `binds` (target, source) replace this machine's. Later mounts of this machine, such as namespaces
    of pods, appear there too; mounts made there stay there."""

    def __init__(self, namespace: str | Path, binds: Mapping[str, Path]) -> None:
        self._namespace = namespace

        def make() -> int:
            syscalls.enter(namespace, CLONE_NEWNET)
            unshare(CLONE_NEWNS)
            mount("none", "/", MS_REC | MS_SLAVE)
            mount("sysfs", "/sys", kind="sysfs")
            for where, what in binds.items():
                mount(what, where, MS_BIND)
            return os.open("/proc/thread-self/ns/mnt", os.O_RDONLY)

        self._mounts = _in_a_thread(make)

    def run(self, action: Callable[[], T]) -> T:
        """Run `action` in there, in this working directory. Processes that it starts stay there."""
        directory = os.getcwd()

        def enter() -> T:
            syscalls.enter(self._namespace, CLONE_NEWNET)
            unshare(CLONE_FS)
            setns(self._mounts, CLONE_NEWNS)
            os.chdir(directory)
            return action()

        return _in_a_thread(enter)

    def close(self) -> None:
        os.close(self._mounts)


def _in_a_thread(action: Callable[[], T]) -> T:
    """Run `action` in a new thread that ends with it. Threads share their root directory, and so their mounts, until
    one unshares; that thread cannot go back."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(action).result()
