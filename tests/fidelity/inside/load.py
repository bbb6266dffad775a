"""Runs inside a machine: flows of many sizes between six hosts, in a lossless class and in a lossy one.

The shape is that of IRN's evaluation (SIGCOMM 2018, section 4.1): half of the flows are one packet, a sixth are large;
they come at random times and load the links to 70 %. The switch's buffer is small enough that
a lossy class drops. Both runs have the same flows.
"""

import random
import time

import pytest
import yaml

from testbed.workload import Attributes, connect_pair, open_endpoint

HOSTS, RATE, LOAD = 6, 40_000_000, 0.7
FLOWS = 100
SIZES = ((0.5, (1024, 1024)), (0.35, (16 << 10, 64 << 10)), (0.15, (200 << 10, 600 << 10)))
BUFFER = 250_000
LARGEST = 600 << 10
TIMEOUT = 17
"""0.54 s: the 320 us of 40 Gbit/s, a thousand times as long, rounded up."""
FRAME, PAYLOAD = 1024 + 62, 1024
DRAW = random.SystemRandom().getrandbits(32)
"""Follows from the seed of the machine, as all of its kernel's random numbers."""


def topology():
    profile = {"buffer": BUFFER, "pfc_headroom": 10_000}
    nodes = {f"h{n}": {"kind": "host"} for n in range(HOSTS)}
    links = [
        {"endpoints": [f"leaf:e{n}", f"h{n}:eth1"], "vlan": 10, "rate": f"{RATE // 1_000_000}mbit"}
        for n in range(HOSTS)
    ]
    nodes["leaf"] = {"kind": "switch", "vlans": {10: "10.0.10.1/24"}, "profile_values": profile}
    kinds = {"host": {"nic": "hardware", "congestion_control": "none"}}
    lossless = {"dscp": 26, "priority": 3}
    return {"name": "load", "topology": {"lossless": lossless, "kinds": kinds, "nodes": nodes, "links": links}}


def drawn():
    """Flows in the order of their starts: seconds, source, target, bytes."""
    dice, at, flows = random.Random(DRAW), 0.0, []  # noqa: S311
    mean = sum(share * sum(bounds) / 2 for share, bounds in SIZES)
    gap = mean * FRAME / PAYLOAD * 8 / (RATE * LOAD * HOSTS)
    for _ in range(FLOWS):
        at += dice.expovariate(1 / gap)
        near, far = dice.sample(range(HOSTS), 2)
        (bounds,) = dice.choices([bounds for _, bounds in SIZES], [share for share, _ in SIZES])
        flows.append((at, near, far, dice.randint(*bounds)))
    return flows


@pytest.mark.topology(yaml.safe_dump(topology()))
@pytest.mark.parametrize("dscp", [pytest.param(26, id="lossless"), pytest.param(0, id="lossy")])
def test_load(lab, figures, dscp):
    nics = [lab.host(f"h{n}")["eth1"] for n in range(HOSTS)]
    attributes = Attributes(timeout=TIMEOUT, retry_cnt=6, traffic_class=dscp << 2)
    flows, ends = drawn(), []
    for _, near, far, _ in flows:
        here, there = open_endpoint(nics[near], memory=LARGEST), open_endpoint(nics[far], memory=LARGEST)
        connect_pair(here, there, attributes)
        ends.append(here)
    began, posted, open_ones = time.monotonic(), [], []

    def look():
        """What has completed gets its time."""
        open_ones[:] = [(end, request) for end, request in open_ones if not end.done(request)]
        return not open_ones

    for (at, _, _, size), end in zip(flows, ends, strict=True):
        while (left := began + at - time.monotonic()) > 0:
            lab.scheduler.sleep(min(left, 0.005))
            look()
        posted.append((end, end.post_write(size)))
        open_ones.append(posted[-1])
    lab.scheduler.wait(look, 120, pause=0.005)
    taken = []
    for end, request in posted:
        completion = end.wait(request, within=1)
        assert completion.ok
        taken.append(completion.elapsed_s)
    ports = [lab.interface(f"leaf:e{n}").lossless for n in range(HOSTS)]
    figures |= {
        "completion_s": sum(taken) / FLOWS,
        "drops": sum(port.queue(priority).dropped_packets for port in ports for priority in range(8)),
        "pauses": sum(nic.lossless.counters()["rx_prio3_pause"] for nic in nics),
    }
