"""The neighbour discovery that a switch speaks for IPv6: what test_arp.py and test_moves.py show of ARP."""

import socket
from ipaddress import IPv6Address, IPv6Network

import pytest
from switch_lab import EXACT_S, captured, only, seconds, send, svi_mac

from testbed import Lab
from testbed.lab import Host, Node
from testbed.lab.capture import Capture
from testbed.switch import nd
from testbed.switch.frames import BROADCAST, REPLY, REQUEST
from testbed.switch.nd import ALL_NODES, Nd
from testbed.switch.profile import profile
from testbed.topology import link_local
from testbed.workload.attributes import Attributes
from testbed.workload.verbs import Endpoint, connect_pair

pytestmark = pytest.mark.topology("dual.clab.yml")

A, B, C = "2001:db8:10::2", "2001:db8:20::2", "2001:db8:20::3"
SVI_10, SVI_20 = "2001:db8:10::1", "2001:db8:20::1"
NOBODY = "2001:db8:20::77"
STRICT = pytest.mark.topology("dual.clab.yml", profiles={"leaf": profile("ignore-garp-strict")})


def know_the_gateways(lab: Lab) -> None:
    for name in "abc":
        interface = lab.host(name)["eth1"]
        interface.set_neighbour(interface.gateway(6), svi_mac(lab))


def send_udp(host: Host, ip: str, count: int, *, dscp: int = 0) -> None:
    with host.entered(), socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as udp:
        udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, dscp << 2)
        for _ in range(count):
            udp.sendto(b"data", (ip, 9))


def solicitation(host: Host, target: str) -> bytes:
    mac, ip = host["eth1"].mac, host["eth1"].address(6).ip
    return nd.pack(BROADCAST, mac, Nd(REQUEST, mac, ip, IPv6Address(target)))


def discovered(capture: Capture, op: int, sender_mac: str) -> list[Nd]:
    """What a MAC asked or said."""
    found = [nd.parse(frame.data) for frame in captured(capture) if frame.src == sender_mac]
    return [packet for _, packet in filter(None, found) if packet.op == op]


def nd_row(lab: Lab, ip: str) -> dict | None:
    return next((row for row in lab.switch("leaf").tables()["nd"] if row["ip"] == ip), None)


def kernel_neighbours(node: Node) -> dict[str, str | None]:
    with node.entered():
        found = node.ip.get_neighbours(family=socket.AF_INET6)
    entries = {entry.get_attr("NDA_DST"): entry.get_attr("NDA_LLADDR") for entry in found}
    return {ip: mac for ip, mac in entries.items() if not IPv6Address(ip).is_multicast}


def test_a_packet_to_another_vlan_goes_through_the_svi(lab, log):
    know_the_gateways(lab)
    a, b, leaf = lab.host("a"), lab.host("b"), lab.switch("leaf")

    output = a.run("ping", "-c1", "-W1", B).stdout

    assert "ttl=63" in output
    assert leaf.nd_table() == kernel_neighbours(leaf) == {A: a["eth1"].mac, B: b["eth1"].mac}
    assert leaf.arp_table() == {}
    lab.scheduler.catch_up()
    assert [event["data"]["ip"] for event in log.find("nd.miss")] == [B, A]
    assert not log.find("arp.miss")


FABRIC = """
name: fabric
topology:
  nodes:
    leaf:
      kind: switch
      vlans: {10: "2001:db8:10::1/64", 100: "fd00::/127", 101: "fd01::/127"}
      routes: [{to: default, via: ["fd00::1", "fd01::1"]}]
    spine:
      kind: switch
      vlans: {20: "2001:db8:20::1/64", 100: "fd00::1/127", 101: "fd01::1/127"}
      routes: [{to: "2001:db8:10::/64", via: "fd00::"}]
    a: {kind: host, rdma: false}
    b: {kind: host, rdma: false}
  links:
    - {endpoints: ["leaf:up1", "spine:down1"], vlan: 100}
    - {endpoints: ["leaf:up2", "spine:down2"], vlan: 101}
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["spine:e1", "b:eth1"], vlan: 20}
"""


