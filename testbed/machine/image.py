"""The guest's image: a Debian root, a kernel and an initramfs, made by mmdebstrap, kept in the cache under the hash of
its inputs."""

from __future__ import annotations

import io
import json
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TextIO

from testbed.errors import InputError, TestbedError, UnsupportedError
from testbed.machine import cache, processes, recipe
from testbed.machine.recipe import FILES, inputs_key
from testbed.protocol import LAYER

KEEP = 2
"""Images kept beside the newest, by their age; each is about 400 MB."""
SPACE_TO_BUILD = 6_000_000_000
TOOLS = {"mmdebstrap": "mmdebstrap", "mkfs.erofs": "erofs-utils", "apt-get": "apt"}
"""Programs that build an image, and their Debian packages."""
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

OWN_NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
"""For mmdebstrap as root: with the first process all others end at once, and so does every mount."""
UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9}
POLL_S = 0.1
LAYER_FILES = ("manifest.json", LAYER)
EXPORTED_LAYER = re.compile(r"layers/([0-9a-f]{16})/manifest\.json")
PHASES = (
    ("apt-get update", "read package lists"),
    ("downloading packages", "download the base system"),
    ("extracting archives", "unpack the base system"),
    ("installing remaining packages", "download packages"),
    ("apt-get download", "download the kernel"),
    ("build.sh", "make the initramfs"),
    ("mkfs.erofs", "pack the root file system"),
    ("download /testbed/root.erofs", "copy it out"),
    ("removing tempdir", "clean up"),
)
"""Phases by what mmdebstrap writes; the first that is in its line."""

Progress = Callable[[str, int], None]
"""Called with the phase and the bytes fetched so far."""


def damaged(what: str, how: str, where: Path) -> UnsupportedError:
    hint = "Remove it with `testbed image rm`; the next run makes it anew."
    return UnsupportedError(f"{what} is damaged: {how}", where=str(where), hint=hint)


@dataclass(frozen=True)
class Layer:
    """Debian packages on top of an image (machine/layers.py)."""

    path: Path
    manifest: dict[str, Any]

    @classmethod
    def load(cls, path: Path, base: Image) -> Layer | None:
        """The layer in this directory; None where there is none, or what is there is not whole."""
        try:
            layer = cls(path, json.loads((path / "manifest.json").read_text()))
            whole = layer.file.stat().st_size == layer.manifest["size"] and layer.manifest["base"] == base.digest
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return layer if whole and layer.digest and layer.asked else None

    @classmethod
    def of(cls, path: Path, base: Image) -> Layer:
        """The layer in this directory; ValueError where there is none."""
        if layer := cls.load(path, base):
            return layer
        raise ValueError(f"its layer {path.name} is not whole")

    @property
    def file(self) -> Path:
        return self.path / LAYER

    @property
    def digest(self) -> str:
        return str(self.manifest["digest"])

    @property
    def asked(self) -> list[str]:
        """The packages it was made for; `packages` in its manifest are all that came with them, by version."""
        return list(self.manifest["asked"])

    def verify(self) -> None:
        if cache.file_digest(self.file) != self.digest:
            raise damaged(f"the layer with {', '.join(self.asked)}", "its contents are not what was built", self.path)


