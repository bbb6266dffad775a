"""Runs inside a machine: the mean queue of a port that N queue pairs with DCQCN share."""

import pytest
import yaml

from testbed.workload import Attributes, Streams, fairness

SENDERS = 4
LINK = 50_000_000
KMIN, KMAX, PERCENT = 2200, 30000, 10
START_S, MEASURED_S, LOOK_S = 1.5, 3.5, 0.004
NAMES = [*(f"sender{n}" for n in range(SENDERS)), "receiver"]
PROFILE = {"buffer": 600000, "pfc_headroom": 40000, "ecn_min": KMIN, "ecn_max": KMAX, "ecn_probability": PERCENT}
VALUES = {"scale": 100, "additive_bps": 10e6, "hyper_bps": 100e6, "least_bps": 5e6, "increase_bytes": 1250000}
TOPOLOGY = {
    "name": "dcqcn-queue",
    "topology": {
        "lossless": {"dscp": 26, "priority": 3},
        "kinds": {"host": {"nic": "hardware", "congestion_values": VALUES}},
        "nodes": {
            "leaf": {"kind": "switch", "profile_values": PROFILE, "vlans": {10: "10.0.10.1/24"}},
            **{name: {"kind": "host"} for name in NAMES},
        },
        "links": [
            {"endpoints": [f"leaf:e{n}", f"{name}:eth1"], "vlan": 10, "rate": f"{LINK // 1_000_000}mbit"}
            for n, name in enumerate(NAMES)
        ],
    },
}


@pytest.mark.topology(yaml.safe_dump(TOPOLOGY))
@pytest.mark.parametrize("pairs", [2, 4, 8])
def test_queue(lab, figures, pairs):
    senders, receiver = [lab.host(name)["eth1"] for name in NAMES[:-1]], lab.host("receiver")["eth1"]
    out, queued = lab.interface(f"leaf:e{SENDERS}").lossless, []
    flows = [(senders[number % SENDERS], receiver) for number in range(pairs)]
    with Streams(flows, Attributes(timeout=18, traffic_class=26 << 2 | 2)) as streams:
        streams.run(START_S)
        stop = lab.scheduler.every(LOOK_S, lambda: queued.append(out.queue(3).bytes))
        rates = streams.run(MEASURED_S)
        stop()
    figures |= {
        "pairs": pairs,
        "mean_queue": sum(queued) / len(queued),
        "samples": len(queued),
        "sum": sum(rates),
        "jain": fairness(rates),
        "link": LINK,
        "marking": [KMIN, KMAX, PERCENT / 100],
        "values": VALUES,
        "window": 65,
        "drops": out.queue(3).dropped_packets,
    }
