"""The two memory files between us and a guest. What comes back was written by the user's code."""

import errno
import gzip
import io
import itertools
import json
import struct
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.errors import InputError, MachineError
from testbed.machine import parcel
from testbed.machine.parcel import BLOCK, PROGRESS_END, Errand, Outcome

JOB = {"kind": "variant", "name": "ip-reuse", "seed": 1}
FILES = {
    "scenario.py": b"story",
    "topology.clab.yml": b"name: x",
    "sub/data.bin": bytes(range(256)),
    "ü" * 120: b"long",
}


@pytest.fixture
def errand() -> Iterator[Errand]:
    one = Errand()
    yield one
    one.close()


@pytest.fixture
def outcome() -> Iterator[Outcome]:
    one = Outcome()
    yield one
    one.close()


def tar_of(errand: Errand) -> bytes:
    (length,) = struct.unpack("<Q", errand.map[8:16])
    return errand.map[BLOCK : BLOCK + length]


def guest_tells(outcome: Outcome, text: bytes) -> None:
    """Appends to the progress as guest/boot.py does: first the bytes, then their length."""
    (length,) = struct.unpack("<Q", outcome.map[16:24])
    outcome.map[BLOCK + length : BLOCK + length + len(text)] = text
    outcome.map[16:24] = struct.pack("<Q", length + len(text))


def guest_leaves(outcome: Outcome, *members: tarfile.TarInfo, contents: bytes = b"contents") -> None:
    """Hands back a tar of these members and finishes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for member in members:
            member.size = len(contents) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(contents) if member.isreg() else None)
    guest_hands_back(outcome, buffer.getvalue())


def guest_hands_back(outcome: Outcome, data: bytes) -> None:
    """Finishes with these bytes in the tar's place."""
    outcome.map[PROGRESS_END : PROGRESS_END + len(data)] = data
    outcome.map[8:16] = struct.pack("<Q", len(data))
    outcome.map[24:32] = struct.pack("<Q", 1)


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, mode
    return info


def test_an_errand_arrives_as_it_was_sent(errand: Errand) -> None:
    errand.write(JOB, FILES)
    assert errand.map[:8] == b"TBPARCEL"
    with tarfile.open(fileobj=io.BytesIO(tar_of(errand))) as tar:
        contents = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
    assert json.loads(contents.pop("job.json")) == JOB
    assert contents == FILES


