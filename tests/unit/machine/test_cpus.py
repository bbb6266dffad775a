"""Which CPU a machine gets, and how it takes another."""

import os
import subprocess
import sys
import time

import pytest

from testbed.machine import cpus
from testbed.machine.patience import schedule, threads_of

HOLDS = """
import os
from testbed.machine import cpus

os.sched_getaffinity = lambda pid: {70003, 70004}
with cpus.claimed() as claim:
    print(claim.number, flush=True)
    input()
"""


def test_machines_side_by_side_have_cpus_of_their_own_while_there_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {70001, 70002})
    with cpus.claimed() as first, cpus.claimed() as second, cpus.claimed() as third:
        assert [first.number, second.number, third.number] == [70001, 70002, 70001]
    with cpus.claimed() as again:
        assert again.number == 70001


def test_another_process_has_another_cpu_until_it_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {70003, 70004})
    holder = subprocess.Popen([sys.executable, "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout
    assert holder.stdout.readline() == "70003\n"
    with cpus.claimed() as ours:
        assert ours.number == 70004
    holder.kill()
    holder.communicate()
    with cpus.claimed() as ours:
        assert ours.number == 70003


SEVERAL_THREADS = """
import threading
for _ in range(3):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print(flush=True)
input()
"""


def test_all_threads_of_a_process_move_and_go_on_and_so_does_the_claim() -> None:
    target = max(cpus.allowed())
    process = subprocess.Popen(
        [sys.executable, "-c", SEVERAL_THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    process.stdout.readline()
    threads = list(threads_of(process.pid)())
    assert len(threads) == 4
    with cpus.claimed() as claim:
        claim.move(process.pid, target)
        assert claim.number == target
    assert {frozenset(os.sched_getaffinity(int(thread.name))) for thread in threads} == {frozenset({target})}
    process.communicate("\n", timeout=30)
    assert process.returncode == 0


def test_a_process_stands_still_while_its_threads_change_places(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SEVERAL_THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    process.stdout.readline()
    states = set()
    real = os.sched_setaffinity

    def set_affinity(thread: int, numbers: set[int]) -> None:
        states.update(said[2] for path in threads_of(process.pid)() if (said := schedule(path)))
        real(thread, numbers)

    monkeypatch.setattr(os, "sched_setaffinity", set_affinity)
    with cpus.claimed() as claim:
        claim.move(process.pid, max(cpus.allowed()))
    assert states == {"T"}
    process.communicate("\n", timeout=30)


def test_a_cpu_that_works_is_not_idle() -> None:
    before = os.sched_getaffinity(0)
    busy = max(before)
    os.sched_setaffinity(0, {busy})
    try:
        idle, end = cpus.Idle(), time.monotonic() + 0.3
        while time.monotonic() < end:
            pass
        shares = idle.look()
    finally:
        os.sched_setaffinity(0, before)
    assert set(cpus.allowed()) <= set(shares)
    assert shares[busy] < 0.5
