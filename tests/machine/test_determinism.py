"""The same image, QEMU, code, scenario, parameters and seed give the same events at the same nanosecond."""

import multiprocessing
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

from testbed.machine import qemu, watch

VARIANT = ("run", "ip-reuse", "--variant", "garp", "--json")
HOURS = "aging-4h"


def trace(done) -> str:
    assert done.status == 0, done.err
    assert done.json["trace"]
    return done.json["variants"][0]["trace"]


def spin() -> None:
    while True:
        pass


def test_two_runs_are_identical_to_the_byte(testbed, tmp_path):
    first, second = (testbed(*VARIANT).json for _ in range(2))
    assert first["trace"] == second["trace"]
    logs = [(tmp_path / run["out"] / "garp" / "events.jsonl").read_bytes() for run in (first, second)]
    assert logs[0] == logs[1]
    captures = [(tmp_path / run["out"] / "garp" / "leaf-e3.pcap").read_bytes() for run in (first, second)]
    assert captures[0] == captures[1]


def test_another_seed_is_another_run_with_the_same_verdict(testbed):
    one, other = testbed(*VARIANT), testbed(*VARIANT, "--seed", "2")
    assert trace(one) != trace(other)
    assert other.json["verdict"] == "as-expected"


def test_load_on_the_host_changes_nothing(testbed):
    alone = trace(testbed(*VARIANT))
    hogs = [multiprocessing.Process(target=spin, daemon=True) for _ in range(2 * (os.cpu_count() or 1))]
    for hog in hogs:
        hog.start()
    try:
        assert trace(testbed(*VARIANT)) == alone
    finally:
        for hog in hogs:
            hog.kill()


def test_hours_of_two_machines_beside_each_other_are_the_same(testbed):
    idle = ("run", "ip-reuse", "--variant", HOURS, "--json")
    with ThreadPoolExecutor() as both:
        traces = {trace(done) for _ in range(2) for done in both.map(lambda _: testbed(*idle), range(2))}
    assert len(traces) == 1


def test_a_qemu_that_is_asked_stopped_and_continued_all_the_time_changes_nothing(run_in_a_machine, monkeypatch):
    """A command wakes QEMU's main thread, which moves virtual time on when it sees that the vCPU has halted. Without
    the lock that comes with recording half of such runs differ."""
    alone = run_in_a_machine("ip-reuse", HOURS)
    looks = []

    async def look(watcher):
        looks.append(await watcher._machine.command("query-status"))
        if len(looks) % 100 == 0:
            await watcher._machine.nudge()

    monkeypatch.setattr(watch.Watch, "look", look)
    monkeypatch.setattr(watch.Watch, "pause_s", lambda _: 0.002)
    assert run_in_a_machine("ip-reuse", HOURS) == alone
    assert len(looks) > 1000


def test_a_machine_that_boots_again_has_the_same_memory(testbed, cache, tmp_path):
    """What a run starts from is no source of differences either."""
    for place in tmp_path / "first", tmp_path / "second":
        assert testbed(*VARIANT, env={"XDG_CACHE_HOME": str(cache.parent)}).status == 0
        (cache / "snapshots").rename(place)
    names = sorted(os.listdir(tmp_path / "first"))
    assert len(names) == 2
    for name in names:
        files = [tmp_path / place / name for place in ("first", "second")]
        subprocess.run(["cmp", f"--bytes={qemu.MEMORY}", *files], check=True)
