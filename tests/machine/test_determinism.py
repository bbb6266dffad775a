"""The same image, QEMU, code, scenario, parameters and seed give the same events at the same nanosecond."""

import asyncio
import contextlib
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

from testbed.machine import snapshot
from testbed.machine.devices import Bundle, Outcome
from testbed.machine.image import ensure as ensure_image
from testbed.machine.qemu import Flavour

VARIANT = ("run", "ip-reuse", "--variant", "garp", "--json")


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
    """Each idle second of a guest is a chance for QEMU's threads to meet in the wrong order."""
    idle = ("run", "ip-reuse", "--variant", "aging-4h", "--json")
    with ThreadPoolExecutor() as both:
        traces = {trace(done) for _ in range(2) for done in both.map(lambda _: testbed(*idle), range(2))}
    assert len(traces) == 1


async def cpus_of_a_machine() -> set[int]:
    """The host CPUs that the threads of a restored machine may use."""
    built, flavour = ensure_image(lambda phase, fetched: None), Flavour("virtual")
    source = await snapshot.ensure(built, flavour, print)
    with contextlib.closing(Bundle()) as bundle, contextlib.closing(Outcome()) as outcome:
        async with snapshot.restored(built, flavour, source, bundle, outcome) as machine:
            threads = [int(task) for task in os.listdir(f"/proc/{machine.process.pid}/task")]
            assert len(threads) > 2
            return {cpu for thread in threads for cpu in os.sched_getaffinity(thread)}


def test_all_threads_of_qemu_share_one_cpu():
    assert len(asyncio.run(cpus_of_a_machine())) == 1
