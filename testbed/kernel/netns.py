"""Network namespaces by name, created and entered in this process: no child per namespace, no `ip` binary."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from testbed.errors import TestbedError
from testbed.kernel import ownership, syscalls, tcp_orphans
from testbed.kernel.mounts import MS_BIND, mount, unmount
from testbed.kernel.rtnetlink import Rtnetlink
from testbed.kernel.syscalls import CLONE_NEWNET

LOCK = Path("/run/testbed.lock")


@contextlib.contextmanager
def turn() -> Iterator[None]:
    """Wait for other processes' blocks, and make them wait. Do not nest in one thread."""
    with LOCK.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


RUN = Path("/run/netns")
LOOPBACK = 1
"""The index of `lo` in every namespace."""


def path(name: str) -> Path:
    """Return a namespace's path. A namespace without a name is given by its path: `/proc/<pid>/ns/net`."""
    return RUN / name


def names() -> list[str]:
    return sorted(os.listdir(RUN)) if RUN.exists() else []


def others() -> list[str]:
    """Return the network namespaces beside that of the first process: their names, or a process in each."""
    known: dict[int, str] = {}
    for name in names():
        with contextlib.suppress(OSError):
            known[path(name).stat().st_ino] = name
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError):  # it has ended
            program = Path(f"/proc/{pid}/comm").read_text().strip()
            known.setdefault(os.stat(f"/proc/{pid}/ns/net").st_ino, f"that of {program} (process {pid})")
    return [who for number, who in known.items() if number != os.stat("/proc/1/ns/net").st_ino]


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Return the calling thread to its former namespace at the end of the block."""
    with syscalls.closing_fd(os.open("/proc/thread-self/ns/net", os.O_RDONLY)) as before:
        try:
            yield
        finally:
            syscalls.setns(before, CLONE_NEWNET)


def create(name: str) -> None:
    """Create a namespace that `ip netns` knows too. On this very kernel it gets its mark before its name."""
    RUN.mkdir(exist_ok=True)
    target = path(name)
    if not target.exists():
        ownership.claim_namespace(name)
    try:
        os.close(os.open(target, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o444))
    except FileExistsError:
        raise TestbedError(
            f"network namespace {name} already exists", hint=f"If it is not needed: ip netns delete {name}"
        ) from None
    with turn(), syscalls.explained(f"network namespace {name} cannot be created"), restored():
        syscalls.unshare(CLONE_NEWNET)
        if run := ownership.current():
            with Rtnetlink() as links:
                links.set_alias(LOOPBACK, ownership.ALIAS + run.name)
        mount("/proc/thread-self/ns/net", target, MS_BIND)


def owner(name: str) -> str:
    """Return the run on this kernel that made a namespace; empty for others and for an unknown name."""
    with contextlib.suppress(TestbedError), entered(name), Rtnetlink() as links:
        return ownership.owner_of(links.alias(LOOPBACK))
    return ""


def delete(name: str) -> None:
    """Delete a namespace whose programs have ended, with the sockets that would keep it alive."""
    target = path(name)
    with contextlib.suppress(TestbedError), entered(name):  # of a killed run, a name may have no namespace
        tcp_orphans.destroy()
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
