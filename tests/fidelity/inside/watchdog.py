"""Runs inside a machine: when SONiC's PFC watchdog finds a storm, and when its end, for starts between two polls."""

import time

import pytest

from testbed.faults import PauseStorm
from testbed.faults.fault import injected
from testbed.workload import Attributes, connect_pair, open_endpoint

PHASES = 8
LOOK_S = 0.001
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
FRAMES = "SAI_PORT_STAT_PFC_3_RX_PKTS"
FOUND, RESTORED = (f"PFC_WD_QUEUE_STATS_DEADLOCK_{name}:3" for name in ("DETECTED", "RESTORED"))


class Rises:
    """The first and the last rise of counters since they were read for the first time, each between two moments."""

    def __init__(self, port):
        self.port = port
        self.at, self.counters = self.read()
        self.first, self.last = {}, {}

    def read(self):
        before = time.monotonic()
        counters = self.port.counters()
        return before, {name: counters[name] for name in (FRAMES, FOUND, RESTORED)}

    def look(self):
        at, counters = self.read()
        for name in counters:
            if counters[name] != self.counters[name]:
                self.last[name] = self.at, time.monotonic()
                self.first.setdefault(name, self.last[name])
        self.at, self.counters = at, counters


def between(earlier, later):
    """The least and the most seconds between two rises."""
    return later[0] - earlier[1], later[1] - earlier[0]


@pytest.mark.topology(TOPOLOGY)
def test_watchdog(lab, figures):
    leaf, out = lab.switch("leaf"), lab.interface("leaf:e2").lossless
    leaf.change_profile(pfc_watchdog=0.2)
    profile = leaf.profile()
    poll = profile["pfc_watchdog_poll"]
    figures |= {name: profile[f"pfc_watchdog{name}"] for name in ("", "_poll", "_restoration")}
    figures |= {"found": [], "restored": []}

    start = time.monotonic()
    for phase in range(PHASES):
        here, there = (open_endpoint(lab.host(name)["eth1"]) for name in "ab")
        connect_pair(here, there, Attributes(timeout=16, retry_cnt=6, traffic_class=26 << 2))
        lab.scheduler.sleep((start - time.monotonic() + phase * poll / PHASES) % poll)
        rises = Rises(out)
        stop = lab.scheduler.every(LOOK_S, rises.look)
        with injected(lab, PauseStorm(end="b:eth1", priority=3)):
            here.post_write(40_000)
            lab.scheduler.wait(lambda rises=rises: FOUND in rises.first, 5, pause=LOOK_S)
            lab.scheduler.sleep(0.1 + phase * poll / PHASES)
        lab.scheduler.wait(lambda rises=rises: RESTORED in rises.first, 5, pause=LOOK_S)
        stop()
        figures["found"].append(between(rises.first[FRAMES], rises.first[FOUND]))
        figures["restored"].append(between(rises.last[FRAMES], rises.first[RESTORED]))
        lab.scheduler.sleep(1)
        here.close(), there.close()
