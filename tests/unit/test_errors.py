"""A misspelled name gets the one that was meant, by one rule everywhere; errors of the system name their file."""

from itertools import chain, repeat
from pathlib import Path

import pytest

from testbed.errors import TestbedError, did_you_mean, naming, nearest
from testbed.machine import record

KNOWN = ["leaf-spine", "fat-tree", "single"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("leaf-spain", "leaf-spine"),
        ("LEAF-SPINE", "leaf-spine"),
        ("leaf_spine", "leaf-spine"),
        ("fattree", "fat-tree"),
        ("torus", None),
        ("", None),
    ],
)
def test_the_nearest_name_is_found_in_any_case_and_with_either_dash(name: str, meant: str | None) -> None:
    assert nearest(name, KNOWN) == meant


def test_a_guess_begins_a_hint_or_ends_a_message() -> None:
    assert did_you_mean("singel", KNOWN) == "Did you mean single? "
    assert did_you_mean("singel", KNOWN, aside=True) == "; did you mean 'single'?"
    assert did_you_mean("torus", KNOWN) == did_you_mean("torus", KNOWN, aside=True) == ""


def test_of_endless_names_a_message_of_many_compares_the_first() -> None:
    assert did_you_mean("singel", chain(KNOWN, repeat("x")), aside=True) == "; did you mean 'single'?"


def test_the_known_name_is_given_as_it_is_spelled() -> None:
    assert nearest("Gc_Thresh", ["gc-thresh", "GC-Thresh2"]) == "gc-thresh"


def test_an_error_is_one_line_a_problem_and_a_hint() -> None:
    error = TestbedError("wrong", where="t.yml:1:2", hint="Fix it.", also=[("t.yml:3:4", "also wrong"), ("", "… more")])
    assert str(error) == "t.yml:1:2: wrong\nt.yml:3:4: also wrong\n… more\n  Fix it."


def test_a_disk_that_is_full_when_a_file_is_written_is_named_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "scenario").mkdir()
    (tmp_path / "scenario/notes.txt").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        record.keep_files({"notes.txt": b"text"}, (), tmp_path)
    assert caught.value.filename == str(tmp_path / "scenario/notes.txt")


def test_an_error_that_names_a_file_keeps_its_name() -> None:
    with pytest.raises(FileNotFoundError) as caught, naming(Path("other")):
        Path("/nowhere/file").read_bytes()
    assert caught.value.filename == "/nowhere/file"
