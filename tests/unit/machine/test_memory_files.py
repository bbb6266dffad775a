"""The two memory files between us and a guest. What comes back was written by the user's code."""

import contextlib
import errno
import io
import itertools
import json
import os
import struct
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import InputError, MachineError
from testbed.machine import memory_files
from testbed.machine.memory_files import BLOCK, DIRECTORY, END, ENTRY, FILE, PROGRESS_END, Bundle, Outcome
from testbed.protocol import WIRE_BYTES

JOB = {"kind": "variant", "name": "ip-reuse", "seed": 1}
FILES = {
    "scenario.py": b"story",
    "topology.clab.yml": b"name: x",
    "sub/data.bin": bytes(range(256)),
    "ü" * 120: b"long",
}


def tar_of(bundle: Bundle) -> bytes:
    (length,) = struct.unpack("<Q", bundle.map[8:16])
    return bundle.map[BLOCK : BLOCK + length]


def guest_reports(outcome: Outcome, text: bytes) -> None:
    """Appends to the progress as guest/boot.py does: first the bytes, then their length."""
    (length,) = struct.unpack("<Q", outcome.map[16:24])
    outcome.map[BLOCK + length : BLOCK + length + len(text)] = text
    outcome.map[16:24] = struct.pack("<Q", length + len(text))


def entry(name: str, contents: bytes = b"contents", kind: bytes = FILE) -> bytes:
    encoded = os.fsencode(name)
    return ENTRY.pack(kind, len(encoded), len(contents)) + encoded + contents


def directory(name: str) -> bytes:
    return entry(name, b"", DIRECTORY)


THE_END = ENTRY.pack(END, 0, 0)


def guest_leaves(outcome: Outcome, *entries: bytes) -> None:
    guest_hands_back(outcome, b"".join(entries) + THE_END)


def guest_hands_back(outcome: Outcome, data: bytes) -> None:
    """Finishes with these bytes in the files' place."""
    outcome.map[PROGRESS_END : PROGRESS_END + len(data)] = data
    outcome.map[8:16] = struct.pack("<Q", len(data))
    outcome.map[24:32] = struct.pack("<Q", 1)


def test_a_job_bundle_arrives_as_it_was_sent(bundle: Bundle) -> None:
    bundle.write(JOB, FILES)
    assert bundle.map[:8] == b"TBBUNDLE"
    with tarfile.open(fileobj=io.BytesIO(tar_of(bundle))) as tar:
        contents = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
    assert json.loads(contents.pop("job.json")) == JOB
    assert contents == FILES


