"""Runs inside a machine: the victim flow of the DCQCN paper (SIGCOMM 2015, figure 4), with its pause frames.

Four senders and the victim's are on T1, whose two uplinks carry two senders each, as in the paper's median case, and
the victim one of them. Up to two more senders are on T3. All write to R on T4, the victim to a host of its own. Two
tiers stand for the paper's three: L3 and L4 are its leaves, and the uplinks of T1 lead there.
"""

import time

import pytest
import yaml

from testbed.workload import Attributes, connect_pair, open_endpoint
from testbed.workload.write_streams import Stream

RATE = 20_000_000
START_S = 0.8
MESSAGE = 32768
LABELS = range(1, 33)
RECEIVERS = {"victim": "l3:hother", "others": "t4:hr"}
PATHS = {"s1": "l3", "s2": "l3", "s3": "l4", "s4": "l4", "a": "l3", "b": "l4"}
"""Which leaf a sender's packets go by."""
DCQCN = {"scale": 250, "additive_bps": 10e6, "hyper_bps": 100e6, "least_bps": 5e6, "increase_bytes": 1250000}
RUNS = (("none", 0, 1.0), ("none", 2, 3.0), ("dcqcn", 2, 1.0))
"""Congestion control, the number of senders on T3, the seconds that are measured."""
PROFILE = {"buffer": 160000, "pfc_headroom": 20000, "ecn_min": 2200, "ecn_max": 30000, "ecn_probability": 10}


def topology():
    between = {("t1", "l3"): 101, ("t1", "l4"): 102, ("t3", "l3"): 103, ("t3", "l4"): 104, ("t4", "l3"): 105}
    between |= {("t4", "l4"): 106}
    hosts = {"t1": ["s1", "s2", "s3", "s4", "victim"], "t3": ["a", "b"], "t4": ["r"], "l3": ["other"], "l4": []}
    subnet = {"t1": 1, "t3": 3, "t4": 4, "l3": 5, "l4": 6}
    nodes = {name: {"kind": "switch", "vlans": {10: f"10.1.{net}.1/24"}, "routes": []} for name, net in subnet.items()}
    links = []
    for (low, high), vlan in between.items():
        base = 2 * (vlan - 100)
        nodes[low]["vlans"][vlan] = f"10.255.0.{base}/31"
        nodes[high]["vlans"][vlan] = f"10.255.0.{base + 1}/31"
        links.append(
            {"endpoints": [f"{low}:{high}", f"{high}:{low}"], "vlan": vlan, "rate": f"{RATE // 1_000_000}mbit"}
        )
        nodes[high]["routes"].append({"to": f"10.1.{subnet[low]}.0/24", "via": f"10.255.0.{base}"})
    for low in "t1", "t3", "t4":
        vias = {high: f"10.255.0.{2 * (vlan - 100) + 1}" for (near, high), vlan in between.items() if near == low}
        others = [net for name, net in subnet.items() if name in ("t1", "t3", "t4") and name != low]
        nodes[low]["routes"] += [{"to": f"10.1.{net}.0/24", "via": list(vias.values())} for net in others]
        nodes[low]["routes"].append({"to": "10.1.5.0/24", "via": vias["l3"]})
    for switch, names in hosts.items():
        for name in names:
            nodes[f"h{name}"] = {"kind": "host"}
            links.append(
                {"endpoints": [f"{switch}:h{name}", f"h{name}:eth1"], "vlan": 10, "rate": f"{RATE // 1_000_000}mbit"}
            )
    kinds = {"host": {"nic": "hardware", "congestion_values": DCQCN}, "switch": {"profile_values": PROFILE}}
    lossless = {"dscp": 26, "priority": 3}
    return {"name": "victim", "topology": {"lossless": lossless, "kinds": kinds, "nodes": nodes, "links": links}}


@pytest.mark.topology(yaml.safe_dump(topology()))
@pytest.mark.parametrize(("control", "more", "seconds"), RUNS, ids=[f"{control}-{more}" for control, more, _ in RUNS])
def test_victim(lab, figures, control, more, seconds):
    """Rates over the link's, and pause frames in a second."""
    nics = {name[1:]: node["eth1"] for name, node in lab.nodes.items() if name.startswith("h")}
    for nic in nics.values():
        nic.control_congestion(control)
    senders = [("s1", "t1"), ("s2", "t1"), ("s3", "t1"), ("s4", "t1"), ("a", "t3"), ("b", "t3")][: 4 + more]
    flows = [stream(nics["victim"], nics["other"], label=1)]
    flows += [stream(nics[name], nics["r"], label_by(lab.switch(switch), nics, name)) for name, switch in senders]
    keep_busy(lab, flows, START_S)
    before = counted(lab)
    passed = keep_busy(lab, flows, seconds)
    figures |= {name: (count - before[name]) / passed for name, count in counted(lab).items()}
    lab.scheduler.sleep(2)  # what is under way ends


def counted(lab):
    """What of the link's rate is payload that the victim's flow and all others got through, in seconds of the link; and
    the pause frames that switches got."""
    payload = {
        name: 8 * 1024 / RATE * lab.interface(end).lossless.queue(3).sent_packets for name, end in RECEIVERS.items()
    }
    ports = {name: lab.switch(name).interfaces.values() for name in ("t1", "t3", "t4", "l3", "l4")}
    pauses = {
        name: sum(port.lossless.counters()["SAI_PORT_STAT_PFC_3_RX_PKTS"] for port in of) for name, of in ports.items()
    }
    return {**payload, "leaf_pauses": pauses["l3"] + pauses["l4"], "switch_pauses": sum(pauses.values())}


def stream(near, far, label):
    """A queue pair that ends with the lab."""
    here, there = open_endpoint(near, memory=MESSAGE), open_endpoint(far, memory=MESSAGE)
    connect_pair(here, there, Attributes(timeout=19, traffic_class=26 << 2 | 2, flow_label=label))
    return Stream(here, MESSAGE)


def label_by(switch, nics, sender):
    """A flow label whose source port the switch hashes to the sender's leaf."""
    ports = [Attributes(flow_label=label).source_port for label in LABELS]
    taken = switch.uplinks(nics[sender].address().ip, nics["r"].address().ip, ports)
    return LABELS[taken.index(PATHS[sender])]


def keep_busy(lab, flows, seconds):
    """Returns the seconds that it took."""
    began = time.monotonic()
    while (left := began + seconds - time.monotonic()) > 0:
        for flow in flows:
            flow.feed()
        lab.scheduler.sleep(min(0.02, left))
    assert all(flow.status == "SUCCESS" for flow in flows)
    return time.monotonic() - began
