"""The image build: mmdebstrap makes a Debian root, a kernel and an initramfs (machine/recipe.py)."""

import json
import os
import platform
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn, TextIO

from testbed.errors import TestbedError, UnsupportedError
from testbed.machine import cache, child_processes, image, recipe
from testbed.machine.image import Image

SPACE = 6_000_000_000
"""Bytes of disk that a build needs."""
TOOLS = {"mmdebstrap": "mmdebstrap", "mkfs.erofs": "erofs-utils", "apt-get": "apt"}
"""Programs that build an image, and their Debian packages."""
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SUBUID = Path("/etc/subuid")
OWN_NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
"""Prefix for mmdebstrap as root: when its first process ends, all others and all mounts end at once."""
PACKAGES_READ = "DEBIAN_", "DEBCONF_", "DPKG_"
"""Prefixes of variables that change how packages install themselves, and thus the bytes of the image."""
PACKAGES_SEE = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "TERM": "xterm"}
"""Without TERM debconf keeps other flags of a question."""
UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
POLL_S = 0.1
PHASES = (
    ("apt-get update", "read package lists"),
    ("downloading packages", "download the base system"),
    ("extracting archives", "unpack the base system"),
    ("installing remaining packages", "download packages"),
    ("apt-get download", "download the kernel"),
    ("install.sh", "install testbed, and run a scenario"),
    ("qemu.sh", "pack QEMU"),
    ("build.sh", "make the initramfs"),
    ("mkfs.erofs", "pack the root file system"),
    ("download /testbed/root.erofs", "copy it out"),
    ("removing tempdir", "clean up"),
)
"""Words in mmdebstrap's output lines, and the phases that they mean; the first match counts."""

Progress = Callable[[str, int], None]
"""Callback for the phase and the bytes fetched so far."""


def ensure(progress: Progress) -> Image:
    """Return the image, built if it is missing. Of two simultaneous callers, one builds and the other waits."""
    if found := image.find():
        return found
    with cache.locked(cache.directory("images")):
        return image.find() or build(progress)


def build(progress: Progress) -> Image:
    """Build the image of this version in its place in the cache. The caller holds the lock on the images."""
    require_tools()
    key, place = recipe.inputs_key(), image.place()
    cache.require_space(cache.directory("images"), SPACE, "building the image")
    started = time.monotonic()
    with cache.making(place) as work:
        progress("download Python packages", 0)
        fetch_python(work)
        bootstrap(work, progress)
        if recipe.inputs_key() != key:
            message = "the image's inputs changed during the build"
            raise TestbedError(message, hint="Run the command again.")
        progress("check and seal", 0)
        recipe.pad(work / "root.erofs")
        manifest = recipe.describe(work, key, started)
        (work / "manifest.json").write_text(json.dumps(manifest, indent=1))
        for scrap in "packages", "sources", "kernel-release":
            (work / scrap).unlink()
        shutil.rmtree(work / "python")
    image.prune(place)
    return Image(place, manifest)


def apt(*packages: str) -> str:
    """Return the command that installs Debian packages on this machine."""
    return f"sudo apt-get install --no-install-recommends {' '.join(packages)}"


def require_tools() -> None:
    """Raise UnsupportedError with all that is missing here to build an image."""
    if platform.machine() != "x86_64":
        raise UnsupportedError(f"images can be built on x86-64 only, this machine is {platform.machine()}")
    if missing := missing_packages():
        elsewhere = "import an image that another machine exported: testbed image import FILE"
        hint = f"Run: {apt(*missing)}\n  Or {elsewhere}"
        if not shutil.which("apt-get"):
            hint = f"This is no Debian: {elsewhere}"
        raise UnsupportedError(f"building the image needs {', '.join(missing)}", hint=hint)
    if os.geteuid() != 0:
        require_unshare()


def missing_packages(tools: Mapping[str, str] = TOOLS) -> list[str]:
    """Return the Debian packages that an image build with these tools needs and this machine lacks."""
    wanted = tools if os.geteuid() == 0 else {**tools, "newuidmap": "uidmap"}
    missing = {package for tool, package in wanted.items() if not shutil.which(tool)}
    return sorted(missing if KEYRING.exists() else {*missing, "debian-archive-keyring"})


def wanted_packages() -> list[str]:
    """Return the missing packages if an image must be built; none if there is one, even damaged: commands report it.
    Set-up calls this with any Python: use the standard library only."""
    try:
        return [] if image.find() else missing_packages()
    except UnsupportedError:
        return []


