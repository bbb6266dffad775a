"""Runs inside a machine: the time of a collective's step over ECMP, with one queue pair to each peer and with four."""

import random

import pytest
import yaml

from testbed.workload import Attributes, connect_pair, open_endpoint

PAIRS = UPLINKS = 4
RATE = 20_000_000
BYTES = 128 << 10
"""That a host sends to its peer in a step."""
DRAWS = 12
QUEUE_PAIRS = (1, 4)
LABELS = range(1, 1 << 20)


def topology():
    """Hosts on two switches, and as many links between these, each as fast as a host's."""
    nodes, links = {}, []
    for side in 1, 2:
        other = 3 - side
        vias = [f"10.255.0.{2 * n + other - 1}" for n in range(UPLINKS)]
        svis = {100 + n: f"10.255.0.{2 * n + side - 1}/31" for n in range(UPLINKS)}
        nodes[f"leaf{side}"] = {
            "kind": "switch",
            "vlans": {10: f"10.1.{side}.1/24", **svis},
            "routes": [{"to": f"10.1.{other}.0/24", "via": vias}],
        }
        for n in range(PAIRS):
            nodes[f"h{side}{n}"] = {"kind": "host"}
            links.append(
                {"endpoints": [f"leaf{side}:e{n}", f"h{side}{n}:eth1"], "vlan": 10, "rate": f"{RATE // 1_000_000}mbit"}
            )
    links += [
        {"endpoints": [f"leaf1:u{n}", f"leaf2:u{n}"], "vlan": 100 + n, "rate": f"{RATE // 1_000_000}mbit"}
        for n in range(UPLINKS)
    ]
    lossless = {"dscp": 26, "priority": 3}
    kinds = {
        "host": {"nic": "hardware", "congestion_control": "none"},
        "switch": {"profile_values": {"buffer": 4_000_000}},
    }
    return {"name": "queue-pairs", "topology": {"lossless": lossless, "kinds": kinds, "nodes": nodes, "links": links}}


@pytest.mark.topology(yaml.safe_dump(topology()))
def test_queue_pairs(lab, figures):
    """Real RoCE: the flow labels of queue pairs are drawn, the kernel hashes the source ports that they choose."""
    labels = random.Random(1)  # noqa: S311
    nics = [(lab.host(f"h1{n}")["eth1"], lab.host(f"h2{n}")["eth1"]) for n in range(PAIRS)]
    for count in QUEUE_PAIRS:
        figures[str(count)] = [step(lab, nics, count, labels) for _ in range(DRAWS)]
    figures |= {"bytes": BYTES, "rate": RATE, "pairs": PAIRS, "uplinks": UPLINKS}


def step(lab, nics, count, labels):
    """The seconds until all have sent all, and packets by uplink."""
    ends = []
    for near, far in nics:
        for _ in range(count):
            ends.append((open_endpoint(near, memory=BYTES), open_endpoint(far, memory=BYTES)))
            attributes = Attributes(timeout=19, flow_label=labels.choice(LABELS), traffic_class=26 << 2)
            connect_pair(*ends[-1], attributes)
    ports = [lab.interface(f"leaf1:u{n}").lossless for n in range(UPLINKS)]
    before = [port.queue(3).sent_packets for port in ports]
    posted = [(near, near.post_write(BYTES // count)) for near, _ in ends]
    done = [near.wait(request, within=30) for near, request in posted]
    assert all(one.ok for one in done)
    passed = [port.queue(3).sent_packets - earlier for port, earlier in zip(ports, before, strict=True)]
    for pair in ends:
        for end in pair:
            end.close()
    return {"seconds": (max(one.t_ns for one in done) - done[0].posted_ns) / 1e9, "packets": passed}
