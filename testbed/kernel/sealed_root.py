"""The root directory and the rights of programs of users in a sealed lab.

Such a program is root on its node and nobody on the machine. It has the node's networks, processes, devices and files,
and none of this machine: not the code of testbed, the job bundle, memory devices, or control groups. What is there is a
list of what may be there, not of what may not. Its capabilities are those that a node's network needs; with none of the
others in the bounding set, no program gets them back. What somebody else executes with more rights is not writable.
"""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from testbed.kernel import mounts, netns, own_devices, pid_namespaces, syscalls
from testbed.kernel.impairments import cables
from testbed.kernel.mounts import MS_NODEV, MS_NOSUID, MS_PRIVATE, MS_REC
from testbed.kernel.own_devices import NO_BINDS, Binds
from testbed.kernel.syscalls import CLONE_NEWNS, closing_fd, setns, unshare

CAPABILITIES = (
    "chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap",
    "net_bind_service", "net_broadcast", "net_admin", "net_raw", "ipc_lock", "ipc_owner",
)  # fmt: skip
"""Those of a sealed program. SYS_NICE is none: one real-time loop would have the only CPU for ever."""
RIGHTS = ("setpriv", f"--bounding-set=-all,{','.join(f'+{name}' for name in CAPABILITIES)}", "--inh-caps=-all", "--")
"""The words before a sealed program's command."""
NEW, OLD = Path("/run/testbed/sealed"), "machine"
"""Where a root is made, and the directory in it where the machine's is until it is left."""
BYTES = "256m"
"""The size of what programs of a node may write."""
DIRECTORIES = "dev", "etc", "home", "media", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp", "usr", "var", OLD
OF_VAR = "cache", "lib", "log", "spool", "tmp"
DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
"""Files of /dev, with the numbers of their devices (Documentation/admin-guide/devices.txt)."""
TUN = 10, 200
LINKS = {
    "ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}  # fmt: skip
CODE = "usr/lib/testbed"
OWN_PATH = "/usr/sbin:/usr/bin"
UNSEEN = ("sys/firmware", "sys/bus/nd", "sys/kernel/debug", "sys/kernel/tracing", "sys/kernel/security", "proc/acpi")
"""Directories that are empty for sealed programs."""
UNREAD = ("kcore", "keys", "kmsg", "kpagecount", "kpageflags", "kpagecgroup", "sysrq-trigger", "timer_list")
"""Files of /proc that are empty for them."""
UNCHANGED = "bus", "fs", "irq", "sys"
"""Directories of /proc in which they change nothing, except what belongs to their network."""
NETWORK = "sys/net"
LIMIT = "/proc/sys/user/max_user_namespaces"
"""0 in a machine with a sealed lab: in a user namespace of its own a program would have all capabilities."""
_roots: dict[str, int] = {}


def statistics(namespace: str) -> Path:
    """Return the socket with the counters of a node's lossless ports, if it has some."""
    return own_devices.ROOT / namespace / "statistics"


def remove(namespace: str) -> None:
    """Forget the root of a namespace's programs, if there is one. It ends with the last of them."""
    if (root := _roots.pop(namespace, None)) is not None:
        os.close(root)


@contextlib.contextmanager
def entered(namespace: str, shown: Iterable[Path], binds: Binds = NO_BINDS) -> Iterator[None]:
    """Run the block in a sealed node: programs that it starts with the words of RIGHTS see the node only. `shown` are
    the machine's directories that they can read, at their own places; those and `binds` as at the first call."""
    own_devices.directory(namespace)  # up to date
    if namespace not in _roots:
        _roots[namespace] = _made(namespace, list(shown), binds)
    unshare(syscalls.CLONE_FS)  # other threads keep their root
    with (
        closing_fd(os.open("/proc/thread-self/ns/mnt", os.O_RDONLY)) as before,
        closing_fd(os.open(".", os.O_PATH)) as directory,
        netns.entered(namespace),
        pid_namespaces.entered(namespace, whole=True),
    ):
        setns(_roots[namespace], CLONE_NEWNS)
        try:
            yield
        finally:
            setns(before, CLONE_NEWNS)
            os.fchdir(directory)


def _made(namespace: str, shown: Sequence[Path], binds: Binds) -> int:
    """Make the root, and return its mount namespace."""
    Path(LIMIT).write_text("0")
    NEW.mkdir(parents=True, exist_ok=True)
    with (
        closing_fd(os.open("/proc/thread-self/ns/mnt", os.O_RDONLY)) as before,
        closing_fd(os.open(".", os.O_PATH)) as directory,
        netns.entered(namespace),
    ):
        unshare(CLONE_NEWNS)
        try:
            mounts.mount("none", "/", MS_REC | MS_PRIVATE)
            mounts.mount("tmpfs", NEW, MS_NOSUID | MS_NODEV, "tmpfs", f"size={BYTES},mode=755")
            _furnish(namespace, shown, binds)
            mounts.pivot_root(NEW, NEW / OLD)
            own = os.open(f"/{OLD}/proc/thread-self/ns/mnt", os.O_RDONLY)
            mounts.unmount(f"/{OLD}")
            os.rmdir(f"/{OLD}")
        finally:
            setns(before, CLONE_NEWNS)
            os.fchdir(directory)
    return own


def _furnish(namespace: str, shown: Sequence[Path], binds: Binds) -> None:
    for name in DIRECTORIES:
        (NEW / name).mkdir()
    (NEW / "tmp").chmod(0o1777)
    for entry in Path("/").iterdir():
        if entry.is_symlink():
            (NEW / entry.name).symlink_to(os.readlink(entry))
    for name in "usr", "etc":
        mounts.bind(f"/{name}", NEW / name)
    for name in OF_VAR:
        (NEW / "var" / name).mkdir()
    (NEW / "var" / "tmp").chmod(0o1777)
    (NEW / "var" / "run").symlink_to("/run")
    _put_devices(NEW / "dev", namespace)
    _put_run(NEW / "run", namespace, shown)
    own = own_devices.ROOT / namespace
    mounts.bind(own / "sys", NEW / "sys")
    for name, where in own_devices.SHOWN.items():
        if where.is_relative_to("/sys") and (inside := NEW / where.relative_to("/")).is_dir():
            mounts.bind(own / name, inside)
    for place, bound in binds.items():
        target = NEW / Path(place).relative_to("/")
        with contextlib.suppress(FileExistsError, OSError):
            target.mkdir(parents=True) if bound.source.is_dir() else target.touch()
        mounts.bind(bound.source, target)
    _put_ethtool(statistics(namespace))
    _put_processes(NEW / "proc", namespace)
    empty = NEW / "var" / "cache"
    for name in CODE, *UNSEEN:
        if (NEW / name).is_dir():
            mounts.bind(empty, NEW / name)


def _put_devices(dev: Path, namespace: str) -> None:
    mounts.mount("tmpfs", dev, MS_NOSUID, "tmpfs", f"size={BYTES},mode=755")
    for name in "net", "pts", "shm", "infiniband":
        (dev / name).mkdir()
    for name, numbers in {**DEVICES, "net/tun": TUN}.items():
        os.mknod(dev / name, stat.S_IFCHR, os.makedev(*numbers))
        (dev / name).chmod(0o666)
    for name, target in LINKS.items():
        (dev / name).symlink_to(target)
    (dev / "shm").chmod(0o1777)
    mounts.bind("/dev/pts", dev / "pts", read_only=False)  # that of the terminals which programs get
    mounts.bind(own_devices.ROOT / namespace / "dev", dev / "infiniband")


def _put_run(run: Path, namespace: str, shown: Sequence[Path]) -> None:
    """Put the node's own /run, with the sockets of its daemons, and what the machine shows to all."""
    own = own_devices.ROOT / namespace
    for name in "netns", "testbed", "frr":
        (own / "run" / name).mkdir(exist_ok=True)
    mounts.bind(own / "run", run, read_only=False)
    mounts.bind(own / own_devices.NAMES, run / "netns", read_only=False)
    mounts.mount("tmpfs", run / "testbed", MS_NOSUID | MS_NODEV, "tmpfs", f"size={BYTES},mode=755")
    mounts.mount("tmpfs", run / "frr", MS_NOSUID | MS_NODEV, "tmpfs", f"size={BYTES},mode=755")
    if (daemons := own_devices.RUN / "frr" / namespace).is_dir():
        (run / "frr" / namespace).mkdir()
        mounts.bind(daemons, run / "frr" / namespace)
        for socket in daemons.glob("*.vty"):  # vtysh without -N finds the daemons, too
            (run / "frr" / socket.name).symlink_to(f"{namespace}/{socket.name}")
    for directory in (own / "sys", *shown):  # links of RDMA devices lead into this /sys
        place = NEW / directory.relative_to("/")
        place.mkdir(parents=True, exist_ok=True)
        mounts.bind(directory, place)


def _put_ethtool(lossless: Path) -> None:
    """Put the ethtool whose statistics have the frames that arrived damaged, and the counters of lossless ports. The
    driver's is beside the map of the former."""
    found = shutil.which("ethtool", path=OWN_PATH)  # not that of lossless links
    errors = cables.BPF_FILES / cables.ERRORS
    if found is None or not errors.exists():
        return
    cables.ETHTOOL.chmod(0o755)  # code comes into a machine without its modes
    beside = {cables.ERRORS: errors, "ethtool": Path(found), **({"statistics": lossless} if lossless.exists() else {})}
    for name, source in beside.items():
        (NEW / "run/testbed" / name).touch()
        mounts.bind(source, NEW / "run/testbed" / name)
    mounts.bind(cables.ETHTOOL, NEW / found.removeprefix("/"))


def _put_processes(proc: Path, namespace: str) -> None:
    """Put a /proc of the node's processes, in which only its network can be changed."""
    pid_namespaces.mount_proc(namespace, proc, MS_NOSUID | MS_NODEV)
    for name in UNCHANGED:
        mounts.bind(proc / name, proc / name)
    mounts.bind(proc / NETWORK, proc / NETWORK, read_only=False)
    for name in UNREAD:
        if (proc / name).exists():
            mounts.bind("/dev/null", proc / name)
