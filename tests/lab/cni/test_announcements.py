"""The announcements of a starting pod, by plugin (table of docs/cni-plugins.md): they decide what a switch learns."""

from pathlib import Path
from typing import Any

import pytest
from networks import ROUTED, ipam, network

from testbed.lab import Host


def prepare(node: Host, kind: str) -> dict[str, Any]:
    """The plugin's own keys, and what it needs on the node."""
    match kind:
        case "host-device":
            node.add_vf("vf0", "eth1")
            return {"device": "vf0"}
        case "bridge":
            for command in "link add br0 type bridge", "link set eth1 master br0", "link set br0 up":
                node.run("ip", *command.split())
            return {"bridge": "br0"}
        case "vlan":
            return {"master": "eth1", "vlanId": 20}
        case "ptp":
            return {}
    return {"master": "eth1"}


@pytest.mark.fresh
@pytest.mark.parametrize(
    ("kind", "arp_notify", "sent", "arrived"),
    [
        ("macvlan", "1", 1, 1),
        ("ipvlan", "1", 1, 1),
        ("bridge", "1", 1, 0),
        ("host-device", "0", 0, 0),
        ("vlan", "0", 0, 0),
        ("ptp", "0", 0, 0),
    ],
)
@pytest.mark.topology(ROUTED)
def test_announcements(lab, kind, arp_notify, sent, arrived):
    node = lab.host("node1")
    options = prepare(node, kind)
    wire = lab.switch("leaf")["e1"].capture("arp or vlan")

    pod = lab.pods.create(node, "pod", [network({"type": kind, **options, "ipam": ipam(10)})])
    lab.scheduler.sleep(1)
    wire.stop()

    with pod.entered():
        assert Path("/proc/sys/net/ipv4/conf/eth0/arp_notify").read_text().strip() == arp_notify
    assert pod["eth0"].counters()["tx_packets"] == sent
    frames = list(wire.frames())
    assert [frame.src for frame in frames] == [pod["eth0"].mac] * arrived
    assert all(frame.data[28:32] == frame.data[38:42] == bytes([10, 0, 10, 100]) for frame in frames)  # gratuitous
