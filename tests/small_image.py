"""An image of a few bytes, for tests without a machine."""

import json
from pathlib import Path
from typing import Any

from testbed.machine import cache, recipe
from testbed.machine.image import Image

CONTENTS = {"root.erofs": b"root" * 1000, "vmlinuz": b"kernel", "initrd": b"ramfs", "dpkg-status": b"Package: a\n"}


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
