"""
A node's own files as its programs find them: interfaces and RDMA devices in sysfs and /dev/infiniband, and /run.

A program in another network namespace has the /sys of the machine, whose /sys/class/net shows the machine's interfaces.
So a node's are mounted there.

In shared RDMA netns mode the kernel shows every device in every namespace, and in both modes /dev/infiniband has the
character devices of all. A verbs program that uses the first device it finds would use another node's, and two such
programs would communicate without a frame on the wire. libibverbs lists devices that the kernel reports over netlink
and whose character device it can stat (rdma-core, libibverbs/init.c and ibdev_nl.c). So each program starts in its own
mount namespace, without the files of other nodes.

A pod shares its machine with its node and the node's other pods. In shared mode it finds their devices in sysfs, as in
any container, but not their files: a container gets only those it is given, by a device plugin also its node's. A
privileged one gets all.

The kernel's netlink (`rdma link`) still lists all devices in shared mode.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from testbed.errors import TestbedError
from testbed.kernel import mounts, netns, pid_namespaces
from testbed.kernel.rdma import Rdma
from testbed.kernel.syscalls import closing_fd, own_host_name

ROOT = Path("/run/testbed/rdma")
"""A tmpfs of its own: /run is often mounted without devices. It has a directory for each node."""
SHOWN: Mapping[str, Path] = {
    "dev": Path("/dev/infiniband"),
    "infiniband": Path("/sys/class/infiniband"),
    "infiniband_verbs": Path("/sys/class/infiniband_verbs"),
}
"""A node's own files, and where its programs find them."""
NET = "class/net", "devices/virtual/net"
"""Directories below /sys that a node has of its own. A physical NIC is a link to its bus, which is not there."""
RUN = Path("/run")


@dataclass(frozen=True)
class Bind:
    """A file or a directory that programs find at another place, too."""

    source: Path
    read_only: bool = False


Binds = Mapping[str, Bind]
"""Files and directories by the places where programs find them, which exist."""
NO_BINDS: Binds = {}
NAMES = "netns"
"""The directory of /run with the names of network namespaces. A node has its own: `ip netns add` of a program stays."""
SHARED = "testbed", "systemd", "frr/{namespace}"
"""What a node has of the machine's /run: the lab's files, systemd's resolver, and the daemons that the lab started."""
SYS = Path("/proc/1/root/sys")
"""The first process's /sys, whatever is mounted over it here."""
CONNECTION_MANAGER = "rdma_cm"
ABI_VERSION = "abi_version"


def below(sysfs: Path, kind: str, name: str) -> str:
    """Return a device's path below the root of a sysfs: a NIC is on its bus. Soft-RoCE is virtual, as is a device that
    this sysfs does not show."""
    with contextlib.suppress(FileNotFoundError):
        return os.readlink(sysfs / "class" / kind / name).removeprefix("../../")
    return f"devices/virtual/{kind}/{name}"


class _Devices:
    """The RDMA devices of one network namespace's interfaces; `files` has the character device of each."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[str, int] | None] = {}
        self._known: dict[tuple[str, int], bool] | None = None
        """True for a device, by name and index, in this namespace; devices never move to another."""

    def update(self, here: Rdma) -> bool:
        """Add new devices and drop deleted ones. Return whether the set of visible devices changed."""
        there = {(name, index) for name, index in here.devices().items()}
        before = self._known or {}
        if self._known is not None and there == before.keys():
            return False
        new = {device: here.interface(device[1]) is not None for device in sorted(there - before.keys())}
        self._known = {device: own for device, own in {**before, **new}.items() if device in there}
        self.files = {name: here.character_device(index) for (name, index), own in self._known.items() if own}
        return True


class OwnDevices:
    """The files of one namespace's RDMA devices, in existing directories. Running programs follow each `refresh`."""

    def __init__(
        self,
        places: Mapping[str, Path],
        sysfs: Path | None = None,
        beside: Callable[[], Sequence[str]] = tuple,
        given: Collection[str] = (),
        *,
        privileged: bool = False,
    ) -> None:
        """`places` by the names of SHOWN. In exclusive mode a device is in its network namespace's sysfs only, which is
        mounted on `sysfs`, or is the programs' /sys anyway (None). `beside` returns the machine's other namespaces,
        whose files are included for the devices in `given`, or for all if it is `privileged`."""
        self._places = places
        self._sysfs = sysfs
        self._beside = beside
        self._given = given
        self._privileged = privileged
        self._own = _Devices()
        self._others: dict[str, _Devices] = {}

    def refresh(self) -> None:
        """Update the files. Call it in the namespace."""
        with Rdma() as here:
            exclusive = here.exclusive
            changed = self._own.update(here)
            hidden = exclusive and not self._privileged
            if not hidden and (changed or exclusive):  # exclusive mode shows a namespace only its own changes
                changed |= self._update_others()
            if changed:
                self._write(exclusive=exclusive)

    def _update_others(self) -> bool:
        """Do as `update` for the machine's other namespaces."""
        before = {name: dict(devices.files) for name, devices in self._others.items()}
        self._others = {name: self._others.get(name) or _Devices() for name in self._beside()}
        for name, devices in self._others.items():
            with netns.entered(name), Rdma() as there:
                devices.update(there)
        return before != {name: devices.files for name, devices in self._others.items()}

    def _write(self, *, exclusive: bool) -> None:
        others = {name: file for devices in self._others.values() for name, file in devices.files.items()}
        shown = self._own.files if exclusive else {**others, **self._own.files}
        more = {name: file for name, file in others.items() if self._privileged or name in self._given}
        files = dict(filter(None, {**more, **self._own.files}.values()))
        for name in _others(self._places["dev"], [*files, CONNECTION_MANAGER]):
            (self._places["dev"] / name).unlink()
        for name, number in files.items():
            _make_node(self._places["dev"] / name, number)
        verbs = dict(filter(None, shown.values()))
        self._link("infiniband_verbs", {name: f"../../{below(SYS, 'infiniband_verbs', name)}" for name in verbs})
        top, sysfs = Path("../.."), SYS
        if exclusive and self._sysfs is not None:
            top = sysfs = self._sysfs
        self._link("infiniband", {name: f"{top}/{below(sysfs, 'infiniband', name)}" for name in shown})

    def _link(self, place: str, links: Mapping[str, str]) -> None:
        for name in _others(self._places[place], [*links, ABI_VERSION]):
            (self._places[place] / name).unlink()
        for name, target in links.items():
            with contextlib.suppress(FileExistsError):
                (self._places[place] / name).symlink_to(target)


