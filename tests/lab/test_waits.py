"""A condition that holds for 50 ms is found, whatever it is about; an hour in which nothing happens costs nothing."""

import os
import subprocess
import sys
from ipaddress import IPv4Address
from pathlib import Path

import pytest

import testbed
from testbed import Lab, Topology
from testbed.faults import LinkDown
from testbed.scenario.run import Run, Variant

PAIR = """
name: pair
topology:
  nodes: {leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}, a: {kind: host}, b: {kind: host}}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10}
"""
pytestmark = pytest.mark.topology(PAIR)
LATE = "sleep 7.3"
"""When the pauses between two looks have grown to a second."""
SHORT = "sleep 0.05"
NOBODY = IPv4Address("10.0.10.77")


@pytest.mark.fresh
def test_a_neighbour_entry(lab):
    a = lab.host("a")
    entry = f"{NOBODY} dev eth1 lladdr 02:00:00:00:00:77 nud permanent"
    a.spawn("sh", "-c", f"{LATE}; ip neigh add {entry}; {SHORT}; ip neigh del {NOBODY} dev eth1")
    assert lab.scheduler.wait(lambda: a["eth1"].neighbour(NOBODY) is not None, 20)


@pytest.mark.fresh
def test_a_state_of_a_link(lab):
    b = lab.host("b")
    b.spawn("sh", "-c", f"{LATE}; ip link set eth1 down; {SHORT}; ip link set eth1 up")
    assert lab.scheduler.wait(lambda: not b["eth1"].is_up, 20)


@pytest.mark.fresh
def test_an_address_and_a_route(lab):
    a = lab.host("a")
    a.spawn("sh", "-c", f"{LATE}; ip route add 10.9.0.0/16 via 10.0.10.1; {SHORT}; ip route del 10.9.0.0/16")
    assert lab.scheduler.wait(lambda: any(route["dst"] == "10.9.0.0/16" for route in a.routes.shown(4)), 20)


@pytest.mark.fresh
def test_what_a_program_writes(lab):
    program = lab["a"].spawn("sh", "-c", f'{LATE}; printf up; {SHORT}; printf " and down"; sleep 30')
    assert lab.scheduler.wait(lambda: program.output == "up", 20)


def test_a_program_that_ends(lab, log):
    began = log.now
    program = lab["a"].spawn("sh", "-c", LATE)
    assert lab.scheduler.wait(lambda: not program.running, 20)
    assert program.status == 0
    assert (log.now - began) / 1e9 == pytest.approx(7.3, abs=0.2)  # not at the next second's look


def test_an_event_of_a_fault_that_comes_by_time(lab, log):
    run = Run(lab, log, Variant("v", "healthy", ""))
    run.inject(LinkDown(end="leaf:e1"), after=7.3, lasting=0.05)
    seen = []

    def is_down() -> int:
        seen.append(log.now)
        return len(log.find("fault.injected")) - len(log.find("fault.recovered"))

    assert run.eventually("the link is down", is_down, 1, within=20)
    assert len(seen) < 100
    lab.scheduler.sleep(1)


def test_a_pod_of_later_is_heard_of_too(lab):
    a = lab.host("a")
    lab.scheduler.after(7.3, lambda: a.ip.link("add", ifname="v1", kind="dummy"))
    lab.scheduler.after(7.35, lambda: a.ip.link("del", ifname="v1"))
    assert lab.scheduler.wait(lambda: bool(a.ip.link_lookup(ifname="v1")), 20)


@pytest.mark.fresh
@pytest.mark.slow
def test_an_idle_hour_is_not_polled(lab):
    looks = []
    assert not lab.scheduler.wait(lambda: looks.append(None) is not None, 3600)
    assert len(looks) < 3700


@pytest.mark.fresh
def test_a_condition_that_changes_something_itself_does_not_wake_itself(lab):
    a, tries = lab.host("a"), []

    def works() -> bool:
        tries.append(None)
        a.run("ip", "neigh", "replace", str(NOBODY), "dev", "eth1", "lladdr", "02:00:00:00:00:77")
        a.run("ip", "neigh", "del", str(NOBODY), "dev", "eth1")
        return False

    assert not lab.scheduler.wait(works, 10)
    assert len(tries) < 50


def test_a_fault_that_the_end_of_a_run_cuts_short_is_a_failure(tmp_path, log):
    for may_outlast_run, failures in ((False, 1), (True, 0)):
        directory = tmp_path / str(may_outlast_run)
        directory.mkdir()
        with Lab(Topology.parse(PAIR), directory, log.emit) as lab:
            run = Run(lab, log, Variant("v", "healthy", ""))
            run.inject(LinkDown(end="leaf:e1"), lasting=5, may_outlast_run=may_outlast_run)
            lab.scheduler.sleep(0.36)
            run.observe("healthy", "it works")
        said = run.outcome(directory)["failures"]
        assert len(said) == failures
        assert all("link-down end=leaf:e1 was cut short: the run ended 4." in failure for failure in said)


def test_one_that_was_recovered_before_is_not_cut_short(tmp_path, log, lab):
    run = Run(lab, log, Variant("v", "healthy", ""))
    run.inject(LinkDown(end="leaf:e1"), lasting=5).recover()
    run.observe("healthy", "it works")
    assert run.outcome(tmp_path)["failures"] == []


@pytest.mark.slow
def test_the_fixture_reports_it_too(pytester_like):
    assert "fault link-down end=leaf:e1 was cut short" in pytester_like


@pytest.fixture
def pytester_like(tmp_path):
    """What pytest prints of a test whose injection outlasts it; in a process of its own."""
    file = tmp_path / "test_cut.py"
    file.write_text(f'''
import pytest
from testbed.faults import Injection, LinkDown

@pytest.mark.topology("""{PAIR.replace("name: pair", "name: inner")}""")
def test_cut(lab):
    Injection(lab, LinkDown(end="leaf:e1")).inject_after(0, lasting=5)
''')
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:testbed",
        "-p",
        "testbed.scenario.lab_fixture",
        str(file),
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(testbed.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    return done.stdout + done.stderr
