"""containers/build makes archives that `testbed image add` and Docker take; mmdebstrap is a stand-in here."""

import errno
import json
import sys
import tarfile
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
from container_images import tar_of
from small_image import make_image, place_of_this_version

from testbed.machine import containers, image_build, recipe

SCRIPT = Path(__file__).parents[3] / "containers/build"
IMAGES = json.loads(SCRIPT.with_name("images.json").read_text())
MMDEBSTRAP = """#!/bin/sh
printf '%s\\n' "$@" >{0}/asked
{1}
for word; do case $word in *layer.tar) cp {0}/root.tar "$word" ;; esac; done
"""
Run = Callable[..., int]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    loader = SourceFileLoader("containers_build", str(SCRIPT))
    spec = spec_from_loader(loader.name, loader)
    assert spec
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def run(script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the script with these words in a directory of its own, where mmdebstrap does what is given."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "root.tar").write_bytes(tar_of({"etc/root": b""}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("TESTBED_MIRROR", "http://mirror/debian")
    monkeypatch.setattr(image_build, "KEYRING", tmp_path / "root.tar")
    monkeypatch.setattr(image_build, "OWN_NAMESPACES", ())
    monkeypatch.setattr(image_build.os, "geteuid", lambda: 0)

    def call(*words: str, mmdebstrap: str = "") -> int:
        (tmp_path / "bin/mmdebstrap").write_text(MMDEBSTRAP.format(tmp_path, mmdebstrap))
        (tmp_path / "bin/mmdebstrap").chmod(0o755)
        monkeypatch.setattr(sys, "argv", ["build", *words])
        try:
            script.main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return call


def left(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()} - {"bin", "root.tar", "asked", "cache"}


@pytest.mark.parametrize("name", sorted(IMAGES.keys() - {"testbed"}))
def test_a_node_image_of_each_definition_is_made_and_taken(
    run: Run, tmp_path: Path, cache_root: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(name) == 0
    assert capsys.readouterr().out.endswith(f"has node-{name}:1: testbed image add {name}.tar\n")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert f"--include={','.join(IMAGES[name]['packages'])}" in asked
    assert asked[-1] == "http://mirror/debian"
    added = containers.add(tmp_path / f"{name}.tar", "")
    assert added.name == f"node-{name}:1"
    assert run(name, "-o", "again.tar") == 0
    assert left(tmp_path) >= {f"{name}.tar", "again.tar"}
    assert containers.add(tmp_path / "again.tar", "").digest == added.digest


def config_of(archive: Path) -> dict[str, list[str]]:
    with tarfile.open(archive) as tar:
        files = {member.name: tar.extractfile(member) for member in tar}
        [entry] = json.load(files["manifest.json"])  # type: ignore[arg-type]
        return json.load(files[entry["Config"]])["config"]  # type: ignore[arg-type, no-any-return]


def test_an_image_has_the_variables_of_all_and_those_of_its_definition(run: Run, tmp_path: Path) -> None:
    for name in ("perftest", "mpi-torch", "frr"):
        assert run(name) == 0
    plain, torch, frr = (config_of(tmp_path / f"{name}.tar") for name in ("perftest", "mpi-torch", "frr"))
    assert [one.partition("=")[0] for one in plain["Env"]] == ["PATH", "LC_ALL"]
    assert torch["Env"] == [*plain["Env"], "USE_LIBUV=0"]
    assert (plain["Cmd"], frr["Cmd"]) == (["sleep", "infinity"], IMAGES["frr"]["config"]["Cmd"])
    assert not [name for name, definition in IMAGES.items() if "Env" in definition.get("config", {})]


def test_the_image_of_testbed_gets_the_image_of_machines_without_layers(
    script: ModuleType, run: Run, tmp_path: Path, cache_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make_image(place_of_this_version(cache_root)).path
    (place / "layers").mkdir()
    monkeypatch.setattr(script, "PROGRAM", place)
    monkeypatch.setattr(script, "fetch_wheels", lambda target: target.mkdir())
    assert run("testbed") == 0
    asked = (tmp_path / "asked").read_text()
    files = " ".join(f"{place}/{name}" for name in (*recipe.FILES, "manifest.json"))
    assert f"--customize-hook=copy-in {files} /opt/testbed/cache/testbed/images/{place.name}\n" in asked
    assert str(place / "layers") not in asked


def test_without_an_image_of_machines_the_command_that_builds_it_is_named(
    run: Run, cache_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("testbed") == 3
    assert "Run: ./setup.sh image && .venv/bin/testbed image build" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "mmdebstrap", "status", "message"),
    [
        (["nope"], "", 2, "invalid choice: 'nope'"),
        (["frr", "-o", "nowhere/x.tar"], "", 2, "error: there is no directory nowhere"),
        (["frr"], "echo E: broken; exit 25", 1, "error: mmdebstrap failed:\n  E: broken"),
        (["frr"], "echo No space left on device; exit 25", 3, "error: the disk filled up while the image was built"),
        (["frr"], "echo Could not resolve; exit 25", 3, "error: Debian's packages could not be fetched"),
    ],
)
def test_an_image_that_cannot_be_made_is_one_message_and_leaves_nothing(
    run: Run,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    mmdebstrap: str,
    status: int,
    message: str,
) -> None:
    assert run(*words, mmdebstrap=mmdebstrap) == status
    assert message in capsys.readouterr().err
    assert not left(tmp_path)


def test_a_disk_that_fills_up_while_the_archive_is_written_is_one_message(
    script: ModuleType, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write(target: Path, *_: object) -> None:
        target.write_bytes(b"a part")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(script, "write", write)
    assert run("frr") == 3
    assert capsys.readouterr().err.endswith("error: frr.tar: No space left on device\n")
    assert not left(tmp_path)


def test_without_mmdebstrap_its_package_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(image_build.shutil, "which", lambda _: None)
    assert run("frr") == 3
    assert "Run: sudo apt-get install --no-install-recommends mmdebstrap" in capsys.readouterr().err
