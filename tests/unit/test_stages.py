"""How testbed comes into a machine: in two stages, the first without the second, and compiled beforehand."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from testbed import stages
from testbed.executor import bytecode
from testbed.machine import making, snapshot

IMPORTED = """
import importlib, sys
from testbed import stages
for name in stages.WARM: importlib.import_module(name)
print(*(module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "testbed"))
"""


def test_the_first_stage_needs_no_file_of_the_second() -> None:
    done = subprocess.run([sys.executable, "-P", "-c", IMPORTED], capture_output=True, text=True, check=True)
    names = {str(Path(file).relative_to(snapshot.PACKAGE.parent)) for file in done.stdout.split()}
    assert len(names) > 50
    assert {name for name in names if not name.startswith(snapshot.BASE)} == set()


def test_a_directory_takes_files_and_directories_beside_its_own(tmp_path: Path) -> None:
    for name in "rest/a/deep/two", "rest/b/three", "rest/top", "code/a/deep/one":
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    stages.merge(tmp_path / "rest", tmp_path / "code")
    found = {str(path.relative_to(tmp_path / "code")) for path in (tmp_path / "code").rglob("*") if path.is_file()}
    assert found == {"a/deep/one", "a/deep/two", "b/three", "top"}


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of what is made of two files, the second of which is no Python."""
    monkeypatch.setattr(bytecode, "__file__", str(tmp_path / "bytecode.py"))
    (tmp_path / "sources" / "testbed").mkdir(parents=True)
    (tmp_path / "sources" / "testbed" / "good.py").write_text("TEXT = 'of the file'\n")
    (tmp_path / "sources" / "testbed" / "bad.py").write_text("def\n")
    bytecode.prepare({}, str(tmp_path / "out"), None)
    return tmp_path / "out" / "testbed"


def test_bytecode_is_taken_without_a_look_at_its_source(compiled: Path) -> None:
    place = compiled / Path(importlib.util.cache_from_source("good.py"))
    place.parent.mkdir()
    (compiled / "good.py").rename(place)
    (compiled / "good.py").write_text("TEXT = 'of another one'")
    spec = importlib.util.spec_from_file_location("good", compiled / "good.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TEXT == "of the file"
    assert module.__dict__["__spec__"].loader.get_code("good").co_filename.endswith("good.py")


def test_a_file_that_cannot_be_compiled_has_no_bytecode(compiled: Path) -> None:
    assert [path.name for path in compiled.iterdir()] == ["good.py"]


def test_bytecode_lies_where_the_guest_s_python_looks() -> None:
    assert making.place_of("testbed/lab/lab.py") == "testbed/lab/__pycache__/lab.cpython-313.pyc"
