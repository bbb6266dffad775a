"""A deadline runs only while what is waited for could work."""

import asyncio
import itertools
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.machine import patience
from testbed.machine.patience import Starvation, StarvedError, patiently, processes_of, schedule, threads_of


@pytest.fixture
def thread(tmp_path: Path) -> Callable[[str, int, int], Path]:
    """Writes what the kernel says of a thread: its state, and the nanoseconds it ran and waited."""

    def say(state: str, ran: int, waited: int) -> Path:
        (tmp_path / "schedstat").write_text(f"{ran} {waited} 7\n")
        (tmp_path / "stat").write_text(f"1 (a name) with ) {state} 1 1 1\n")
        return tmp_path

    return say


async def never() -> None:
    await asyncio.Event().wait()


def test_what_is_waited_for_is_returned_and_what_it_raises_is_raised() -> None:
    async def answer() -> int:
        return 7

    async def fail() -> int:
        raise KeyError("mine")

    assert asyncio.run(patiently(answer(), 1.0, list)) == 7
    with pytest.raises(KeyError, match="mine"):
        asyncio.run(patiently(fail(), 1.0, list))


def test_a_process_that_could_work_has_its_seconds_and_no_more() -> None:
    with pytest.raises(TimeoutError):
        asyncio.run(patiently(never(), 0.01, threads_of(os.getpid())))


@pytest.mark.parametrize("state", ["R", "D", "T"])
def test_a_thread_that_never_runs_though_it_is_ready_or_waits_for_a_disk_or_is_stopped_has_no_time(
    thread: Callable[[str, int, int], Path], state: str
) -> None:
    starvation = Starvation(lambda: [thread(state, 5, 0)])
    elapsed, waited = starvation.look()
    assert waited == elapsed > 0


def test_a_thread_that_sleeps_has_had_all_the_time(thread: Callable[[str, int, int], Path]) -> None:
    starvation = Starvation(lambda: [thread("S", 5, 0)])
    assert starvation.look()[1] == 0


def test_a_thread_that_runs_now_and_then_waits_in_between(thread: Callable[[str, int, int], Path]) -> None:
    waits = itertools.count(0, 10**9)
    starvation = Starvation(lambda: [thread("R", next(waits), next(waits))])
    elapsed, waited = starvation.look()
    assert waited == elapsed  # it waited for two seconds, of a moment that was shorter


def test_a_starved_process_ends_no_deadline_but_the_patience(
    thread: Callable[[str, int, int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SLICE_S", 0.005)
    monkeypatch.setattr(patience, "STARVED_S", 0.1)
    with pytest.raises(StarvedError, match="got no CPU") as said:
        asyncio.run(patiently(never(), 0.02, lambda: [thread("R", 5, 0)]))
    assert said.value.exit_status == 3
    assert "too busy" in said.value.hint


def test_time_in_which_we_were_stopped_ourselves_counts_as_a_look(
    thread: Callable[[str, int, int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look is an hour after the one before; the limit is ten looks."""
    hours = itertools.count(0, 3600)
    looks = []
    monkeypatch.setattr(patience, "SLICE_S", 0.001)
    monkeypatch.setattr(patience.time, "monotonic", lambda: looks.append(1) or float(next(hours)))
    with pytest.raises(TimeoutError):
        asyncio.run(patiently(never(), 0.02, lambda: [thread("S", 5, 0)]))
    assert len(looks) >= 10


def test_the_threads_of_a_process_and_the_processes_of_a_session_are_found() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True) as process:
        try:
            assert [path.name for path in threads_of(process.pid)()] == [str(process.pid)]
            while len(found := list(processes_of(process.pid)())) < 2:
                assert process.poll() is None
            assert {schedule(path)[2] for path in found} <= set("SRD")  # type: ignore[index]
        finally:
            os.killpg(process.pid, 9)
    assert list(threads_of(process.pid)()) == []
    assert schedule(Path(f"/proc/{process.pid}")) is None
