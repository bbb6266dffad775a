"""Runs inside a machine: when SONiC's PFC watchdog finds a storm, and when its end, for starts between two polls."""

import time

import pytest

from testbed.faults import PauseStorm
from testbed.faults.fault import injected
from testbed.workload import Attributes, connect_pair, open_endpoint

PHASES = 8
LOOK_S = 0.002
TOPOLOGY = """
name: watchdog
topology:
  lossless: {dscp: 26, priority: 3}
  kinds: {host: {nic: hardware, congestion_control: none}}
  nodes:
    leaf: {kind: switch, profile: sonic, vlans: {10: 10.0.10.1/24}}
    a: {kind: host}
    b: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10, rate: 1gbit}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10, rate: 1gbit}
"""


@pytest.mark.topology(TOPOLOGY)
def test_watchdog(lab, figures):
    leaf, out = lab.switch("leaf"), lab.interface("leaf:e2").lossless
    leaf.change_profile(pfc_watchdog=0.2)
    profile = leaf.profile()
    figures |= {name: profile[f"pfc_watchdog{name}"] for name in ("", "_poll", "_restoration")}
    figures |= {"found": [], "restored": []}

    def counted(name):
        return out.counters()[f"PFC_WD_QUEUE_STATS_DEADLOCK_{name}:3"]

    def seconds_until(name, number):
        began = time.monotonic()
        lab.scheduler.wait(lambda: counted(name) >= number, 5, pause=LOOK_S)
        return time.monotonic() - began

    start = time.monotonic()
    for phase in range(PHASES):
        here, there = (open_endpoint(lab.host(name)["eth1"]) for name in "ab")
        connect_pair(here, there, Attributes(timeout=16, retry_cnt=6, traffic_class=26 << 2))
        into = (start - time.monotonic() + phase * profile["pfc_watchdog_poll"] / PHASES) % profile["pfc_watchdog_poll"]
        lab.scheduler.sleep(into)
        with injected(lab, PauseStorm(end="b:eth1", priority=3)):
            here.post_write(40_000)
            figures["found"].append(seconds_until("DETECTED", phase + 1))
            lab.scheduler.sleep(0.1 + phase * profile["pfc_watchdog_poll"] / PHASES)
        figures["restored"].append(seconds_until("RESTORED", phase + 1))
        lab.scheduler.sleep(1)
        here.close(), there.close()