@pytest.mark.topology(FABRIC)
def test_two_switches_route_to_each_other(lab):
    assert "ttl=62" in lab.host("a").run("ping", "-c1", "-W1", B).stdout
    assert "fd00::" in lab.switch("spine").nd_table()


@pytest.mark.topology(FABRIC)
def test_each_flow_takes_one_of_several_next_hops(lab):
    leaf = lab.switch("leaf")
    wires = {port: leaf[port].capture("udp") for port in ("up1", "up2")}

    for _ in range(8):  # a socket each, so a source port each
        send_udp(lab.host("a"), B, 3)
    lab.scheduler.sleep(1)

    taken = {port: [frame.data[54:56] for frame in captured(wire)] for port, wire in wires.items()}
    assert set(taken["up1"]).isdisjoint(taken["up2"])
    assert all(taken.values())
    assert sum(map(len, taken.values())) == 24


@pytest.mark.fresh
def test_a_packet_back_into_its_vlan_is_routed_without_a_redirect(lab):
    know_the_gateways(lab)
    b, c = lab.host("b"), lab.host("c")
    b.add_route(IPv6Network(f"{C}/128"), IPv6Address(SVI_20))
    wires = b["eth1"].capture("icmp6[0] == 137"), c["eth1"].capture("udp")

    send_udp(b, C, 3)
    lab.scheduler.sleep(1)

    assert [len(captured(wire)) for wire in wires] == [0, 3]


def test_hosts_find_their_gateway_by_asking(lab, log):
    a = lab.host("a")
    wire = a["eth1"].capture("icmp6")

    assert a.ping(B, within=1)

    assert a["eth1"].neighbour(IPv6Address(SVI_10)) == svi_mac(lab)
    (answer,) = discovered(wire, REPLY, svi_mac(lab))
    assert answer == Nd(REPLY, svi_mac(lab), IPv6Address(SVI_10), IPv6Address(A), solicited=True, router=True)
    assert lab.switch("leaf").nd_table()[A] == a["eth1"].mac
    lab.scheduler.catch_up()
    assert only(log.find("nd.learned", ip=A))["data"]["reason"] == "request"


def test_an_svi_answers_for_its_own_addresses_only(lab):
    a = lab.host("a")
    own = str(link_local(svi_mac(lab)))
    wire = a["eth1"].capture("icmp6")

    send(a, *(solicitation(a, target) for target in (SVI_10, SVI_20, B, own, SVI_10)))
    lab.scheduler.sleep(5)

    assert [str(packet.sender_ip) for packet in discovered(wire, REPLY, svi_mac(lab))] == [SVI_10, own, SVI_10]


@pytest.mark.fresh
def test_a_host_that_takes_the_switchs_address_finds_it_taken(lab, log):
    a = lab.host("a")

    a.run("ip", "addr", "add", f"{SVI_10}/64", "dev", "eth1")
    lab.scheduler.sleep(2)

    assert "dadfailed" in a.run("ip", "-6", "addr", "show", "eth1").stdout
    assert not log.find("nd.learned")


def test_the_kernel_of_a_switch_says_nothing_by_itself(lab):
    know_the_gateways(lab)
    a, b = lab.host("a"), lab.host("b")
    wires = [host["eth1"].capture("not (icmp6[0] == 128 or icmp6[0] == 129)") for host in (a, b)]

    for _ in range(5):
        assert a.ping(B, within=1)
        lab.scheduler.sleep(200)

    frames = [frame for wire in wires for frame in captured(wire) if frame.src == svi_mac(lab)]
    packets = [nd.parse(frame.data) for frame in frames]
    assert None not in packets
    assert [str(packet.target_ip) for _, packet in packets if packet.op == REQUEST] == [A, B]
    # The rest are answers: hosts verify what they know of the switch.
    assert {str(packet.sender_ip) for _, packet in packets if packet.op == REPLY} == {str(link_local(svi_mac(lab)))}