def test_an_errand_is_a_function_of_its_contents_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the virtual clock every byte the guest reads is part of the story."""
    found = set()
    for day, order in enumerate(itertools.permutations(FILES)):
        monkeypatch.setattr("time.time", lambda day=day: 86400.0 * day)
        errand = Errand()
        errand.write(dict(reversed(JOB.items())) if day % 2 else JOB, {name: FILES[name] for name in order})
        found.add(tar_of(errand))
        errand.close()
    assert len(found) == 1


def test_an_errand_names_no_owner_and_no_time(errand: Errand) -> None:
    errand.write(JOB, FILES)
    with tarfile.open(fileobj=io.BytesIO(tar_of(errand))) as tar:
        members = tar.getmembers()
    assert {(info.mtime, info.uid, info.gid, info.uname, info.gname) for info in members} == {(0, 0, 0, "", "")}
    assert [info.name for info in members] == sorted(info.name for info in members)


def test_an_errand_that_is_too_large_is_the_user_s_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parcel, "IN_SIZE", 2 << 20)
    errand = Errand()
    with pytest.raises(InputError, match="the scenario's files are too large: 2 MiB of at most 2"):
        errand.write(JOB, {"large": bytes(2 << 20)})
    errand.close()


def test_progress_comes_once_and_in_whole_records(outcome: Outcome) -> None:
    assert list(outcome.progress()) == []
    guest_tells(outcome, b'{"n": 1}\n{"n": 2}\n{"n"')
    assert list(outcome.progress()) == [{"n": 1}, {"n": 2}]
    assert list(outcome.progress()) == []
    guest_tells(outcome, b": 3")
    assert list(outcome.progress()) == []
    guest_tells(outcome, b'}\n{"n": 4}\n')
    assert list(outcome.progress()) == [{"n": 3}, {"n": 4}]
    assert list(outcome.progress()) == []


def test_a_character_cut_in_two_is_put_together(outcome: Outcome) -> None:
    line = '{"text": "4 µs"}\n'.encode()
    cut = line.index(b"\xb5")
    guest_tells(outcome, line[:cut])
    assert list(outcome.progress()) == []
    guest_tells(outcome, line[cut:])
    assert list(outcome.progress()) == [{"text": "4 µs"}]


def test_a_guest_that_did_not_finish_has_no_results(outcome: Outcome, tmp_path: Path) -> None:
    assert not outcome.finished
    with pytest.raises(MachineError, match="without handing back its results"):
        outcome.extract(tmp_path)
    guest_leaves(outcome, member("outcome.json"))
    assert outcome.finished


def test_results_are_unpacked(outcome: Outcome, tmp_path: Path) -> None:
    guest_leaves(
        outcome,
        member("./outcome.json"),
        member("pcap", tarfile.DIRTYPE, mode=0o755),
        member("pcap/e2.pcap"),
    )
    outcome.extract(tmp_path / "out")
    assert (tmp_path / "out" / "outcome.json").read_bytes() == b"contents"
    assert (tmp_path / "out" / "pcap" / "e2.pcap").read_bytes() == b"contents"


@pytest.mark.parametrize(
    "hostile",
    [
        [member("door", tarfile.SYMTYPE, ".."), member("door/evil")],
        [member("door", tarfile.SYMTYPE, "../.."), member("door/evil")],
        [member("a", tarfile.DIRTYPE, mode=0o755), member("a/door", tarfile.SYMTYPE, "../.."), member("a/door/evil")],
        [member("evil", tarfile.LNKTYPE, "../secret")],
        [member("evil", tarfile.CHRTYPE)],
        [member("evil", tarfile.BLKTYPE)],
        [member("evil", tarfile.FIFOTYPE)],
    ],
    ids=lambda members: " ".join(info.name for info in members),
)
def test_nothing_lands_outside_the_directory(outcome: Outcome, tmp_path: Path, hostile: list[tarfile.TarInfo]) -> None:
    (tmp_path / "secret").write_text("the host's")
    guest_leaves(outcome, *hostile, member("outcome.json"))
    outcome.extract(tmp_path / "out")
    inside = tmp_path / "out"
    assert (inside / "outcome.json").read_bytes() == b"contents"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "secret"]
    assert (tmp_path / "secret").read_text() == "the host's"
    found = [path for path in inside.rglob("*") if path.name == "evil"]
    assert all(path.read_bytes() == b"contents" for path in found)
    assert not any(path.is_symlink() for path in inside.rglob("*"))


@pytest.mark.parametrize("name", ["../evil", "..", "a/../../evil", "/evil", "//evil", "/", "", "n" * 300])
def test_a_name_that_no_file_of_a_run_has_is_damage(outcome: Outcome, tmp_path: Path, name: str) -> None:
    guest_leaves(outcome, member("outcome.json"), member(name))
    with pytest.raises(MachineError, match="the guest's results are damaged: "):
        outcome.extract(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_results_go_to_any_directory_the_user_names(outcome: Outcome, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    guest_leaves(outcome, member("..data"))
    outcome.extract(tmp_path / "a" / ".." / "out")
    assert (tmp_path / "out" / "..data").read_bytes() == b"contents"


@pytest.mark.parametrize(
    "members",
    [
        [member("a"), member("a/b")],
        [member("a", tarfile.DIRTYPE), member("a")],
        [member("a"), member("a", tarfile.DIRTYPE)],
    ],
)
def test_a_name_that_is_a_file_and_a_directory_is_damage(
    outcome: Outcome, tmp_path: Path, members: list[tarfile.TarInfo]
) -> None:
    guest_leaves(outcome, *members)
    with pytest.raises(MachineError, match="the guest's results are damaged: "):
        outcome.extract(tmp_path)


def whole_tar() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in ("outcome.json", "ü" * 120, "pcap/e2.pcap"):
            info = member(name)
            info.size = 1000
            tar.addfile(info, io.BytesIO(bytes(1000)))
    return buffer.getvalue()


def negative_size() -> bytes:
    """A member that is its own successor, for ever."""
    info = member("outcome.json")
    info.size = -512
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(10240)


def with_pax(headers: dict[str, str]) -> bytes:
    info = member("outcome.json")
    info.pax_headers = headers
    return info.tobuf(tarfile.PAX_FORMAT) + bytes(10240)


SPARSE = {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(1 << 40)}
"""Few bytes that would become a terabyte of zeros."""


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"no tar at all" * 1000, id="no tar"),
        pytest.param(gzip.compress(bytes(1 << 20)), id="compressed"),
        pytest.param(negative_size(), id="negative size"),
        pytest.param(with_pax(SPARSE), id="sparse"),
        pytest.param(with_pax({"path": "a\0b"}), id="zero in a name"),
        pytest.param(with_pax({"size": "-512"}), id="negative size of pax"),
        *(pytest.param(whole_tar()[:end], id=f"cut at {end}") for end in (100, 512, 1000, 1536, 2000, 5000)),
        pytest.param(whole_tar()[:1536] + b"x" * 512 + whole_tar()[2048:], id="a header overwritten"),
    ],
)
def test_a_damaged_tar_is_one_error(outcome: Outcome, tmp_path: Path, data: bytes) -> None:
    guest_hands_back(outcome, data)
    with pytest.raises(MachineError, match="the guest's results are damaged: "):
        outcome.extract(tmp_path)


def test_a_tar_with_a_byte_changed_is_unpacked_or_one_error(outcome: Outcome, tmp_path: Path) -> None:
    places = range(0, len(whole_tar()), 29)
    errors = 0
    for place in places:
        data = bytearray(whole_tar())
        data[place] ^= 0xFF
        guest_hands_back(outcome, bytes(data))
        try:
            outcome.extract(tmp_path / "out" / str(place))
        except MachineError:
            errors += 1
    assert 0 < errors < len(places)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_full_disk_is_no_damage(outcome: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    guest_leaves(outcome, member("outcome.json"))
    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        outcome.extract(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        b"not json\n",
        b"{\n",
        b"[]\n",
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
    guest_tells(outcome, b'{"n": 1}\n' + text)
    with pytest.raises(MachineError, match="a line of progress is damaged: "):
        list(outcome.progress())


@pytest.mark.parametrize("length", [8, PROGRESS_END, 1 << 63])
def test_progress_of_a_length_that_cannot_be_is_one_error(outcome: Outcome, length: int) -> None:
    guest_tells(outcome, b'{"n": 1}\n')
    assert list(outcome.progress()) == [{"n": 1}]
    outcome.map[16:24] = struct.pack("<Q", length)
    with pytest.raises(MachineError, match="the length of the guest's progress is damaged"):
        list(outcome.progress())


def test_progress_that_is_cut_off_is_one_error(outcome: Outcome, tmp_path: Path) -> None:
    guest_tells(outcome, b'{"n": 1}\n{"n"')
    assert list(outcome.progress()) == [{"n": 1}]
    guest_leaves(outcome, member("outcome.json"))
    with pytest.raises(MachineError, match="the guest's progress is cut off"):
        outcome.extract(tmp_path)


@pytest.mark.parametrize("target", ["/etc/passwd", "/", "../secret"])
def test_links_that_point_outside_are_left_out(outcome: Outcome, tmp_path: Path, target: str) -> None:
    guest_leaves(outcome, member("link", tarfile.SYMTYPE, target), member("outcome.json"))
    outcome.extract(tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["outcome.json"]


def test_a_program_from_a_guest_gets_no_privilege(outcome: Outcome, tmp_path: Path) -> None:
    guest_leaves(outcome, member("tool", mode=0o6777), member("closed", tarfile.DIRTYPE, mode=0))
    outcome.extract(tmp_path)
    assert (tmp_path / "tool").stat().st_mode & 0o7022 == 0
    assert (tmp_path / "closed").stat().st_mode & 0o700 == 0o700
