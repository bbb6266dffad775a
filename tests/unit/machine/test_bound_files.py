"""The files that containers mount: those that binds name go along, laid out as they are; others are refused by name."""

import os
import socket
from pathlib import Path

import pytest

from testbed.errors import InputError
from testbed.machine import bound_files
from testbed.machine.bound_files import collect
from testbed.topology import Topology


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, text in {
        "home/keys/id": "key",
        "labs/one/one.clab.yml": "name: one",
        "labs/one/beside.conf": "beside",
        "labs/shared/r1/frr.conf": "r1",
        "labs/shared/r1/.hidden": "hidden",
        "labs/shared/r1/.git/config": "never",
        "labs/shared/r2/frr.conf": "not named",
        "etc/motd": "hello",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "labs/shared/run.sh").write_text("#!/bin/sh")
    (tmp_path / "labs/shared/run.sh").chmod(0o755)
    return tmp_path


def binds(*sources: str) -> dict[str, str]:
    given = [f"{source}:/x{number}" for number, source in enumerate(sources)]
    node = {"kind": "linux", "image": "t", "binds": given}
    return Topology.model_validate({"name": "t", "topology": {"nodes": {"a": node}}}).plan().binds


def test_files_keep_their_places_around_the_topology(tree: Path) -> None:
    found = collect(tree / "labs/one/one.clab.yml", binds("../shared/r1", "../shared/run.sh", "beside.conf"))
    assert found.topology == "one/one.clab.yml"
    assert found.files == {
        "one/one.clab.yml": b"name: one",
        "one/beside.conf": b"beside",
        "shared/r1/frr.conf": b"r1",
        "shared/r1/.hidden": b"hidden",
        "shared/run.sh": b"#!/bin/sh",
    }
    assert found.executable == ["shared/run.sh"]


def test_files_from_the_root_and_from_a_home_directory_are_beside_the_topology(tree: Path) -> None:
    found = collect(tree / "labs/one/one.clab.yml", binds(f"{tree}/etc/motd", "~/keys"))
    assert found.topology == "one.clab.yml"
    assert found.files[f".absolute{tree}/etc/motd"] == b"hello"
    assert found.files[".absolute/~/keys/id"] == b"key"


def test_an_empty_directory_goes_along(tree: Path) -> None:
    (tree / "labs/one/data").mkdir()
    assert collect(tree / "labs/one/one.clab.yml", binds("data")).files["data/"] == b""


def test_the_current_directory_is_named_from_above(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree / "labs/one")
    assert collect(Path("one.clab.yml"), binds("../shared/r1/frr.conf")).files["shared/r1/frr.conf"] == b"r1"


@pytest.mark.parametrize(
    ("source", "where", "message"),
    [
        ("missing", "labs/one/missing", "no such file"),
        ("socket", "labs/one/socket", "is a socket of this machine"),
        ("pipe", "labs/one/pipe", "is a pipe of this machine"),
        ("out", "labs/one/out", "is a link to"),
        ("dir", "labs/one/dir/out", "is a link to"),
        ("circle", "labs/one/circle/again", "is a link to a directory that it is in"),
        ("/dev/null", "/dev/null", "is a device of this machine"),
        ("../../../../../../../../../../../../etc/x", "labs/one/one.clab.yml", "a bind leads above the root"),
    ],
)
def test_what_cannot_go_along_is_refused_by_name(tree: Path, source: str, where: str, message: str) -> None:
    here = tree / "labs/one"
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(here)
        made.bind("socket")
    os.mkfifo(here / "pipe")
    (here / "out").symlink_to(tree / "etc/motd")
    (here / "dir").mkdir()
    (here / "dir/out").symlink_to(tree / "etc/motd")
    (here / "circle").mkdir()
    (here / "circle/again").symlink_to(here / "circle")
    with pytest.raises(InputError) as caught:
        collect(here / "one.clab.yml", binds(source))
    assert caught.value.where == str(tree / where)
    assert message in caught.value.message


def test_a_link_inside_the_tree_is_followed(tree: Path) -> None:
    (tree / "labs/one/r1.conf").symlink_to("../shared/r1/frr.conf")
    found = collect(tree / "labs/one/one.clab.yml", binds("r1.conf", "../shared/run.sh"))
    assert found.files["one/r1.conf"] == b"r1"


def test_too_much_is_refused_with_the_bind(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound_files, "FILES_BYTES", 16)
    with pytest.raises(InputError) as caught:
        collect(tree / "labs/one/one.clab.yml", binds("../shared/r1"))
    assert "the bind of" in caught.value.message
    assert str(caught.value.where).endswith("frr.conf")
