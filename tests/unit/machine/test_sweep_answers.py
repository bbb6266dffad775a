"""What a worker of a cluster answers is data: a lie or a damage is one message, and runs no code here."""

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import MachineError, TestbedError
from testbed.machine.record import Identity
from testbed.machine.sweeps import answers
from testbed.protocol import messages

WHERE = "tcp://worker:1"
IDENTITY = Identity("vm", "1.0", "c0de", "ef" * 32, "10.0.2", "tcg", None, None)


class Evil:
    def __str__(self) -> str:
        return "an object"

    def __reduce__(self) -> Any:
        return os.abort, ()


def made(*parts: Any, files: bytes = b"") -> bytes:
    text = json.dumps(list(parts)).encode()
    return len(text).to_bytes(answers.LENGTH, "big") + text + files


def zipped(**files: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def test_an_answer_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert answers.read(answers.write("identity", IDENTITY), WHERE) == ("identity", IDENTITY, b"")
    assert answers.read(answers.write("lacks"), WHERE) == ("lacks", None, b"")
    with pytest.raises(TestbedError, match="no room") as said:
        answers.read(answers.write("failed", messages.failure(TestbedError("no room", hint="Make some."))), WHERE)
    assert (said.value.where, said.value.hint) == (WHERE, "Make some.")
    (tmp_path / "run/deep").mkdir(parents=True)
    (tmp_path / "run/deep/events.jsonl").write_bytes(b"{}\n")
    (tmp_path / "run/latest").symlink_to("deep")
    answers.unpack(answers.packed(tmp_path / "run"), tmp_path / "here", WHERE)
    assert (tmp_path / "here/deep/events.jsonl").read_bytes() == b"{}\n"
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["deep"]


@pytest.mark.parametrize(
    "answer",
    [
        pickle.dumps(Evil()),
        Evil(),
        None,
        7,
        b"",
        made("identity", {"machine": "vm"}),
        made("identity", {**vars(IDENTITY), "machine": "other"}),
        made("ended", {"scenario": "x"}),
        made("gift", 1),
        made(["lacks"], None),
        made("failed", {"message": 1}),
        made("lacks"),
        (1 << 60).to_bytes(8, "big") + b"[]",
        made("ended", json.loads("[" * 500 + "]" * 500)),
        b"\0" * 7 + b"\x08" + b"[" * 100_000,
    ],
    ids=str,
)
def test_an_answer_that_is_none_is_one_message(answer: Any) -> None:
    with pytest.raises(MachineError, match="is damaged"):
        answers.read(answer, WHERE)


@pytest.mark.parametrize("name", ["../escape", "/root-escape", "a/../../escape"])
def test_files_stay_in_their_directory(tmp_path: Path, name: str) -> None:
    answers.unpack(zipped(**{name: b"x"}), tmp_path / "here", WHERE)
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(path.is_relative_to(tmp_path / "here") for path in found)
    assert not Path("/root-escape").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-30],
        lambda data: b"",
        lambda data: b"x" * 100,
        lambda data: data[:60] + bytes([data[60] ^ 0xFF]) + data[61:],
    ],
    ids=["cut", "empty", "other", "byte"],
)
def test_damaged_files_are_one_message(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    with pytest.raises(MachineError, match="are damaged"):
        answers.unpack(damage(zipped(events=os.urandom(200))), tmp_path / "here", WHERE)


def test_files_have_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MOST_BYTES", 1 << 20)
    with pytest.raises(MachineError, match="more files of a run than a run has"):
        answers.unpack(zipped(zeros=bytes(2 << 20)), tmp_path / "here", WHERE)
    monkeypatch.setattr(answers, "MOST_FILES", 2)
    with pytest.raises(MachineError, match="more files of a run than a run has"):
        answers.unpack(zipped(a=b"", b=b"", c=b""), tmp_path / "here", WHERE)
    assert not (tmp_path / "here").exists()
