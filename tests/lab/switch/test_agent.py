"""The agent that runs the switches' control planes: commands it refuses, and its end."""

from __future__ import annotations

import os
import signal

import pytest
from switch_lab import LEAF, SVI_10, B, know_the_gateways, request, send

from testbed.errors import InputError, TestbedError

pytestmark = pytest.mark.topology(LEAF)


def test_a_wrong_value_changes_nothing(lab):
    for wrong in {"mac_agee": 3}, {"mac_age": -1}, {"unknown_unicast": "eat"}:
        with pytest.raises(InputError):
            lab.agent.set("leaf", **wrong)
    with pytest.raises(InputError, match="leaf"):
        lab.agent.tables("spine")
    assert lab.host("a").ping(B, within=1)


def test_a_killed_agent_is_an_error_at_every_later_use(lab):
    os.kill(lab.agent.pid, signal.SIGKILL)

    with pytest.raises(TestbedError, match="status -9"):
        lab.sleep(1)
    with pytest.raises(TestbedError, match="status -9"):
        lab.switch("leaf").arp_table()
    with pytest.raises(TestbedError, match="status -9"):
        lab.agent.set("leaf", mac_age=3)


@pytest.mark.parametrize(
    "pass_time", [lambda lab: lab.wait(lambda: False, 5), lambda lab: lab.sleep(5)], ids=["wait", "sleep"]
)
def test_waiting_again_after_the_agent_was_killed_is_the_same_error(lab, pass_time):
    os.kill(lab.agent.pid, signal.SIGKILL)

    for _ in range(2):
        with pytest.raises(TestbedError, match="status -9"):
            pass_time(lab)


def test_an_agent_that_fails_says_why(lab):
    know_the_gateways(lab)
    lab.switch("leaf").ip.link("del", ifname="e2")
    lab.switch("leaf").ip.link("del", ifname="br0")
    send(lab.host("a"), request(lab.host("a"), SVI_10))

    with pytest.raises(TestbedError, match=r"(?s)status 1.*Traceback"):
        lab.agent.set("leaf", mac_age=30)
