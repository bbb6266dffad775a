"""Which snapshot fits: made for these very bytes, and whole; and which is removed."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from testbed.errors import MachineError, UnsupportedError
from testbed.machine import making, qemu, snapshot
from testbed.machine.moments import Opened
from testbed.machine.qemu import Flavour, StateError
from testbed.machine.snapshot import HEADER, MAGIC, OFFSET, Snapshot, above, code_files

KEY = "ab" * 32


def code_key(below: str) -> str:
    """Of the snapshot with the code as it is now, above one with key `below`."""
    code_files.cache_clear()
    return above(Snapshot(below), "", "", "", code_files()).key


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `testbed` of a few files."""
    root = tmp_path / "testbed"
    for name in ("errors.py", "lab/lab.py", "switch/profiles.yml", "machine/vm.py", "cli/main.py", "cli/deep/x.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    monkeypatch.setattr(snapshot, "PACKAGE", root)
    code_files.cache_clear()
    yield root
    code_files.cache_clear()


@pytest.fixture
def whole(cache_root: Path) -> Path:
    """The file of a whole snapshot for KEY."""
    path = Snapshot(KEY).path
    path.parent.mkdir(parents=True)
    write(path)
    return path


def write(path: Path, magic: bytes = MAGIC, key: str = KEY, size: int = OFFSET + 1000) -> None:
    """The RAM is a hole."""
    with path.open("wb") as file:
        file.seek(qemu.MEMORY)
        file.write(HEADER.pack(magic, key.encode(), OFFSET + 1000))
        file.truncate(size)


def test_the_guest_gets_the_inside_of_the_package_only(package: Path) -> None:
    (package / "lab" / "__pycache__").mkdir()
    (package / "lab" / "__pycache__" / "lab.pyc").write_text("compiled")
    assert code_files() == {
        "testbed/errors.py": b"errors.py",
        "testbed/lab/lab.py": b"lab/lab.py",
        "testbed/switch/profiles.yml": b"switch/profiles.yml",
    }


def test_of_the_real_package_machine_and_command_stay_outside() -> None:
    rooms = {Path(name).parts[1] for name in code_files()}
    assert {"__init__.py", "executor", "protocol", "lab", "scenario", "switch", "topology", "workload"} <= rooms
    assert rooms.isdisjoint({"machine", "cli"})


@pytest.mark.parametrize(
    ("name", "text"),
    [("errors.py", "errors.pz"), ("switch/profiles.yml", ""), ("lab/new.py", ""), ("lab/__init__.py", "x")],
)
def test_a_changed_byte_or_a_new_file_of_the_inside_changes_the_key(package: Path, name: str, text: str) -> None:
    before = code_key("boot")
    (package / name).write_text(text)
    assert code_key("boot") != before


def test_a_moved_file_changes_the_key(package: Path) -> None:
    before = code_key("boot")
    (package / "lab" / "lab.py").rename(package / "lab" / "lob.py")
    assert code_key("boot") != before


def test_a_change_of_the_outside_or_of_what_python_compiles_changes_nothing(package: Path) -> None:
    before = code_key("boot")
    (package / "machine" / "vm.py").write_text("changed")
    (package / "cli" / "new.py").write_text("new")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "errors.pyc").write_text("compiled")
    os.utime(package / "errors.py", (1, 1))
    assert code_key("boot") == before


def test_another_machine_below_changes_the_key(package: Path) -> None:
    assert code_key("boot") != code_key("other")


def test_a_whole_snapshot_for_the_key_is_usable_and_counts_as_used(whole: Path) -> None:
    os.utime(whole, (1, 1))
    assert Snapshot(KEY).usable()
    assert whole.stat().st_mtime > 1000


def test_no_file_is_no_snapshot() -> None:
    assert not Snapshot(KEY).usable()


@pytest.mark.parametrize(
    "size", [0, 1, qemu.MEMORY, qemu.MEMORY + HEADER.size - 1, OFFSET, OFFSET + 999, OFFSET + 1001]
)
def test_a_cut_or_a_longer_file_is_not_usable(whole: Path, size: int) -> None:
    write(whole, size=size)
    assert not Snapshot(KEY).usable()


def test_a_file_that_is_no_snapshot_or_of_another_key_is_not_usable(whole: Path) -> None:
    write(whole, magic=b"TBSNAP0\0")
    assert not Snapshot(KEY).usable()
    write(whole, key=KEY[:24] + "0" * 40)
    assert Snapshot(KEY[:24] + "0" * 40).path == whole
    assert not Snapshot(KEY).usable()
    with whole.open("r+b") as file:
        file.seek(qemu.MEMORY)
        file.write(b"\xff" * 2000)
    assert not Snapshot(KEY).usable()
    whole.unlink()
    whole.mkdir()
    assert not Snapshot(KEY).usable()


