"""Everything in the cache is whole, or is not there."""

import asyncio
import fcntl
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.errors import UnsupportedError
from testbed.machine import cache


def held(path: Path) -> bool:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def directories(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir())


def test_the_cache_is_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache.root() == tmp_path / "cache" / "testbed"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache.root() == Path("/home/someone/.cache/testbed")


def test_the_cache_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cache" / "testbed").mkdir(parents=True)
    own = cache.directory("images").stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    if own:
        with pytest.raises(UnsupportedError, match="this cache belongs to another user"):
            cache.directory("images")
    else:  # that of root is not, as that of a container's image
        assert cache.directory("images")
        os.chown(tmp_path / "cache" / "testbed", 1234, -1)
        with pytest.raises(UnsupportedError, match="this cache belongs to another user"):
            cache.directory("images")


@pytest.mark.parametrize("place", ["/proc", "/dev/null"])
def test_a_cache_that_cannot_be_made_is_named(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", place)
    with pytest.raises(UnsupportedError, match="the cache cannot be made: ") as said:
        cache.directory("images")
    assert "XDG_CACHE_HOME" in said.value.hint


def test_who_makes_something_removes_first_what_killed_makers_left(tmp_path: Path) -> None:
    killed, now, empty = (f"making-{digit * 16}" for digit in "abc")
    for name in (killed, now, "whole", f"x{killed}"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("something")
    (tmp_path / empty).write_text("no directory")
    with cache.locked(tmp_path / now):
        with cache.making(tmp_path / "new") as work:
            assert directories(tmp_path) == sorted([now, empty, "whole", f"x{killed}", work.name])
        assert (tmp_path / now / "file").exists()


def test_what_is_made_takes_its_name_when_it_is_whole(tmp_path: Path) -> None:
    for text in "first", "second":
        with cache.making(tmp_path / "image") as work:
            (work / "part").write_text(text)
            assert "image" not in directories(tmp_path) or (tmp_path / "image" / "part").read_text() == "first"
        assert directories(tmp_path) == ["image"]
        assert (tmp_path / "image" / "part").read_text() == text


def test_what_fails_while_it_is_made_is_gone(tmp_path: Path) -> None:
    def fail() -> None:
        with cache.making(tmp_path / "image"):
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        fail()
    assert directories(tmp_path) == []


def test_makers_side_by_side_leave_each_other_alone(tmp_path: Path) -> None:
    with cache.making(tmp_path / "one") as first, cache.making(tmp_path / "two") as second:
        assert first != second
        assert sorted((first, second)) == sorted(tmp_path.iterdir())


def test_a_lock_excludes_others_until_its_block_ends(tmp_path: Path) -> None:
    with cache.locked(tmp_path):
        assert held(tmp_path)
    assert not held(tmp_path)


def test_a_lock_that_another_holds_can_be_left_alone(tmp_path: Path) -> None:
    with cache.locked(tmp_path), pytest.raises(BlockingIOError), cache.locked(tmp_path, wait=False):
        pass
    assert not held(tmp_path)


def test_a_lock_vanishes_with_its_holder(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from testbed.machine import cache\n"
        "with cache.locked(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        assert held(tmp_path)
        holder.kill()
    assert not held(tmp_path)


def test_waiting_for_a_lock_does_not_stop_the_loop_that_holds_it(tmp_path: Path) -> None:
    order = []

    async def hold(taken: asyncio.Event, release: asyncio.Event) -> None:
        async with cache.locked_async(tmp_path):
            taken.set()
            await release.wait()
            order.append("first ends")

    async def story() -> None:
        taken, release = asyncio.Event(), asyncio.Event()
        first = asyncio.create_task(hold(taken, release))
        await taken.wait()
        asyncio.get_running_loop().call_later(0.01, release.set)
        async with cache.locked_async(tmp_path):
            order.append("second holds")
        await first

    asyncio.run(asyncio.wait_for(story(), 5))
    assert order == ["first ends", "second holds"]


def test_a_digest_tells_where_its_parts_end() -> None:
    found = {cache.digest(*parts) for parts in (("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("", "abc"))}
    assert len(found) == 5
    assert cache.digest("µ") == cache.digest("µ".encode())
    assert cache.digest("a") == hashlib.sha256(b"\1\0\0\0\0\0\0\0a").hexdigest()


def test_a_file_s_digest_is_that_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc" * 100_000)
    assert cache.file_digest(tmp_path / "file") == hashlib.sha256(b"abc" * 100_000).hexdigest()


def test_too_little_space_is_said_before_it_is_used(tmp_path: Path) -> None:
    cache.require_space(tmp_path, 1, "a snapshot")
    with pytest.raises(UnsupportedError, match=r"a snapshot needs 1000000000\.0 GB and .* has \d+\.\d GB free") as said:
        cache.require_space(tmp_path, 10**18, "a snapshot")
    assert "XDG_CACHE_HOME" in said.value.hint


def test_a_file_has_no_name_until_it_is_published(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for text in (b"first", b"second"):
        handle = os.open(tmp_path, os.O_RDWR | os.O_TMPFILE, 0o644)
        os.write(handle, text)
        before = [path.read_bytes() for path in tmp_path.iterdir()]
        cache.publish(handle, path)
        os.close(handle)
        assert before == ([] if text == b"first" else [b"first"])
        assert path.read_bytes() == text


def test_the_files_used_last_stay(tmp_path: Path) -> None:
    for age in range(8):
        path = tmp_path / f"s{age}"
        path.write_text("")
        os.utime(path, (1000 - age, 1000 - age))
    (tmp_path / "a-directory").mkdir()
    cache.prune(tmp_path, 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-directory", *(f"s{age}" for age in range(5))]


def test_what_is_of_the_future_goes_first(tmp_path: Path) -> None:
    """The clock was set back: a file that was just written would else be the oldest, and go."""
    now = time.time()
    ages = {"new": 0, "older": 100, "oldest": 200, "of-tomorrow": -86400, "of-next-year": -86400 * 365}
    for name, age_s in ages.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (now - age_s, now - age_s))
    assert [path.name for path in cache.by_use(tmp_path.iterdir())] == [
        "of-next-year",
        "of-tomorrow",
        "oldest",
        "older",
        "new",
    ]
    cache.prune(tmp_path, 2)
    assert {path.name for path in tmp_path.iterdir()} == {"new", "older"}
