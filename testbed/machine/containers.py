"""Container images in the cache, for nodes that are containers: each under the hash of its image and its name.

A lab that lives may start its machine again, with the image that it began with. So one that is removed or replaced
meanwhile loses its description alone, `manifest.json`, and the rest when no process holds it.
"""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from testbed.errors import InputError, UnsupportedError, did_you_mean
from testbed.machine import cache, layers, recipe
from testbed.machine.image import Image

PACKAGES = ("docker.io", "python3-docker")
"""Debian packages of a machine whose lab has containers."""
REFERENCE = re.compile(r"[a-z0-9][a-z0-9._-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?")
LARGEST = 700 << 20
"""Bytes of all images of a lab, at most: its machine unpacks them into its memory."""
MANIFEST = "manifest.json"
ADD = "testbed image add FILE"


def canonical(name: str) -> str:
    """Return an image's full name, as Docker reads short ones: `alpine` is `alpine:latest`. InputError if invalid."""
    if not REFERENCE.fullmatch(name):
        raise InputError(f"{name!r} is not the name of an image", hint="Use a name such as tools:1.")
    short = name.removeprefix("docker.io/").removeprefix("library/")
    return short if ":" in short.rpartition("/")[2] else f"{short}:latest"


@dataclass(frozen=True)
class Container:
    """A container image in the cache."""

    path: Path
    manifest: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.manifest["name"])

    @property
    def digest(self) -> str:
        """Return the SHA-256 of its archive."""
        return str(self.manifest["digest"])

    @property
    def size(self) -> int:
        return int(self.manifest["size"])

    @property
    def file(self) -> Path:
        """Return the path of its archive, whose size is checked."""
        path = self.path / "archive.tar"
        if not path.exists() or path.stat().st_size != self.size:
            raise self._damaged("the size of its archive has changed")
        return path

    def verify(self) -> None:
        if cache.file_digest(self.file) != self.digest:
            raise self._damaged("its contents have changed")

    def whole(self) -> bool:
        try:
            self.verify()
        except UnsupportedError:
            return False
        return True

    def _damaged(self, how: str) -> UnsupportedError:
        hint = f"Remove it with `testbed image rm {self.name}`, and add it again."
        return UnsupportedError(f"the image {self.name} is damaged: {how}", where=str(self.path), hint=hint)


def every() -> list[Container]:
    """Return all images in the cache, by name."""
    found = []
    for path in (cache.root() / "containers").glob(f"*/{MANIFEST}"):
        if not path.parent.name.startswith(cache.MAKING):
            try:
                container = Container(path.parent, json.loads(path.read_text()))
                found.append((container.name, container.digest, container.size, container))
            except (OSError, ValueError, KeyError, TypeError) as error:
                text, hint = (
                    f"the description of an image is damaged: {error!r}",
                    "Remove its directory, and add it again.",
                )
                raise UnsupportedError(text, where=str(path), hint=hint) from error
    return [container for *_, container in sorted(found, key=lambda entry: entry[0])]


def find(names: Iterable[str]) -> tuple[Container, ...]:
    """Return the images with these names, each once. InputError for one that is not in the cache."""
    known = {container.name: container for container in every()}
    wanted = sorted({canonical(name) for name in names})
    for name in wanted:
        if name not in known:
            near = did_you_mean(name, known)
            save = f"`docker save {name} -o FILE && {ADD}`"
            hint = f"{near}testbed asks no registry: export the image elsewhere with {save}, or leave out 'image'."
            raise InputError(f"the image {name} has not been added", hint=hint)
    found = tuple(known[name] for name in wanted)
    if (total := sum(container.size for container in found)) > LARGEST:
        text = f"the images of the lab have {total >> 20} MiB; the limit is {LARGEST >> 20} MiB"
        raise UnsupportedError(text, hint="A lab's machine keeps images in its memory: use smaller ones.")
    return found


def hold(names: Iterable[str]) -> tuple[Container, ...]:
    """Return the images with these names, as `find` does; their archives stay as long as this process."""
    asked = list(names)
    while True:
        found, handles = find(asked), list[int]()
        with contextlib.suppress(FileNotFoundError):
            handles.extend(cache.held(container.path) for container in found)
            if all((container.path / MANIFEST).exists() for container in found):
                return found
        for handle in handles:
            os.close(handle)


async def equip(base: Image, packages: Sequence[str], images: Sequence[str], log: layers.Log) -> Image:
    """Return the image with these Debian packages, and with Docker and these container images, which this process
    holds until it ends."""
    found = hold(images)
    wanted = sorted({*packages, *(PACKAGES if found else ())})
    equipped = await layers.ensure(base, wanted, log) if wanted else base
    return replace(equipped, containers=found)


def add(source: Path, name: str) -> Container:
    """Add the image of an archive to the cache, under its own name or another. Replace one of that name."""
    from testbed.machine.archives import container_image, reader  # not needed for help

    parent = cache.directory("containers")
    with container_image.opened(source) as archive:
        found = container_image.find(archive)
        if not (name or found.name):
            raise InputError(
                "the image has no name in this archive", where=str(source), hint="Give it one: --name NAME"
            )
        full = canonical(name or found.name)
        cache.require_space(parent, 4 * reader.size(source), "adding the image")
        place = parent / cache.digest(found.digest, full)[:16]
        for one in every():
            if one.path == place and one.whole():
                return one
        with cache.locked(parent), cache.making(place) as work:
            container_image.write(archive, found, full, work / "archive.tar", work)
            recipe.pad(work / "archive.tar")
            manifest = {
                "name": full,
                "image": found.digest,
                "digest": cache.file_digest(work / "archive.tar"),
                "size": (work / "archive.tar").stat().st_size,
            }
            (work / MANIFEST).write_text(json.dumps(manifest, indent=1))
            for other in every():
                if other.name == full and other.path != place:
                    (other.path / MANIFEST).unlink()
            _sweep(parent)
    return Container(place, manifest)


def remove(name: str) -> None:
    """Remove the image of this name. InputError if there is none."""
    full, known = canonical(name), {container.name: container for container in every()}
    if full not in known:
        hint = f"{did_you_mean(full, known)}`testbed image ls` lists the images that were added."
        raise InputError(f"image {full} does not exist", hint=hint)
    parent = cache.directory("containers")
    with cache.locked(parent):
        (known[full].path / MANIFEST).unlink(missing_ok=True)
        _sweep(parent)


def _sweep(parent: Path) -> None:
    """Delete what was removed and is held by nobody."""
    for path in parent.iterdir():
        if not path.name.startswith(cache.MAKING) and not (path / MANIFEST).exists():
            with contextlib.suppress(BlockingIOError), cache.locked(path, wait=False):
                shutil.rmtree(path)
