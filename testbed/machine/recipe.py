"""The recipe of images. The text of this module is part of the key of an image, so whatever does not bear on the
contents of images belongs elsewhere."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from testbed.machine import cache
from testbed.machine.shipped import LOCK

GUEST = Path(__file__).parent / "guest"
FILES = ("root.erofs", "vmlinuz", "initrd", "dpkg-status", "qemu.tar")
SUITE = "trixie"
OLDEST_KERNEL = (7, 3)
PYTHON = "3.13"
EMULATOR = "qemu-system-x86"
"""The package of QEMU, which comes with the image: another QEMU may be another trace."""
PMEM_ALIGNMENT = 2 << 20
EPOCH = 1767225600
"""The time of every file in an image and its layers, in seconds: any, but the same in every build."""
ROOT_UUID = "74657374-6265-4400-8000-000000000000"
LAYER_UUID = "74657374-6265-4400-8000-000000000001"
"""The guest tells an image's root from a layer by the last byte (guest/initramfs-init.sh)."""


def inputs_key() -> str:
    """Hash of all that goes into an image. Two builds with one key differ only where Debian's mirror moved on between
    them: see `Image.digest`."""
    files = [Path(__file__), *sorted(path for path in GUEST.iterdir() if path.is_file())]
    return cache.digest(*(f"{path.name}\0{path.read_text()}" for path in files), *guest_requirements())


def guest_requirements() -> list[str]:
    """The guest's Python packages as `name==version`, in the versions of the lock. Its hashes are left out: they may be
    of wheels for another Python."""
    locked = dict(re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", LOCK.read_text(), re.MULTILINE))
    return [f"{name}=={locked[name]}" for name in names_in("python.txt")]


def names_in(file: str) -> list[str]:
    """The lines of a list in guest/ that are neither empty nor a comment."""
    lines = (line.strip() for line in (GUEST / file).read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def python_command(target: Path) -> list[str]:
    """Fetches wheels for the guest's Python, by this machine's pip so that the user's pip configuration applies."""
    command = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--no-compile", "--only-binary=:all:"]
    command += ["--no-deps", "--target", str(target), "--python-version", PYTHON, "--implementation", "cp"]
    for platform_tag in "manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64":
        command += ["--platform", platform_tag]
    return [*command, *guest_requirements()]


def debian_command(work: Path) -> list[str]:
    """mmdebstrap, to which a mirror may be added. Takes in `work`/python; leaves in `work` FILES, packages, sources and
    kernel-release."""
    packages = names_in("packages.txt")
    kernel = (
        'mkdir -p "$1/testbed/kernel" && cd "$1/testbed/kernel" && export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" && '
        "release=$(apt-cache pkgnames linux-modules- | sed -n "
        r"'s/^linux-modules-\([0-9.]*+deb[0-9]*-amd64\)$/\1/p' | sort -V | tail -n 1) && "
        f'dpkg --compare-versions "${{release%%+*}}" ge {".".join(map(str, OLDEST_KERNEL))} && '
        "image=$(apt-cache pkgnames linux-binary- | sort -r | "
        "grep -x -e linux-binary-unsigned-$release -e linux-binary-$release | head -n 1) && "
        "apt-get download -q $image linux-modules-$release linux-base-$release"
    )
    emulator = (
        'mkdir -p "$1/testbed/qemu/debs/partial" && APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get -qq -y --download-only '
        f'--no-install-recommends -o Dir::Cache::Archives="$1/testbed/qemu/debs" install {EMULATOR}'
    )
    exclude = "--exclude-regex=^(testbed|proc|sys|dev|run|tmp|var/cache/apt/archives)/."
    hooks = [
        *("--setup-hook", f'sed -n "s/ {SUITE} main/ {SUITE}-backports main/p" "$1/etc/apt/sources.list" '
          '> "$1/etc/apt/sources.list.d/backports.list"'),
        *("--customize-hook", kernel),
        *("--customize-hook", emulator),
        *(x for name in ("boot.py", "init.sh", "initramfs-init.sh", "modules.txt", "build.sh", "qemu.sh")
          for x in ("--customize-hook", f"upload {shlex.quote(str(GUEST / name))} /testbed/{name}")),
        *("--customize-hook", 'mkdir "$1/testbed/python"'),
        *("--customize-hook", f"sync-in {shlex.quote(str(work / 'python'))} /testbed/python"),
        *("--customize-hook", 'chroot "$1" sh /testbed/qemu.sh'),
        *("--customize-hook", 'chroot "$1" sh /testbed/build.sh'),
        *("--customize-hook", f"mkfs.erofs --quiet -x-1 --all-root -T {EPOCH} -U {ROOT_UUID} "
          f'"{exclude}" "$1/testbed/root.erofs" "$1"'),
        *(x for inside, outside in (("root.erofs", "root.erofs"), ("vmlinuz", "vmlinuz"), ("initrd.cpio", "initrd"),
                                    ("packages", "packages"), ("kernel-release", "kernel-release"),
                                    ("sources", "sources"), ("dpkg-status", "dpkg-status"), ("qemu.tar", "qemu.tar"))
          for x in ("--customize-hook", f"download /testbed/{inside} {shlex.quote(str(work / outside))}")),
    ]  # fmt: skip
    command = ["env", f"SOURCE_DATE_EPOCH={EPOCH}", "mmdebstrap", "--verbose", "--variant=minbase", "--format=null"]
    return [*command, f"--include={','.join(packages)}", *hooks, SUITE, os.devnull]


def pad(path: Path) -> None:
    """pmem comes in units of 2 MiB."""
    size = path.stat().st_size
    os.truncate(path, -(-size // PMEM_ALIGNMENT) * PMEM_ALIGNMENT)


def describe(work: Path, key: str, started: float) -> dict[str, Any]:
    """The manifest of the image in `work`, built from the inputs with this key since `started`."""
    files = {name: {"size": (work / name).stat().st_size, "sha256": cache.file_digest(work / name)} for name in FILES}
    return {
        "digest": cache.digest(*(str(entry["sha256"]) for entry in files.values())),
        "inputs": key,
        "kernel": (work / "kernel-release").read_text().strip(),
        "built": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "build_s": round(time.monotonic() - started, 1),
        "files": files,
        "packages": dict(line.split() for line in (work / "packages").read_text().splitlines()),
        "python": guest_requirements(),
        "sources": (work / "sources").read_text().splitlines(),
    }
