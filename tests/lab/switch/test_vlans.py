"""VLANs: what stays in one, and what a trunk carries."""

import pytest
from switch_lab import EXPERIMENTAL, captured, ethernet, send

from testbed import Lab
from testbed.lab import Host
from testbed.lab.capture import Capture
from testbed.switch.frames import BROADCAST

pytestmark = pytest.mark.topology("trunk.clab.yml")

TAG_1, TAG_10, TAG_20 = (b"\x81\x00" + vlan.to_bytes(2) for vlan in (1, 10, 20))


def broadcast_reaches(lab: Lab, sender: str, payload: bytes = EXPERIMENTAL) -> set[str]:
    """The hosts that see a broadcast of `sender` (other than itself)."""
    wires = {name: node["eth1"].capture() for name, node in lab.nodes.items() if isinstance(node, Host)}
    host = lab.host(sender)
    send(host, ethernet(BROADCAST, host["eth1"].mac, payload))
    return {name for name, wire in wires.items() if name != sender and EXPERIMENTAL in _data(wire)}


def _data(capture: Capture) -> bytes:
    return b"".join(frame.data for frame in captured(capture))


@pytest.mark.fresh
def test_a_trunk_carries_two_vlans_and_keeps_them_apart(lab):
    wire = lab.switch("s1")["up"].capture("vlan")

    assert broadcast_reaches(lab, "ten1") == {"ten2"}
    assert broadcast_reaches(lab, "twenty2") == {"twenty1"}

    tags = [frame.data[12:16] for frame in captured(wire)]
    assert tags == [TAG_10, TAG_20]
    tables = lab.switch("s2").tables()["fdb"]
    assert {(row["vlan"], row["mac"], row["port"]) for row in tables} == {
        (10, lab.host("ten1")["eth1"].mac, "up"),
        (20, lab.host("twenty2")["eth1"].mac, "e2"),
    }


@pytest.mark.fresh
@pytest.mark.parametrize("tag", [TAG_1, TAG_20], ids=["bridge's default", "another"])
def test_a_tag_does_not_take_a_host_into_another_vlan(lab, tag):
    assert broadcast_reaches(lab, "ten1", tag + EXPERIMENTAL) == set()


def test_a_mac_is_learned_and_cleared_in_each_vlan_by_itself(lab):
    mac = "02:00:00:ff:00:01"
    for name in "ten2", "twenty2":
        send(lab.host(name), ethernet(BROADCAST, mac))
    assert vlans_that_know(lab, mac) == [10, 20]

    lab.switch("s1").clear_fdb(vlan=10)

    assert vlans_that_know(lab, mac) == [20]


def vlans_that_know(lab: Lab, mac: str) -> list[int]:
    return [row["vlan"] for row in lab.switch("s1").tables()["fdb"] if row["mac"] == mac]


def test_hosts_on_two_switches_reach_each_other_in_their_vlan_and_between_vlans(lab):
    address = {name: str(lab.host(name)["eth1"].address().ip) for name in ("ten2", "twenty2")}

    assert "ttl=64" in lab.host("ten1").run("ping", "-c1", "-W1", address["ten2"]).stdout
    assert "ttl=63" in lab.host("ten2").run("ping", "-c1", "-W1", address["twenty2"]).stdout
