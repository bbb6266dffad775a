"""An image of a few bytes, for tests without a machine."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

from testbed.machine import cache, recipe
from testbed.machine.image import Image

RELEASE = "10.0.2 (Debian 1:10.0.2+ds-2)"


def archive_of(*members: tuple[str, bytes]) -> bytes:
    """A tar with these files, which are programs."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name, text in members:
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), 0o755
            tar.addfile(member, io.BytesIO(text))
    return data.getvalue()


LOADER = "lib/ld-linux-x86-64.so.2", f"#!/bin/sh\necho 'QEMU emulator version {RELEASE}'\n".encode()
CONTENTS = {
    "root.erofs": b"root" * 1000,
    "vmlinuz": b"kernel",
    "initrd": b"ramfs",
    "dpkg-status": b"Package: a\n",
    "qemu.tar": archive_of(LOADER, ("qemu-system-x86_64", b"")),
}
"""Its QEMU is a script in the place of the loader, which knows its version."""


def make_image(place: Path, root: bytes = CONTENTS["root.erofs"], **changes: Any) -> Image:
    """An image that is whole, of a few bytes; `changes` goes into its manifest."""
    place.mkdir(parents=True)
    contents = {**CONTENTS, "root.erofs": root}
    for name, data in contents.items():
        (place / name).write_bytes(data)
    files = {name: {"size": len(data), "sha256": cache.file_digest(place / name)} for name, data in contents.items()}
    digest = cache.digest(*(str(entry["sha256"]) for entry in files.values()))
    manifest = {
        "digest": digest,
        "inputs": recipe.inputs_key(),
        "kernel": "7.3",
        "built": "2026-01-01T00:00:00Z",
        "build_s": 100.0,
        "files": files,
        "packages": {},
        "python": [],
        "sources": [],
        **changes,
    }
    (place / "manifest.json").write_text(json.dumps(manifest))
    return Image(place, manifest)


def place_of_this_version(root: Path) -> Path:
    return root / "images" / recipe.inputs_key()[:16]


def nothing_in_cache(root: Path) -> bool:
    return list((root / "images").iterdir()) == []