def test_a_miss_that_nobody_answers_fails_after_the_tries(lab, log):
    know_the_gateways(lab)
    wire = lab.host("c")["eth1"].capture("icmp6")

    send_udp(lab.host("a"), NOBODY, 3)
    assert lab.scheduler.wait(lambda: bool(log.find("nd.failed")), within=60)

    failed = only(log.find("nd.failed", ip=NOBODY, reason="no-answer"))
    assert seconds(only(log.find("nd.miss", ip=NOBODY)), failed) == pytest.approx(3, abs=EXACT_S)
    asked = [packet for packet in discovered(wire, REQUEST, svi_mac(lab)) if str(packet.target_ip) == NOBODY]
    assert len(asked) == 3
    assert {str(packet.sender_ip) for packet in asked} == {str(link_local(svi_mac(lab)))}
    assert NOBODY not in kernel_neighbours(lab.switch("leaf"))


@pytest.mark.fresh
def test_after_a_silent_move_the_old_entry_lives_its_whole_age(lab, log):
    know_the_gateways(lab)
    a, b, c = lab.host("a"), lab.host("b"), lab.host("c")
    assert a.ping(B, within=1)
    address = b["eth1"].address(6)
    b["eth1"].down()
    c["eth1"].add_address(address)

    lab.scheduler.sleep(1400)
    assert not a.ping(B, within=1)
    assert nd_row(lab, B)["mac"] == b["eth1"].mac
    lab.scheduler.sleep(200)

    learned, aged = only(log.find("nd.learned", ip=B)), only(log.find("nd.aged", ip=B))
    assert seconds(learned, aged) == pytest.approx(1500, abs=EXACT_S)
    probes = [seconds(learned, event) for event in log.find("nd.refresh", ip=B)]
    assert probes == pytest.approx([1470, 1480, 1490], abs=EXACT_S)
    assert a.ping(B, within=1)
    assert nd_row(lab, B)["mac"] == c["eth1"].mac


def test_an_owner_that_answers_the_probe_keeps_its_entry(lab, log):
    know_the_gateways(lab)
    assert lab.host("a").ping(B, within=1)

    lab.scheduler.sleep(4000)

    assert not log.find("nd.aged", ip=B)
    learned = only(log.find("nd.learned", ip=B))
    confirmed = [seconds(learned, event) for event in log.find("nd.confirmed", ip=B)]
    assert confirmed == pytest.approx([1470, 2940], abs=EXACT_S)


@pytest.mark.fresh
@pytest.mark.parametrize(
    ("owner", "told"),
    [
        pytest.param("c", "nd.updated", id="cisco-nxos"),
        pytest.param("b", "nd.ignored", id="ignore-garp-strict", marks=STRICT),
    ],
)
def test_an_unsolicited_advertisement_moves_the_entry_where_the_profile_lets_it(lab, log, owner, told):
    know_the_gateways(lab)
    a, b, c = lab.host("a"), lab.host("b"), lab.host("c")
    assert a.ping(B, within=1)
    send_udp(c, B, 1)  # the bridge knows c's port now
    c["eth1"].add_address(b["eth1"].address(6))
    c["eth1"].announce(6)
    lab.scheduler.sleep(1)

    wires = {host.name: host["eth1"].capture("udp") for host in (b, c)}
    send_udp(a, B, 10)
    lab.scheduler.sleep(1)

    assert {name: len(captured(wire)) for name, wire in wires.items()} == {"b": 0, "c": 0} | {owner: 10}
    assert nd_row(lab, B)["mac"] == lab.host(owner)["eth1"].mac
    changes = [event for kind in ("nd.updated", "nd.ignored") for event in log.find(kind, ip=B)]
    assert [(event["kind"], event["data"]["mac"]) for event in changes] == [(told, c["eth1"].mac)]


