"""OCI image layouts: directories, and tars of such, as skopeo and oras take them from and to registries.

Source: OCI image-spec 1.1, image-layout.md and manifest.md ("Guidelines for Artifact Usage").
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Any

from pydantic import BaseModel, Field

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
BYTES = "application/octet-stream"
TITLE = "org.opencontainers.image.title"
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class Descriptor(BaseModel):
    digest: Digest
    annotations: dict[str, str] = {}

    @property
    def title(self) -> str | None:
        return self.annotations.get(TITLE)


class Manifest(BaseModel):
    config: Descriptor
    layers: list[Descriptor]


class Index(BaseModel):
    manifests: list[Descriptor] = Field(min_length=1)


class Layout:
    """A layout to read. What it lacks is a KeyError, and what is damaged a ValueError."""

    def __init__(self, source: Path, tar: tarfile.TarFile | None) -> None:
        self._source, self._tar = source, tar

    def _open(self, name: str) -> IO[bytes]:
        if self._tar:
            member = self._tar.getmember(name)
            if member.isfile() and (content := self._tar.extractfile(member)):
                return content
        elif (path := self._source / name).is_file():
            return path.open("rb")
        raise KeyError(f"there is no {name}")

    def copy(self, digest: str, target: IO[bytes]) -> None:
        """A blob, checked while it is copied."""
        state = hashlib.sha256()
        with self._open(f"blobs/{digest.replace(':', '/')}") as blob:
            while block := blob.read(1 << 20):
                state.update(block)
                target.write(block)
        if f"sha256:{state.hexdigest()}" != digest:
            raise ValueError(f"the contents of blob {digest} are not those of its name")

    def read(self, digest: str) -> bytes:
        data = io.BytesIO()
        self.copy(digest, data)
        return data.getvalue()

    def manifest(self) -> Manifest:
        """The manifest that its index names first."""
        with self._open("index.json") as file:
            index = Index.model_validate_json(file.read())
        return Manifest.model_validate_json(self.read(index.manifests[0].digest))


@contextlib.contextmanager
def opened(source: Path) -> Iterator[Layout]:
    """The layout in a directory or a tar; tarfile.TarError for a file that is none."""
    if source.is_dir():
        yield Layout(source, None)
    else:
        with tarfile.open(source, "r:") as tar:
            yield Layout(source, tar)


def size(source: Path) -> int:
    """The bytes of a layout in a directory or a tar."""
    files = source.rglob("*") if source.is_dir() else [source]
    return sum(path.stat().st_size for path in files if path.is_file())


class Writer:
    """A tar of a layout with one artifact: a config, and files as its layers."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._layers: list[dict[str, Any]] = []
        self._written: set[str] = set()

    def add_file(self, title: str, path: Path, sha256: str) -> None:
        with path.open("rb") as file:
            self._add_layer(title, self._blob(BYTES, file, path.stat().st_size, sha256))

    def add(self, title: str, data: bytes) -> None:
        self._add_layer(title, self._data(BYTES, data))

    def finish(self, artifact: str, config: bytes) -> None:
        """Writes the manifest of an `artifact`, a media type without its version, and the index."""
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": f"{artifact}.v1",
            "config": self._data(f"{artifact}.config.v1+json", config),
            "layers": self._layers,
        }
        index = {"schemaVersion": 2, "manifests": [self._data(MANIFEST, json.dumps(manifest).encode())]}
        for name, content in (("index.json", index), ("oci-layout", {"imageLayoutVersion": "1.0.0"})):
            data = json.dumps(content).encode()
            self._entry(name, io.BytesIO(data), len(data))

    def _add_layer(self, title: str, descriptor: dict[str, Any]) -> None:
        self._layers.append({**descriptor, "annotations": {TITLE: title}})

    def _data(self, media: str, data: bytes) -> dict[str, Any]:
        return self._blob(media, io.BytesIO(data), len(data), hashlib.sha256(data).hexdigest())

    def _blob(self, media: str, content: IO[bytes], length: int, sha256: str) -> dict[str, Any]:
        if sha256 not in self._written:
            self._written.add(sha256)
            self._entry(f"blobs/sha256/{sha256}", content, length)
        return {"mediaType": media, "digest": f"sha256:{sha256}", "size": length}

    def _entry(self, name: str, content: IO[bytes], length: int) -> None:
        entry = tarfile.TarInfo(name)
        entry.size = length
        self._tar.addfile(entry, content)
