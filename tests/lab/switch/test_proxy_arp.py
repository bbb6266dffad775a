"""An SVI with proxy ARP answers for its whole subnet, as sonic-mgmt's test_proxy_arp asks of SONiC, and then carries
what the hosts send each other."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from switch_lab import arps, captured, svi_mac

from testbed.switch import nd
from testbed.switch.frames import BROADCAST, NO_IP, NO_MAC, REPLY, REQUEST, Arp, pack
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import connect_pair, open_endpoint

LAB = """
name: proxy
topology:
  nodes:
    leaf:
      kind: switch
      profile: sonic
      vlans: {10: [10.0.10.1/24, "2001:db8:10::1/64"], 20: 10.0.20.1/24}
      proxy_arp: [10]
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
    d: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10}
    - {endpoints: ["leaf:e3", "c:eth1"], vlan: 20}
    - {endpoints: ["leaf:e4", "d:eth1"], vlan: 20}
"""
UNUSED, UNUSED6 = "10.0.10.77", "2001:db8:10::77"
pytestmark = pytest.mark.topology(LAB)


def question(host, target, sender=None):
    mac, ip = host["eth1"].mac, host["eth1"].address().ip if sender is None else sender
    return pack(BROADCAST, mac, Arp(REQUEST, mac, ip, NO_MAC, IPv4Address(target)))


def test_an_svi_answers_for_an_address_that_nobody_has(lab, log):
    a = lab.host("a")
    wire = a["eth1"].capture("arp")
    a["eth1"].send(question(a, UNUSED))
    assert lab.scheduler.wait(lambda: bool(log.find("arp.proxied", ip=UNUSED)), 1)
    (answer,) = arps(wire, REPLY, svi_mac(lab))
    assert (str(answer.sender_ip), answer.target_mac) == (UNUSED, a["eth1"].mac)


def test_a_neighbour_solicitation_is_answered_too(lab, log):
    a = lab.host("a")
    wire = a["eth1"].capture("icmp6")
    packet = nd.Nd(REQUEST, a["eth1"].mac, a["eth1"].address(6).ip, IPv6Address(UNUSED6))
    a["eth1"].send(nd.pack(BROADCAST, a["eth1"].mac, packet))
    assert lab.scheduler.wait(lambda: bool(log.find("nd.proxied", ip=UNUSED6)), 1)
    answers = [found[1] for frame in captured(wire) if (found := nd.parse(frame.data)) and found[1].op == REPLY]
    (answer,) = answers
    assert (str(answer.sender_ip), answer.sender_mac) == (UNUSED6, svi_mac(lab))
    assert (answer.solicited, answer.override) == (True, False)  # RFC 4861 section 7.2.8


def test_it_answers_nobody_who_claims_or_may_take_an_address(lab, log):
    a = lab.host("a")
    own = a["eth1"].address().ip
    a["eth1"].send(question(a, UNUSED, NO_IP))  # RFC 5227: may I take it?
    a["eth1"].send(question(a, own))  # gratuitous
    lab.scheduler.sleep(1)
    assert log.find("arp.proxied") == []


def test_a_vlan_without_it_is_as_before(lab, log):
    c, d = lab.host("c"), lab.host("d")
    assert c.ping(str(d["eth1"].address().ip), within=2)
    assert c["eth1"].neighbour(d["eth1"].address().ip) == d["eth1"].mac
    assert log.find("arp.proxied") == []


@pytest.mark.parametrize("family", [4, 6])
def test_roce_between_two_hosts_of_the_subnet_goes_through_the_svi(lab, family):
    a, b = lab.host("a"), lab.host("b")
    wire = lab["leaf"].adopt("vlan10", svi_mac(lab)).capture("udp port 4791")
    near, far = open_endpoint(a["eth1"], family), open_endpoint(b["eth1"], family)
    connect_pair(near, far, Attributes())
    assert near.write(4096, within=10).ok
    assert a["eth1"].neighbour(far.address.ip) == svi_mac(lab)
    frames = captured(wire)
    assert any(frame.roce for frame in frames)
    assert {frame.dst for frame in frames if frame.src == a["eth1"].mac} == {svi_mac(lab)}


def test_nothing_is_flooded_between_the_ports_of_the_vlan(lab):
    a, b = lab.host("a"), lab.host("b")
    wire = b["eth1"].capture()
    a["eth1"].teach()
    a["eth1"].announce()
    lab.scheduler.sleep(1)
    assert [frame for frame in captured(wire) if frame.src == a["eth1"].mac] == []