@dataclass(frozen=True)
class Image:
    path: Path
    manifest: dict[str, Any]
    layer: Layer | None = None
    """The file system that machines put over its root."""

    @property
    def digest(self) -> str:
        """SHA-256 over the contents: two images that differ in a byte, or in a layer, differ here."""
        own = str(self.manifest["digest"])
        return cache.digest(own, self.layer.digest) if self.layer else own

    @property
    def sources(self) -> str:
        """The places its Debian packages came from, as lines of a sources.list."""
        return "\n".join(self.manifest["sources"])

    def mounted(self) -> list[tuple[str, Path]]:
        """The file systems that a machine gets, by their names among its devices."""
        return [("root", self.file("root.erofs")), *([("layer", self.layer.file)] if self.layer else [])]

    @property
    def kernel(self) -> str:
        return str(self.manifest["kernel"])

    def check(self) -> None:
        """Raises KeyError, TypeError or ValueError for a manifest that was not written by `recipe.describe`."""
        checksums = [str(self.manifest["files"][name]["sha256"]) for name in FILES]
        if self.digest != cache.digest(*checksums) or not self.kernel or not self.manifest["inputs"]:
            raise ValueError("its digest is not that of its files")

    def file(self, name: str) -> Path:
        """A file of the image, checked against its recorded size."""
        path = self.path / name
        expected = self.manifest["files"][name]["size"]
        size = path.stat().st_size if path.exists() else 0
        if size != expected:
            raise damaged("the image", f"{name} has {size} bytes instead of {expected}", self.path)
        return path

    def verify(self) -> None:
        """Reads every byte: for a new snapshot, an import, an export."""
        if self.layer:
            self.layer.verify()
        for name, entry in self.manifest["files"].items():
            if cache.file_digest(self.file(name)) != entry["sha256"]:
                raise damaged("the image", f"the contents of {name} are not what was built", self.path)


def find() -> Image | None:
    """The image for this version of testbed, None where it has not been built."""
    return _load(cache.root() / "images" / inputs_key()[:16])


def _load(path: Path) -> Image | None:
    manifest = path / "manifest.json"
    if not manifest.exists():
        return None
    try:
        image = Image(path, json.loads(manifest.read_text()))
        image.check()
    except (ValueError, KeyError, TypeError) as error:
        raise damaged("the image's manifest", repr(error), manifest) from error
    return image


def ensure(progress: Progress) -> Image:
    """The image, built if it is not there. Of two who start at once, one builds and the other waits for it."""
    if image := find():
        return image
    parent = cache.directory("images")
    with cache.locked(parent):
        return find() or build(progress)


def build(progress: Progress) -> Image:
    """Makes the image of this version and puts it in its place in the cache. The caller holds the lock on the
    images."""
    require_tools()
    key = inputs_key()
    parent = cache.directory("images")
    cache.require_space(parent, SPACE_TO_BUILD, "building the image")
    started = time.monotonic()
    with cache.making(parent) as work:
        progress("download Python packages", 0)
        fetch_python(work)
        bootstrap(work, progress)
        if inputs_key() != key:
            raise TestbedError(
                "what the image is made from was changed while it was built", hint="Run the command again."
            )
        progress("check and seal", 0)
        recipe.pad(work / "root.erofs")
        manifest = recipe.describe(work, key, started)
        (work / "manifest.json").write_text(json.dumps(manifest, indent=1))
        for scrap in "packages", "sources", "kernel-release":
            (work / scrap).unlink()
        shutil.rmtree(work / "python")
        place = parent / key[:16]
        shutil.rmtree(place, ignore_errors=True)
        work.rename(place)
    prune(place)
    return Image(place, manifest)


def prune(used: Path) -> None:
    """Forgets the images of older versions, but for the last ones built: another checkout may use them."""
    others = sorted((path for path in used.parent.glob("*") if path != used), key=lambda path: path.stat().st_mtime)
    for path in others[: max(0, len(others) - KEEP)]:
        shutil.rmtree(path)


def require_tools() -> None:
    if platform.machine() != "x86_64":
        raise UnsupportedError(f"images are made for x86-64 only, this machine is {platform.machine()}")
    if missing := missing_packages():
        install = f"sudo apt-get install --no-install-recommends {' '.join(missing)}"
        hint = f"Run: {install}\n  Or take an image that another machine exported: testbed image import FILE"
        raise UnsupportedError(f"building the image needs {', '.join(missing)}", hint=hint)
    if os.geteuid() != 0:
        require_unshare()


def missing_packages() -> list[str]:
    """The Debian packages that building an image takes and this machine has not."""
    tools = TOOLS if os.geteuid() == 0 else {**TOOLS, "newuidmap": "uidmap"}
    missing = {package for tool, package in tools.items() if not shutil.which(tool)}
    return sorted(missing if KEYRING.exists() else {*missing, "debian-archive-keyring"})


