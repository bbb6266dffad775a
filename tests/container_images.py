"""Images of containers for tests, made without Docker and without a registry."""

import hashlib
import io
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def tar_of(files: Mapping[str, bytes], executable: Iterable[str] = (), links: Mapping[str, str] | None = None) -> bytes:
    """A tar of files by their names, and of symbolic links with their targets."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o755 if name in executable else 0o644
            tar.addfile(info, io.BytesIO(data))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return buffer.getvalue()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def configuration(layers: Iterable[bytes], **config: Any) -> bytes:
    """An image's own; the words of `config` are those of a Dockerfile, such as Cmd and Env."""
    diff_ids = [f"sha256:{digest(layer)}" for layer in layers]
    found = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }
    return json.dumps(found).encode()


def docker_save(name: str, *layers: bytes, **config: Any) -> dict[str, bytes]:
    """The files of what `docker save` writes."""
    own = configuration(layers, **config)
    files = {f"blobs/sha256/{digest(data)}": data for data in (own, *layers)}
    paths = [f"blobs/sha256/{digest(layer)}" for layer in layers]
    entry = {"Config": f"blobs/sha256/{digest(own)}", "RepoTags": [name], "Layers": paths}
    return {**files, "manifest.json": json.dumps([entry]).encode()}


def oci_layout(name: str, *layers: bytes, **config: Any) -> dict[str, bytes]:
    """The files of an OCI layout."""
    own = configuration(layers, **config)

    def descriptor(data: bytes, kind: str) -> dict[str, Any]:
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest(data)}", "size": len(data)}

    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "config": descriptor(own, "config.v1+json"),
            "layers": [descriptor(layer, "layer.v1.tar") for layer in layers],
        }
    ).encode()
    entry = {**descriptor(manifest, "manifest.v1+json"), "annotations": {"org.opencontainers.image.ref.name": name}}
    index = json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()
    blobs = {f"blobs/sha256/{digest(data)}": data for data in (own, manifest, *layers)}
    return {**blobs, "index.json": index, "oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}


APPLETS = "sh", "cat", "env", "hostname", "ls", "mknod", "ps", "sleep"
"""Of busybox."""


def root_of_machine(programs: Iterable[str], *, with_shell: bool) -> bytes:
    """A layer with these programs of the machine that this runs on and their libraries. It has busybox, with a shell
    and its tools, or as /bin/tail alone."""
    files: dict[str, bytes] = {"etc/libibverbs.d/rxe.driver": b"driver rxe\n"}
    found = [path for name in programs if (path := shutil.which(name))]
    providers = [str(path) for path in Path("/usr/lib/x86_64-linux-gnu/libibverbs").glob("librxe*")]
    for path in [*found, *providers]:
        libraries = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        for file in [path, *re.findall(r"(/\S+) \(0x", libraries)]:
            files[file.lstrip("/")] = Path(file).read_bytes()
    busybox = "bin/busybox" if with_shell else "bin/tail"  # busybox is what it is called
    files[busybox] = Path("/bin/busybox").read_bytes()
    links = {f"bin/{name}": "busybox" for name in APPLETS} if with_shell else {}
    return tar_of(files, [name for name in files if not name.endswith(".driver")], links)
