"""The BPF objects that are shipped are what their sources give."""

import shutil
import subprocess
from pathlib import Path

import pytest

from testbed.kernel.bfd import offload
from testbed.kernel.impairments import cables
from testbed.kernel.lossless import ports
from testbed.kernel.services import sockets

OBJECTS = [ports.OBJECT, offload.OBJECT, sockets.OBJECT, cables.OBJECT]


@pytest.mark.parametrize("shipped", OBJECTS, ids=lambda path: path.name)
def test_the_object_is_what_the_source_gives(clang: str, tmp_path: Path, shipped: Path) -> None:
    sources = shipped.parent / "bpf"
    shutil.copytree(sources, tmp_path / "bpf")
    done = subprocess.run(["make", "-s", "-C", tmp_path / "bpf"], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / shipped.name).read_bytes() == shipped.read_bytes(), f"make -C {sources}, commit {shipped.name}"


@pytest.mark.parametrize("shipped", OBJECTS, ids=lambda path: path.name)
def test_the_object_names_no_place_of_the_machine_that_made_it(shipped: Path) -> None:
    assert b"/home/" not in shipped.read_bytes()
    assert str(shipped.parent).encode() not in shipped.read_bytes()
