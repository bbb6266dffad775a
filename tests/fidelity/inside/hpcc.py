"""Runs inside a machine: HPCC in incasts, a flow that comes later, and two bottlenecks, at rates of no other test; and
the incast of the paper's figure 14, in slow motion."""

import time

import pytest
import yaml

from testbed.workload import Attributes, Streams

LINE, LAST = 37_000_000, 29_000_000
"""Bits per second of the senders' links and of the receiver's."""
VALUES = {"scale": 500, "base_rtt_us": 31, "additive_bps": 284e6}
PARKING_LINE, PARKING = 17_000_000, (14_100_000, 10_300_000)
PARKING_VALUES = VALUES | {"scale": 1100}
"""Slower, since each hop takes some 30 us of the emulated CPU."""
PAPER, PAPER_SENDERS, PAPER_SCALE = 25_000_000, 16, 4000
"""100 Gbit/s, four thousand times slower."""
DELAY_S, PAPER_RTT_US = 0.004, 4.2
"""1 us a link; four of them, and two packets' time."""
MESSAGE, AHEAD = 33, 9
START_S, MEASURED_S, LOOK_S = 1.2, 4.0, 0.0037
DSCP = 26


def incast(senders, line, last, values, delay=0.0):
    hosts = [*(f"s{n}" for n in range(senders)), "r"]
    nodes = {"leaf": {"kind": "switch", "vlans": {10: "10.0.10.1/24"}}, **{name: {"kind": "host"} for name in hosts}}
    links = [link([f"leaf:{name}", f"{name}:eth1"], last if name == "r" else line, delay) for name in hosts]
    return document("hpcc", nodes, links, values)


def parking_lot():
    """Three switches in a row: `long` sends over both links between them, `first` and `second` over one."""
    at = {"long": 0, "first": 0, "second": 1, "first-to": 1, "long-to": 2, "second-to": 2}
    nodes = {f"sw{n}": {"kind": "switch", "vlans": {10: "10.0.10.1/24" if n == 0 else None}} for n in range(3)}
    nodes |= {name: {"kind": "host"} for name in at}
    links = [link([f"sw{n}:{name}", f"{name}:eth1"], PARKING_LINE) for name, n in at.items()]
    links += [link([f"sw{n}:right", f"sw{n + 1}:left"], rate) for n, rate in enumerate(PARKING)]
    return document("parking-lot", nodes, links, PARKING_VALUES)


def link(ends, rate, delay=0.0):
    found = {"endpoints": ends, "vlan": 10, "rate": f"{rate // 1000}kbit"}
    return found | ({"delay": f"{1000 * delay:g}ms"} if delay else {})


def document(name, nodes, links, values):
    kinds = {
        "host": {"nic": "hardware", "congestion_control": "hpcc", "congestion_values": values},
        "switch": {"profile_values": {"buffer": 2_000_000, "pfc_headroom": 10_000}},
    }
    lossless = {"dscp": DSCP, "priority": 3}
    return yaml.safe_dump(
        {"name": name, "topology": {"lossless": lossless, "kinds": kinds, "nodes": nodes, "links": links}}
    )


def busy(pairs):
    return Streams(pairs, Attributes(timeout=20, traffic_class=DSCP << 2 | 2), size=MESSAGE * 1024, ahead=AHEAD)


def measure(lab, streams, nics, ports, seconds=MEASURED_S):
    """Packets per second of each sender, and the queues of ports in packets, by time."""
    queues = [[] for _ in ports]

    def look():
        for port, seen in zip(ports, queues, strict=True):
            seen.append(port.queue(3).packets)

    def counted():
        return [nic.lossless.queue(3).sent_packets for nic in nics]

    streams.run(START_S)
    before, began = counted(), time.monotonic()
    stop = lab.scheduler.every(LOOK_S, look)
    streams.run(seconds)
    stop()
    passed = time.monotonic() - began
    rates = [(after - then) / passed for after, then in zip(counted(), before, strict=True)]
    dropped = sum(port.queue(3).dropped_packets for port in ports)
    paused = sum(nic.lossless.pauses() for nic in nics)
    return {"rates": rates, "queues": queues, "trouble": dropped + paused}


@pytest.mark.topology(incast(11, LINE, LAST, VALUES))
@pytest.mark.parametrize("senders", [3, 7, 11])
def test_incast(lab, figures, senders):
    nics, receiver = [lab.host(f"s{n}")["eth1"] for n in range(senders)], lab.host("r")["eth1"]
    with busy([(nic, receiver) for nic in nics]) as streams:
        figures |= measure(lab, streams, nics, [lab.interface("leaf:r").lossless])


@pytest.mark.topology(incast(11, LINE, LAST, VALUES))
def test_newcomer(lab, figures):
    """Two have had their shares for a while when a third one comes: packets sent by time."""
    nics, receiver = [lab.host(f"s{n}")["eth1"] for n in range(3)], lab.host("r")["eth1"]
    sent = []

    def look():
        sent.append([time.monotonic() - began, *(nic.lossless.queue(3).sent_packets for nic in nics)])

    with busy([(nic, receiver) for nic in nics[:2]]) as streams, busy([(nics[2], receiver)]) as newcomer:
        streams.run(START_S)
        began = time.monotonic()
        stop = lab.scheduler.every(0.02, look)
        streams.run(0.8, lambda: [stream.feed() for stream in newcomer])
        stop()
    figures["sent"] = sent


@pytest.mark.topology(parking_lot())
def test_parking_lot(lab, figures):
    names = ("long", "first", "second")
    nics = [lab.host(name)["eth1"] for name in names]
    with busy([(nic, lab.host(f"{name}-to")["eth1"]) for name, nic in zip(names, nics, strict=True)]) as streams:
        figures |= measure(lab, streams, nics, [lab.interface(f"sw{n}:right").lossless for n in range(2)], 8.0)


@pytest.mark.topology(incast(PAPER_SENDERS, PAPER, PAPER, {"scale": PAPER_SCALE, "base_rtt_us": PAPER_RTT_US}, DELAY_S))
@pytest.mark.parametrize("additive", [150, 300])
def test_figure_14(lab, figures, additive):
    """Sixteen start at once. `additive` is W_AI in bytes."""
    nics, receiver = [lab.host(f"s{n}")["eth1"] for n in range(PAPER_SENDERS)], lab.host("r")["eth1"]
    for nic in *nics, receiver:
        bps = additive * 8 / (PAPER_RTT_US * 1e-6)
        nic.control_congestion("hpcc", scale=PAPER_SCALE, base_rtt_us=PAPER_RTT_US, additive_bps=bps)
    with busy([(nic, receiver) for nic in nics]) as streams:
        figures |= measure(lab, streams, nics, [lab.interface("leaf:r").lossless], 6.0)
