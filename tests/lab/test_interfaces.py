"""An interface is an object: `node["eth1"]`, of a host, a switch or a pod, has what is its own."""

from ipaddress import ip_address
from typing import Any

import pytest

from testbed.errors import InputError
from testbed.faults import LinkLoss, NicDown, injected
from testbed.kernel import rdma
from testbed.lab import Host, Interface, Lab
from testbed.switch import packets
from testbed.topology import link_local

PAIR = """
name: ends
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: [10.0.10.1/24, "2001:db8:10::1/64"], 20: [10.0.20.1/24, "2001:db8:20::1/64"]}}
    a: {kind: host}
    b: {kind: host, rdma: false}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 20}
"""
NETWORK = {
    "cniVersion": "1.0.0",
    "name": "rdma",
    "plugins": [
        {
            "type": "macvlan",
            "master": "eth1",
            "ipam": {
                "type": "static",
                "addresses": [{"address": "10.0.10.100/24", "gateway": "10.0.10.1"}],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        },
        {"type": "rxe"},
    ],
}
GATEWAY, GATEWAY6 = ip_address("10.0.10.1"), ip_address("2001:db8:10::1")
NOBODY, ELSEWHERE = ip_address("10.0.10.77"), "02:00:00:00:00:99"
SOON = 2.0
KINDS = ["host", "switch", "pod"]
pytestmark = pytest.mark.topology(PAIR)


@pytest.fixture
def pod(lab: Lab) -> Host:
    return lab.pods.create(lab.host("a"), "web", [NETWORK])


@pytest.fixture
def interface(lab: Lab, request: pytest.FixtureRequest) -> Any:
    match request.param:
        case "host":
            return lab.host("a")["eth1"]
        case "switch":
            return lab.switch("leaf")["e1"]
    return request.getfixturevalue("pod")["eth0"]


each = pytest.mark.parametrize("interface", KINDS, indirect=True)
of_hosts = pytest.mark.parametrize("interface", ["host", "pod"], indirect=True)


def in_kernel(interface: Interface) -> Any:
    (link,) = interface.node.ip.get_links(ifname=interface.name)
    return link


# What it is


@each
def test_its_mac_index_and_mtu_are_the_kernel_s(interface):
    link = in_kernel(interface)
    assert (interface.mac, interface.index, interface.mtu) == (
        link.get_attr("IFLA_ADDRESS"),
        link["index"],
        link.get_attr("IFLA_MTU"),
    )
    mtu = interface.mtu
    interface.set_mtu(1400)
    assert interface.mtu == in_kernel(interface).get_attr("IFLA_MTU") == 1400
    interface.set_mtu(mtu)


def test_macs_and_numbers_of_all_are_their_own(lab, pod):
    found = [interface for node in lab.nodes.values() for interface in node.interfaces.values()]
    assert list(map(str, found)) == ["leaf:e1", "leaf:e2", "a:eth1", "b:eth1", "web:eth0"]
    assert len({interface.mac for interface in found}) == 5


def test_its_address_and_gateway_are_of_a_family(lab, pod):
    a, web = lab.host("a")["eth1"], pod["eth0"]
    assert (str(a.address()), a.gateway()) == ("10.0.10.2/24", GATEWAY)
    assert (str(a.address(6)), a.gateway(6)) == ("2001:db8:10::2/64", GATEWAY6)
    assert a.addresses == {4: a.address(), 6: a.address(6)}
    assert (str(web.address()), list(web.addresses)) == ("10.0.10.100/24", [4])
    with pytest.raises(InputError, match="eth0 of web has no IPv6 address"):
        web.address(6)
    with pytest.raises(InputError, match="eth0 of web has no IPv4 gateway"):
        web.gateway()


@pytest.mark.fresh
def test_an_address_that_is_added_and_removed_is_known_and_used(lab):
    b = lab.host("b")["eth1"]
    before = b.remove_address()
    assert not lab.host("a").ping(before.ip, within=1)
    b.add_address(before)
    assert b.addresses[4] == b.address() == before
    assert b.node.ping(b.gateway(), within=SOON)


@of_hosts
def test_its_rdma_device_is_the_kernel_s_and_counts(interface):
    with interface.node.entered(), rdma.Rdma() as here:
        assert here.links()[interface.name] == interface.rdma == interface.device
    assert interface.rdma_counters()["sent_pkts"] == 0


@pytest.mark.fresh
def test_an_interface_without_an_rdma_device_says_so_until_it_gets_one(lab):
    b = lab.host("b")["eth1"]
    assert b.rdma is None
    for use in (lambda: b.device, b.rdma_counters):
        with pytest.raises(InputError, match="eth1 of b has no RDMA device"):
            use()
    b.add_rdma("b-eth1")
    assert b.device == "b-eth1"
    assert b.rdma_counters()["rcvd_pkts"] == 0


# Its ends


def test_a_link_s_ends_are_each_other_s_peers(lab, pod):
    port, nic = lab["leaf"]["e1"], lab["a"]["eth1"]
    assert (port.peer, nic.peer, pod["eth0"].peer) == (nic, port, None)
    assert (lab.interface("leaf:e1"), lab.interface("a:eth1")) == (port, nic)
    assert port.plan.peer == (nic.node.name, nic.name)


def test_what_no_link_has_is_no_end_of_one(lab, pod):
    with pytest.raises(InputError, match="no link has an end 'web:eth0'"):
        lab.interface("web:eth0")
    for fault in LinkLoss(end="web:eth0", loss=1), NicDown(end="web:eth0"):
        with pytest.raises(InputError, match="no link has an end 'web:eth0'"), injected(lab, fault):
            pass
    with pytest.raises(InputError, match="web:eth0 is not the end of a link"):
        _ = pod["eth0"].sends


def test_a_name_that_is_not_there_is_one_error_with_the_nearest(lab, pod):
    for node, name, hint in (
        (lab.host("a"), "eht1", "Did you mean eth1? It has: eth1."),
        (lab.switch("leaf"), "E2", "Did you mean e2? It has: e1, e2."),
        (pod, "net1", "It has: eth0."),
    ):
        with pytest.raises(InputError) as wrong:
            node[name]
        assert (wrong.value.message, wrong.value.hint) == (f"{node} has no interface {name}", hint)
    with pytest.raises(InputError) as wrong:
        lab.host("webb")
    assert (wrong.value.message, wrong.value.hint) == (
        "the lab has no node webb",
        "Did you mean web? It has: leaf, a, b, web.",
    )
    with pytest.raises(InputError) as wrong:
        lab.interface("leaf:e9")
    assert wrong.value.hint.startswith("Did you mean leaf:e")


# Frames


@each
def test_it_counts_and_captures_what_passes(lab, interface, log):
    pinging = lab.nodes.get("web", lab["a"])
    assert pinging.ping(GATEWAY, within=SOON)  # each knows the other's MAC then
    before = interface.counters()
    first, second = interface.capture("icmp[icmptype] == icmp-echo"), interface.capture("icmp")
    assert pinging.ping(GATEWAY, within=SOON)
    for wire in first, second:
        wire.stop()
    after = interface.counters()
    assert [len(list(wire.frames())) for wire in (first, second)] == [1, 2]
    names = [f"{interface.node}-{interface.name}{number}.pcap" for number in ("", "-2")]
    assert [wire.file.name for wire in (first, second)] == names
    begun, ended = (log.find("capture", interface=interface.name, file=names[0], running=on) for on in (True, False))
    times = [(found[-1]["node"], found[-1]["data"]["filter"]) for found in (begun, ended)]
    assert times == [(interface.node.name, "icmp[icmptype] == icmp-echo")] * 2
    [frame] = first.frames()
    assert begun[-1]["t"] < frame.t_ns - log.realtime_ns < ended[-1]["t"]
    for way in "rx_packets", "tx_packets":
        assert after[way] - before[way] == 1


@of_hosts
def test_it_announces_its_address(lab, interface):
    wire = lab["leaf"]["e1"].capture("arp")
    interface.announce()
    lab.scheduler.sleep(0.1)
    wire.stop()
    assert [frame.data for frame in wire.frames()] == [packets.gratuitous(interface.mac, interface.address().ip)]


def test_it_announces_its_ipv6_address(lab, log):
    a = lab.host("a")["eth1"]
    wire = lab["leaf"]["e1"].capture("icmp6[0] == 136")
    a.announce(6)
    lab.scheduler.sleep(0.1)
    wire.stop()
    assert [frame.data for frame in wire.frames()] == [packets.gratuitous(a.mac, a.address(6).ip)]
    (event,) = log.find("na")
    assert (event["node"], event["data"]["ip"]) == ("a", "2001:db8:10::2")


@of_hosts
def test_it_sends_any_frame(lab, interface):
    frame = bytes.fromhex("ffffffffffff" + ELSEWHERE.replace(":", "") + "88b5") + b"by hand".ljust(46, b"\0")
    wire = lab["leaf"]["e1"].capture("ether proto 0x88b5")
    interface.send(frame)
    lab.scheduler.sleep(0.1)
    wire.stop()
    assert [found.data for found in wire.frames()] == [frame]


# Neighbours


@of_hosts
def test_it_knows_its_neighbours_and_takes_a_static_one(lab, interface):
    assert (interface.neighbour(GATEWAY), interface.neighbour_state(GATEWAY)) == (None, None)
    assert interface.node.ping(GATEWAY, within=SOON)
    assert interface.neighbour(GATEWAY) == lab.switch("leaf").svi_mac(10)
    assert interface.neighbour_state(GATEWAY) == "REACHABLE"
    interface.set_neighbour(NOBODY, ELSEWHERE)
    assert (interface.neighbour(NOBODY), interface.neighbour_state(NOBODY)) == (ELSEWHERE, "PERMANENT")


def test_it_knows_ipv6_neighbours(lab):
    a = lab.host("a")["eth1"]
    assert a.node.ping(GATEWAY6, within=SOON)
    assert a.neighbour(GATEWAY6) == lab.switch("leaf").svi_mac()
    a.set_neighbour(link_local(ELSEWHERE), ELSEWHERE)
    assert a.neighbour_state(link_local(ELSEWHERE)) == "PERMANENT"


@of_hosts
def test_it_says_why_an_address_is_not_reached(interface):
    assert interface.unreached(NOBODY) == f"no answer from {NOBODY} on {interface.name}"
    assert not interface.node.ping(NOBODY, within=1)
    assert interface.unreached(NOBODY) == f"no answer from {NOBODY} on {interface.name}"
    assert interface.node.ping(GATEWAY, within=SOON)
    assert interface.unreached(GATEWAY) == ""


# Down and up


@pytest.mark.fresh
@each
def test_it_goes_down_and_comes_up(lab, log, interface):
    peer = interface.peer
    interface.down()
    assert not interface.is_up
    assert peer is None or in_kernel(peer).get_attr("IFLA_CARRIER") == 0
    interface.up()
    assert interface.is_up
    assert peer is None or (peer.is_up and in_kernel(peer).get_attr("IFLA_CARRIER") == 1)
    found = [event["data"]["state"] for event in log.find("link", interface=interface.name) if "state" in event["data"]]
    assert found == ["down", "up"]


@each
def test_one_that_two_hold_down_is_up_after_the_last(interface):
    first, second = interface.hold_down(), interface.hold_down()
    first()
    assert not interface.is_up
    second()
    assert interface.is_up


@pytest.mark.fresh
def test_one_that_was_down_before_stays_down(lab):
    port = lab["leaf"]["e2"]
    port.down()
    port.hold_down()()
    assert not port.is_up


def routes(host: Host) -> dict[int, list[Any]]:
    """Those with a gateway."""
    return {family: [route for route in host.routes.shown(family) if "gateway" in route] for family in (4, 6)}


def test_a_host_s_routes_and_ipv6_address_come_back_after_the_last_holder(lab):
    a = lab.host("a")
    before, address = routes(a), a["eth1"].address(6)
    assert [len(found) for found in before.values()] == [1, 1]
    first, second = a["eth1"].hold_down(), a["eth1"].hold_down()
    first()
    assert routes(a) == {4: [], 6: []}
    assert 6 not in a["eth1"].addresses

    second()

    assert routes(a) == before
    assert a["eth1"].address(6) == address
    b = lab.host("b")["eth1"]
    assert a.ping(b.address().ip, within=SOON)
    assert a.ping(b.address(6).ip, within=SOON)


@pytest.mark.fresh
def test_a_route_that_shares_an_interface_of_the_user_s_own_comes_back(lab):
    a = lab.host("a")
    a.run("ip", "link", "add", "own0", "type", "dummy")
    a.run("ip", "address", "add", "192.0.2.1/24", "dev", "own0")
    a.run("ip", "link", "set", "own0", "up")
    hops = ("nexthop", "via", "192.0.2.2", "nexthop", "via", str(a["eth1"].gateway()))
    a.run("ip", "route", "add", "198.51.100.0/24", *hops)
    before = a.routes.shown(4)
    release = a["eth1"].hold_down()
    release()
    found = [route for route in a.routes.shown(4) if route["dst"] == "198.51.100.0/24"]
    assert found == [route for route in before if route["dst"] == "198.51.100.0/24"]
    assert len(found[0]["nexthops"]) == 2


def test_a_pod_s_route_comes_back(pod):
    before = routes(pod)
    assert before[4][0]["gateway"] == str(GATEWAY)
    release = pod["eth0"].hold_down()
    assert routes(pod)[4] == []
    release()
    assert routes(pod) == before
    assert pod.ping("10.0.20.1", within=SOON)
