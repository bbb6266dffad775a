"""OCI image layouts, as skopeo and oras copy them from and to registries.

Source: OCI image-spec 1.1, image-layout.md and manifest.md ("Guidelines for Artifact Usage").
"""

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import IO, Annotated, Any

from pydantic import BaseModel, Field

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
BYTES = "application/octet-stream"
TITLE = "org.opencontainers.image.title"
INDEX = "index.json"
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class Platform(BaseModel):
    os: str
    architecture: str

    def __str__(self) -> str:
        return f"{self.os}/{self.architecture}"


class Descriptor(BaseModel):
    digest: Digest
    platform: Platform | None = None
    annotations: dict[str, str] | None = None

    @property
    def file(self) -> str:
        return f"blobs/{self.digest.replace(':', '/')}"

    @property
    def title(self) -> str | None:
        return (self.annotations or {}).get(TITLE)


class Manifest(BaseModel):
    config: Descriptor
    layers: list[Descriptor]


class Index(BaseModel):
    manifests: list[Descriptor]


class Writer:
    """Writer of a layout tar with one artifact: a config, and files as its layers."""

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
        """Write the manifest of an `artifact`, a media type without its version, and the index."""
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": f"{artifact}.v1",
            "config": self._data(f"{artifact}.config.v1+json", config),
            "layers": self._layers,
        }
        index = {"schemaVersion": 2, "manifests": [self._data(MANIFEST, json.dumps(manifest).encode())]}
        for name, content in ((INDEX, index), ("oci-layout", {"imageLayoutVersion": "1.0.0"})):
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
