"""
What a node's programs see of RDMA: the devices of its own interfaces, in /dev/infiniband and in sysfs.

In shared RDMA netns mode the kernel shows every device in every namespace, and in both modes the character devices of
all are in /dev/infiniband. A verbs program that takes the first device it finds would work on another node's, and two
such programs would talk with each other without a frame on the wire. libibverbs lists what the kernel reports over
netlink, and of that only devices whose character device it can stat (rdma-core, libibverbs/init.c and
ibdev_nl.c): so each program begins in a mount namespace of its own, in which the files of the others are not there.

A pod shares its machine with its node and the node's other pods. In shared mode it finds their devices in sysfs, as in
any container, but no files of them: a container gets those that it is given. A privileged one gets all.

The kernel's netlink (`rdma link`) still lists all devices in shared mode.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.kernel import mounts, netns
from testbed.kernel.rdma import Rdma

ROOT = Path("/run/testbed/rdma")
"""A tmpfs of its own: /run is often mounted without devices. Below it is a directory for each node."""
SHOWN: Mapping[str, Path] = {
    "dev": Path("/dev/infiniband"),
    "infiniband": Path("/sys/class/infiniband"),
    "infiniband_verbs": Path("/sys/class/infiniband_verbs"),
}
"""The files that a node has of its own, and where its programs see them."""
SYS = Path("/proc/1/root/sys")
"""As the first process sees it, whatever is mounted over it here."""
CONNECTION_MANAGER = "rdma_cm"
ABI_VERSION = "abi_version"


def below(sysfs: Path, kind: str, name: str) -> str:
    """Return where a device of a class is below the root of a sysfs: a NIC's is on its bus, soft-RoCE's are virtual,
    and so is one that this sysfs does not show."""
    with contextlib.suppress(FileNotFoundError):
        return os.readlink(sysfs / "class" / kind / name).removeprefix("../../")
    return f"devices/virtual/{kind}/{name}"


class _Devices:
    """The RDMA devices of one network namespace's interfaces: `files` has the character device of each."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[str, int] | None] = {}
        self._known: dict[tuple[str, int], bool] | None = None
        """Whether a device, by name and index, is one of this namespace; none ever moves to another."""

    def update(self, here: Rdma) -> bool:
        """Take in devices that came and let go of those that went. Whether the namespace sees others than before."""
        there = {(name, index) for name, index in here.devices().items()}
        before = self._known or {}
        if self._known is not None and there == before.keys():
            return False
        new = {device: here.interface(device[1]) is not None for device in sorted(there - before.keys())}
        self._known = {device: own for device, own in {**before, **new}.items() if device in there}
        self.files = {name: here.character_device(index) for (name, index), own in self._known.items() if own}
        return True


class OwnDevices:
    """The files of one namespace's RDMA devices, in directories that are there. Running programs see each `refresh`."""

    def __init__(
        self,
        places: Mapping[str, Path],
        sysfs: Path | None = None,
        beside: Callable[[], Sequence[str]] = tuple,
        *,
        privileged: bool = False,
    ) -> None:
        """`places` by the names of SHOWN. In exclusive mode a device is in the sysfs of its network namespace only:
        that is mounted on `sysfs`, or it is the /sys that programs have anyway (None). `beside` returns the other
        namespaces of the machine, whose files are among these if it is `privileged`."""
        self._places = places
        self._sysfs = sysfs
        self._beside = beside
        self._privileged = privileged
        self._own = _Devices()
        self._others: dict[str, _Devices] = {}

    def refresh(self) -> None:
        """Bring the files up to date. Called in the namespace."""
        with Rdma() as here:
            exclusive = here.exclusive
            changed = self._own.update(here)
            hidden = exclusive and not self._privileged
            if not hidden and (changed or exclusive):  # which shows each namespace changes of its own only
                changed |= self._update_others()
            if changed:
                self._write(exclusive=exclusive)

    def _update_others(self) -> bool:
        """The same of the other namespaces of the machine."""
        before = {name: dict(devices.files) for name, devices in self._others.items()}
        self._others = {name: self._others.get(name) or _Devices() for name in self._beside()}
        for name, devices in self._others.items():
            with netns.entered(name), Rdma() as there:
                devices.update(there)
        return before != {name: devices.files for name, devices in self._others.items()}

    def _write(self, *, exclusive: bool) -> None:
        others = {name: file for devices in self._others.values() for name, file in devices.files.items()}
        shown = self._own.files if exclusive else {**others, **self._own.files}
        given = {**others, **self._own.files} if self._privileged else self._own.files
        files = dict(filter(None, given.values()))
        for name in _others(self._places["dev"], [*files, CONNECTION_MANAGER]):
            (self._places["dev"] / name).unlink()
        for name, number in files.items():
            _make_node(self._places["dev"] / name, number)
        verbs = dict(filter(None, shown.values()))
        self._link("infiniband_verbs", {name: f"../../{below(SYS, 'infiniband_verbs', name)}" for name in verbs})
        top, sysfs = Path("../.."), SYS
        if exclusive and self._sysfs is not None:
            top = sysfs = self._sysfs
            if not os.path.ismount(top):
                top.mkdir(exist_ok=True)
                mounts.mount("sysfs", top, kind="sysfs")
        self._link("infiniband", {name: f"{top}/{below(sysfs, 'infiniband', name)}" for name in shown})

    def _link(self, place: str, links: Mapping[str, str]) -> None:
        for name in _others(self._places[place], [*links, ABI_VERSION]):
            (self._places[place] / name).unlink()
        for name, target in links.items():
            with contextlib.suppress(FileExistsError):
                (self._places[place] / name).symlink_to(target)


