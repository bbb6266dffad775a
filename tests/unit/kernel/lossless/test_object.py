"""The object that is shipped is what its source gives."""

import shutil
import subprocess

from testbed.kernel.lossless.layout import HEADER
from testbed.kernel.lossless.ports import OBJECT

SOURCES = HEADER.parent


def test_the_object_is_what_the_source_gives(clang, tmp_path):
    shutil.copytree(SOURCES, tmp_path / "bpf")
    done = subprocess.run(["make", "-s", "-C", tmp_path / "bpf"], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / OBJECT.name).read_bytes() == OBJECT.read_bytes(), f"make -C {SOURCES}, and commit {OBJECT.name}"


def test_the_object_names_no_place_of_the_machine_that_made_it():
    assert b"/home/" not in OBJECT.read_bytes()
    assert str(SOURCES).encode() not in OBJECT.read_bytes()
