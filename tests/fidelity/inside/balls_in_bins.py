"""Runs inside a machine: how evenly the kernel's ECMP hash spreads flows.

Each flow is a packet, counted at the uplinks. Packets have RoCE's
addresses and ports, and no more of a flow is seen by an ECMP hash; behind the uplinks they are dropped.
"""

import random
import socket
import struct
from ipaddress import IPv4Address
from pathlib import Path

import pytest
import yaml

UPLINKS = 32
FIRST_PORT, LAST_PORT = 0xC000, 0xFFFF
"""UDP source ports of RoCE."""
TARGETS = int(IPv4Address("10.200.0.1"))
DRAWS = 120
SIZES = ((4, 4), (4, 16), (8, 8), (8, 16), (8, 32), (16, 16))
"""Uplinks and flows of a draw."""
GUO_LEAVES, GUO_FLOWS, GUO_DRAWS = 4, 3074, 6
"""128 uplinks: four leaves with 32."""


def parallel(links, near, far, first):
    """Links between two switches, a VLAN each, and the next hops of `near`."""
    vlans = {near: {}, far: {}}
    hops = []
    for number in range(links):
        base = int(IPv4Address("10.255.0.0")) + 2 * (first + number)
        vlans[near][1000 + first + number] = f"{IPv4Address(base)}/31"
        vlans[far][1000 + first + number] = f"{IPv4Address(base + 1)}/31"
        hops.append(str(IPv4Address(base + 1)))
    lines = [{"endpoints": [f"{near}:u{n}", f"{far}:d{first + n}"], "vlan": 1000 + first + n} for n in range(links)]
    return vlans, hops, lines


def one_tier():
    vlans, hops, links = parallel(UPLINKS, "leaf", "far", 0)
    nodes = {
        "leaf": {"kind": "switch", "vlans": {10: "10.1.1.1/24", **vlans["leaf"]}, "routes": [route(hops)]},
        "far": {"kind": "switch", "vlans": vlans["far"]},
        "host": {"kind": "host"},
    }
    return document(nodes, [{"endpoints": ["leaf:e1", "host:eth1"], "vlan": 10}, *links])


def two_tiers(wide=4):
    leaf = {10: "10.1.1.1/24"}
    nodes = {"leaf": {"kind": "switch", "vlans": leaf}, "host": {"kind": "host"}, "core": {"kind": "switch"}}
    links, first, hops = [{"endpoints": ["leaf:e1", "host:eth1"], "vlan": 10}], 100, []
    nodes["core"]["vlans"] = {}
    for number in range(wide):
        spine = f"spine{number}"
        base = int(IPv4Address("10.254.0.0")) + 2 * number
        leaf[500 + number] = f"{IPv4Address(base)}/31"
        vlans, ups, more = parallel(wide, spine, "core", first + number * wide)
        own = {500 + number: f"{IPv4Address(base + 1)}/31", **vlans[spine]}
        nodes[spine] = {"kind": "switch", "vlans": own, "routes": [route(ups)]}
        nodes["core"]["vlans"] |= vlans["core"]
        links += [{"endpoints": [f"leaf:u{number}", f"{spine}:down"], "vlan": 500 + number}, *more]
        hops.append(str(IPv4Address(base + 1)))
    nodes["leaf"]["routes"] = [route(hops)]
    return document(nodes, links)


def route(hops):
    return {"to": "10.200.0.0/16", "via": hops}


def document(nodes, links):
    return yaml.safe_dump({"name": "ecmp", "topology": {"nodes": nodes, "links": links}})


def drop_behind(lab, switch):
    lab.switch(switch).run("ip", "route", "add", "blackhole", "10.200.0.0/16")


class Flows:
    """Sends a packet for each new flow of a host."""

    def __init__(self, lab, seed=1):
        self.random = random.Random(seed)  # noqa: S311
        self.nic = lab.host("host")["eth1"]
        with self.nic.node.entered():
            self.wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        self.wire.bind((self.nic.name, 0))
        gateway = lab.switch("leaf").svi_mac(10)
        self.ethernet = bytes.fromhex((gateway + self.nic.mac).replace(":", "")) + b"\x08\x00"
        self.source = self.nic.address().ip.packed

    def send(self, count):
        for _ in range(count):
            target = struct.pack("!I", TARGETS + self.random.randrange(1 << 15))
            port = self.random.randint(FIRST_PORT, LAST_PORT)
            head = struct.pack("!BBHHHBBH", 0x45, 26 << 2, 28 + 16, 0, 0x4000, 64, 17, 0) + self.source + target
            total = sum(struct.unpack("!10H", head))
            total = (total & 0xFFFF) + (total >> 16)
            head = head[:10] + struct.pack("!H", ~total & 0xFFFF) + head[12:]
            self.wire.send(self.ethernet + head + struct.pack("!HHHH", port, 4791, 24, 0) + bytes(16))


def sent(switch):
    """Packets that left by each port so far."""
    with switch.entered():
        lines = Path("/proc/net/dev").read_text().splitlines()[2:]
    fields = (line.split() for line in lines)
    return {field[0].rstrip(":"): int(field[10]) for field in fields if field[0].startswith("u")}


def settled(lab, switches, count, before):
    """Packets of `count` flows by uplink, when all of them have been sent."""

    def passed():
        return [
            after - earlier[port]
            for switch, earlier in zip(switches, before, strict=True)
            for port, after in sent(switch).items()
        ]

    lab.scheduler.wait(lambda: sum(passed()) >= count, 5, pause=0.001)
    found = passed()
    assert sum(found) == count
    return found


@pytest.mark.topology(one_tier())
def test_balls_in_bins(lab, figures):
    leaf, flows = lab.switch("leaf"), Flows(lab)
    drop_behind(lab, "far")

    def loads(count):
        before = sent(leaf)
        flows.send(count)
        return settled(lab, [leaf], count, [before])

    flows.send(40 * UPLINKS)  # the leaf resolves its next hops
    lab.scheduler.sleep(2)
    found = figures["efficiency"] = []
    fullest = []
    for _ in range(GUO_DRAWS):
        shares = [GUO_FLOWS // GUO_LEAVES + (number < GUO_FLOWS % GUO_LEAVES) for number in range(GUO_LEAVES)]
        fullest.append(max(load for count in shares for load in loads(count)))
    figures["guo"] = {"uplinks": GUO_LEAVES * UPLINKS, "flows": GUO_FLOWS, "fullest": fullest}
    for uplinks, count in SIZES:
        via = [word for n in range(uplinks) for word in ("nexthop", "via", f"10.255.0.{2 * n + 1}")]
        leaf.run("ip", "route", "replace", "10.200.0.0/16", *via)
        found.append({"uplinks": uplinks, "flows": count, "fullest": [max(loads(count)) for _ in range(DRAWS)]})


@pytest.mark.topology(two_tiers())
def test_polarisation(lab, figures):
    leaf, flows = lab.switch("leaf"), Flows(lab)
    spines = [lab.switch(f"spine{number}") for number in range(4)]
    drop_behind(lab, "core")
    flows.send(400)
    lab.scheduler.sleep(2)
    for seeds in "own", "one":
        if seeds == "one":
            for switch in leaf, *spines:
                switch.sysctl("net/ipv4/fib_multipath_hash_seed", 1)
        before = [sent(spine) for spine in spines]
        flows.send(1024)
        figures[seeds] = settled(lab, spines, 1024, before)
