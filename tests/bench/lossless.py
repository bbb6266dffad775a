"""Runs inside a machine: what lossless links cost, beside links with netem and tbf. Figures go to figures.json.

On the virtual clock busy time is instructions. On the real clock the links are faster than the machine.
"""

import json
import re
import time
from pathlib import Path

import pytest
import yaml

from testbed import Lab, Topology
from testbed.workload import Attributes, connect_pair, open_endpoint

CLASS = {"dscp": 26, "priority": 3}
ATTRIBUTES = Attributes(timeout=19, traffic_class=26 << 2)
MESSAGE, MESSAGES, ROUNDS = 1 << 20, 24, 3
RATES = {"virtual": "100mbit", "real": "10gbit"}
IDLE_S = 600
SENDERS, PART = 63, 16 << 10


@pytest.fixture(scope="module")
def figures():
    found = {}
    yield found
    Path("/run/testbed/out/figures.json").write_text(json.dumps(found))


def star(hosts, link, lossless=CLASS, values=None, **host):
    """Hosts on one switch; without `lossless` links have no class."""
    nodes = {f"h{n}": {"kind": "host", "nic": "hardware", **host} for n in range(hosts)}
    nodes["s"] = {"kind": "switch", "vlans": {10: "10.0.10.1/24"}, **({"profile_values": values} if values else {})}
    links = [{"endpoints": [f"s:e{n}", f"h{n}:eth1"], "vlan": 10, **link} for n in range(hosts)]
    topology = {"nodes": nodes, "links": links}
    return Topology.parse(
        yaml.safe_dump({"name": "bench", "topology": {**({"lossless": lossless} if lossless else {}), **topology}})
    )


def busy_s():
    """Seconds in which the CPU was not idle, since it started."""
    fields = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return time.monotonic() - (fields[3] + fields[4]) / 100


def wake_ups():
    """Timer interrupts and context switches so far."""
    timer = re.findall(r"^ *LOC: +(\d+)", Path("/proc/interrupts").read_text(), re.MULTILINE)[0]
    switches = re.findall(r"^ctxt (\d+)", Path("/proc/stat").read_text(), re.MULTILINE)[0]
    return int(timer), int(switches)


def clock():
    return "virtual" if "testbed.clock=virtual" in Path("/proc/cmdline").read_text() else "real"


@pytest.mark.parametrize("turn", range(ROUNDS))
@pytest.mark.parametrize("kind", ["lossless", "netem"])
def test_the_same_packets(kind, turn, tmp_path, log, figures):
    if turn and clock() == "virtual":
        pytest.skip("it would be the same")
    link = {"rate": RATES[clock()], "delay": "0.1ms"}
    topology = star(2, link, congestion_control="none") if kind == "lossless" else star(2, link, None)
    with Lab(topology, tmp_path, log.emit) as lab:
        here, there = (open_endpoint(lab.host(name)["eth1"], memory=MESSAGE) for name in ("h0", "h1"))
        connect_pair(here, there, ATTRIBUTES)
        assert here.write(MESSAGE, within=60).ok
        busy, began = busy_s(), time.monotonic()
        for request in [here.post_write(MESSAGE) for _ in range(MESSAGES)]:
            assert here.wait(request, within=60).ok
        found = {"seconds": time.monotonic() - began, "busy_s": busy_s() - busy}
    figures.setdefault(kind, []).append({name: round(value, 4) for name, value in found.items()})


def leaves(balancing):
    """Two leaves with two hosts each, and four paths between them; NICs put packets in order where they are sprayed."""
    host = {"kind": "host", "nic": "hardware", "congestion_control": "none"}
    nodes = {f"h{n}": host | ({"reorder": 128} if balancing != "ecmp" else {}) for n in range(4)}
    links = [{"endpoints": [f"s{n % 2}:h{n}", f"h{n}:eth1"], "vlan": 10, "rate": "200mbit"} for n in range(4)]
    for leaf in 0, 1:
        vlans = {10: f"10.1.{leaf}.1/24"} | {100 + path: f"10.255.{path}.{1 + leaf}/24" for path in range(4)}
        to = {"to": f"10.1.{1 - leaf}.0/24", "via": [f"10.255.{path}.{2 - leaf}" for path in range(4)]}
        nodes[f"s{leaf}"] = {"kind": "switch", "vlans": vlans, "routes": [to], "load_balancing": balancing}
    links += [{"endpoints": [f"s0:p{path}", f"s1:p{path}"], "vlan": 100 + path, "rate": "100mbit"} for path in range(4)]
    return Topology.parse(
        yaml.safe_dump({"name": "bench", "topology": {"lossless": CLASS, "nodes": nodes, "links": links}})
    )


