"""The agent that runs the switches' control planes: commands it refuses, and its end."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from switch_lab import LEAF, SVI_10, SVI_20, B, arps, ethernet, request, send, svi_mac

from testbed.errors import InputError, TestbedError
from testbed.kernel.rtnetlink import Rtnetlink, fdb_entry
from testbed.lab import Host
from testbed.switch import dataplane
from testbed.switch.agent import Agent
from testbed.switch.frames import BROADCAST, REPLY

pytestmark = pytest.mark.topology(LEAF)
GONE = "02:00:00:00:99:99"


def test_a_wrong_value_changes_nothing(lab):
    for wrong in {"mac_agee": 3}, {"mac_age": -1}, {"unknown_unicast": "eat"}:
        with pytest.raises(InputError):
            lab.switch("leaf").change_profile(**wrong)
    with pytest.raises(InputError, match="leaf"):
        lab.switch("leaf").agent.ask("spine", "tables")
    assert lab.host("a").ping(B, within=1)


@pytest.mark.fresh
def test_a_killed_agent_is_an_error_at_every_later_use(lab):
    os.kill(lab.switch("leaf").agent.pid, signal.SIGKILL)

    with pytest.raises(TestbedError, match="status -9"):
        lab.scheduler.sleep(1)
    with pytest.raises(TestbedError, match="status -9"):
        lab.switch("leaf").arp_table()
    with pytest.raises(TestbedError, match="status -9"):
        lab.switch("leaf").change_profile(mac_age=3)


@pytest.mark.fresh
@pytest.mark.parametrize(
    "pass_time",
    [lambda lab: lab.scheduler.wait(lambda: False, 5), lambda lab: lab.scheduler.sleep(5)],
    ids=["wait", "sleep"],
)
def test_waiting_again_after_the_agent_was_killed_is_the_same_error(lab, pass_time):
    os.kill(lab.switch("leaf").agent.pid, signal.SIGKILL)

    for _ in range(2):
        with pytest.raises(TestbedError, match="status -9"):
            pass_time(lab)


@pytest.mark.fresh
def test_an_agent_that_fails_says_why(lab):
    assert lab.host("a").ping(B, within=1)
    lab.switch("leaf").ip.link("del", ifname="br0")

    lab.switch("leaf").clear_arp()  # its SVIs are gone with the bridge, and their entries
    assert lab.switch("leaf").arp_table() == {}
    with pytest.raises(TestbedError, match=r"(?s)status 1.*Traceback"):
        lab.switch("leaf").agent.ask("leaf", "set", values={"mac_age": 30})


def storm(host: Host, count: int, kind: str) -> None:
    """Frames at once: ARP requests, or one each from many new MACs."""
    macs = (f"02:00:00:ff:{number >> 8:02x}:{number & 255:02x}" for number in range(count))
    send(host, *([request(host, SVI_10)] * count if kind == "arp" else [ethernet(BROADCAST, mac) for mac in macs]))


@contextmanager
def asleep(agent: Agent) -> Iterator[None]:
    os.kill(agent.pid, signal.SIGSTOP)
    yield
    os.kill(agent.pid, signal.SIGCONT)


@pytest.mark.fresh
@pytest.mark.slow
def test_a_storm_waits_for_the_agent(lab, log):
    a = lab.host("a")
    wire = a["eth1"].capture("arp")

    with asleep(lab.switch("leaf").agent):
        storm(a, 3000, "arp")
        storm(a, 3000, "macs")

    assert len(lab.switch("leaf").fdb_table()) == 3000 + 1
    assert len(arps(wire, REPLY, svi_mac(lab))) == 3000


@pytest.fixture
def small_buffers(monkeypatch):
    monkeypatch.setattr(dataplane, "_BUFFER", 1 << 16)


@pytest.mark.fresh
@pytest.mark.usefixtures("small_buffers")
def test_an_agent_that_was_too_late_reports_it_and_has_the_tables_that_there_are(lab, log):
    leaf, a = lab.switch("leaf"), lab.host("a")
    with leaf.entered():
        permanent = bridge_fdb()
    send(a, ethernet(BROADCAST, GONE))
    assert GONE in leaf.fdb_table()

    with asleep(leaf.agent):
        storm(a, 1000, "arp")
        storm(a, 1000, "macs")
        with leaf.entered():
            subprocess.run(["bridge", "fdb", "del", GONE, "dev", "e1", "master", "vlan", "10"], check=True)
            learned = bridge_fdb() - permanent
        # Nothing tells of these either: the buffer is full.
        for words in (
            "link set vlan20 address 02:00:00:00:00:78",
            "address del 10.0.20.1/24 dev vlan20",
            "address add 10.0.20.254/24 dev vlan20",
            "neigh replace 10.0.10.77 lladdr 02:00:00:00:00:79 dev vlan10 nud permanent",
        ):
            leaf.run("ip", *words.split())
    assert len(learned) > 1000
    assert set(leaf.fdb_table()) == learned

    lab.scheduler.catch_up()
    arp, macs = (log.find("lost", what=what) for what in ("ARP packets", "messages about its tables"))
    assert 0 < sum(event["data"]["records"] for event in arp) < 1000
    assert sum(event["data"]["records"] for event in macs) > 500
    assert len(log.losses()) == len(arp) + len(macs)
    log.events.clear()  # else they fail the test

    assert leaf.neighbour("10.0.10.77") == "02:00:00:00:00:79"
    b = lab.host("b")
    assert b.ping("10.0.20.254", within=1)
    assert not b.ping(SVI_20, within=1)
    assert "02:00:00:00:00:78" in b.run("ip", "neigh", "show", "10.0.20.254").stdout
    lab.scheduler.catch_up()
    assert log.losses() == []


def bridge_fdb() -> set[str]:
    """The MACs of a bridge's ports in this namespace."""
    with Rtnetlink() as kernel:
        entries = [fdb_entry(body) for body in kernel.fdb()]
    return {entry.mac for entry in entries if entry is not None and entry.vlan}
