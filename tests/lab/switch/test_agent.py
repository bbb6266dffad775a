"""The agent that runs the switches' control planes: commands it refuses, and its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from switch_lab import LEAF, SVI_10, B, arps, ethernet, request, send, svi_mac

from testbed.errors import InputError, TestbedError
from testbed.lab import Host
from testbed.switch import dataplane
from testbed.switch.agent import Agent
from testbed.switch.frames import BROADCAST, REPLY

pytestmark = pytest.mark.topology(LEAF)


def test_a_wrong_value_changes_nothing(lab):
    for wrong in {"mac_agee": 3}, {"mac_age": -1}, {"unknown_unicast": "eat"}:
        with pytest.raises(InputError):
            lab.switch("leaf").change_profile(**wrong)
    with pytest.raises(InputError, match="leaf"):
        lab.switch("leaf").agent.ask("spine", "tables")
    assert lab.host("a").ping(B, within=1)


def test_a_killed_agent_is_an_error_at_every_later_use(lab):
    os.kill(lab.switch("leaf").agent.pid, signal.SIGKILL)

    with pytest.raises(TestbedError, match="status -9"):
        lab.scheduler.sleep(1)
    with pytest.raises(TestbedError, match="status -9"):
        lab.switch("leaf").arp_table()
    with pytest.raises(TestbedError, match="status -9"):
        lab.switch("leaf").change_profile(mac_age=3)


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


@pytest.mark.parametrize(
    "command",
    [
        lambda agent: agent.ask("leaf", "set", values={"mac_age": 30}),
        lambda agent: agent.ask("leaf", "clear", family=4, vlan=None, ip=None),
    ],
    ids=["set", "clear"],
)
def test_an_agent_that_fails_says_why(lab, command):
    assert lab.host("a").ping(B, within=1)
    lab.switch("leaf").ip.link("del", ifname="br0")

    with pytest.raises(TestbedError, match=r"(?s)status 1.*Traceback"):
        command(lab.switch("leaf").agent)


def storm(host: Host, count: int, kind: str) -> None:
    """Frames at once: ARP requests, or one each from many new MACs."""
    macs = (f"02:00:00:ff:{number >> 8:02x}:{number & 255:02x}" for number in range(count))
    send(host, *([request(host, SVI_10)] * count if kind == "arp" else [ethernet(BROADCAST, mac) for mac in macs]))


@contextmanager
def asleep(agent: Agent) -> Iterator[None]:
    os.kill(agent.pid, signal.SIGSTOP)
    yield
    os.kill(agent.pid, signal.SIGCONT)


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


@pytest.mark.parametrize(("kind", "lost"), [("arp", r"lost \d+ ARP packets"), ("macs", "lost news of its tables")])
@pytest.mark.usefixtures("small_buffers")
def test_what_the_agent_lost_is_an_error(lab, kind, lost):
    with asleep(lab.switch("leaf").agent):
        storm(lab.host("a"), 1000, kind)

    with pytest.raises(TestbedError, match=lost):
        lab.switch("leaf").tables()