class _Common:
    """The files that all nodes share: read before anything is mounted over them."""

    def __init__(self) -> None:
        manager, version = SHOWN["dev"] / CONNECTION_MANAGER, SHOWN["infiniband_verbs"] / ABI_VERSION
        self._manager = manager.stat().st_rdev if manager.exists() else None
        self._version = version.read_bytes() if version.exists() else b""

    def put(self, places: Mapping[str, Path]) -> None:
        if self._manager is not None:
            _make_node(places["dev"] / CONNECTION_MANAGER, self._manager)
        if self._version:
            (places["infiniband_verbs"] / ABI_VERSION).write_bytes(self._version)


@dataclass
class _View:
    """The devices that a namespace's programs find."""

    machine: str
    """The namespace of its node."""
    name: str
    """The host name of its programs."""
    privileged: bool
    given: set[str] = field(default_factory=set)
    """Devices of its node whose files it has."""
    devices: OwnDevices | None = None
    """None before its first program."""


_OF: dict[str, _View] = {}
"""Views by namespace."""


def begin() -> None:
    """
    Prepare this machine for `entered`.

    Mounts propagate between the mount namespaces of programs and the machine, as systemd sets it up: a mount of a
    program (`ip netns add`) stays, and no program keeps a deleted network namespace alive.
    """
    if not _propagates():  # else mounts are private on this machine on purpose
        mounts.mount("none", "/", mounts.MS_REC | mounts.MS_SHARED)
    ROOT.mkdir(parents=True, exist_ok=True)
    if not os.path.ismount(ROOT):
        mounts.mount("tmpfs", ROOT, kind="tmpfs")


def _propagates() -> bool:
    fields = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return any(words[4] == "/" and words[6].startswith("shared:") for words in fields)


def end() -> None:
    """Undo `begin`, except the propagation, unless another lab has files there."""
    if os.path.ismount(ROOT) and not os.listdir(ROOT):
        mounts.unmount(ROOT)


def add(namespace: str, name: str, node: str = "", *, privileged: bool = False) -> None:
    """Show only the namespace's own devices to programs that start in it from now on; their host name is `name`. A
    pod's namespace is on the machine of its `node`, another namespace, and may be `privileged`."""
    _OF[namespace] = _View(node or namespace, name, privileged)


def give(namespace: str, devices: Iterable[str]) -> None:
    """Give a pod's programs the files of devices of its node, too."""
    _OF[namespace].given.update(devices)


def _own(namespace: str) -> OwnDevices | None:
    """Return a namespace's files, created for its first program; None if it belongs to no node."""
    view = _OF.get(namespace)
    if view is not None and view.devices is None:
        view.devices = _make(namespace, view)
    return view.devices if view else None


