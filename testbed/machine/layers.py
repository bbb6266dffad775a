"""Layers: Debian packages on top of an image's, each set a file system of its own beside the image in the cache.

apt of this machine resolves the request against the packages of the image, and fetches what is missing; a micro-VM of
the image installs it (testbed/executor/layer.py).
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from testbed.errors import InputError, TestbedError, UnsupportedError, did_you_mean
from testbed.machine import cache, child_processes, image_build, recipe
from testbed.machine.image import Image, Layer
from testbed.machine.jobs import Job
from testbed.machine.qemu import Flavour
from testbed.machine.vm import VirtualMachine
from testbed.protocol import BUNDLE_BYTES, DEBIAN_PACKAGE, LAYER, requests

INSIDE = Path(__file__).parents[1] / "executor" / "layer.py"
LARGEST = BUNDLE_BYTES - (4 << 20)
"""Bytes of Debian packages that fit into a job bundle."""
LIMIT_S = 3600.0
"""Virtual seconds for an installation."""
SPACE = 1_500_000_000
Log = Callable[[str], None]


def names(words: Iterable[str]) -> list[str]:
    """Return the packages in words as users write them: `iperf3,tcpflow`."""
    found = sorted({name for word in words for name in re.split(r"[,\s]+", word) if name})
    for name in found:
        if not DEBIAN_PACKAGE.fullmatch(name):
            raise InputError(f"{name!r} is not a valid Debian package name", hint="Write --with iperf3,tcpflow.")
    return found


def find(base: Image, packages: Sequence[str]) -> Image | None:
    """Return the image with these packages if its layer exists; the image itself if it has them all."""
    if all(name in base.manifest["packages"] for name in packages):
        return base
    layer = Layer.load(_place(base, packages), base)
    return replace(base, layer=layer) if layer else None


async def ensure(base: Image, packages: Sequence[str], log: Log) -> Image:
    """Return the image with these packages; make a missing layer. Of two simultaneous callers, one makes it."""
    if found := find(base, packages):
        return found
    parent = base.path / "layers"
    parent.mkdir(exist_ok=True)
    async with cache.locked_async(parent):
        return find(base, packages) or await make(base, packages, log)


def _place(base: Image, packages: Sequence[str]) -> Path:
    key = cache.digest(base.digest, INSIDE.read_bytes(), *packages)
    return base.path / "layers" / key[:16]


async def make(base: Image, packages: Sequence[str], log: Log) -> Image:
    """Make a layer. Two layers of the same packages differ only if Debian's mirror changed: see `Layer.digest`."""
    started = time.monotonic()
    cache.require_space(base.path, SPACE, "a layer")
    log(f"fetch {', '.join(packages)}, and what they need beside the image's packages")
    debs = fetch(base, packages)
    if not debs:
        return base
    log(f"install {len(debs)} Debian package{'s' * (len(debs) > 1)} on top of the image")
    place = _place(base, packages)
    with cache.making(place) as work, child_processes.scratch() as out:
        installed = await install(base, debs, out, log)
        shutil.move(out / LAYER, work / LAYER)
        recipe.pad(work / LAYER)
        known = base.manifest["packages"]
        manifest = {
            "digest": cache.file_digest(work / LAYER),
            "size": (work / LAYER).stat().st_size,
            "base": base.digest,
            "asked": list(packages),
            "packages": {name: version for name, version in installed.items() if known.get(name) != version},
            "build_s": round(time.monotonic() - started, 1),
        }
        (work / "manifest.json").write_text(json.dumps(manifest, indent=1))
    return replace(base, layer=Layer(place, manifest))


async def install(base: Image, debs: dict[str, bytes], out: Path, log: Log) -> dict[str, str]:
    """Run a machine of the image that writes the layer to `out`. Return the versions of all packages, by name."""
    if (total := sum(map(len, debs.values()))) > LARGEST:
        raise UnsupportedError(f"these packages have {total >> 20} MiB; a layer takes at most {LARGEST >> 20}")
    job = Job([requests.Layer(epoch=recipe.EPOCH, uuid=recipe.LAYER_UUID)], debs, limit_s=LIMIT_S)
    await VirtualMachine(base, Flavour("virtual"), log).run(job, out)
    installed = job.answer()
    if not (out / LAYER).is_file():
        raise TestbedError("the machine left no layer", hint="Please report this with the output of `testbed doctor`.")
    return installed


def fetch(base: Image, packages: Sequence[str]) -> dict[str, bytes]:
    """Return the files, by name, of the packages and of all their dependencies that the image lacks."""
    if not shutil.which("apt-get") or not image_build.KEYRING.exists():
        lacking = "apt" if not shutil.which("apt-get") else "debian-archive-keyring"
        raise UnsupportedError(f"adding packages to the image needs {lacking}", hint=f"Run: {image_build.apt(lacking)}")
    state = cache.directory("apt")
    with cache.locked(state):
        apt = Apt(state, base)
        apt.run("apt-get", "update")
        require_known(packages, apt.run("apt-cache", "pkgnames").split())
        apt.run("apt-get", "install", "--yes", "--download-only", "--no-install-recommends", "--", *packages)
        found = {path.name: path.read_bytes() for path in sorted((state / "archives").glob("*.deb"))}
        shutil.rmtree(state / "archives")
    return found


def require_known(packages: Sequence[str], known: Sequence[str]) -> None:
    for name in packages:
        if name not in known:
            raise InputError(f"Debian {recipe.SUITE} has no package {name!r}", hint=did_you_mean(name, known).strip())


class Apt:
    """apt with its own state in a directory: the image's suite and packages, this machine's access to a mirror."""

    def __init__(self, state: Path, base: Image) -> None:
        for name in "lists/partial", "archives/partial":
            (state / name).mkdir(parents=True, exist_ok=True)
        own = "\n".join(base.manifest["sources"])
        mirrors = image_build.mirror() or re.findall(rf"^deb .*?(\S+) {recipe.SUITE} main", own, re.MULTILINE)
        (state / "sources.list").write_text(
            f"deb [arch=amd64 signed-by={image_build.KEYRING}] {mirrors[0]} {recipe.SUITE} main\n"
        )
        (state / "apt.conf").write_text(
            f'Dir::State "{state}"; Dir::State::lists "{state}/lists";\n'
            f'Dir::State::status "{base.file("dpkg-status")}"; Dir::State::extended_states "{state}/extended_states";\n'
            f'Dir::Cache "{state}"; Dir::Cache::archives "{state}/archives";\n'
            f'Dir::Etc::sourcelist "{state}/sources.list"; Dir::Etc::sourceparts "/dev/null";\n'
            'Dir::Etc::preferences "/dev/null"; Dir::Etc::preferencesparts "/dev/null";\n'
            'APT::Architecture "amd64"; APT::Architectures { "amd64"; }; APT::Sandbox::User "";\n'
            'Acquire::Languages "none";\n'
        )
        self._environment = {**os.environ, "APT_CONFIG": str(state / "apt.conf"), "LC_ALL": "C"}

    def run(self, *command: str) -> str:
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            image_build.raise_for(done.stdout + done.stderr, "apt")
        return done.stdout


def every(base: Image) -> list[Layer]:
    """Return the existing layers of an image."""
    places = sorted((base.path / "layers").glob("*/manifest.json"))
    found = (Layer.load(path.parent, base) for path in places if not path.parent.name.startswith(cache.MAKING))
    return sorted(filter(None, found), key=lambda layer: layer.asked)
