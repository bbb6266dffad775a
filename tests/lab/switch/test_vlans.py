"""VLANs: what stays in one, what a trunk carries, what is routed from one to another."""

from __future__ import annotations

import pytest
from switch_lab import EXPERIMENTAL, A, B, captured, ethernet, kernel_neighbours, know_the_gateways, only, send, svi_mac

from testbed import Lab
from testbed.lab import Host
from testbed.lab.capture import Capture
from testbed.switch.frames import BROADCAST

pytestmark = pytest.mark.topology("trunk.clab.yml")

TAG_10, TAG_20 = b"\x81\x00\x00\x0a", b"\x81\x00\x00\x14"


def broadcast_reaches(lab: Lab, sender: str, payload: bytes = EXPERIMENTAL) -> set[str]:
    """The hosts that see a broadcast of `sender` (other than itself)."""
    wires = {name: node.capture("eth1") for name, node in lab.nodes.items() if isinstance(node, Host)}
    host = lab.host(sender)
    send(host, ethernet(BROADCAST, host.macs["eth1"], payload))
    return {name for name, wire in wires.items() if name != sender and EXPERIMENTAL in _data(wire)}


def _data(capture: Capture) -> bytes:
    return b"".join(frame.data for frame in captured(capture))


def test_a_trunk_carries_two_vlans_and_keeps_them_apart(lab):
    wire = lab.switch("s1").capture("up", "vlan")

    assert broadcast_reaches(lab, "ten1") == {"ten2"}
    assert broadcast_reaches(lab, "twenty2") == {"twenty1"}

    tags = [frame.data[12:16] for frame in captured(wire)]
    assert tags == [TAG_10, TAG_20]
    tables = lab.switch("s2").tables()["fdb"]
    assert {(row["vlan"], row["mac"], row["port"]) for row in tables} == {
        (10, lab.host("ten1").macs["eth1"], "up"),
        (20, lab.host("twenty2").macs["eth1"], "e2"),
    }


def test_a_tag_does_not_take_a_host_into_another_vlan(lab):
    assert broadcast_reaches(lab, "ten1", TAG_20 + EXPERIMENTAL) == set()


def test_hosts_on_two_switches_reach_each_other_in_their_vlan_and_between_vlans(lab):
    address = {name: str(lab.host(name).addresses["eth1"].ip) for name in ("ten2", "twenty2")}

    assert "ttl=64" in lab.host("ten1").run("ping", "-c1", "-W1", address["ten2"]).stdout
    assert "ttl=63" in lab.host("ten2").run("ping", "-c1", "-W1", address["twenty2"]).stdout


@pytest.mark.topology("leaf.clab.yml")
def test_a_packet_to_another_vlan_goes_through_the_svi(lab, log):
    know_the_gateways(lab)
    wire = lab.host("b").capture("eth1", "icmp[icmptype] == icmp-echo")

    output = lab.host("a").run("ping", "-c1", "-W1", B).stdout

    assert "ttl=63" in output
    echo = only(captured(wire))
    assert (echo.src, echo.dst, echo.data[22]) == (svi_mac(lab), lab.host("b").macs["eth1"], 63)
    lab.drain()
    assert [event["data"]["ip"] for event in log.find("arp.miss")] == [B, A]
    assert lab.switch("leaf").arp_table() == {A: lab.host("a").macs["eth1"], B: lab.host("b").macs["eth1"]}
    assert kernel_neighbours(lab.switch("leaf")) == lab.switch("leaf").arp_table()
