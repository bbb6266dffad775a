"""Check of this machine: what testbed needs and finds, and the commands that install what is missing."""

import ctypes
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from testbed.errors import TestbedError, UnsupportedError
from testbed.machine import cache, emulator, image, image_build, kvm, recipe, shipped, snapshot
from testbed.machine.image import Image
from testbed.machine.image_build import apt
from testbed.machine.qemu import Flavour
from testbed.version import version

State = Literal["works", "note", "missing"]
CNI_PLUGINS = ("/usr/lib/cni", "/opt/cni/bin")
OLDEST_LOCAL_KERNEL = (7, 1)
"""First Linux version whose rdma_rxe works inside network namespaces."""
NEWER_KERNEL = "sudo apt-get install -t trixie-backports linux-image-amd64 && sudo reboot"
LOCAL_MODULES = ("rdma_rxe", "ib_uverbs", "veth", "bridge", "8021q", "nf_tables")
LOCAL_TOOLS = {**dict.fromkeys(("ip", "tc", "bridge", "rdma"), "iproute2"), "ping": "iputils-ping", "modprobe": "kmod"}
"""Programs that a lab on this kernel may call, and their Debian packages."""
NFTABLES = "libnftables.so.1"
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_MODULE": 16, "CAP_SYS_ADMIN": 21}
"""Capabilities by their bits (include/uapi/linux/capability.h)."""
STATUS = Path("/proc/self/status")
TRACING = Path("/sys/kernel/tracing/instances")
DEBIAN_PYVERBS = Path("/usr/lib/python3/dist-packages/pyverbs")


@dataclass(frozen=True)
class Check:
    """One finding. `note` is information that blocks nothing; `fix` is the command to type."""

    subject: str
    state: State
    text: str
    fix: str = ""


def _look(subject: str, works: object, text: str, lacking: str, fix: str = "", state: State = "missing") -> Check:
    return Check(subject, "works", text) if works else Check(subject, state, lacking, fix)


def _command(hint: str) -> str:
    """Return the command of a hint, which is behind a colon."""
    return hint.partition("\n")[0].rpartition(": ")[2]


def _tried(subject: str, work: Callable[[], str], fix: str = "", state: State = "missing") -> Check:
    """Return the result of `work`, or its error, whose hint is the fix if none is given."""
    try:
        return Check(subject, "works", work())
    except TestbedError as error:
        return Check(subject, state, error.message, fix or _command(error.hint))


def vm() -> Iterator[Check]:
    """Check that labs can run in micro-VMs here. Nothing is started."""
    yield Check("testbed", "works", f"{version()}; scenarios and documentation are in {shipped.PLACE}")
    yield Check("Python", "works", f"{platform.python_version()} ({sys.executable})")
    try:
        built = image.find()
    except UnsupportedError as error:
        yield Check("image", "missing", error.message, "testbed image rm")
        return
    if built or emulator.chosen():
        yield _tried("QEMU", lambda: f"{emulator.version()} ({emulator.emulator().where})", apt("qemu-system-x86"))
    else:
        yield Check("QEMU", "note", "comes with the image")
    if built:
        yield _tried("image", lambda: _image(built), "testbed image rm")
    else:
        yield Check("image", "note", "not built yet; the first run builds it", "testbed image build")
    yield _tried("image tools", _tools, state="note" if built else "missing")
    yield _tried("disk", lambda: _space(built), "export XDG_CACHE_HOME=/a/larger/disk")
    if built:
        yield _snapshot(built)


def _image(built: Image) -> str:
    for name in recipe.FILES:
        built.file(name)
    return f"{built.digest[:12]}, Linux {built.kernel}, built {built.manifest['built']}"


def _tools() -> str:
    image_build.require_tools()
    return f"{', '.join(image_build.TOOLS)}; images are built {'as root' if os.geteuid() == 0 else 'without root'}"


def _space(built: Image | None) -> str:
    place = cache.root()
    while not place.exists():
        place = place.parent
    cache.require_space(place, snapshot.SPACE if built else image_build.SPACE, "a snapshot" if built else "an image")
    return f"{shutil.disk_usage(place).free / 1e9:.0f} GB free for {cache.root()}"


def _snapshot(built: Image) -> Check:
    try:
        _, base, code = snapshot.stack(built, Flavour("virtual"))
    except TestbedError as error:
        return Check("snapshot", "note", error.message)
    if code.usable():
        return Check("snapshot", "works", "ready: a lab starts at once")
    seconds = 3 if base.usable() else 30
    return Check("snapshot", "note", f"missing; the next run creates it, in about {seconds} s")


def _kvm() -> bool | None:
    try:
        return kvm.answer()
    except TestbedError:  # there is no QEMU
        return None


