"""The same image, QEMU, code, scenario, parameters and seed give the same events at the same nanosecond."""

import json
import multiprocessing
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import COMMAND

from testbed.machine import qemu, watch
from testbed.protocol import STEPS

VARIANT = ("run", "ip-reuse", "--variant", "garp", "--json")
HOURS = "aging-4h"
FABRICS = [
    ("evpn-duplicate-freeze", "moves"),
    ("anycast-mac-mismatch", "equal"),
    ("bfd-one-way", "bfd"),
    ("mlag-sync-lost", "resync"),
    ("vrrp-brief-master", "owner-hears"),
    ("lacp-one-member-dead", "fast"),
]


def trace(done) -> str:
    assert done.status == 0, done.err
    assert done.json["trace"]
    return done.json["variants"][0]["trace"]


def spin() -> None:
    while True:
        pass


@pytest.mark.slow
def test_a_run_under_load_is_identical_to_the_byte(testbed, tmp_path, ip_reuse):
    hogs = [multiprocessing.Process(target=spin, daemon=True) for _ in range(os.cpu_count() or 1)]
    for hog in hogs:
        hog.start()
    try:
        done = testbed(*VARIANT)
    finally:
        for hog in hogs:
            hog.kill()
    assert trace(done) == ip_reuse.variants["garp"]["trace"]
    for name in "events.jsonl", "leaf-e3.pcap":
        files = ip_reuse.out / "garp" / name, tmp_path / done.json["out"] / "garp" / name
        assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("words", [(), ("--variant", "as-is", "--keep-steps")], ids=["alone", "steps-of-both"])
def test_a_run_that_begins_with_the_lab_of_another_is_as_if_it_were_alone(testbed, tmp_path, ip_reuse, words):
    """`garp` began with the lab that `as-is` brought up."""
    alone = testbed(*VARIANT, *words)
    [its] = [variant["trace"] for variant in alone.json["variants"] if variant["name"] == "garp"]
    assert its == ip_reuse.variants["garp"]["trace"]
    shared, own = (
        {path.relative_to(place): path.read_bytes() for path in place.rglob("*") if path.is_file()}
        for place in (ip_reuse.out / "garp", tmp_path / alone.json["out"] / "garp")
    )
    assert shared == {name: data for name, data in own.items() if name.parts[0] != STEPS}


def test_another_seed_is_another_run_with_the_same_verdict(testbed, ip_reuse):
    other = testbed(*VARIANT, "--seed", "2")
    assert trace(other) != ip_reuse.variants["garp"]["trace"]
    assert other.json["verdict"] == "as-expected"


def cpu_ticks(process: int) -> int:
    return sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]))


@pytest.mark.slow
def test_a_command_that_gets_no_cpu_changes_nothing(testbed, tmp_path):
    """Nobody reads what the guest writes to its console meanwhile: four lines for each new RDMA device."""
    pods = ("run", "ip-cool-down", "--variant", "as-is", "--json")
    alone = trace(testbed(*pods))
    with subprocess.Popen([*COMMAND, *pods], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
        assert any(b"a pod starts 16 times" in line for line in command.stderr)
        (machine,) = map(int, Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text().split())
        command.send_signal(signal.SIGSTOP)
        then, now = -1, cpu_ticks(machine)
        while then != now:
            time.sleep(1)
            then, now = now, cpu_ticks(machine)
        command.send_signal(signal.SIGCONT)
        run = json.loads(command.communicate()[0])
    assert run["variants"][0]["trace"] == alone


@pytest.mark.slow
def test_hours_of_two_machines_beside_each_other_are_the_same(testbed):
    idle = ("run", "ip-reuse", "--variant", HOURS, "--json")
    with ThreadPoolExecutor() as both:
        traces = {trace(done) for _ in range(2) for done in both.map(lambda _: testbed(*idle), range(2))}
    assert len(traces) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "variant"), FABRICS)
def test_a_fabric_with_many_daemons_is_the_same_three_times(testbed, scenario, variant):
    run = ("run", scenario, "--variant", variant, "--json")
    with ThreadPoolExecutor() as three:
        traces = {trace(done) for done in three.map(lambda _: testbed(*run), range(3))}
    assert len(traces) == 1


@pytest.mark.slow
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


LABS = """
import pytest
from testbed.workload import Attributes, Streams

PAIR = '''
name: pair
topology:
  lossless: {dscp: 26, priority: 3}
  kinds: {host: {nic: hardware, congestion_values: {scale: 100}}}
  nodes:
    leaf: {kind: switch, vlans: {10: null}, profile_values: {buffer: 36000, ecn_max: 40000, ecn_probability: 50}}
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10, rate: 100mbit}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10, rate: 100mbit}
    - {endpoints: ["leaf:e3", "c:eth1"], vlan: 10, rate: 100mbit}
'''

@pytest.mark.topology(PAIR)
@pytest.mark.parametrize("number", range(2))
def test_incast(lab, log, number):
    nics = [lab[name]["eth1"] for name in "abc"]
    pairs = [(nics[0], nics[2]), (nics[1], nics[2])]
    with Streams(pairs, Attributes(timeout=16, traffic_class=26 << 2 | 2)) as streams:
        rates = streams.run(0.5)
    counted = {str(nic): nic.lossless.counters() for nic in nics}
    log.emit("measured", "", "", rates=rates, counted=counted, out=lab["leaf"]["e3"].lossless.counters())
    assert counted["a:eth1"]["rp_cnp_handled"] > 0
"""


@pytest.mark.slow
def test_several_lossless_labs_of_one_session_are_the_same_each_time(testbed, tmp_path):
    """One after the other in one machine, with marks drawn by chance and pauses in each."""
    (tmp_path / "labs").mkdir()
    (tmp_path / "labs" / "test_labs.py").write_text(LABS)
    logs = []
    for number in range(2):
        done = testbed("pytest", "labs", "--out", tmp_path / f"runs{number}")
        assert done.status == 0, done.out + done.err
        found = sorted((tmp_path / f"runs{number}").rglob("events.jsonl"))
        logs.append([path.read_bytes() for path in found])
    assert len(logs[0]) == 2
    assert all(b"pfc.paused" in log for log in logs[0])
    assert logs[0] == logs[1]


@pytest.mark.slow
def test_a_machine_that_boots_again_has_the_same_memory(testbed, cache, tmp_path):
    """What a run starts from is no source of differences either."""
    for place in tmp_path / "first", tmp_path / "second":
        assert testbed(*VARIANT, env={"XDG_CACHE_HOME": str(cache.parent)}).status == 0
        (cache / "snapshots").rename(place)
    names = sorted(os.listdir(tmp_path / "first"))
    assert len(names) == 3
    for name in names:
        files = [tmp_path / place / name for place in ("first", "second")]
        subprocess.run(["cmp", f"--bytes={qemu.MEMORY}", *files], check=True)
