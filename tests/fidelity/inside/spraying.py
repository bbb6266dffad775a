"""Runs inside a machine: load balancing between two leaves with three spines, at rates that nothing else here uses.

Hosts have rates that differ, so their packets meet in all phases, and means do not depend on when they begin.
"""

import contextlib
import random
import time

import pytest
import yaml

from testbed.faults import LinkRate
from testbed.faults.fault import injected
from testbed.workload import Attributes, Streams, connect_pair, open_endpoint

SPINES = 3
UPLINK, RECEIVER = 13_700_000, 9_700_000
HOSTS = (6_100_000, 6_700_000, 7_300_000, 7_900_000, 8_300_000)
"""Rates of the first leaf's hosts."""
WHOLE = (8_200_000,) * 5
"""With these the uplinks are just enough."""
SLOW = 5_100_000
"""What one uplink has left."""
MESSAGE, AHEAD = 23, 9
"""Packets of a message, and messages under way."""
START_S, LOOK_S = 0.7, 0.0073
BULK, SHARE, BURST = 301, 101, 31
"""Packets of a flow: alone, in an all-to-all, in a flowlet."""
DRAWS, ROUNDS, GAP_S = 3, 40, 0.03
DSCP = 26
HOW = ("turn", "random", "shortest")
"""Names of tests are not to have the file's in them: pytest's -k selects by both."""


def topology(hosts=HOSTS):
    nodes, links = {}, []
    for side in 1, 2:
        other = 3 - side
        vlans = {100 * side + n: f"10.255.{side}.{2 * n}/31" for n in range(SPINES)}
        nodes[f"leaf{side}"] = {
            "kind": "switch",
            "vlans": {10: f"10.1.{side}.1/24", **vlans},
            "routes": [{"to": f"10.1.{other}.0/24", "via": [f"10.255.{side}.{2 * n + 1}" for n in range(SPINES)]}],
        }
        for n, rate in enumerate(hosts):
            nodes[f"h{side}{n}"] = {"kind": "host"}
            ends = [f"leaf{side}:h{n}", f"h{side}{n}:eth1"]
            links.append({"endpoints": ends, "vlan": 10, "rate": kbit(rate if side == 1 else RECEIVER)})
        links += [
            {"endpoints": [f"leaf{side}:u{n}", f"spine{n}:e{side}"], "vlan": 100 * side + n, "rate": kbit(UPLINK)}
            for n in range(SPINES)
        ]
    for n in range(SPINES):
        nodes[f"spine{n}"] = {
            "kind": "switch",
            "vlans": {100 * side + n: f"10.255.{side}.{2 * n + 1}/31" for side in (1, 2)},
            "routes": [{"to": f"10.1.{side}.0/24", "via": f"10.255.{side}.{2 * n}"} for side in (1, 2)],
        }
    kinds = {
        "host": {"nic": "hardware", "congestion_control": "none", "reorder": {"packets": 200, "timeout": "5s"}},
        "switch": {"profile_values": {"buffer": 6_000_000, "pfc_headroom": 10_000}},
    }
    lossless = {"dscp": DSCP, "priority": 3}
    return {"name": "spraying", "topology": {"lossless": lossless, "kinds": kinds, "nodes": nodes, "links": links}}


def kbit(rate):
    return f"{rate // 1000}kbit"


def attributes(**values):
    return Attributes(timeout=21, traffic_class=DSCP << 2, **values)


class Fabric:
    def __init__(self, lab):
        self.lab = lab
        self.near, self.far = ([lab.host(f"h{side}{n}")["eth1"] for n in range(len(HOSTS))] for side in (1, 2))
        self.uplinks = [lab.interface(f"leaf1:u{n}").lossless for n in range(SPINES)]
        self.downlinks = [lab.interface(f"leaf2:h{n}").lossless for n in range(len(HOSTS))]

    def balance(self, how, **values):
        for leaf in "leaf1", "leaf2":
            self.lab.switch(leaf).change_profile(load_balancing=how, **values)

    def held(self):
        """Packets that NICs hold now."""
        return sum(nic.lossless.counters()["rx_reorder_held"] for nic in self.far)

    def trouble(self):
        """Packets that were sent again, given up, not sorted, or too many to hold."""
        names = ("rx_reorder_timeouts", "rx_reorder_overflows", "rx_unsorted_packets")
        counters = [nic.lossless.counters() for nic in self.far]
        again = sum(nic.rdma_counters()["packet_seq_err"] for nic in self.near)
        return again + sum(found[name] for found in counters for name in names)


