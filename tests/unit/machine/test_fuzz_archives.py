"""Archives of images may come from anybody: a damaged one is one clear error, in bounded time and memory, and leaves
nothing in the cache."""

import contextlib
import gzip
import json
import random
import shutil
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from container_images import docker_save, oci_layout, tar_of
from hypothesis import given
from hypothesis import strategies as st
from small_image import make_image

from testbed.errors import TestbedError
from testbed.machine import cache, containers
from testbed.machine.archives import boot_image

LAYERS = tar_of({"etc/one": b"1" * 3000}), tar_of({"etc/two": b"2"}, links={"etc/three": "two"})
NUMBERS = b"0", b"7777777", b"\x80" + 10 * b"\xff", b"\xff" * 11, b" " * 11, b"-1234567890"
KINDS = b"0125LKxgSVD\0\x7f"
VALUES = None, True, -1, 10**30, "", "sha256:", "sha256:" + "0" * 64, "../../x", "/etc/passwd", [], {}, [[]], {"a": {}}
MOST_S, MOST_BYTES = 10, 64 << 20
"""CPU seconds and bytes of Python's memory for an archive of a few kilobytes: both are bounds, no measure."""


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Change bytes anywhere, the header of a member, or a JSON in it; or cut, double or compress it."""
    at = draw.randrange(len(data))
    header = draw.randrange(len(data) // 512) * 512
    match draw.randrange(8):
        case 0:
            data = data[:at]
        case 1:
            data = data[:at] + draw.randbytes(draw.choice([1, 4, 512])) + data[at + 1 :]
        case 2:
            data = data[:header] + data[header : header + 1024] * draw.choice([2, 50]) + data[header:]
        case 3:  # the size of a member, or its other numbers
            place = header + draw.choice([100, 108, 116, 124, 136, 148])
            data = summed(data[:place] + draw.choice(NUMBERS).ljust(11)[:11] + data[place + 11 :], header)
        case 4:
            kind = draw.choice(KINDS)
            data = summed(data[: header + 156] + bytes([kind]) + data[header + 157 :], header)
        case 5:
            name = draw.choice(["../x", "/x", "", "x" * 100, "blobs/sha256/" + "0" * 64, "manifest.json"]).encode()
            data = summed(data[:header] + name.ljust(100, b"\0") + data[header + 100 :], header)
        case 6:
            data = gzip.compress(data, 1)[: draw.choice([20, 200, -1])]
        case _:
            data = with_json(data, draw)
    return data


def summed(data: bytes, header: int) -> bytes:
    """Write the right checksum into a header, so that what is wrong in it is looked at."""
    block = data[header : header + 148] + b" " * 8 + data[header + 156 : header + 512]
    return data[: header + 148] + f"{sum(block):06o}\0 ".encode() + data[header + 156 :]


def with_json(data: bytes, draw: random.Random) -> bytes:
    """Change a value in one of the JSON texts, which keeps its length or is filled up with spaces."""
    starts = [at for at in range(0, len(data), 512) if data[at : at + 1] in (b"{", b"[")]
    if not starts:
        return data[: len(data) // 2]
    start = draw.choice(starts)
    end = data.index(b"\0", start)
    with contextlib.suppress(ValueError):
        found = json.loads(data[start:end])
        places = [
            (inner, key) for inner in walk(found) for key in (inner if isinstance(inner, dict) else range(len(inner)))
        ]
        if places:
            inner, key = draw.choice(places)
            inner[key] = draw.choice(VALUES)
        text = json.dumps(found, separators=(",", ":")).encode()[: end - start].ljust(end - start)
        return data[:start] + text + data[end:]
    return data[:start] + b"[" * (end - start) + data[end:]


def walk(value: object) -> list[dict[object, object] | list[object]]:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    own = [value] if isinstance(value, dict | list) else []
    return [*own, *(found for one in inner for found in walk(one))]


def machine_image(place: Path) -> bytes:
    target = place / "whole.tar"
    boot_image.export(make_image(place / "elsewhere"), target)
    return target.read_bytes()


WHOLE: dict[str, tuple[Any, ...]] = {
    "docker-save": (
        lambda _: tar_of(docker_save("tools:1", *LAYERS, Cmd=["/bin/sh"])),
        lambda file: containers.add(file, ""),
    ),
    "oci-layout": (
        lambda _: tar_of(oci_layout("tools:1", *LAYERS, Cmd=["/bin/sh"])),
        lambda file: containers.add(file, ""),
    ),
    "machine-image": (machine_image, boot_image.import_),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_any_damage(tmp_path: Path, kind: str) -> None:
    make, take, *names = WHOLE[kind]
    whole = make(tmp_path)
    (tmp_path / "image.tar").write_bytes(whole)
    take(tmp_path / "image.tar", *names)  # what is whole is taken
    shutil.rmtree(cache.root())

    @given(st.integers(0, 1 << 32))
    def tried(seed: int) -> None:
        draw = random.Random(seed)  # noqa: S311
        file, data = tmp_path / "image.tar", whole
        for _ in range(draw.choice([1, 1, 2, 4])):
            data = damaged(data, draw) if len(data) > 1024 else data
        file.write_bytes(data)
        tracemalloc.start()
        began = time.process_time()
        try:
            with contextlib.suppress(TestbedError):
                take(file, *names)
                shutil.rmtree(cache.root())
            assert time.process_time() - began < MOST_S
            assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
        finally:
            tracemalloc.stop()
        left = [path for path in cache.root().rglob("*") if path.is_file()] if cache.root().exists() else []
        assert left == []

    tried()