def kvm_answer() -> Check:
    """Return the cached answer about KVM, which only the real clock can use."""
    answer = _kvm()
    if answer:
        return Check("KVM", "works", "works: a guest boots with it; the real clock uses it")
    fix = ""
    if answer is None:
        text = "not tested yet; only the real clock uses it"
    elif not kvm.DEVICE.exists():
        text = f"no {kvm.DEVICE}; not needed, but the real clock is slower without it"
    elif not os.access(kvm.DEVICE, os.R_OK | os.W_OK):
        text = f"no access to {kvm.DEVICE}; not needed, but the real clock is slower without it"
        fix = f"sudo usermod --append --groups kvm {os.environ.get('USER', '$USER')}"
    else:
        text = f"{kvm.DEVICE} exists, but no guest boots with it; not needed; testbed tests it again after a day"
    return Check("KVM", "note", text, fix)


def local() -> Iterator[Check]:
    """Check that labs can run on this very kernel (`--machine local`)."""
    release, oldest = platform.release(), ".".join(map(str, OLDEST_LOCAL_KERNEL))
    text = f"Linux {release}"
    new = emulator.numbers(release) >= OLDEST_LOCAL_KERNEL
    modules = [name for name in LOCAL_MODULES if not _has_module(name, release)]
    plugins, pods = any(map(os.path.isdir, CNI_PLUGINS)), "not installed; labs with pods need them"
    yield _root()
    yield _look("kernel", new, text, f"{text}; rdma_rxe works in network namespaces from {oldest} on", NEWER_KERNEL)
    lacking = f"this kernel has no {', '.join(modules)}"
    yield _look("modules", not modules, f"this kernel has {', '.join(LOCAL_MODULES)}", lacking, NEWER_KERNEL)
    yield _local_tools()
    yield _pyverbs()
    yield _look("CNI plugins", plugins, "installed", pods, apt("containernetworking-plugins"), "note")
    absent, mount = (
        f"not on {TRACING.parent}; `nic: hardware` needs it",
        f"sudo mount -t tracefs tracefs {TRACING.parent}",
    )
    yield _look("tracefs", TRACING.exists(), "mounted", absent, mount, "note")


def _root() -> Check:
    if os.geteuid() != 0:
        return Check("root", "missing", "labs on this kernel need root", "sudo -s")
    status = STATUS.read_text()
    able = int(re.findall(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)[0], 16)
    lacking = [name for name, bit in CAPABILITIES.items() if not able >> bit & 1]
    return _look("root", not lacking, "yes", f"root lacks {', '.join(lacking)} here, as in a container")


def _local_tools() -> Check:
    lacking = {name: package for name, package in LOCAL_TOOLS.items() if not shutil.which(name)}
    if not _has_library(NFTABLES):
        lacking[NFTABLES] = "libnftables1"
    fix = apt(*sorted(set(lacking.values())))
    names = ", ".join([*LOCAL_TOOLS, NFTABLES])
    return _look("tools", not lacking, names, f"not installed: {', '.join(lacking)}", fix)


def _has_library(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _pyverbs() -> Check:
    """Check Debian's package, which a virtual environment finds only if it includes the system's packages."""
    if importlib.util.find_spec("pyverbs"):
        return Check("pyverbs", "works", "this Python has it")
    fixes = [] if DEBIAN_PYVERBS.exists() else [apt("python3-pyverbs")]
    if sys.prefix != sys.base_prefix:
        key, settings = "include-system-site-packages", Path(sys.prefix) / "pyvenv.cfg"
        fixes.append(f"sed -i 's/^{key} = false/{key} = true/' {settings}")
    return Check("pyverbs", "missing", f"{sys.executable} has no module pyverbs", " && ".join(fixes))


def _has_module(name: str, release: str) -> bool:
    if (Path("/sys/module") / name).exists():
        return True
    lists = (Path("/lib/modules") / release / file for file in ("modules.dep", "modules.builtin"))
    return any(f"/{name}.ko" in path.read_text() for path in lists if path.exists())


def require_packages(packages: Sequence[str]) -> None:
    """Raise UnsupportedError with those of these Debian packages that this system lacks."""
    query, listed = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\\n"], ""
    if shutil.which(query[0]):
        listed = subprocess.run([*query, *packages], capture_output=True, text=True, check=False).stdout
    installed = {line.removeprefix("installed ") for line in listed.splitlines()}
    if lacking := [name for name in packages if name not in installed]:
        raise UnsupportedError(f"this system lacks the packages {', '.join(lacking)}", hint=f"Run: {apt(*lacking)}")


def require_local() -> None:
    """Raise UnsupportedError with all that labs on this kernel lack, and the command that installs each."""
    lacking = [check for check in local() if check.state == "missing"]
    if lacking:
        texts = "".join(f"\n  {check.subject}: {check.text}{_run(check)}" for check in lacking)
        hint = "Leave out `--machine local`: a micro-VM needs none of this."
        raise UnsupportedError(f"labs cannot run on this kernel:{texts}", hint=hint)


def _run(check: Check) -> str:
    return f". Run: {check.fix}" if check.fix else ""
