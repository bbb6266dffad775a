"""Files that cannot be read: each is one InputError that names the file, and the place in it."""

import os
from pathlib import Path

import pytest

from testbed.errors import InputError
from testbed.topology import Topology


def test_a_missing_file_is_named_with_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "topology.clab.yml").touch()
    with pytest.raises(InputError, match=r"topolgy\.clab\.yml: no such file") as caught:
        Topology.load(tmp_path / "topolgy.clab.yml")
    assert "Did you mean topology.clab.yml?" in caught.value.hint


def test_a_directory_is_refused_with_the_file_in_it(tmp_path: Path) -> None:
    (tmp_path / "x.clab.yml").touch()
    with pytest.raises(InputError, match="is a directory") as caught:
        Topology.load(tmp_path)
    assert str(tmp_path / "x.clab.yml") in caught.value.hint


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is not a regular file"):
        Topology.load(tmp_path / "pipe")


def test_a_file_below_a_file_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"x\.yml: cannot be read: Not a directory$"):
        Topology.load(tmp_path / "file" / "x.yml")


def test_a_name_with_a_zero_byte_cannot_be_read() -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Topology.load("a\0b")


def test_text_that_is_not_utf_8_is_refused_at_the_byte(tmp_path: Path) -> None:
    (file := tmp_path / "t.yml").write_bytes(b"name: lab\nx: \xff\n")
    with pytest.raises(InputError, match=r"t\.yml:2:4: byte 0xff is not UTF-8"):
        Topology.load(file)


def test_a_file_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    (file := tmp_path / "t.yml").write_bytes(b"#" * (1 << 20) + b"#")
    with pytest.raises(InputError, match="larger than 1 MiB"):
        Topology.load(file)


def test_places_start_with_the_files_name(tmp_path: Path) -> None:
    (file := tmp_path / "t.yml").write_text("name: lab\ntopology: []\n")
    with pytest.raises(InputError) as caught:
        Topology.load(file)
    assert str(caught.value) == f"{file}:2:11: 'topology' must be a mapping, not a list"
