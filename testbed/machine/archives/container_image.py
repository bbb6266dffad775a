"""Container images as files that `docker save` and OCI tools write, read and checked to the byte.

An image is identified by the SHA-256 of its configuration, which has the SHA-256 of each layer's tar; so the contents
can be checked whatever wrote the file. Formats: https://github.com/moby/docker-image-spec/blob/main/spec.md ("Combined
Image JSON + Filesystem Changeset Format") and https://github.com/opencontainers/image-spec (image-layout.md).
"""

import hashlib
import json
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, Field, RootModel

from testbed.documents.text import listing, quoted
from testbed.errors import InputError
from testbed.machine.archives import reader
from testbed.machine.archives.oci import INDEX, Descriptor, Digest, Index, Manifest, Platform
from testbed.machine.archives.reader import CHUNK, Archive

AGAIN = "Write it again, for example with `docker save IMAGE -o FILE`."
ONE = "Save each image to its own file."
SAVED = "manifest.json"
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
PLATFORM = Platform(os="linux", architecture="amd64")
NAMES = "io.containerd.image.name", "org.opencontainers.image.ref.name"
MOST_NESTING = 3
"""Depth of nested image indexes, at most."""
MOST_MANIFESTS = 1000
MOST_LAYERS = 127
"""Docker's own bound (MaxLayerDepth is 125; overlay2 takes two more)."""


class SavedImage(BaseModel):
    """An entry of the manifest of `docker save`."""

    config: str = Field(alias="Config")
    tags: list[str] | None = Field(alias="RepoTags")
    layers: list[str] = Field(alias="Layers")


class Root(BaseModel):
    diff_ids: list[Digest]


class Configuration(Platform):
    rootfs: Root


class Listed(BaseModel):
    """An entry of an index: an image or a further index. Anything else is an artifact that is neither."""

    manifests: list[Descriptor] | None = None
    config: Descriptor | None = None
    layers: list[Descriptor] = []


@dataclass(frozen=True)
class ContainerImage:
    """An image in an archive. `digest` is that of its configuration, `layers` are the names of their files."""

    name: str
    digest: str
    config: bytes
    layers: Sequence[str]
    diff_ids: Sequence[str]


def opened(path: Path) -> AbstractContextManager[Archive]:
    """Open the archive in a tar, gzip-compressed or not, or in a directory with an OCI layout."""
    return reader.opened(path, AGAIN)


def find(archive: Archive) -> ContainerImage:
    """Return the only image in the archive for this platform."""
    if archive.has(SAVED):
        return _saved(archive)
    if archive.has(INDEX):
        return _laid_out(archive)
    text = f"this is not an archive of a container image: it has neither {SAVED} nor {INDEX}"
    raise InputError(text, where=archive.where, hint=AGAIN)


def _saved(archive: Archive) -> ContainerImage:
    images = archive.parse(SAVED, RootModel[list[SavedImage]]).root
    if len(images) != 1:
        listed = listing(quoted(tag) for image in images for tag in image.tags or ())
        raise InputError(f"the archive has {len(images)} images: {listed}", where=archive.where, hint=f"{ONE} {AGAIN}")
    [image] = images
    return _described(archive, next(iter(image.tags or ()), ""), image.config, image.layers)


def _laid_out(archive: Archive) -> ContainerImage:
    images = list(_images(archive, archive.parse(INDEX, Index).manifests, MOST_NESTING, set()))
    if len(images) != 1:
        text = f"the archive has {len(images)} images for {PLATFORM}"
        raise InputError(text, where=archive.where, hint=ONE)
    [(annotations, manifest)] = images
    name = next((annotations[key] for key in NAMES if annotations.get(key)), "")
    return _described(archive, name, manifest.config.file, [layer.file for layer in manifest.layers])


def _images(
    archive: Archive, entries: Sequence[Descriptor], nesting: int, seen: set[str]
) -> Iterator[tuple[Mapping[str, str], Manifest]]:
    """Yield the manifests of an index for this platform, with the annotations of their entries, each file once."""
    for entry in entries:
        if entry.platform not in (None, PLATFORM) or entry.digest in seen:
            continue
        seen.add(entry.digest)
        if len(seen) > MOST_MANIFESTS:
            raise archive.damaged(f"it lists more than {MOST_MANIFESTS} manifests")
        annotations = entry.annotations or {}
        listed = archive.parse(entry.file, Listed)
        if listed.manifests is not None and nesting:
            inner = _images(archive, listed.manifests, nesting - 1, seen)
            yield from (({**annotations, **own}, image) for own, image in inner)
        elif listed.config:
            yield annotations, Manifest(config=listed.config, layers=listed.layers)


def _described(archive: Archive, name: str, config: str, layers: Sequence[str]) -> ContainerImage:
    data = archive.read(config)
    described = archive.parse_contents(config, data, Configuration)
    if str(described) != str(PLATFORM):
        raise InputError(f"the image is for {described}, not for {PLATFORM}", where=archive.where)
    diff_ids = [digest.removeprefix("sha256:") for digest in described.rootfs.diff_ids]
    if len(layers) != len(diff_ids):
        raise archive.damaged(f"it lists {len(layers)} layers, but its configuration lists {len(diff_ids)}")
    if len(layers) > MOST_LAYERS:
        raise archive.damaged(f"it has {len(layers)} layers; an image has {MOST_LAYERS} at most")
    return ContainerImage(name, hashlib.sha256(data).hexdigest(), data, layers, diff_ids)


def write(archive: Archive, image: ContainerImage, name: str, target: Path, work: Path) -> None:
    """Write the image in the format of `docker load`. The bytes depend on the image and the name alone."""
    layers = [f"{diff_id}.tar" for diff_id in image.diff_ids]
    entry = {"Config": f"{image.digest}.json", "RepoTags": [name], "Layers": layers}
    part, left = work / "part", archive.most
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for file, data in ((SAVED, json.dumps([entry]).encode()), (f"{image.digest}.json", image.config)):
            part.write_bytes(data)
            _add(tar, part, file)
        for number, (inner, diff_id) in enumerate(zip(image.layers, image.diff_ids, strict=True)):
            if diff_id not in image.diff_ids[:number]:
                _copy_layer(archive, inner, diff_id, part, left)
                left -= part.stat().st_size
                _add(tar, part, layers[number])
    part.unlink()


def _copy_layer(archive: Archive, name: str, diff_id: str, target: Path, most: int) -> None:
    """Write the tar of a layer of `most` bytes, decompressed if necessary, after checking it against its digest."""
    with archive.checked(name) as file, target.open("wb") as out:
        head = file.peek(4)
        if head[:4] == ZSTD:
            text = f"{name} is compressed with zstd"
            raise InputError(text, where=archive.where, hint=f"Not supported. {AGAIN}")
        try:
            if head[:2] == GZIP:
                reader.unpack(file, out, most)
            else:
                shutil.copyfileobj(file, out, CHUNK)
        except reader.DAMAGE as error:
            raise archive.damaged(f"{name} cannot be unpacked: {error}") from None
    with target.open("rb") as out:
        if hashlib.file_digest(out, "sha256").hexdigest() != diff_id:
            raise archive.changed(name)


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    info = tarfile.TarInfo(name)
    info.size = path.stat().st_size
    info.mode = 0o644
    with path.open("rb") as file:
        tar.addfile(info, file)
