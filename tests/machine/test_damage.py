"""Damaged or missing parts: each gives one clear message and the right status, or is mended."""

import json
import os
import subprocess
from pathlib import Path

import pytest

VARIANT = ("run", "ip-reuse", "--variant", "garp", "--json")


def own(path: Path) -> Path:
    """Replaces a hard link by a copy, so that it can be damaged."""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)
    return path


def environment(cache: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(cache.parent)}


def test_a_cut_image_is_named_with_its_cure(testbed, cache):
    (root,) = cache.glob("images/*/root.erofs")
    os.truncate(own(root), 1 << 20)
    done = testbed(*VARIANT, env=environment(cache))
    assert done.status == 3
    assert "root.erofs has 1048576 bytes, expected" in done.error
    assert "testbed image rm" in done.error


def test_a_corrupted_image_is_named_before_it_is_started(testbed, cache):
    (root,) = cache.glob("images/*/root.erofs")
    with own(root).open("r+b") as file:
        file.seek(100 << 20)
        file.write(b"corrupt")
    done = testbed(*VARIANT, env=environment(cache))
    assert done.status == 3
    assert "the contents of root.erofs have changed since the build" in done.error


def test_a_manifest_that_is_no_json_is_named(testbed, cache):
    (manifest,) = cache.glob("images/*/manifest.json")
    own(manifest).write_text("{")
    done = testbed(*VARIANT, env=environment(cache))
    assert done.status == 3
    assert "manifest is damaged" in done.error


@pytest.mark.slow
def test_a_cut_snapshot_or_one_of_another_image_is_made_anew_and_changes_nothing(testbed, cache):
    known = testbed(*VARIANT)
    first = testbed(*VARIANT, env=environment(cache))
    assert first.status == 0, first.err
    assert first.json["trace"] == known.json["trace"]
    one, other, _ = sorted(cache.glob("snapshots/*"))
    subprocess.run(["cp", "--sparse=always", one, other], check=True)
    os.truncate(one, one.stat().st_size - 5000)
    second = testbed(*VARIANT, env=environment(cache))
    assert second.status == 0, second.err
    assert second.json["trace"] == first.json["trace"]


def test_a_run_needs_no_qemu_of_this_machine_unless_it_is_asked_for(testbed, tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for directory in ("/bin", "/usr/bin"):
        for tool in Path(directory).iterdir():
            if not tool.name.startswith("qemu-") and not (tools / tool.name).exists():
                (tools / tool.name).symlink_to(tool)
    assert testbed(*VARIANT, env={"PATH": str(tools)}).status == 0
    done = testbed(*VARIANT, "--qemu", "host", env={"PATH": str(tools)})
    assert done.status == 3
    assert "apt-get install qemu-system-x86" in done.error
    done = testbed(*VARIANT, "--qemu", "/nowhere/qemu", env={"PATH": str(tools)})
    assert done.status == 3
    assert "there is no program /nowhere/qemu" in done.error


@pytest.mark.slow
def test_an_exported_image_comes_back_and_a_cut_one_does_not(testbed, tmp_path):
    exported = tmp_path / "image.tar"
    assert testbed("image", "export", exported).status == 0
    empty = {"XDG_CACHE_HOME": str(tmp_path / "empty")}
    assert testbed("image", "import", exported, env=empty).status == 0
    info = testbed("image", "info", "--json")
    assert json.loads(testbed("image", "info", "--json", env=empty).out)["digest"] == info.json["digest"]
    os.truncate(exported, exported.stat().st_size // 2)
    done = testbed("image", "import", exported, env={"XDG_CACHE_HOME": str(tmp_path / "other")})
    assert done.status == 2
    assert "the image is damaged" in done.error


def test_a_build_without_a_network_says_so(testbed, tmp_path):
    nowhere = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "TESTBED_MIRROR": "http://127.0.0.1:9/debian"}
    done = testbed("image", "build", env=nowhere)
    assert done.status == 3
    assert "Debian's packages could not be fetched" in done.error
    assert "TESTBED_MIRROR" in done.error
    assert not list((tmp_path / "cache" / "testbed" / "images").iterdir())
