"""Ownership on this very kernel: each run removes what it made at its end; the next run, or `testbed gc`, removes what
a killed run left. Both find it by the same marks and the same record (kernel/ownership.py)."""

import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import TestbedError, UnsupportedError
from testbed.executor import Context, ignore_sigterm
from testbed.kernel import borrowed_nics, netns, own_devices, ownership, rxe_devices, syscalls, sysctl
from testbed.kernel.ownership import Run
from testbed.kernel.rdma import Rdma
from testbed.nic import connections
from testbed.protocol import Leftover, LeftoverKind
from testbed.protocol.requests import Collect

MODULES = "rdma_rxe", "ib_uverbs", "rdma_ucm"
"""Modules to load: the kernel loads all others on demand. They stay loaded: others may use them by then."""
NEIGHBOURS = 1_000_000
SETTINGS = {
    "net/core/devconf_inherit_init_net": 2,
    "net/core/fb_tunnels_only_for_init_net": 1,
    **{
        f"net/{family}/neigh/default/gc_thresh{number}": NEIGHBOURS
        for family in ("ipv4", "ipv6")
        for number in (3, 2, 1)
    },
}
"""Sysctls of the machine while a run lasts, as the micro-VM has them: nodes begin with the kernel's own values, not
with those of this machine; their first interface has number 2, whatever tunnels are loaded; and the neighbour tables of
all nodes together have room."""
KILLED_S = 5.0


@dataclass(frozen=True)
class _Found:
    leftover: Leftover
    remove: Callable[[], object]


@contextlib.contextmanager
def owned() -> Iterator[None]:
    """Run the block as a run that owns what it makes. Another live run is an error; what dead runs left is removed
    first. At the end everything is restored, or the record stays for `testbed gc` and standard error has the reason."""
    with _lock():
        _refuse_beside_others()
        _require(_collect(ownership.runs()))
        subprocess.run(
            ["modprobe", "-q", "-a", *MODULES], check=False
        )  # a kernel with them built in has no files of them
        with Rdma() as system:
            run = ownership.begin(exclusive=system.exclusive)
    try:
        for path, value in SETTINGS.items():
            ownership.change_sysctl(path, value)
        yield
    finally:
        ignore_sigterm()
        for one in _collect([run]):
            print(f"{one['kind']} {one['name']}: {one['problem']}", file=sys.stderr)


def collect(request: Collect, context: Context) -> list[Leftover]:
    """Remove what dead runs left, and report each thing."""
    if os.geteuid() != 0:
        raise UnsupportedError("only root can remove the remains of labs on this kernel", hint="Run: sudo testbed gc")
    if not ownership.RUNS.exists():
        return []
    with _lock():
        dead = [run for run in ownership.runs() if not run.lives]
        if request.dry_run:
            return [found.leftover for run in dead for found in _find(run)]
        return [leftover for run in dead for leftover in _take_back(run)]


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """Wait for another process that begins a run or collects."""
    ownership.RUNS.mkdir(mode=0o700, parents=True, exist_ok=True)
    with syscalls.closing_fd(os.open(ownership.RUNS, os.O_RDONLY)) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _refuse_beside_others() -> None:
    for run in ownership.runs():
        if run.lives:
            hint = "Runs on one kernel share the RDMA netns mode and the trace of queue pairs. Wait until it has ended."
            raise UnsupportedError(f"another run uses this kernel: process {run.pid}", hint=hint)


def _require(problems: Sequence[Leftover]) -> None:
    if problems:
        raise UnsupportedError(
            "a killed run left something on this kernel",
            also=[("", f"{one['kind']} {one['name']}: {one['problem']}") for one in problems],
            hint="`testbed gc` tries again.",
        )


def _collect(runs: Sequence[Run]) -> list[Leftover]:
    """Remove what these runs left. Return the things that could not be removed."""
    return [leftover for run in runs for leftover in _take_back(run) if leftover["problem"]]


def _take_back(run: Run) -> list[Leftover]:
    """Remove what a run left, and its record when nothing of it remains."""
    done = []
    for found in _find(run):
        problem = ""
        try:
            found.remove()
        except (TestbedError, OSError) as error:
            problem = str(error)
        done.append(Leftover(**{**found.leftover, "problem": problem}))
    if not any(leftover["problem"] for leftover in done):
        ownership.end(run)
    return done