@pytest.mark.topology(yaml.safe_dump(topology()))
@pytest.mark.parametrize("slow", [False, True], ids=["even", "slow"])
@pytest.mark.parametrize(("how", "measured"), [("spray", 4), ("random", 9), ("adaptive", 4)], ids=HOW)
def test_steady(lab, figures, how, measured, slow):
    """Each host of one leaf writes to one of the other."""
    fabric = Fabric(lab)
    fabric.balance(how)
    packets, held = [[] for _ in fabric.uplinks], []

    def look():
        for port, seen in zip(fabric.uplinks, packets, strict=True):
            seen.append(port.queue(3).packets)
        held.append(fabric.held())

    def counted():
        return [[port.queue(3).sent_packets for port in ports] for ports in (fabric.uplinks, fabric.downlinks)]

    flows = list(zip(fabric.near, fabric.far, strict=True))
    with Streams(flows, attributes(), size=MESSAGE * 1024, ahead=AHEAD) as streams:
        streams.run(START_S)
        with injected(lab, LinkRate(end="leaf1:u1", rate=SLOW)) if slow else contextlib.nullcontext():
            streams.run(2 * START_S)
            before, began = counted(), time.monotonic()
            stop = lab.scheduler.every(LOOK_S, look)
            streams.run(measured)
            stop()
            passed = time.monotonic() - began
            after = counted()
        for stream in streams:
            stream.finish(within=10)
    ups, downs = ([(b - a) / passed for a, b in zip(*pair, strict=True)] for pair in zip(before, after, strict=True))
    figures |= {
        "uplinks": ups,
        "receivers": downs,
        "queues": [sum(seen) / len(seen) for seen in packets],
        "held": sum(held) / len(held),
        "most_held": [nic.lossless.counters()["rx_reorder_most_held"] for nic in fabric.far],
        "trouble": fabric.trouble(),
    }


def connected(near, far, **values):
    here, there = (open_endpoint(nic, memory=1 << 19) for nic in (near, far))
    connect_pair(here, there, attributes(**values))
    assert all(here.write(20_000, within=10).ok for _ in range(2))
    return here


def seconds(ends, packets):
    """All write so many packets at once: from the first post until the last has completed."""
    posted = [(end, end.post_write(packets * 1024)) for end in ends]
    done = [end.wait(request, within=300) for end, request in posted]
    assert all(one.ok for one in done)
    return (max(one.t_ns for one in done) - min(one.posted_ns for one in done)) / 1e9


@pytest.mark.topology(yaml.safe_dump(topology()))
def test_bulk(lab, figures):
    """ECMP with flow labels that are drawn, an all-to-all at random, and bursts with gaps."""
    fabric, dice = Fabric(lab), random.Random()  # noqa: S311
    pairs = list(zip(fabric.near, fabric.far, strict=True))
    fabric.balance("ecmp")
    figures |= {"ecmp": [drawn(lab, pairs, dice) for _ in range(DRAWS)]}
    fabric.balance("random")
    with contextlib.ExitStack() as stack:
        ends = [stack.enter_context(connected(near, far)) for near in fabric.near for far in fabric.far]
        figures["all_to_all"] = [seconds(ends, SHARE) for _ in range(2)]
    fabric.balance("flowlet", flowlet_gap=GAP_S / 3)
    ends, figures["flowlet"] = [connected(*pair) for pair in pairs], []
    for _ in range(ROUNDS):
        lab.scheduler.sleep(GAP_S)
        figures["flowlet"].append(seconds(ends, BURST))
    figures["trouble"] = fabric.trouble()


def drawn(lab, pairs, dice):
    """The uplinks of flows, and the time of all."""
    labels = [dice.randrange(1, 1 << 20) for _ in pairs]
    asked = [
        (near.address().ip, far.address().ip, attributes(flow_label=label).source_port)
        for (near, far), label in zip(pairs, labels, strict=True)
    ]
    picks = [int(port.removeprefix("u")) for port in lab.switch("leaf1").egress_ports(asked)]
    with contextlib.ExitStack() as stack:
        ends = [
            stack.enter_context(connected(*pair, flow_label=label)) for pair, label in zip(pairs, labels, strict=True)
        ]
        return {"picks": picks, "seconds": seconds(ends, BULK)}


@pytest.mark.topology(yaml.safe_dump(topology(WHOLE)))
def test_bisection(lab, figures):
    """Five flows that need all uplinks: by ECMP, then by the shortest queue."""
    fabric, dice = Fabric(lab), random.Random()  # noqa: S311
    pairs = list(zip(fabric.near, fabric.far, strict=True))
    figures["ecmp"] = [drawn(lab, pairs, dice) for _ in range(2 * DRAWS)]
    fabric.balance("adaptive")
    figures["adaptive"] = drawn(lab, pairs, dice)
    figures["trouble"] = fabric.trouble()