def test_a_job_bundle_is_a_function_of_its_contents_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the virtual clock every byte the guest reads is part of the story."""
    found = set()
    for day, order in enumerate(itertools.permutations(FILES)):
        monkeypatch.setattr("time.time", lambda day=day: 86400.0 * day)
        bundle = Bundle()
        bundle.write(dict(reversed(JOB.items())) if day % 2 else JOB, {name: FILES[name] for name in order})
        found.add(tar_of(bundle))
        bundle.close()
    assert len(found) == 1


def test_a_job_bundle_names_no_owner_and_no_time(bundle: Bundle) -> None:
    bundle.write(JOB, FILES)
    with tarfile.open(fileobj=io.BytesIO(tar_of(bundle))) as tar:
        members = tar.getmembers()
    assert {(info.mtime, info.uid, info.gid, info.uname, info.gname) for info in members} == {(0, 0, 0, "", "")}
    assert [info.name for info in members] == sorted(info.name for info in members)


def test_a_job_bundle_that_is_too_large_is_the_user_s_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_files, "BUNDLE_BYTES", WIRE_BYTES + (2 << 20))
    bundle = Bundle()
    with pytest.raises(InputError, match="the files are too large: 2 MiB of at most 2"):
        bundle.write(JOB, {"large": bytes(2 << 20)})
    bundle.close()


def test_progress_comes_once_and_in_whole_records(outcome: Outcome) -> None:
    assert list(outcome.progress()) == []
    guest_reports(outcome, b'{"n": 1}\n{"n": 2}\n{"n"')
    assert list(outcome.progress()) == [{"n": 1}, {"n": 2}]
    assert list(outcome.progress()) == []
    guest_reports(outcome, b": 3")
    assert list(outcome.progress()) == []
    guest_reports(outcome, b'}\n{"n": 4}\n')
    assert list(outcome.progress()) == [{"n": 3}, {"n": 4}]
    assert list(outcome.progress()) == []


def test_a_character_cut_in_two_is_put_together(outcome: Outcome) -> None:
    line = '{"text": "4 µs"}\n'.encode()
    cut = line.index(b"\xb5")
    guest_reports(outcome, line[:cut])
    assert list(outcome.progress()) == []
    guest_reports(outcome, line[cut:])
    assert list(outcome.progress()) == [{"text": "4 µs"}]


def test_a_guest_that_did_not_finish_has_no_results(outcome: Outcome, tmp_path: Path) -> None:
    assert not outcome.finished
    with pytest.raises(MachineError, match="without returning its results"):
        outcome.extract(tmp_path)
    guest_leaves(outcome, entry("outcome.json"))
    assert outcome.finished


def test_results_are_unpacked(outcome: Outcome, tmp_path: Path) -> None:
    guest_leaves(outcome, entry("outcome.json"), directory("pcap"), entry("pcap/e2.pcap"), entry("deep/er/empty", b""))
    outcome.extract(tmp_path / "out")
    assert (tmp_path / "out" / "outcome.json").read_bytes() == b"contents"
    assert (tmp_path / "out" / "pcap" / "e2.pcap").read_bytes() == b"contents"
    assert (tmp_path / "out" / "deep" / "er" / "empty").read_bytes() == b""


@pytest.mark.parametrize(
    "name", ["../evil", "..", "a/../../evil", "/evil", "//evil", "/", "", ".", "a//b", "a/", "a\0b", "n" * 300]
)
@pytest.mark.parametrize("make", [entry, directory])
def test_a_name_that_no_file_of_a_run_has_is_damage(
    outcome: Outcome, tmp_path: Path, make: Callable[[str], bytes], name: str
) -> None:
    guest_leaves(outcome, entry("outcome.json"), make(name))
    with pytest.raises(MachineError, match="the guest's results are damaged: "):
        outcome.extract(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("name", ["topology.json", "steps/001.step", "session.jsonl", "result.json", "keeper.log"])
def test_what_the_host_wrote_cannot_be_replaced_by_what_a_guest_sends(
    outcome: Outcome, tmp_path: Path, name: str
) -> None:
    written = tmp_path / "keeper.log"
    written.write_text("the host's")
    guest_leaves(outcome, entry(name))
    with pytest.raises(MachineError, match="the guest's results are damaged: "):
        outcome.extract(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["keeper.log"]
    assert written.read_text() == "the host's"


def test_results_go_to_any_directory_the_user_names(outcome: Outcome, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    guest_leaves(outcome, entry("..data"))
    outcome.extract(tmp_path / "a" / ".." / "out")
    assert (tmp_path / "out" / "..data").read_bytes() == b"contents"


@pytest.mark.parametrize(
    "entries", [[entry("a"), entry("a/b")], [directory("a"), entry("a")], [entry("a"), directory("a")]]
)
def test_a_name_that_is_a_file_and_a_directory_is_damage(
    outcome: Outcome, tmp_path: Path, entries: list[bytes]
) -> None:
    guest_leaves(outcome, *entries)
    with pytest.raises(MachineError, match="the guest's results are damaged: "):
        outcome.extract(tmp_path)


WHOLE = entry("outcome.json", bytes(1000)) + directory("pcap") + entry("pcap/ü.pcap", bytes(1000)) + THE_END


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"no results at all" * 1000, id="something else"),
        pytest.param(ENTRY.pack(FILE, 1, (1 << 64) - 1) + b"a" + THE_END, id="a size of all bits"),
        pytest.param(ENTRY.pack(FILE, 65535, 0) + THE_END, id="a name beyond the end"),
        pytest.param(directory("d") * 10 + entry("x", kind=b"S") + THE_END, id="a kind that is none"),
        *(pytest.param(WHOLE[:end], id=f"cut at {end}") for end in (1, 10, 30, 1000, 1023, 1030, len(WHOLE) - 1)),
    ],
)
def test_damaged_results_are_one_error(outcome: Outcome, tmp_path: Path, data: bytes) -> None:
    guest_hands_back(outcome, data)
    with pytest.raises(MachineError, match="the guest's results are damaged: "):
        outcome.extract(tmp_path)


def test_more_entries_than_a_run_can_have_are_damage(
    outcome: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_files, "MOST_ENTRIES", 100)
    guest_leaves(outcome, *(entry(f"file{number}", b"") for number in range(100)))
    with pytest.raises(MachineError, match="more than 100 entries"):
        outcome.extract(tmp_path)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_results_with_bytes_changed_are_unpacked_or_one_error(data: st.DataObject) -> None:
    """Whatever a guest hands back, nothing lands elsewhere, and the time it takes is bounded by its size."""
    damaged = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as there:
        with contextlib.suppress(ValueError, OSError):
            memory_files.unpack(memoryview(bytes(damaged)), Path(there) / "a" / "out")
        assert os.listdir(there) == ["a"]
        assert os.listdir(Path(there) / "a") == ["out"]


def test_a_full_disk_is_no_damage_and_the_file_is_named(
    outcome: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    guest_leaves(outcome, entry("outcome.json"))
    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(OSError, match="No space left") as caught:
        outcome.extract(tmp_path)
    assert caught.value.filename == str(tmp_path / "outcome.json")


@pytest.mark.parametrize(
    "text",
    [
        b"not json\n",
        b"{\n",
        b"[]\n",
        b'{"a": ' + b"[" * 60 + b"]" * 60 + b"}\n",
        b'"text"\n',
        b"null\n",
        b"\n",
        b"\xff\xfe{}\n",
        b'{"a": "\xff"}\n',
        b"[" * 100_000 + b"\n",
        b"9" * 5000 + b"\n",
    ],
    ids=lambda text: repr(text[:10]),
)
def test_progress_that_is_no_record_is_one_error(outcome: Outcome, text: bytes) -> None:
    guest_reports(outcome, b'{"n": 1}\n' + text)
    with pytest.raises(MachineError, match="a line of progress is damaged: "):
        list(outcome.progress())


@pytest.mark.parametrize("length", [8, PROGRESS_END, 1 << 63])
def test_progress_of_a_length_that_cannot_be_is_one_error(outcome: Outcome, length: int) -> None:
    guest_reports(outcome, b'{"n": 1}\n')
    assert list(outcome.progress()) == [{"n": 1}]
    outcome.map[16:24] = struct.pack("<Q", length)
    with pytest.raises(MachineError, match="the length of the guest's progress is damaged"):
        list(outcome.progress())


def test_progress_that_is_cut_off_is_one_error(outcome: Outcome, tmp_path: Path) -> None:
    guest_reports(outcome, b'{"n": 1}\n{"n"')
    assert list(outcome.progress()) == [{"n": 1}]
    guest_leaves(outcome, entry("outcome.json"))
    with pytest.raises(MachineError, match="the guest's progress is cut off"):
        outcome.extract(tmp_path)