def test_ram_is_copied_with_its_holes_and_without_what_follows_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(qemu, "MEMORY", 1 << 20)
    page = os.sysconf("SC_PAGE_SIZE")
    one, other = (os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in ("one", "other"))
    try:
        os.truncate(one, 1 << 20)
        os.pwrite(one, b"a" * 3 * page, 16 * page)
        os.pwrite(one, b"z" * 2 * page, (1 << 20) - page)
        asyncio.run(snapshot.copy_data(one, other))
        copied = os.pread(other, 2 << 20, 0)
        assert copied == os.pread(one, 1 << 20, 0)
        assert os.fstat(other).st_blocks * 512 <= 8 * page
    finally:
        os.close(one)
        os.close(other)


def test_a_disk_that_is_full_while_a_snapshot_is_written_is_named(cache_root: Path) -> None:
    target = Snapshot(KEY)
    full = pytest.raises(UnsupportedError, match="the disk filled up while a snapshot was written")
    with full as raised, snapshot.created(target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert raised.value.where == str(target.path.parent)
    assert list(target.path.parent.iterdir()) == []


def test_a_snapshot_has_its_name_when_it_is_whole(cache_root: Path) -> None:
    target = Snapshot(KEY)
    with snapshot.created(target) as handle:
        os.pwrite(handle, b"devices", OFFSET)
        assert list(target.path.parent.iterdir()) == []
    assert target.usable()


def test_the_missing_ones_are_those_above_the_highest_that_is_there(whole: Path) -> None:
    there = Snapshot(KEY, below=Snapshot("f" * 64))
    middle = Snapshot("c" * 64, below=there)
    top = Snapshot("d" * 64, below=middle)
    assert top.missing() == [middle, top]
    assert there.missing() == []


def test_snapshots_can_be_removed(whole: Path) -> None:
    making.clear()
    assert list(whole.parent.iterdir()) == []


class Unreadable:
    """A QEMU that cannot read the state of any machine."""

    async def load(self, _: int) -> None:
        raise StateError("it is damaged")


@pytest.fixture
def qemu_that_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def start(*_: object, **__: object) -> AsyncIterator[Unreadable]:
        yield Unreadable()

    monkeypatch.setattr(qemu, "command_line", lambda *_: [])
    monkeypatch.setattr(qemu, "start", start)


@pytest.fixture
def qemu_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def start(*_: object, **__: object) -> AsyncIterator[None]:
        raise MachineError("cannot allocate memory")
        yield

    monkeypatch.setattr(qemu, "command_line", lambda *_: [])
    monkeypatch.setattr(qemu, "start", start)


def restore() -> None:
    async def story() -> None:
        async with Opened(None, Flavour("real"), Snapshot(KEY)) as opened:  # type: ignore[arg-type]
            await opened.begin()

    asyncio.run(story())


@pytest.mark.usefixtures("qemu_that_cannot_read")
def test_a_snapshot_that_qemu_cannot_read_is_removed(whole: Path) -> None:
    with pytest.raises(MachineError, match="was removed: it is damaged") as said:
        restore()
    assert said.value.hint == "Run the command again: it makes a new one."
    assert not whole.exists()


@pytest.mark.usefixtures("qemu_that_does_not_start")
def test_a_sound_snapshot_stays_when_qemu_does_not_start(whole: Path) -> None:
    with pytest.raises(MachineError, match=r"^cannot allocate memory$"):
        restore()
    assert whole.exists()


def test_a_snapshot_that_was_removed_after_it_was_found_is_named(whole: Path) -> None:
    whole.unlink()
    with pytest.raises(MachineError, match="the snapshot was removed while this command ran") as said:
        restore()
    assert said.value.where == str(whole)
    assert "Run the command again" in said.value.hint


def state_at(bias: int, executed: int, timers: list[int]) -> bytes:
    """The devices of a machine, as much as counts."""
    clock = snapshot.ICOUNT + snapshot.COUNTS.pack(bias, executed)
    replay = b"replay" + executed.to_bytes(8, "big") + b"\0" * 8
    return b"QEVM" + clock + replay + b"".join(b"apic" + 2 * timer.to_bytes(8, "big") for timer in timers) + b"\0" * 20


def test_a_clock_that_did_not_jump_at_the_pause_is_set_to_the_next_timer() -> None:
    timers = [9_000_000_000, 9_003_000_000, 9_001_500_000, 10_000_000_000]
    before, jumped = (state_at(bias, 9_000_999_000, timers) for bias in (1000, 501_000))
    assert snapshot.settled(before) == jumped
    assert snapshot.settled(jumped) == jumped


def test_a_machine_on_the_real_clock_keeps_its_state() -> None:
    assert snapshot.settled(b"QEVM" + b"\1" * 100) == b"QEVM" + b"\1" * 100


def test_a_pause_without_a_timer_is_an_error() -> None:
    with pytest.raises(MachineError, match="paused without a timer"):
        snapshot.settled(state_at(0, 9_000_000_000, [8_999_999_999, 9_004_000_001]))
