"""The guest's first process: its end of the two memory files, held against ours."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from testbed.machine import parcel
from testbed.machine.parcel import Outcome

BOOT = Path(parcel.__file__).parent / "guest" / "boot.py"


@pytest.fixture(scope="module")
def boot() -> ModuleType:
    spec = importlib.util.spec_from_file_location("boot", BOOT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def outcome() -> Iterator[Outcome]:
    one = Outcome()
    yield one
    one.close()


class Device:
    """The pmem device of a guest: the memory of our end."""

    def __init__(self, outcome: Outcome) -> None:
        self._map = outcome.map
        self.size = outcome.size
        self.fd = outcome.handle

    def read(self, offset: int, length: int) -> bytes:
        return self._map[offset : offset + length]

    def write(self, offset: int, data: bytes) -> None:
        assert offset % parcel.BLOCK == len(data) % parcel.BLOCK == 0
        self._map[offset : offset + len(data)] = data


@pytest.fixture
def result(boot: ModuleType, outcome: Outcome) -> Any:
    return boot.Result(Device(outcome))


def test_both_ends_have_the_same_constants(boot: ModuleType) -> None:
    for name in ("IN_MAGIC", "OUT_MAGIC", "BLOCK", "PROGRESS_END", "PULSE", "FINISHED", "JUMPED", "ABOUT"):
        assert getattr(boot, name) == getattr(parcel, name), name
    assert boot.ENTRY.format == parcel.ENTRY.format


def test_files_come_back_as_they_were(result: Any, outcome: Outcome, tmp_path: Path) -> None:
    made = tmp_path / "made"
    (made / "deep" / "er").mkdir(parents=True)
    (made / "empty").mkdir()
    (made / "deep" / "er" / "large").write_bytes(os.urandom(3_000_001))
    (made / "a name with ü and \n").write_bytes(b"x")
    (made / "nothing").write_bytes(b"")
    os.mkfifo(made / "pipe")
    (made / "link").symlink_to("/etc/passwd")
    result.finish(str(made))
    outcome.extract(tmp_path / "back")
    back = {str(path.relative_to(tmp_path / "back")): path for path in (tmp_path / "back").rglob("*")}
    assert sorted(back) == ["a name with ü and \n", "deep", "deep/er", "deep/er/large", "empty", "nothing"]
    for name, path in back.items():
        if path.is_file():
            assert path.read_bytes() == (made / name).read_bytes()


def test_a_file_that_shrinks_while_it_is_read_harms_no_other(
    boot: ModuleType, result: Any, outcome: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of the job may still write."""
    made = tmp_path / "made"
    made.mkdir()
    (made / "a").write_bytes(b"a" * 100)
    (made / "b").write_bytes(b"b" * 100)
    real = boot.tree

    def tree(directory: str) -> Iterator[Any]:
        found = list(real(directory))
        (made / "a").write_bytes(b"short")
        return iter(found)

    monkeypatch.setattr(boot, "tree", tree)
    result.finish(str(made))
    outcome.extract(tmp_path / "back")
    assert (tmp_path / "back" / "a").read_bytes() == b"short" + bytes(95)
    assert (tmp_path / "back" / "b").read_bytes() == b"b" * 100


def test_progress_arrives_and_a_beat_is_no_progress(result: Any, outcome: Outcome) -> None:
    result.emit({"n": 1})
    result.beat(1)
    result.emit({"n": 2})
    assert list(outcome.progress()) == [{"n": 1}, {"n": 2}]
    assert outcome.pulse == 1
    result.beat(7)
    assert outcome.pulse == 7
    assert list(outcome.progress()) == []


def test_progress_that_does_not_fit_leaves_the_pulse_alone(result: Any, outcome: Outcome) -> None:
    result.beat(7)
    for _ in range(3):
        result.emit({"text": "x" * (24 << 20)})
    assert outcome.pulse == 7
    assert len(list(outcome.progress())) == 2
