"""Machine images that move from one machine to another, as OCI artifacts.

The config of the artifact is the manifest of the image with those of its layers. They name all contents by SHA-256, so
a signature of the config covers every byte.
"""

import json
import shutil
import subprocess
import tarfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from testbed.errors import InputError, UnsupportedError
from testbed.machine import cache, child_processes, files
from testbed.machine.archives import oci
from testbed.machine.archives.reader import CHUNK, Archive, opened, size
from testbed.machine.image import Image, Layer, place
from testbed.machine.recipe import FILES, inputs_key
from testbed.protocol import LAYER
from testbed.protocol.messages import first_problem

ARTIFACT = "application/vnd.testbed.image"
SIGNATURE = "signature"
MOST_SIGNATURE = 1 << 16
"""Bytes of a key, and of a signature."""
AGAIN = "Export it again with `testbed image export`."


class Entry(BaseModel):
    size: int
    sha256: str


class Described(BaseModel):
    """What this testbed reads of an image's manifest."""

    digest: str
    inputs: str
    kernel: str
    built: str
    build_s: float
    files: dict[str, Entry]
    packages: dict[str, str]
    python: list[str]
    sources: list[str]


class DescribedLayer(BaseModel):
    """What it reads of a layer's."""

    digest: str
    base: str
    size: int
    asked: list[str]
    packages: dict[str, str]
    build_s: float


