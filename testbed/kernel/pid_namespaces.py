"""PID namespaces by name, so that each node of a sealed lab has the processes of its own, and host name and IPC beside.

The first process of each sleeps, outside of all labs' network namespaces. Its children, which are orphans, go without a
trace as they end: it ignores SIGCHLD.
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from testbed.kernel import mounts
from testbed.kernel.syscalls import (
    CLONE_NEWIPC,
    CLONE_NEWPID,
    CLONE_NEWUTS,
    closing_fd,
    explained,
    own_host_name,
    setns,
    unshare,
)

RUN = Path("/run/testbed/pid")
"""Files of the namespaces, as /run/netns has those of networks."""
FIRST = ("env", "--ignore-signal=CHLD", "sleep", "infinity")
_first: dict[str, "subprocess.Popen[bytes]"] = {}


def path(name: str) -> Path:
    """Return a namespace's file."""
    return RUN / name


def exists(name: str) -> bool:
    return name in _first


def create(name: str, host_name: str) -> None:
    """Create a namespace of processes, with a namespace of IPC, and one of the host name."""
    RUN.mkdir(parents=True, exist_ok=True)
    with explained(f"PID namespace {name} cannot be created"), own_host_name(host_name), _restored("ipc", "pid"):
        unshare(CLONE_NEWIPC | CLONE_NEWPID)
        _first[name] = subprocess.Popen(
            FIRST, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )
    path(name).touch()
    mounts.mount(f"/proc/{_first[name].pid}/ns/pid", path(name), mounts.MS_BIND)


def delete(name: str) -> None:
    """Delete a namespace, if it exists: all its processes end."""
    if first := _first.pop(name, None):
        first.kill()
        first.wait()
        mounts.unmount(path(name))
        path(name).unlink()


@contextlib.contextmanager
def entered(name: str, *, whole: bool = False) -> Iterator[None]:
    """Have processes that the block starts be born in the namespace; `whole`: also with its host name and IPC.

    The calling thread can start no thread meanwhile."""
    kinds = CLONE_NEWPID | (CLONE_NEWUTS | CLONE_NEWIPC if whole else 0)
    with _restored("pid", *(("uts", "ipc") if whole else ())):
        with closing_fd(os.pidfd_open(_first[name].pid)) as first, explained(f"PID namespace {name} has ended"):
            setns(first, kinds)
        yield


def mount_proc(name: str, place: str | Path, flags: int = 0) -> None:
    """Mount a /proc with the processes of the namespace."""
    mounts.mount("proc", place, flags, "proc", f"pidns={path(name)}")


@contextlib.contextmanager
def _restored(*kinds: str) -> Iterator[None]:
    """Return the calling thread to its former namespaces of these kinds at the end of the block."""
    with contextlib.ExitStack() as files:
        for kind in kinds:
            before = files.enter_context(closing_fd(os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY)))
            files.callback(setns, before, 0)
        yield