def wanted_packages() -> list[str]:
    """The same where an image has to be built; none where there is one, if only a damaged one, of which the command
    speaks. Set-up calls this with whatever Python there is: it takes no more than the standard library."""
    try:
        return [] if find() else missing_packages()
    except UnsupportedError:
        return []


def require_unshare() -> None:
    """Raises UnsupportedError where mmdebstrap cannot make a root file system for a user without privilege."""
    user = os.environ.get("USER") or str(os.getuid())
    subuid = Path("/etc/subuid")
    ranges = subuid.read_text() if subuid.exists() else ""
    if not re.search(rf"^({re.escape(user)}|{os.getuid()}):", ranges, re.MULTILINE):
        raise UnsupportedError(
            f"building without root needs a range of subordinate user IDs, and /etc/subuid has none for {user}",
            hint=f"Run: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}",
        )
    probe = subprocess.run(["unshare", "--user", "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        raise UnsupportedError(
            f"building without root needs user namespaces, and this kernel refuses them: {probe.stderr.strip()}",
            hint="Build as root, or run: sudo sysctl kernel.unprivileged_userns_clone=1 "
            "(on Ubuntu: kernel.apparmor_restrict_unprivileged_userns=0)",
        )


def fetch_python(work: Path) -> None:
    done = subprocess.run(recipe.python_command(work / "python"), capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnsupportedError(
            "\n  ".join(["the guest's Python packages could not be fetched:", *done.stderr.strip().splitlines()[-4:]]),
            hint="Check that `pip download pydantic` works on this machine.",
        )


def bootstrap(work: Path, progress: Progress) -> None:
    with tempfile.TemporaryFile("w+") as log:
        status = follow([*recipe.debian_command(work), *mirror()], log, progress)
        if status:
            log.seek(0)
            raise_for(log.read())


def mirror() -> list[str]:
    """Debian's mirror: TESTBED_MIRROR, else the one this Debian uses itself, else mmdebstrap's default."""
    if chosen := os.environ.get("TESTBED_MIRROR"):
        return [chosen]
    asked = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)", "Created-By: Packages"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = re.findall(r"^Debian Debian (\S+)$", asked.stdout, re.MULTILINE)
    return found[:1]


def follow(command: list[str], log: TextIO, progress: Progress) -> int:
    """Runs mmdebstrap, its words into the file `log` and its phases to `progress`.

    A file and no pipe: mmdebstrap must be able to speak while it cleans up behind a parent that is gone.
    """
    with processes.scratch(parent=Path(os.environ.get("TMPDIR", "/var/tmp"))) as space:  # noqa: S108
        space.chmod(0o755)
        environment = {**os.environ, "LC_ALL": "C", "TMPDIR": str(space)}
        if os.geteuid() != 0:  # in a user namespace of its own; asked to end, it cleans up itself
            return _follow(command, "TERM", environment, log, progress)
        return _follow([*OWN_NAMESPACES, *command], "KILL", environment, log, progress)


def _follow(command: list[str], death_signal: str, environment: dict[str, str], log: TextIO, progress: Progress) -> int:
    fetched = 0
    phase = "begin"
    with processes.child(
        command, death_signal=death_signal, stdout=log.fileno(), stderr=subprocess.STDOUT, env=environment
    ) as process:
        position, rest, running = 0, "", True
        while running:
            running = process.poll() is None
            data = os.pread(log.fileno(), 1 << 24, position)  # the file's offset is the child's
            position += len(data)
            *lines, rest = (rest + data.decode(errors="replace")).split("\n")
            for line in lines:
                if line.startswith("I: "):
                    phase = next((name for text, name in PHASES if text in line), phase)
                elif size := re.match(r"Get:\d+ .*\[([\d.,]+) ([kMG]?B)\]", line):
                    fetched += int(float(size[1].replace(",", "")) * UNITS[size[2]])
                elif line.startswith("Setting up "):
                    phase = "install packages"
                progress(phase, fetched)
            if running:
                time.sleep(POLL_S)
        return process.wait()


def raise_for(output: str, tool: str = "mmdebstrap") -> NoReturn:
    """Turns the words of mmdebstrap, or of apt, into one message."""
    lines = [line for line in output.splitlines() if line.strip()]
    tail = "\n  ".join(line for line in lines[-6:])
    if re.search(r"No space left on device", output):
        raise UnsupportedError(
            f"the disk filled up while the image was built:\n  {tail}",
            hint=f"It needs about {SPACE_TO_BUILD / 1e9:.0f} GB; set TMPDIR and XDG_CACHE_HOME to a larger disk.",
        )
    if re.search(r"Could not (resolve|connect)|Failed to fetch|Temporary failure resolving|Unable to connect", output):
        raise UnsupportedError(
            f"Debian's packages could not be fetched:\n  {tail}",
            hint="Check the network (`apt-get update`), or set TESTBED_MIRROR to a mirror this machine can reach.",
        )
    raise TestbedError(f"{tool} failed:\n  {tail}", hint="Run `testbed doctor` to see what this machine lacks.")


def export(image: Image, target: Path, layers: Sequence[Layer] = ()) -> str:
    """Writes the image with its `layers` as one tar with its manifest first; returns the tar's SHA-256, also left in
    `target`.sha256."""
    image.verify()
    for layer in layers:
        layer.verify()
    partial = target.with_name(target.name + ".partial")
    try:
        with tarfile.open(partial, "w") as tar:
            for name in ("manifest.json", *FILES):
                tar.add(image.path / name, arcname=name)
            for layer in layers:
                for name in LAYER_FILES:
                    tar.add(layer.path / name, arcname=f"layers/{layer.path.name}/{name}")
        checksum = cache.file_digest(partial)
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)
    target.with_name(target.name + ".sha256").write_text(f"{checksum}  {target.name}\n")
    return checksum