def _make(namespace: str, view: _View) -> OwnDevices:
    top = ROOT / namespace
    discard(namespace)  # left by a killed lab
    places = {name: top / name for name in SHOWN}
    for place in places.values():
        place.mkdir(parents=True)
    _Common().put(places)
    (top / "sys").mkdir()
    lock = top / "run" / "lock"
    lock.mkdir(parents=True)
    lock.chmod(0o1777)
    (top / NAMES).mkdir()
    with netns.entered(namespace):
        mounts.mount("sysfs", top / "sys", kind="sysfs")

    def beside() -> Sequence[str]:
        if view.machine == namespace:
            return ()
        return [name for name, other in _OF.items() if other.machine == view.machine and name != namespace]

    return OwnDevices(places, top / "sys", beside, view.given, privileged=view.privileged)


def remove(namespace: str) -> None:
    view = _OF.pop(namespace, None)
    if view and view.devices:
        discard(namespace)


def discard(namespace: str) -> None:
    """Remove the files of a namespace, whichever process made them."""
    top = ROOT / namespace
    if os.path.ismount(top / "sys"):
        mounts.unmount(top / "sys")
    for name in sorted((top / NAMES).glob("*")):  # by `ip netns add` of a program
        with contextlib.suppress(TestbedError):
            mounts.unmount(name)
    shutil.rmtree(top, ignore_errors=True)


def show_in(process: int) -> None:
    """Show only the devices of a process's network namespace, as they are now, to all programs in its mount namespace,
    which is not the machine's: for hosts that others create, such as Mininet's."""
    common = _Common()

    def mount_and_write() -> None:
        for where in filter(Path.exists, SHOWN.values()):
            if not os.path.ismount(where):
                mounts.mount("tmpfs", where, kind="tmpfs")
        common.put(SHOWN)
        OwnDevices(SHOWN).refresh()

    mounts.within(process, mount_and_write)


def directory(namespace: str) -> Path:
    """Update the files of a namespace's devices and return their directory, with the names of SHOWN."""
    own = _own(namespace)
    if own is None:
        raise KeyError(namespace)
    with netns.entered(namespace):
        own.refresh()
    return ROOT / namespace


@contextlib.contextmanager
def entered(namespace: str, devices_of: str = "", *, own_run: bool = True, binds: Binds = NO_BINDS) -> Iterator[None]:
    """Run the block in a network namespace; programs that it starts find that namespace's devices, or those of
    `devices_of`, and its /run, or with `own_run` False the machine's, and the files of `binds`. They are processes of
    its PID namespace, if it has one. In a namespace of no node they find all."""
    own = _own(devices_of or namespace)
    if own is None:
        with netns.entered(namespace):
            yield
        return
    with netns.entered(devices_of or namespace):
        own.refresh()
    if namespace in _OF:
        _own(namespace)
    with netns.entered(namespace), mounts.own_mounts(), ExitStack() as names:
        if namespace in _OF:
            for part in NET:
                mounts.mount(ROOT / namespace / "sys" / part, f"/sys/{part}", mounts.MS_BIND)
            if own_run:
                _mount_run(namespace)
            names.enter_context(own_host_name(_OF[namespace].name))
        for name, where in SHOWN.items():
            if where.exists():
                mounts.mount(ROOT / (devices_of or namespace) / name, where, mounts.MS_BIND)
        if binds:
            mounts.mount("none", "/", mounts.MS_SLAVE)  # else the machine would get them, too
        for place, bind in binds.items():
            mounts.mount(bind.source, place, mounts.MS_BIND)
            if bind.read_only:
                mounts.mount("none", place, mounts.MS_BIND | mounts.MS_REMOUNT | mounts.MS_RDONLY)
        if pid_namespaces.exists(namespace):
            names.enter_context(pid_namespaces.entered(namespace))
            mounts.mount("none", "/proc", mounts.MS_PRIVATE)
            pid_namespaces.mount_proc(namespace, "/proc")
        yield


def _mount_run(namespace: str) -> None:
    """Mount a namespace's own /run. What is unmounted on the machine later, such as the name of a network namespace,
    goes here too, or it would stay alive."""
    own = ROOT / namespace / "run"
    shared = [name for name in (one.format(namespace=namespace) for one in SHARED) if (RUN / name).is_dir()]
    with ExitStack() as trees:

        def clone(place: Path) -> int:
            return trees.enter_context(closing_fd(mounts.clone(place)))

        found = {NAMES: clone(ROOT / namespace / NAMES), **{name: clone(RUN / name) for name in shared}}
        run = clone(own)
        for place in ROOT, RUN:
            mounts.mount("none", place, mounts.MS_SLAVE)
        mounts.attach(run, RUN)
        mounts.mount("none", RUN, mounts.MS_PRIVATE)
        for name, tree in found.items():
            (RUN / name).mkdir(parents=True, exist_ok=True)
            mounts.attach(tree, RUN / name)


def _make_node(path: Path, number: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mknod(path, stat.S_IFCHR | 0o666, number)
        path.chmod(0o666)  # whatever the umask


def _others(directory: Path, names: list[str]) -> list[str]:
    return sorted(set(os.listdir(directory)) - set(names))
