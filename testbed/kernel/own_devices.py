"""
What a node's programs see of RDMA: the devices of its own interfaces, in /dev/infiniband and in sysfs.

In shared RDMA netns mode the kernel shows every device in every namespace, and in both modes the character devices of
all are in /dev/infiniband. A verbs program that takes the first device it finds would work on another node's, and two
such programs would talk with each other without a frame on the wire. libibverbs lists what the kernel reports over
netlink, and of that only devices whose character device it can stat (rdma-core, libibverbs/init.c and
ibdev_nl.c): so each program begins in a mount namespace of its own, in which the files of the others are not there.

The kernel's netlink (`rdma link`) still lists all devices in shared mode.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
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
CONNECTION_MANAGER = "rdma_cm"
ABI_VERSION = "abi_version"


class OwnDevices:
    """The files of one namespace's RDMA devices, in directories that are there. Running programs see each `refresh`."""

    def __init__(self, places: Mapping[str, Path], sysfs: Path | None = None) -> None:
        """`places` by the names of SHOWN. In exclusive mode a device is in the sysfs of its network namespace only:
        that is mounted on `sysfs`, or it is the /sys that programs have anyway (None)."""
        self._places = places
        self._sysfs = sysfs
        self._known: dict[tuple[str, int], bool] | None = None
        """Whether a device, by name and index, is one of this namespace; none ever moves to another."""

    def refresh(self) -> None:
        """Take in devices that came and let go of those that went. Called in the namespace."""
        with Rdma() as here:
            there = {(name, index) for name, index in here.devices().items()}
            before = self._known or {}
            if self._known is not None and there == before.keys():
                return
            new = {device: here.interface(device[1]) is not None for device in sorted(there - before.keys())}
            self._known = {device: own for device, own in {**before, **new}.items() if device in there}
            self._write({name: here.character_device(index) for (name, index), own in self._known.items() if own}, here)

    def _write(self, devices: Mapping[str, tuple[str, int] | None], here: Rdma) -> None:
        files = dict(filter(None, devices.values()))
        for name in _others(self._places["dev"], [*files, CONNECTION_MANAGER]):
            (self._places["dev"] / name).unlink()
        for name, number in files.items():
            _make_node(self._places["dev"] / name, number)
        self._link("infiniband_verbs", {name: f"../../devices/virtual/infiniband_verbs/{name}" for name in files})
        top = Path("../..")
        if here.exclusive and self._sysfs is not None:
            top = self._sysfs
            if not os.path.ismount(top):
                top.mkdir(exist_ok=True)
                mounts.mount("sysfs", top, kind="sysfs")
        self._link("infiniband", {name: f"{top}/devices/virtual/infiniband/{name}" for name in devices})

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


_OF: dict[str, OwnDevices | None] = {}
"""By namespace; None before its first program."""


def begin() -> None:
    """
    Prepare this machine for `entered`.

    Mounts propagate between the mount namespaces of programs and that of the machine, as systemd has it: what a
    program mounts (`ip netns add`) stays, and no program keeps a network namespace alive that was deleted.
    """
    mounts.mount("none", "/", mounts.MS_REC | mounts.MS_SHARED)
    ROOT.mkdir(parents=True, exist_ok=True)
    if not os.path.ismount(ROOT):
        mounts.mount("tmpfs", ROOT, kind="tmpfs")


def end() -> None:
    """Leave nothing of `begin` but the propagation, unless another lab is there."""
    if os.path.ismount(ROOT) and not os.listdir(ROOT):
        mounts.unmount(ROOT)


def add(namespace: str) -> None:
    """Have programs that are started in the namespace from now on see its devices only."""
    _OF[namespace] = None


def _own(namespace: str) -> OwnDevices | None:
    """Return the files of a namespace, which are made for its first program; None for one that no node has."""
    if _OF.get(namespace) is None and namespace in _OF:
        _OF[namespace] = _make(namespace)
    return _OF.get(namespace)


def _make(namespace: str) -> OwnDevices:
    top = ROOT / namespace
    shutil.rmtree(top, ignore_errors=True)  # of a lab that was killed
    places = {name: top / name for name in SHOWN}
    for place in places.values():
        place.mkdir(parents=True)
    _Common().put(places)
    return OwnDevices(places, top / "sys")


def remove(namespace: str) -> None:
    if _OF.pop(namespace, None):
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
