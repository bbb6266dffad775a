"""Container images as files: what `docker save` and the tools of OCI write, read and checked to the byte.

An image is the SHA-256 of its configuration, which has the SHA-256 of each layer's tar; so the contents of an image can
be checked whatever wrote the file. Formats: https://github.com/moby/docker-image-spec/blob/main/spec.md ("Combined
Image JSON + Filesystem Changeset Format") and https://github.com/opencontainers/image-spec (image-layout.md).
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import stat
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from testbed.errors import InputError
from testbed.machine import files

AGAIN = "Write it again, such as with `docker save IMAGE -o FILE`."
ONE = "An archive has one image here: save each to a file of its own."
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
PLATFORM = ("linux", "amd64")
CHUNK = 1 << 20
MOST_JSON = 16 << 20
MOST_NESTING = 3
"""Indexes of images may list further indexes."""


class Store(Protocol):
    """The files of an archive by their names."""

    def open(self, name: str) -> IO[bytes] | None:
        """Return the contents of a file, None where there is none of this name."""


class TarStore:
    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._members = {member.name.removeprefix("./"): member for member in tar}

    def open(self, name: str) -> IO[bytes] | None:
        with contextlib.suppress(KeyError):  # a link to a file that is not there
            return self._tar.extractfile(self._members[name])
        return None


class DirectoryStore:
    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def open(self, name: str) -> IO[bytes] | None:
        path = (self._root / name).resolve()
        return path.open("rb") if path.is_relative_to(self._root) and path.is_file() else None


@dataclass(frozen=True)
class Found:
    """An image in an archive. `digest` is that of its configuration, `layers` are the names of their files."""

    name: str
    digest: str
    config: bytes
    layers: tuple[str, ...]
    diff_ids: tuple[str, ...]


class Archive:
    """An archive that is open. InputError for what is wrong with it, which names the file in it."""

    def __init__(self, store: Store, where: str) -> None:
        self._store = store
        self.where = where

    def damaged(self, what: str) -> InputError:
        return InputError(f"the image is damaged: {what}", where=self.where, hint=AGAIN)

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[IO[bytes]]:
        file = self._store.open(name)
        if file is None:
            raise self.damaged(f"{name} is missing")
        with file:
            yield file

    def _read(self, name: str) -> bytes:
        """The contents of a small file, against its digest if that is its name."""
        with self._opened(name) as file:
            data = file.read(MOST_JSON + 1)
        if len(data) > MOST_JSON:
            raise self.damaged(f"{name} has more than {MOST_JSON >> 20} MiB")
        kind, _, digest = name.removesuffix(".json").rpartition("/")
        named = kind.endswith("sha256") or (not kind and len(digest) == 64)
        if named and hashlib.sha256(data).hexdigest() != digest:
            raise self.damaged(f"the contents of {name} are not those of its digest")
        return data

    def _json(self, name: str) -> Any:
        try:
            return json.loads(self._read(name))
        except ValueError as error:
            raise self.damaged(f"{name} is no JSON: {error}") from None

    def find(self) -> Found:
        """The one image for this platform that the archive has."""
        try:
            if self._has("manifest.json"):
                return self._of_docker(self._json("manifest.json"))
            if self._has("index.json"):
                return self._of_oci(self._json("index.json"))
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise self.damaged(f"its description is not as it should be: {error!r}") from error
        text = "this is no archive of a container image: it has neither manifest.json nor index.json"
        raise InputError(text, where=self.where, hint=AGAIN)

    def _has(self, name: str) -> bool:
        file = self._store.open(name)
        if file:
            file.close()
        return file is not None

    def _of_docker(self, manifest: list[dict[str, Any]]) -> Found:
        if len(manifest) != 1:
            listed = ", ".join(tag for entry in manifest for tag in entry.get("RepoTags") or ())
            raise InputError(
                f"the archive has {len(manifest)} images: {listed}", where=self.where, hint=f"{ONE} {AGAIN}"
            )
        [entry] = manifest
        tags = entry.get("RepoTags") or [""]
        return self._found(str(tags[0]), str(entry["Config"]), [str(name) for name in entry["Layers"]])

    def _of_oci(self, index: Mapping[str, Any]) -> Found:
        images = list(self._images(index, MOST_NESTING))
        if len(images) != 1:
            text = f"the archive has {len(images)} images for {'/'.join(PLATFORM)}"
            raise InputError(text, where=self.where, hint=ONE)
        [(annotations, manifest)] = images
        name = annotations.get("io.containerd.image.name") or annotations.get("org.opencontainers.image.ref.name") or ""
        layers = [blob(layer["digest"]) for layer in manifest["layers"]]
        return self._found(str(name), blob(manifest["config"]["digest"]), layers)

    def _images(self, index: Mapping[str, Any], nesting: int) -> Iterator[tuple[Mapping[str, str], Mapping[str, Any]]]:
        """The manifests of an index that are for this platform, with the annotations of their entries."""
        for entry in index["manifests"]:
            platform = entry.get("platform")
            if platform and (platform["os"], platform["architecture"]) != PLATFORM:
                continue
            annotations = entry.get("annotations") or {}
            described = self._json(blob(entry["digest"]))
            if "manifests" in described and nesting:
                yield from (({**annotations, **inner}, image) for inner, image in self._images(described, nesting - 1))
            elif "config" in described:
                yield annotations, described

    def _found(self, name: str, config_file: str, layers: list[str]) -> Found:
        data = self._read(config_file)
        try:
            config = json.loads(data)
        except ValueError as error:
            raise self.damaged(f"{config_file} is no JSON: {error}") from None
        platform = config["os"], config["architecture"]
        if platform != PLATFORM:
            raise InputError(f"the image is for {'/'.join(platform)}, not for {'/'.join(PLATFORM)}", where=self.where)
        diff_ids = tuple(str(digest).removeprefix("sha256:") for digest in config["rootfs"]["diff_ids"])
        if len(layers) != len(diff_ids):
            raise self.damaged(f"it lists {len(layers)} layers, and its configuration {len(diff_ids)}")
        return Found(name, hashlib.sha256(data).hexdigest(), data, tuple(layers), diff_ids)

    def copy_layer(self, name: str, diff_id: str, target: Path) -> None:
        """Writes the tar of a layer, unpacked if it is compressed, after checking it against its digest."""
        own, unpacked = hashlib.sha256(), hashlib.sha256()
        with self._opened(name) as file, target.open("wb") as out:
            head = file.read(4)
            file.seek(0)
            if head == ZSTD:
                raise InputError(f"{name} is compressed with zstd", where=self.where, hint=f"Not supported. {AGAIN}")
            source = _Hashed(file, own)
            stream: Any = gzip.GzipFile(fileobj=source) if head[:2] == GZIP else source  # type: ignore[call-overload]
            try:
                while data := stream.read(CHUNK):
                    unpacked.update(data)
                    out.write(data)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise self.damaged(f"{name} cannot be unpacked: {error}") from None
        kind, _, digest = name.rpartition("/")
        right = not kind.endswith("sha256") or own.hexdigest() == digest
        if not right or unpacked.hexdigest() != diff_id:
            raise self.damaged(f"the contents of {name} are not those of its digest")


class _Hashed:
    """A file that is read from its start to its end, and hashed."""

    def __init__(self, file: IO[bytes], state: Any) -> None:
        self._file, self._state = file, state

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._state.update(data)
        return data


def blob(digest: str) -> str:
    kind, _, value = digest.partition(":")
    return f"blobs/{kind}/{value}"


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """The archive in a tar, compressed by gzip or not, or in a directory with an OCI layout."""
    if path.is_dir():
        yield Archive(DirectoryStore(path), str(path))
        return
    with files.reading(path):
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError("is neither a file nor a directory", where=str(path))
        file = path.open("rb")
    try:
        with file, tarfile.open(fileobj=file, mode="r:*") as tar:
            yield Archive(TarStore(tar), str(path))
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise InputError(
            f"the image is damaged: the tar ends too early or is none: {error}", where=str(path), hint=AGAIN
        ) from None


def write(archive: Archive, found: Found, name: str, target: Path, work: Path) -> None:
    """Writes the image as `docker load` takes it: a function of the image and the name alone."""
    layers = [f"{diff_id}.tar" for diff_id in found.diff_ids]
    entry = {"Config": f"{found.digest}.json", "RepoTags": [name], "Layers": layers}
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        for file, data in (("manifest.json", json.dumps([entry]).encode()), (f"{found.digest}.json", found.config)):
            (work / "part").write_bytes(data)
            _add(tar, work / "part", file)
        for number, (inner, diff_id) in enumerate(zip(found.layers, found.diff_ids, strict=True)):
            if diff_id not in found.diff_ids[:number]:
                archive.copy_layer(inner, diff_id, work / "part")
                _add(tar, work / "part", layers[number])
    (work / "part").unlink()


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    info = tarfile.TarInfo(name)
    info.size = path.stat().st_size
    info.mode = 0o644
    with path.open("rb") as file:
        tar.addfile(info, file)