@pytest.mark.parametrize("balancing", ["ecmp", "spray", "adaptive"])
def test_the_same_packets_over_four_paths(balancing, tmp_path, log, figures):
    if clock() == "real":
        pytest.skip("busy time is instructions on the virtual clock")
    with Lab(leaves(balancing), tmp_path, log.emit) as lab:
        ends = []
        for near, far in ("h0", "h1"), ("h2", "h3"):
            here, there = (open_endpoint(lab.host(name)["eth1"], memory=MESSAGE) for name in (near, far))
            connect_pair(here, there, ATTRIBUTES)
            assert here.write(1 << 17, within=60).ok
            ends.append(here)
        busy = busy_s()
        for end, request in [(end, end.post_write(MESSAGE)) for _ in range(4) for end in ends]:
            assert end.wait(request, within=60).ok
        figures[f"paths_{balancing}"] = {"busy_s": round(busy_s() - busy, 4)}


@pytest.mark.parametrize("kind", ["lossless", "plain"])
def test_idle(kind, tmp_path, log, figures):
    """A lab that has carried traffic and rests."""
    if clock() == "real":
        pytest.skip("the seconds are virtual")
    lossless = CLASS if kind == "lossless" else None
    with Lab(star(4, {"rate": "100mbit"}, lossless), tmp_path, log.emit) as lab:
        here, there = (open_endpoint(lab.host(name)["eth1"], memory=MESSAGE) for name in ("h0", "h1"))
        connect_pair(here, there, ATTRIBUTES)
        assert here.write(MESSAGE, within=60).ok
        lab.scheduler.sleep(60)
        before = wake_ups()
        time.sleep(IDLE_S)
        timer, switches = (after - earlier for after, earlier in zip(wake_ups(), before, strict=True))
    figures[f"idle_{kind}"] = {"seconds": IDLE_S, "timer_interrupts": timer, "context_switches": switches}


@pytest.mark.parametrize("kind", ["first", "plain", "lossless"])
def test_incast_of_63(kind, tmp_path, log, figures):
    """Bring-up of 64 hosts, and 63 that write to one at once. Plain links have no queue.

    The first bring-up fills the kernel's caches, and is no measure.
    """
    if clock() == "real":
        pytest.skip("the seconds are virtual")
    values = {"buffer": (SENDERS + 1) * 10_000 + 200_000, "pfc_headroom": 10_000}
    link, lossless, values = ({"rate": "20mbit"}, CLASS, values) if kind == "lossless" else ({}, None, None)
    began = time.monotonic()
    with Lab(star(SENDERS + 1, link, lossless, values), tmp_path, log.emit) as lab:
        found = {"hosts": SENDERS + 1, "up_s": round(time.monotonic() - began, 3)}
        if kind == "lossless":
            found |= incast(lab)
    figures[f"incast_{kind}"] = found


def incast(lab):
    *senders, receiver = (lab.host(f"h{n}")["eth1"] for n in range(SENDERS + 1))
    for nic in (*senders, receiver):
        nic.control_congestion("none")
    ends = [open_endpoint(nic, memory=PART) for nic in senders]
    for end in ends:
        connect_pair(end, open_endpoint(receiver, memory=PART), ATTRIBUTES)
    began = time.monotonic()
    posted = [(end, end.post_write(PART)) for end in ends]
    assert all(end.wait(request, within=60).ok for end, request in posted)
    seconds = time.monotonic() - began
    ports = [lab.interface(f"s:e{n}").lossless for n in range(SENDERS + 1)]
    assert all(port.adds_up() for port in ports)
    return {
        "incast_s": round(seconds, 3),
        "packets": ports[-1].queue(3).sent_packets,
        "drops": sum(port.queue(3).dropped_packets for port in ports),
        "pause_frames": sum(nic.lossless.counters()["rx_prio3_pause"] for nic in senders),
    }