class _Common:
    """The files that are the same for all nodes: read before anything is mounted over them."""

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
    """What the programs of a namespace find."""

    machine: str
    """The namespace of the node that it is of."""
    privileged: bool
    devices: OwnDevices | None = None
    """None before its first program."""


_OF: dict[str, _View] = {}
"""By namespace."""


def begin() -> None:
    """
    Prepare this machine for `entered`.

    Mounts propagate between the mount namespaces of programs and that of the machine, as systemd has it: what a
    program mounts (`ip netns add`) stays, and no program keeps a network namespace alive that was deleted.
    """
    if not _propagates():  # else what is private on this machine is so on purpose
        mounts.mount("none", "/", mounts.MS_REC | mounts.MS_SHARED)
    ROOT.mkdir(parents=True, exist_ok=True)
    if not os.path.ismount(ROOT):
        mounts.mount("tmpfs", ROOT, kind="tmpfs")


def _propagates() -> bool:
    fields = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return any(words[4] == "/" and words[6].startswith("shared:") for words in fields)


def end() -> None:
    """Leave nothing of `begin` but the propagation, unless another lab has files there."""
    if os.path.ismount(ROOT) and not os.listdir(ROOT):
        mounts.unmount(ROOT)


def add(namespace: str, node: str = "", *, privileged: bool = False) -> None:
    """Have programs that are started in the namespace from now on see its devices only. That of a pod is on the machine
    of its `node`, another namespace, and may be `privileged`."""
    _OF[namespace] = _View(node or namespace, privileged)


def _own(namespace: str) -> OwnDevices | None:
    """Return the files of a namespace, which are made for its first program; None for one that no node has."""
    view = _OF.get(namespace)
    if view is not None and view.devices is None:
        view.devices = _make(namespace, view)
    return view.devices if view else None


def _make(namespace: str, view: _View) -> OwnDevices:
    top = ROOT / namespace
    shutil.rmtree(top, ignore_errors=True)  # of a lab that was killed
    places = {name: top / name for name in SHOWN}
    for place in places.values():
        place.mkdir(parents=True)
    _Common().put(places)

    def beside() -> Sequence[str]:
        if view.machine == namespace:
            return ()
        return [name for name, other in _OF.items() if other.machine == view.machine and name != namespace]

    return OwnDevices(places, top / "sys", beside, privileged=view.privileged)


def remove(namespace: str) -> None:
    view = _OF.pop(namespace, None)
    if view and view.devices:
        discard(namespace)


def discard(namespace: str) -> None:
    """Remove the files of a namespace, whichever process made them."""
    top = ROOT / namespace
    if os.path.ismount(top / "sys"):
        mounts.unmount(top / "sys")
    shutil.rmtree(top, ignore_errors=True)


def show_in(process: int) -> None:
    """Have all programs in the mount namespace of a process, which is not the machine's, see the devices of its network
    namespace only, as they are now: for hosts that others make, such as Mininet's."""
    common = _Common()

    def mount_and_write() -> None:
        for where in filter(Path.exists, SHOWN.values()):
            if not os.path.ismount(where):
                mounts.mount("tmpfs", where, kind="tmpfs")
        common.put(SHOWN)
        OwnDevices(SHOWN).refresh()

    mounts.within(process, mount_and_write)


def directory(namespace: str) -> Path:
    """Return where the files of a namespace's devices are, under the names of SHOWN; they are brought up to date."""
    own = _own(namespace)
    if own is None:
        raise KeyError(namespace)
    with netns.entered(namespace):
        own.refresh()
    return ROOT / namespace


@contextlib.contextmanager
def entered(namespace: str, devices_of: str = "") -> Iterator[None]:
    """Run the block in a network namespace; programs that it starts see the devices of that namespace, or of
    `devices_of`. A namespace that no node has sees all."""
    own = _own(devices_of or namespace)
    if own is None:
        with netns.entered(namespace):
            yield
        return
    with netns.entered(devices_of or namespace):
        own.refresh()
    with netns.entered(namespace), mounts.own_mounts():
        for name, where in SHOWN.items():
            if where.exists():
                mounts.mount(ROOT / (devices_of or namespace) / name, where, mounts.MS_BIND)
        yield


def _make_node(path: Path, number: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mknod(path, stat.S_IFCHR | 0o666, number)
        path.chmod(0o666)  # whatever the umask is


def _others(directory: Path, names: list[str]) -> list[str]:
    return sorted(set(os.listdir(directory)) - set(names))