def import_(source: Path) -> Image:
    """Takes an exported image into the cache, after reading every byte of it against its checksums."""
    parent = cache.directory("images")
    cache.require_space(parent, source.stat().st_size, "importing the image")
    with cache.locked(parent), cache.making(parent) as work:
        try:
            with tarfile.open(source, "r:") as tar:
                layers = sorted({found[1] for name in tar.getnames() if (found := EXPORTED_LAYER.fullmatch(name))})
                inner = [f"layers/{place}/{name}" for place in layers for name in LAYER_FILES]
                for name in ("manifest.json", *FILES, *inner):
                    content = tar.extractfile(name)
                    (work / name).parent.mkdir(parents=True, exist_ok=True)
                    with (work / name).open("wb") as file:
                        shutil.copyfileobj(content or io.BytesIO(), file, 1 << 20)
            manifest = json.loads((work / "manifest.json").read_text())
            image = Image(work, manifest)
            image.check()
            image.verify()
            for place in layers:
                Layer.of(work / "layers" / place, image).verify()
        except (tarfile.TarError, KeyError, TypeError, ValueError, EOFError, UnsupportedError) as error:
            raise InputError(
                f"this is not a whole image: {error}",
                where=str(source),
                hint="Export it again with `testbed image export`.",
            ) from error
        if manifest["inputs"] != inputs_key():
            raise InputError(
                "this image was made by another version of testbed",
                where=str(source),
                hint="Export one from the same checkout, or build one with `testbed image build`.",
            )
        place = parent / manifest["inputs"][:16]
        shutil.rmtree(place, ignore_errors=True)
        work.rename(place)
    return Image(place, manifest)


def remove_all() -> int:
    """Removes every image from the cache; returns how many there were. Refuses while one is being made."""
    parent = cache.directory("images")
    try:
        with cache.locked(parent, wait=False):
            processes.sweep(parent, cache.MAKING)
            places = [path for path in parent.iterdir() if path.is_dir()]
            for path in places:
                shutil.rmtree(path)
    except BlockingIOError:
        raise TestbedError(
            "an image is being built or imported at this moment",
            where=str(parent),
            hint="Wait until that command has ended, or end it, and run this one again.",
        ) from None
    return len(places)
