"""Debian packages on top of those of an image: installed in a machine by apt and dpkg, maintainer scripts included, and
packed as a file system that other machines put over their root.

The machine is a micro-VM of that image on the virtual clock: the same packages make the same bytes everywhere, and
nobody needs root.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testbed.errors import TestbedError
from testbed.executor import Context
from testbed.protocol import LAYER
from testbed.protocol.requests import Layer

WORK = Path("/tmp/layer")  # noqa: S108
"""On a tmpfs: what overlayfs writes to must not be an overlay itself."""
OVERLAY = "redirect_dir=off,metacopy=off,index=off,xino=off"
ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
}
UNUSED = ("doc", "info", "locale", "man")
"""Directories of /usr/share that the image does not have either."""
INSTALL = (
    *shlex.split("""apt-get install -y -q --no-install-recommends --allow-downgrades
        -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts=/dev/null
        -o Dir::State::Lists=/run/apt -o Dir::Cache=/run/apt -o Dir::Log=/run/apt
        -o APT::Sandbox::User=root -o Dpkg::Use-Pty=0
        -o Dpkg::Options::=--force-unsafe-io -o Dpkg::Options::=--force-confnew"""),
    *(word for name in UNUSED for word in ("-o", f"Dpkg::Options::=--path-exclude=/usr/share/{name}/*")),
)
NO_DAEMONS = Path("usr/sbin/policy-rc.d")
"""Asked by invoke-rc.d before it starts anything; 101 forbids it."""
LEFT_BEHIND = (
    "etc/machine-id", "etc/resolv.conf", "root", "run", "tmp", "dev", "proc", "sys", "var/cache/apt", "var/lib/apt",
    "var/cache/ldconfig", "var/log", "var/lib/dpkg/lock", "var/lib/dpkg/lock-frontend", NO_DAEMONS,
)  # fmt: skip
"""Leftovers of an installation: logs, caches, and what belongs to the machine that ran it."""
KEPT_ATTRIBUTE = "trusted.overlay.opaque"


def install(request: Layer, context: Context) -> dict[str, str]:
    """Write the layer's file. Return the versions of all packages that are then installed, by name.

    TestbedError, with the output of apt, for packages that cannot be installed.
    """
    debs, out = context.files, context.out
    with changed_root() as (root, changes):
        (root / NO_DAEMONS).write_text("#!/bin/sh\nexit 101\n")
        (root / NO_DAEMONS).chmod(0o755)
        names = sorted(f"/run/debs/{path.name}" for path in debs.glob("*.deb"))
        shutil.copytree(debs, root / "run" / "debs")
        wrote = []
        with subprocess.Popen(
            ["chroot", root, *INSTALL, *names],
            env=ENVIRONMENT,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as process:
            assert process.stdout
            for line in process.stdout:
                wrote.append(line)
                context.emit({"write": line})
        if process.returncode:
            raise TestbedError(f"the packages cannot be installed:\n  {'  '.join(wrote[-8:]).strip()}")
        listed = subprocess.run(
            ["chroot", root, "dpkg-query", "-W", "-f", "${Package} ${Version}\\n"],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=True,
        )
        installed = dict(line.split() for line in listed.stdout.splitlines())
    clean(changes)
    command = ["mkfs.erofs", "--quiet", "-Enoinline_data", f"-T{request.epoch}", f"-U{request.uuid}"]
    subprocess.run([*command, out / LAYER, changes], check=True, capture_output=True)
    return installed


@contextmanager
def changed_root() -> Iterator[tuple[Path, Path]]:
    """Yield this machine's root with nothing of it changed, and the directory that has the changes afterwards."""
    root, changes, work = (WORK / name for name in ("root", "changes", "work"))
    for path in root, changes, work:
        path.mkdir(parents=True)
    with ExitStack() as stack:

        def mount(target: Path, *words: str) -> None:
            subprocess.run(["mount", *words, target], check=True, capture_output=True)
            stack.callback(lambda: subprocess.run(["umount", "--lazy", target], check=True))

        mount(root, "-t", "overlay", "-o", f"lowerdir=/,upperdir={changes},workdir={work},{OVERLAY}", "overlay")
        mount(root / "proc", "-t", "proc", "proc")
        mount(root / "dev", "--bind", "/dev")
        for name in "run", "tmp":
            mount(root / name, "-t", "tmpfs", "tmpfs")
        for name in "apt/partial", "apt/archives/partial":
            (root / "run" / name).mkdir(parents=True)
        yield root, changes


def clean(changes: Path) -> None:
    """Remove from the changes all that does not depend on the packages alone."""
    for name in LEFT_BEHIND:
        path = changes / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    for directory in "var/lib/dpkg", "var/cache/debconf":
        for path in (changes / directory).glob("*-old"):
            path.unlink()
    for path in [changes, *sorted(changes.rglob("*"))]:
        for attribute in os.listxattr(path, follow_symlinks=False):
            if attribute.startswith("trusted.overlay.") and attribute != KEPT_ATTRIBUTE:
                os.removexattr(path, attribute, follow_symlinks=False)
        if path.suffix == ".pyc" and path.is_file():
            uncheck(path)


def uncheck(path: Path) -> None:
    """Stop Python comparing a cache with its source (PEP 552): every file gets one time. As in build.sh."""
    data = path.read_bytes()
    path.write_bytes(data[:4] + b"\1\0\0\0" + bytes(8) + data[16:])