def require_unshare() -> None:
    """Raise UnsupportedError where mmdebstrap cannot make a root file system for an unprivileged user."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    ranges = SUBUID.read_text() if SUBUID.exists() else ""
    if not re.search(rf"^({re.escape(user)}|{os.getuid()}):", ranges, re.MULTILINE):
        message = f"building without root needs a range of subordinate user IDs, and {SUBUID} has none for {user}"
        hint = f"Run: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}"
        raise UnsupportedError(message, hint=hint)
    probe = subprocess.run(["unshare", "--user", "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        message = "building without root needs user namespaces, but this kernel refuses them"
        hint = "Build as root, or run: sudo sysctl kernel.unprivileged_userns_clone=1 "
        hint += "(on Ubuntu: kernel.apparmor_restrict_unprivileged_userns=0)"
        raise UnsupportedError(f"{message}: {probe.stderr.strip()}", hint=hint)


def fetch_python(work: Path) -> None:
    """Let pip fetch the guest's Python packages. It ends with this process, and leaves nothing then."""
    command = recipe.python_command(work / "python")
    with child_processes.scratch() as space, tempfile.TemporaryFile("w+") as log:
        environment = {**os.environ, "TMPDIR": str(space)}
        with child_processes.child(
            command, death_signal="KILL", stdout=log, stderr=subprocess.STDOUT, env=environment
        ) as process:
            process.wait()
        log.seek(0)
        wrote = log.read().strip().splitlines()
    if process.returncode:
        words = "\n  ".join(["the guest's Python packages could not be fetched:", *wrote[-4:]])
        raise UnsupportedError(words, hint="Check that `pip download pydantic` works on this machine.")


def bootstrap(work: Path, progress: Progress) -> None:
    mmdebstrap(recipe.debian_command(work), progress)


def mmdebstrap(command: list[str], progress: Progress) -> None:
    """Run this mmdebstrap command with the Debian mirror. On failure raise what its output means."""
    with tempfile.TemporaryFile("w+") as log:
        if follow([*command, *mirror()], log, progress):
            log.seek(0)
            raise_for(log.read())


def mirror() -> list[str]:
    """Return Debian's mirror: TESTBED_MIRROR, else that of this machine's Debian, else mmdebstrap's default."""
    if chosen := os.environ.get("TESTBED_MIRROR"):
        return [chosen]
    asked = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=False,
    )
    return re.findall(r"^Debian Debian (\S+)$", asked.stdout, re.MULTILINE)[:1]


def follow(command: list[str], log: TextIO, progress: Progress) -> int:
    """Run mmdebstrap with its output in `log`: a file, so that it can still write while it cleans up after us."""
    death_signal = "TERM"  # without root it is in a user namespace of its own, and cleans up itself
    if os.geteuid() == 0:
        command, death_signal = [*OWN_NAMESPACES, *command], "KILL"
    with child_processes.scratch(parent=Path(os.environ.get("TMPDIR", "/var/tmp"))) as space:  # noqa: S108
        space.chmod(0o755)
        others = {name: value for name, value in os.environ.items() if not name.startswith(PACKAGES_READ)}
        environment = {**others, **PACKAGES_SEE, "TMPDIR": str(space)}
        with child_processes.child(
            command, death_signal=death_signal, stdout=log.fileno(), stderr=subprocess.STDOUT, env=environment
        ) as process:
            phase, fetched, position, rest, running = "begin", 0, 0, "", True
            while running:
                running = process.poll() is None
                data = os.pread(log.fileno(), 1 << 24, position)  # the file's offset is the child's
                position += len(data)
                *lines, rest = (rest + data.decode(errors="replace")).split("\n")
                for line in lines:
                    phase, fetched = phase_of(line) or phase, fetched + size_of(line)
                    progress(phase, fetched)
                if running:
                    time.sleep(POLL_S)
            return process.wait()


def phase_of(line: str) -> str | None:
    """Return the phase that a line of mmdebstrap begins."""
    if line.startswith("Setting up "):
        return "install packages"
    return next((name for text, name in PHASES if text in line), None) if line.startswith("I: ") else None


def size_of(line: str) -> int:
    """Return the bytes that a line of apt reports as fetched."""
    size = re.match(r"Get:\d+ .*\[([\d.,]+) ([kMG]?B)\]", line)
    return int(float(size[1].replace(",", "")) * UNITS[size[2]]) if size else 0


def raise_for(output: str, tool: str = "mmdebstrap") -> NoReturn:
    """Raise one error from the output of mmdebstrap or apt."""
    if full := next((line for line in output.splitlines() if "No space left on device" in line), ""):
        hint = "Free some space there, or set TMPDIR and XDG_CACHE_HOME to a larger disk."
        hint += f" The image needs {SPACE / 1e9:.0f} GB."
        raise UnsupportedError(f"the disk filled up while the image was built:\n  {full.strip()}", hint=hint)
    tail = "".join(f"\n  {line}" for line in [line for line in output.splitlines() if line.strip()][-6:])
    if re.search(r"Could not (resolve|connect)|Failed to fetch|Temporary failure resolving|Unable to connect", output):
        hint = "Check the network (`apt-get update`), or set TESTBED_MIRROR to a reachable mirror."
        raise UnsupportedError(f"Debian's packages could not be fetched:{tail}", hint=hint)
    raise TestbedError(f"{tool} failed:{tail}", hint="Run `testbed doctor` to see what this machine lacks.")