class Config(BaseModel):
    """Manifests of the image, and of its layers by their names in the cache."""

    image: dict[str, Any]
    layers: dict[Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")], dict[str, Any]]


def export(image: Image, target: Path, layers: Sequence[Layer] = (), key: Path | None = None) -> str:
    """Write the image with its `layers` as an OCI archive, signed if a private `key` is given.

    Return the archive's SHA-256, which is in `target`.sha256 too; the signature of that is in `target`.sig.
    """
    manifests = {layer.path.name: layer.manifest for layer in layers}
    config = Config(image=image.manifest, layers=manifests).model_dump_json().encode()
    signed = sign(config, key) if key else None
    image.verify()
    for layer in layers:
        layer.verify()
    partial = target.with_name(target.name + ".partial")
    try:
        with files.writing(target):
            partial.touch()
        with tarfile.open(partial, "w") as tar:
            writer = oci.Writer(tar)
            for name in FILES:
                writer.add_file(name, image.file(name), image.manifest["files"][name]["sha256"])
            for layer in layers:
                writer.add_file(f"{layer.path.name}.{LAYER}", layer.file, layer.digest)
            if signed:
                writer.add(SIGNATURE, signed)
            writer.finish(ARTIFACT, config)
        checksum = cache.file_digest(partial)
        with files.writing(target):
            partial.rename(target)
    finally:
        with suppress(OSError):
            partial.unlink()
    beside(target, "sha256").write_text(f"{checksum}  {target.name}\n")
    if key:
        beside(target, "sig").write_bytes(sign(checksum.encode(), key))
    return checksum


def import_(source: Path, key: Path | None = None) -> Image:
    """Import an exported image into the cache, after checking every byte of it against its checksums. `source` is an
    archive, or the directory of its layout. With a public `key` the image must be signed by the key's owner."""
    parent = cache.directory("images")
    if key and source.is_file():
        _require_signature(source, key)
    with opened(source, AGAIN) as archive:
        manifest = _manifest(archive)
        config = archive.read(manifest.config.file)
        if key and not source.is_file():
            signatures = [archive.read(blob.file) for blob in manifest.layers if blob.title == SIGNATURE]
            if not any(verify(config, found, key) for found in signatures):
                raise _not_signed(source, key, bool(signatures))
        cache.require_space(parent, size(source), "importing the image")
        with cache.locked(parent), cache.making(place()) as work:
            image = _unpack(archive, archive.parse_contents(manifest.config.file, config, Config), work)
            if image.manifest["inputs"] != inputs_key():
                hint = "Export an image from the same checkout, or build one with `testbed image build`."
                raise InputError("this image was made by another version of testbed", where=str(source), hint=hint)
    return replace(image, path=place())


def beside(archive: Path, kind: str) -> Path:
    """Return the file of an archive's checksum, sha256, or signature, sig."""
    return archive.with_name(f"{archive.name}.{kind}")


def _require_signature(source: Path, key: Path) -> None:
    """InputError for an archive whose bytes the owner of `key` has not signed. None of them is interpreted before."""
    with files.reading(source):
        checksum = cache.file_digest(source)
    signature = beside(source, "sig")
    if signature.is_file() and signature.stat().st_size > MOST_SIGNATURE:
        raise InputError("is too large for a signature", where=str(signature))
    if not (signature.is_file() and verify(checksum.encode(), files.read(signature), key)):
        raise _not_signed(source, key, signature.is_file())


def _not_signed(source: Path, key: Path, by_another: bool) -> InputError:
    hint = f"Expected: a signature of the owner of {key}"
    hint += f", in {beside(source, 'sig').name} beside it." if source.is_file() else "."
    what = "is signed with another key, or was changed" if by_another else "is not signed"
    return InputError(f"this image {what}", where=str(source), hint=f"{hint} Ask the owner for a signed image.")


def _manifest(archive: Archive) -> oci.Manifest:
    manifests = archive.parse(oci.INDEX, oci.Index).manifests
    if not manifests:
        raise archive.damaged(f"{oci.INDEX} lists no image")
    return archive.parse(manifests[0].file, oci.Manifest)


def _unpack(archive: Archive, config: Config, work: Path) -> Image:
    """Write the image that `config` describes, with its layers beside it, to the directory `work`."""
    image = Image(work, config.image)
    try:
        Described.model_validate(config.image)
        for manifest in config.layers.values():
            DescribedLayer.model_validate(manifest)
        image.check()
        checksums = {name: str(image.manifest["files"][name]["sha256"]) for name in FILES}
        (work / "manifest.json").write_text(json.dumps(image.manifest))
        for name, sha256 in checksums.items():
            _copy(archive, sha256, work / name)
            image.file(name)
    except ValidationError as error:
        raise archive.damaged(f"its description is invalid: {first_problem(error)}") from error
    except (KeyError, TypeError, ValueError, UnsupportedError) as error:
        raise archive.damaged(f"its description is invalid: {error}") from error
    for key, manifest in config.layers.items():
        path = work / "layers" / key
        path.mkdir(parents=True)
        (path / "manifest.json").write_text(json.dumps(manifest))
        _copy(archive, str(manifest.get("digest")), path / LAYER)
        if not Layer.load(path, image):
            raise archive.damaged(f"its layer {key} is incomplete")
    return image


def _copy(archive: Archive, sha256: str, target: Path) -> None:
    with archive.checked(f"blobs/sha256/{sha256}") as blob, target.open("wb") as file:
        shutil.copyfileobj(blob, file, CHUNK)


def sign(data: bytes, key: Path) -> bytes:
    """Return the signature with a private key; openssl asks for its passphrase at the terminal."""
    with child_processes.scratch() as work:
        (work / "data").write_bytes(data)
        done = _openssl("pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", work / "data", "-out", work / "signature")
        if done.returncode:
            raise InputError("openssl cannot sign with this key", where=str(key), hint=_hint(done))
        return (work / "signature").read_bytes()


def verify(data: bytes, signature: bytes, key: Path) -> bool:
    """Return True if `signature` of `data` is by the owner of the public `key`."""
    with files.reading(key):
        if not key.is_file() or key.stat().st_size > MOST_SIGNATURE:
            raise InputError("is no file with a key", where=str(key))
    readable = _openssl("pkey", "-pubin", "-in", key, "-noout")
    if readable.returncode:
        raise InputError("openssl finds no public key in it", where=str(key), hint=_hint(readable))
    with child_processes.scratch() as work:
        (work / "data").write_bytes(data)
        (work / "signature").write_bytes(signature)
        signed = ("-in", work / "data", "-sigfile", work / "signature")
        return _openssl("pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", key, *signed).returncode == 0


def _openssl(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        hint = "Run: sudo apt-get install openssl"
        raise UnsupportedError("signatures need openssl, which is not installed", hint=hint) from None


def _hint(done: subprocess.CompletedProcess[str]) -> str:
    return f"It says: {done.stderr.strip().splitlines()[0]}" if done.stderr.strip() else "Its exit status is not 0."