def test_an_advertisement_that_asks_not_to_override_does_not(lab, log):
    know_the_gateways(lab)
    b, c = lab.host("b"), lab.host("c")
    assert lab.host("a").ping(B, within=1)

    modest = Nd(REPLY, c["eth1"].mac, IPv6Address(B), ALL_NODES, override=False)
    send(c, nd.pack(BROADCAST, c["eth1"].mac, modest))
    lab.scheduler.sleep(1)

    assert nd_row(lab, B)["mac"] == b["eth1"].mac
    assert only(log.find("nd.ignored"))["data"]["reason"] == "no-override"


@pytest.mark.fresh
def test_a_cleared_entry_is_asked_for_again(lab, log):
    know_the_gateways(lab)
    a, leaf = lab.host("a"), lab.switch("leaf")
    assert a.ping(B, within=1)
    assert a.ping("10.0.20.2", within=1)
    arp = leaf.arp_table()

    lab.switch("leaf").clear_nd(ip=IPv6Address(B))

    assert set(leaf.nd_table()) == set(kernel_neighbours(leaf)) == {A}
    assert leaf.arp_table() == arp
    assert a.ping(B, within=1)
    assert set(leaf.nd_table()) == {A, B}
    lab.scheduler.catch_up()
    assert [event["data"]["ip"] for event in log.find("nd.cleared")] == [B]
    assert len(log.find("nd.miss", ip=B)) == 2


@pytest.mark.topology("dual.clab.yml", profiles={"leaf": profile("msft-2016-tor-fixed")})
def test_lossless_packets_are_dropped_while_the_fdb_does_not_know_the_mac(lab, log):
    know_the_gateways(lab)
    a, b = lab.host("a"), lab.host("b")
    assert a.ping(B, within=1)
    lab.switch("leaf").clear_fdb(mac=b["eth1"].mac)
    lab.scheduler.catch_up()
    assert only(log.find("lossless.blocked"))["data"]["ip"] == B

    wire = b["eth1"].capture("udp")
    send_udp(a, B, 5, dscp=26)
    send_udp(a, B, 3)
    lab.scheduler.sleep(1)

    assert len(captured(wire)) == 3


def test_rdma_over_ipv6_crosses_the_vlans(lab):
    a, b = lab.host("a"), lab.host("b")
    with (
        Endpoint(a["eth1"].device, a.namespace, a["eth1"].address(6).ip) as near,
        Endpoint(b["eth1"].device, b.namespace, b["eth1"].address(6).ip) as far,
    ):
        connect_pair(near, far, Attributes())
        assert near.write(50_000, within=2).ok
        assert far.load(0, 50_000) == near.load(0, 50_000)
    assert set(lab.switch("leaf").nd_table()) >= {A, B}
    assert lab.switch("leaf").arp_table() == {}


@pytest.mark.topology("dual.clab.yml", profiles={"leaf": profile("sonic")})
def test_a_refresh_daemon_asks_for_the_neighbours_of_each_family(lab, log):
    know_the_gateways(lab)
    a = lab.host("a")
    assert a.ping(B, within=1)
    assert a.ping("10.0.20.2", within=1)

    lab.scheduler.sleep(125)

    # The hosts verified what they knew of the switch, from their link-local addresses: those are neighbours too.
    neighbours = {A, B, *(str(link_local(lab.host(name)["eth1"].mac)) for name in "ab")}
    assert set(lab.switch("leaf").nd_table()) == neighbours
    assert only(log.find("nd.refresh"))["data"]["entries"] == 4
    assert only(log.find("arp.refresh"))["data"]["entries"] == 2


def test_solicitations_between_hosts_are_not_for_the_switch(lab):
    """They go to a group that no SVI is in, where an ARP request would reach all and change what they know."""
    know_the_gateways(lab)
    b, c = lab.host("b"), lab.host("c")
    assert lab.host("a").ping(B, within=1)

    claim = Nd(REQUEST, c["eth1"].mac, IPv6Address(B), IPv6Address(NOBODY))
    send(c, nd.pack(BROADCAST, c["eth1"].mac, claim))
    lab.scheduler.sleep(1)

    assert nd_row(lab, B)["mac"] == b["eth1"].mac
