"""The guest's image: a Debian root, a kernel and an initramfs, kept in the cache under the hash of its inputs."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from testbed.errors import TestbedError, UnsupportedError
from testbed.machine import cache, child_processes
from testbed.machine.recipe import FILES, inputs_key
from testbed.protocol import LAYER

KEEP = 2
"""Images kept beside the newest, by their age; each is about 400 MB."""


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
        """Load the layer in this directory; None if it is missing or incomplete."""
        try:
            layer = cls(path, json.loads((path / "manifest.json").read_text()))
            whole = layer.file.stat().st_size == layer.manifest["size"] and layer.manifest["base"] == base.digest
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return layer if whole and layer.digest and layer.asked else None

    @property
    def file(self) -> Path:
        return self.path / LAYER

    @property
    def digest(self) -> str:
        return str(self.manifest["digest"])

    @property
    def asked(self) -> list[str]:
        """Return the packages it was made for; `packages` in its manifest are all installed ones, by version."""
        return list(self.manifest["asked"])

    def verify(self) -> None:
        if cache.file_digest(self.file) != self.digest:
            raise damaged(f"the layer with {', '.join(self.asked)}", "its contents have changed", self.path)


class ContainerImage(Protocol):
    """The image of a container (machine/containers.py)."""

    @property
    def digest(self) -> str: ...

    @property
    def file(self) -> Path: ...

    def verify(self) -> None: ...


@dataclass(frozen=True)
class Image:
    path: Path
    manifest: dict[str, Any]
    layer: Layer | None = None
    """The file system that machines mount over its root."""
    containers: tuple[ContainerImage, ...] = ()
    """Container images that Docker has in its machines."""

    @property
    def digest(self) -> str:
        """Return the SHA-256 over the contents: any change of a byte, a layer or a container image changes it."""
        own = str(self.manifest["digest"])
        more = [*([self.layer.digest] if self.layer else []), *(one.digest for one in self.containers)]
        return cache.digest(own, *more) if more else own

    def mounted(self) -> list[tuple[str, Path]]:
        """Return the files that a machine gets, by their device names."""
        layer = [("layer", self.layer.file)] if self.layer else []
        containers = [(f"container{number}", one.file) for number, one in enumerate(self.containers)]
        return [("root", self.file("root.erofs")), *layer, *containers]

    @property
    def kernel(self) -> str:
        return str(self.manifest["kernel"])

    def check(self) -> None:
        """Raise KeyError, TypeError or ValueError for a manifest that was not written by `recipe.describe`."""
        checksums = [str(self.manifest["files"][name]["sha256"]) for name in FILES]
        if self.digest != cache.digest(*checksums) or not self.kernel or not self.manifest["inputs"]:
            raise ValueError("its digest does not match its files")

    def file(self, name: str) -> Path:
        """Return a file of the image, checked against its recorded size."""
        path = self.path / name
        expected = self.manifest["files"][name]["size"]
        size = path.stat().st_size if path.exists() else 0
        if size != expected:
            raise damaged("the image", f"{name} has {size} bytes, expected {expected}", self.path)
        return path

    def verify(self) -> None:
        """Read and check every byte: for a new snapshot, an import, an export."""
        if self.layer:
            self.layer.verify()
        for container in self.containers:
            container.verify()
        for name, entry in self.manifest["files"].items():
            if cache.file_digest(self.file(name)) != entry["sha256"]:
                raise damaged("the image", f"the contents of {name} have changed since the build", self.path)


def place() -> Path:
    """Return the directory of the image for this version of testbed."""
    return cache.root() / "images" / inputs_key()[:16]


def find() -> Image | None:
    """Return the image for this version of testbed, None where it has not been built."""
    manifest = place() / "manifest.json"
    if not manifest.exists():
        return None
    try:
        image = Image(manifest.parent, json.loads(manifest.read_text()))
        image.check()
    except (ValueError, KeyError, TypeError) as error:
        raise damaged("the image's manifest", repr(error), manifest) from error
    return image


def prune(used: Path) -> None:
    """Remove the images of older versions, except the last ones built: another checkout may use them."""
    others = cache.by_use(path for path in used.parent.glob("*") if path != used)
    for path in others[: max(0, len(others) - KEEP)]:
        shutil.rmtree(path)


def remove_all() -> int:
    """Remove every image from the cache; return how many there were. Refuse while one is being made."""
    parent = cache.directory("images")
    try:
        with cache.locked(parent, wait=False):
            child_processes.sweep(parent, cache.MAKING)
            links = [path for path in parent.iterdir() if path.is_symlink()]
            places = [path for path in parent.iterdir() if path.is_dir() and path not in links]
            for path in links:
                path.unlink()
            for path in places:
                shutil.rmtree(path)
    except BlockingIOError:
        hint = "Wait for that command or end it, then run this one again."
        message = "another command is building or importing an image"
        raise TestbedError(message, where=str(parent), hint=hint) from None
    return len(places)
