"""Set-up asks for what is missing, in one line; for what builds images only where one is to be built."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.machine import cache, image_build, recipe

TOP = Path(__file__).parents[2]
PLAIN = ("sh", "cat", "dirname", "env", "flock", "python3", "pwd", "sha256sum", "tail")
"""What a machine has on which nothing was installed for testbed."""


@pytest.fixture
def set_up(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Runs a checkout's set-up as a user without sudo on such a machine; its status and its message."""
    checkout, programs = tmp_path / "checkout", tmp_path / "bin"
    checkout.mkdir()
    programs.mkdir()
    for name in ("setup.sh", "pyproject.toml", "requirements.lock", "testbed"):
        (checkout / name).symlink_to(TOP / name)
    for name in PLAIN:
        (programs / name).symlink_to(str(shutil.which(name)))
    for name, words in {"id": "echo 1000", "apt-get": "exit 1"}.items():
        (programs / name).write_text(f"#!/bin/sh\n{words}\n")
        (programs / name).chmod(0o755)

    def run(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            ["sh", "./setup.sh", *arguments],
            cwd=checkout,
            env={**os.environ, "PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr

    return run


def test_what_builds_images_is_not_asked_of_who_may_import_one(set_up: Callable[..., tuple[int, str]]) -> None:
    _, said = set_up()
    assert "mmdebstrap" not in said


def test_where_an_image_is_to_be_built_one_line_names_all(set_up: Callable[..., tuple[int, str]]) -> None:
    status, said = set_up("image")
    assert status == 3
    [line] = [line for line in said.splitlines() if "apt-get install" in line]
    for package in ("mmdebstrap", "erofs-utils"):
        assert package in line


def test_an_image_that_was_imported_is_enough(set_up: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    files = {name: {"size": 0, "sha256": "0" * 64} for name in recipe.FILES}
    digest = cache.digest(*("0" * 64 for _ in files))
    place = tmp_path / "cache" / "testbed" / "images" / recipe.inputs_key()[:16]
    place.mkdir(parents=True)
    manifest = {"digest": digest, "inputs": recipe.inputs_key(), "kernel": "7.3", "files": files}
    (place / "manifest.json").write_text(json.dumps(manifest))
    _, said = set_up("image")
    assert "mmdebstrap" not in said


def test_set_up_looks_for_all_that_building_takes() -> None:
    """It does so itself, as asking Python takes longer than all the rest of a set-up with nothing to do."""
    text = (TOP / "setup.sh").read_text()
    [tools] = re.findall(r"for tool in (.*); do", text)
    assert {*tools.split(), "apt-get"} == {*image_build.TOOLS, "newuidmap"}  # set-up needs apt-get anyway
    assert f"[ -e {image_build.KEYRING} ]" in text


@pytest.fixture
def with_packages(set_up: Callable[..., tuple[int, str]], tmp_path: Path) -> Callable[[str], tuple[int, str]]:
    """Set-up for labs on this very kernel where these Debian packages are installed."""

    def run(installed: str) -> tuple[int, str]:
        lines = "".join(f"echo 'installed {name}'\n" for name in installed.split())
        query = tmp_path / "bin" / "dpkg-query"
        query.write_text(f"#!/bin/sh\n{lines}echo 'config-files tcc'\n")
        query.chmod(0o755)
        sed = tmp_path / "bin" / "sed"
        if not sed.exists():
            sed.symlink_to(str(shutil.which("sed")))
        return set_up("local")

    return run


def test_labs_on_this_kernel_need_the_packages_of_the_image_and_no_micro_vm(
    with_packages: Callable[[str], tuple[int, str]],
) -> None:
    wanted = recipe.names_in("packages.txt")
    status, said = with_packages("python3 iproute2")
    assert status == 3
    [line] = [line for line in said.splitlines() if "apt-get install" in line]
    asked = line.partition("--no-install-recommends")[2].split()
    assert {name for name in wanted if name not in asked} == {"python3", "iproute2"}
    assert "tcc" in asked  # removed, and its configuration is still there
    assert "qemu" not in said


def test_where_all_packages_are_none_is_asked_for(with_packages: Callable[[str], tuple[int, str]]) -> None:
    wanted = recipe.names_in("packages.txt")
    _, said = with_packages(" ".join(wanted))
    assert not {*wanted} & {*said.split()}
