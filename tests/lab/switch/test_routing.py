"""Packets from one VLAN to another, through the SVIs."""

import socket
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path

import pytest
from switch_lab import LEAF, SVI_20, A, B, C, captured, kernel_neighbours, know_the_gateways, only, send_udp, svi_mac

pytestmark = pytest.mark.topology(LEAF)


def test_a_packet_to_another_vlan_goes_through_the_svi(lab, log):
    know_the_gateways(lab)
    wire = lab.host("b")["eth1"].capture("icmp[icmptype] == icmp-echo")

    output = lab.host("a").run("ping", "-c1", "-W1", B).stdout

    assert "ttl=63" in output
    echo = only(captured(wire))
    assert (echo.src, echo.dst, echo.data[22]) == (svi_mac(lab), lab.host("b")["eth1"].mac, 63)
    lab.scheduler.catch_up()
    assert [event["data"]["ip"] for event in log.find("arp.miss")] == [B, A]
    assert lab.switch("leaf").arp_table() == {A: lab.host("a")["eth1"].mac, B: lab.host("b")["eth1"].mac}
    assert kernel_neighbours(lab.switch("leaf")) == lab.switch("leaf").arp_table()


@pytest.mark.topology("fabric.clab.yml")
def test_two_switches_route_to_each_other(lab):
    assert "ttl=62" in lab.host("a").run("ping", "-c1", "-W1", str(lab.host("b")["eth1"].address().ip)).stdout


@pytest.fixture
def strict_kernel():
    """A kernel that drops packets whose source it has no route to: some distributions', and namespaces inherit it."""
    default = Path("/proc/sys/net/ipv4/conf/default/rp_filter")
    before = default.read_text()
    default.write_text("1")
    yield
    default.write_text(before)


@pytest.mark.fresh
@pytest.mark.usefixtures("strict_kernel")
def test_a_switch_routes_packets_of_any_source(lab):
    know_the_gateways(lab)
    a = lab.host("a")
    a["eth1"].add_address(IPv4Interface("192.0.2.1/32"))
    wire = lab.host("b")["eth1"].capture("src host 192.0.2.1")

    with a.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("192.0.2.1", 0))
        udp.sendto(b"data", (B, 9))
    lab.scheduler.sleep(1)

    assert len(captured(wire)) == 1


@pytest.mark.fresh
def test_a_packet_back_into_its_vlan_is_routed_without_a_redirect(lab):
    know_the_gateways(lab)
    b, c = lab.host("b"), lab.host("c")
    b.add_route(IPv4Network(f"{C}/32"), IPv4Address(SVI_20))
    wires = b["eth1"].capture("icmp[icmptype] == icmp-redirect"), c["eth1"].capture("udp")

    send_udp(b, C, 3)
    lab.scheduler.sleep(1)

    assert [len(captured(wire)) for wire in wires] == [0, 3]
