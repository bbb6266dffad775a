"""A check of this machine: what testbed needs and is there, and the commands that bring the rest."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from testbed.errors import TestbedError, UnsupportedError
from testbed.machine import cache, image, kvm, qemu, recipe, snapshot
from testbed.machine.image import Image
from testbed.machine.qemu import Flavour

State = Literal["works", "note", "missing"]
CNI_PLUGINS = ("/usr/lib/cni", "/opt/cni/bin")
OLDEST_LOCAL_KERNEL = (7, 1)
"""From here on rdma_rxe works inside network namespaces."""


@dataclass(frozen=True)
class Check:
    """One finding. `note` is worth knowing and hinders nothing; `fix` is what to type."""

    subject: str
    state: State
    text: str
    fix: str = ""


def apt(*packages: str) -> str:
    return f"sudo apt-get install --no-install-recommends {' '.join(packages)}"


def _look(subject: str, works: object, text: str, lacking: str, fix: str = "", state: State = "missing") -> Check:
    return Check(subject, "works", text) if works else Check(subject, state, lacking, fix)


def vm() -> Iterator[Check]:
    """Whether labs can run in micro-VMs here. Nothing is started."""
    yield Check("Python", "works", f"{platform.python_version()} ({sys.executable})")
    yield _qemu()
    found = shutil.which("setpriv")
    yield _look("setpriv", found, "ends what testbed started when testbed ends", "not installed", apt("util-linux"))
    try:
        built = image.find()
    except UnsupportedError as error:
        yield Check("image", "missing", error.message, "testbed image rm")
        return
    if built:
        yield _image(built)
    else:
        yield Check("image", "note", "not built yet; the first run builds it", "testbed image build")
    yield from _tools(needed=built is None)
    yield _space(built)
    if built and shutil.which(qemu.BINARY):
        yield _snapshot(built)


def _qemu() -> Check:
    if not shutil.which(qemu.BINARY):
        return Check("QEMU", "missing", f"{qemu.BINARY} is not installed", apt("qemu-system-x86"))
    return Check("QEMU", "works", f"{qemu.version()} ({qemu.binary()})")


def _image(built: Image) -> Check:
    try:
        for name in recipe.FILES:
            built.file(name)
    except UnsupportedError as error:
        return Check("image", "missing", error.message, "testbed image rm")
    return Check("image", "works", f"{built.digest[:12]}, Linux {built.kernel}, built {built.manifest['built']}")


def _tools(needed: bool) -> Iterator[Check]:
    """The tools that build an image; with an image there, only a note."""
    try:
        image.require_tools()
    except UnsupportedError as error:
        yield Check(
            "image tools",
            "missing" if needed else "note",
            error.message,
            error.hint.splitlines()[0].removeprefix("Run: "),
        )
    else:
        how = "as root" if os.geteuid() == 0 else "without root"
        yield Check("image tools", "works", f"{', '.join(image.TOOLS)}; images are built {how}")


def _space(built: Image | None) -> Check:
    place = cache.root()
    while not place.exists():
        place = place.parent
    try:
        cache.require_space(
            place, snapshot.SPACE if built else image.SPACE_TO_BUILD, "a snapshot" if built else "an image"
        )
    except UnsupportedError as error:
        return Check("disk", "missing", error.message, "export XDG_CACHE_HOME=/a/larger/disk")
    return Check("disk", "works", f"{shutil.disk_usage(place).free / 1e9:.0f} GB free for {cache.root()}")


def _snapshot(built: Image) -> Check:
    try:
        boot, code = (snapshot.Snapshot(layer.key) for layer in snapshot.layers(built, Flavour("virtual")))
    except TestbedError as error:
        return Check("snapshot", "note", error.message)
    if code.usable():
        return Check("snapshot", "works", "there: a lab starts at once")
    seconds = 3 if boot.usable() else 20
    return Check("snapshot", "note", f"not there; the next run makes it, in about {seconds} s")


def kvm_answer() -> Check:
    """The remembered answer about KVM, which only the real clock can use."""
    answer = kvm.answer() if shutil.which(qemu.BINARY) else None
    match answer:
        case True:
            return Check("KVM", "works", "a guest boots under it; the real clock uses it")
        case None:
            return Check("KVM", "note", "not tried yet; only the real clock uses it")
    if not kvm.DEVICE.exists():
        return Check("KVM", "note", f"no {kvm.DEVICE}; not needed, the real clock is slower without")
    if not os.access(kvm.DEVICE, os.R_OK | os.W_OK):
        text = f"no access to {kvm.DEVICE}; not needed, the real clock is slower without"
        return Check("KVM", "note", text, f"sudo usermod --append --groups kvm {os.environ.get('USER', '$USER')}")
    return Check(
        "KVM", "note", f"{kvm.DEVICE} is there and no guest boots under it; not needed, tried again after a day"
    )


def local() -> Iterator[Check]:
    """Whether labs can run on this very kernel (`--machine local`)."""
    release, oldest = platform.release(), ".".join(map(str, OLDEST_LOCAL_KERNEL))
    lacking = f"Linux {release}; rdma_rxe works in network namespaces from {oldest} on"
    plugins = any(Path(directory).is_dir() for directory in CNI_PLUGINS)
    yield _look("root", os.geteuid() == 0, "yes", "labs on this kernel need root", "sudo -s")
    yield _look("kernel", qemu.numbers(release) >= OLDEST_LOCAL_KERNEL, f"Linux {release}", lacking)
    yield _look(
        "rdma_rxe", _has_module("rdma_rxe", release), "this kernel has it", "this kernel has no module rdma_rxe"
    )
    lacking = f"{sys.executable} has no module pyverbs"
    pyverbs = importlib.util.find_spec("pyverbs")
    yield _look("pyverbs", pyverbs, "this Python has it", lacking, apt("python3-pyverbs"))
    lacking = "not installed; labs with pods need them"
    yield _look("CNI plugins", plugins, "installed", lacking, apt("containernetworking-plugins"), "note")


def _has_module(name: str, release: str) -> bool:
    if (Path("/sys/module") / name).exists():
        return True
    lists = (Path("/lib/modules") / release / file for file in ("modules.dep", "modules.builtin"))
    return any(f"/{name}.ko" in path.read_text() for path in lists if path.exists())


def require_packages(packages: Sequence[str]) -> None:
    """Raises UnsupportedError with those of these Debian packages that this system lacks."""
    listed = "" if not shutil.which("dpkg-query") else subprocess.run(
        ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\\n", *packages],
        capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    installed = {line.removeprefix("installed ") for line in listed.splitlines()}
    if lacking := [name for name in packages if name not in installed]:
        raise UnsupportedError(f"this system lacks the packages {', '.join(lacking)}", hint=f"Run: {apt(*lacking)}")


def require_local() -> None:
    """Raises UnsupportedError with all that this kernel lacks."""
    lacking = [check for check in local() if check.state == "missing"]
    if lacking:
        texts = "".join(f"\n  {check.subject}: {check.text}" for check in lacking)
        raise UnsupportedError(
            f"labs cannot run on this kernel:{texts}",
            hint="Leave out `--machine local`: a micro-VM needs none of this.",
        )