def _find(run: Run) -> Iterator[_Found]:
    """Yield what remains of a run, in the order in which the kernel can release it."""
    yield from _find_nodes(run)
    yield from _find_beside_nodes(run)


def _found(run: Run, kind: LeftoverKind, name: object, remove: Callable[..., object], *arguments: object) -> _Found:
    leftover = Leftover(run=run.name, kind=kind, name=str(name), problem="")
    return _Found(leftover, lambda: remove(*arguments))


def _find_nodes(run: Run) -> Iterator[_Found]:
    namespaces = [name for name in netns.names() if netns.owner(name) == run.name]
    nics = {before["device"] for before in run.interfaces.values()}
    for pid, name in _processes(run, namespaces):
        yield _found(run, "process", f"{name} ({pid})", _kill, pid, run, namespaces)
    for name in sorted(run.interfaces):
        yield _found(run, "interface", name, borrowed_nics.give_back, run, name)
    for namespace in namespaces:
        for device in sorted(set(_devices(namespace)) - nics):
            yield _found(run, "RDMA device", device, rxe_devices.delete, namespace, [device])
        yield _found(run, "namespace", namespace, _delete_namespace, namespace)
    for name in sorted(set(run.namespaces) - set(namespaces)):
        if netns.path(name).exists() and not os.path.ismount(netns.path(name)):  # killed before it had a namespace
            yield _found(run, "namespace", name, netns.path(name).unlink)


def _find_beside_nodes(run: Run) -> Iterator[_Found]:
    for path in map(Path, dict.fromkeys(run.files)):
        if path.exists():
            yield _found(run, "file", path, shutil.rmtree if path.is_dir() else os.unlink, path)
    for place in map(Path, reversed(dict.fromkeys(run.places))):
        if place.is_file() or (place.is_dir() and not os.listdir(place)):
            yield _found(run, "file", place, ownership.leave_place, place)
    if os.path.ismount(own_devices.ROOT):
        yield _found(run, "mount", own_devices.ROOT, _discard_devices, run.namespaces)
    if run.probes and connections.INSTANCE.exists():
        yield _found(run, "trace", connections.INSTANCE, connections.disarm)
    for name, value in run.sysctls.items():
        if sysctl.read(name) != value:
            yield _found(run, "sysctl", f"{name} = {value}", sysctl.write, name, value)
    with Rdma() as system:
        if system.exclusive != run.exclusive:
            mode = "exclusive" if run.exclusive else "shared"
            yield _found(run, "RDMA netns mode", mode, _set_mode, run.exclusive)


def _processes(run: Run, namespaces: Sequence[str]) -> list[tuple[int, str]]:
    """Return the processes of a run by number: they have its mark, or are in one of its namespaces."""
    known = {netns.path(namespace).stat().st_ino for namespace in namespaces}
    found = []
    for pid in sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        if pid != os.getpid() and _belongs(pid, run, known):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                found.append((pid, Path(f"/proc/{pid}/comm").read_text().strip()))
    return found


def _belongs(pid: int, run: Run, namespaces: set[int]) -> bool:
    if ownership.owner_of_process(pid) == run.name:
        return True
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/ns/net").st_ino in namespaces
    return False


def _kill(pid: int, run: Run, namespaces: Sequence[str]) -> None:
    """Kill a process and wait for its end. Check it again first: its number may be another's by now."""
    known = {netns.path(namespace).stat().st_ino for namespace in namespaces}
    with contextlib.suppress(ProcessLookupError), syscalls.closing_fd(os.pidfd_open(pid)) as handle:
        if _belongs(pid, run, known):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            if not select.select([handle], [], [], KILLED_S)[0]:
                raise TestbedError(f"it still runs {KILLED_S:g} s after SIGKILL")


def _devices(namespace: str) -> list[str]:
    with netns.entered(namespace), Rdma() as here:
        return list(here.links().values())


def _delete_namespace(namespace: str) -> None:
    own_devices.discard(namespace)  # its sysfs, mounted there, would keep it alive
    netns.delete(namespace)


def _discard_devices(namespaces: Sequence[str]) -> None:
    for namespace in namespaces:
        own_devices.discard(namespace)  # of one that was deleted before the run was killed
    own_devices.end()


def _set_mode(exclusive: bool) -> None:
    with Rdma() as system:
        system.set_exclusive(exclusive)
