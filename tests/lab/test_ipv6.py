"""IPv6 on hosts: planned addresses work at once and alone, and RDMA runs over them."""

from collections.abc import Iterator
from ipaddress import IPv6Interface, IPv6Network

import pytest

from testbed.errors import InputError
from testbed.lab import Host
from testbed.lab.capture import Capture, Frame
from testbed.topology import link_local
from testbed.workload.verbs import Endpoint, connect_pair

SEGMENT = """
name: segment
topology:
  nodes:
    hub: {kind: bridge}
    a: {kind: host}
    b: {kind: host}
  links:
    - {endpoints: ["hub:p1", "a:eth1"], ipv4: [null, 10.0.10.1/24], ipv6: [null, "2001:db8:10::1/64"]}
    - {endpoints: ["hub:p2", "b:eth1"]}
"""
ONLY_6 = """
name: six
topology:
  nodes:
    a: {kind: host}
    b: {kind: host}
  links:
    - {endpoints: ["a:eth1", "b:eth1"], ipv6: ["2001:db8:10::1/64"]}
"""
SOON = 2.0
ELSEWHERE = "02:00:00:00:00:99"
"""The MAC of nobody."""


def endpoint(host: Host, family: int) -> Endpoint:
    return Endpoint(host["eth1"].device, host.namespace, host["eth1"].address(family).ip)


@pytest.mark.topology(SEGMENT)
@pytest.mark.parametrize("family", [4, 6])
def test_rdma_runs_over_either_family(lab, family):
    a, b = lab.host("a"), lab.host("b")
    wire = a["eth1"].capture()

    with endpoint(a, family) as near, endpoint(b, family) as far:
        connect_pair(near, far)
        assert near.write(5000, within=SOON).ok
        assert far.load(0, 5000) == near.load(0, 5000)

    roce = [frame.data[12:14].hex() for frame in frames_of(wire) if frame.roce]
    assert len(roce) >= 6
    assert set(roce) == {"0800" if family == 4 else "86dd"}


@pytest.mark.topology(ONLY_6)
def test_a_lab_may_have_ipv6_alone(lab):
    a, b = lab.host("a"), lab.host("b")
    assert list(a["eth1"].addresses) == [6]
    assert a.ping(str(b["eth1"].address(6).ip), within=SOON)
    assert a["eth1"].neighbour(b["eth1"].address(6).ip) == b["eth1"].mac
    with pytest.raises(InputError, match="eth1 of a has no IPv4 address"):
        a["eth1"].address()


@pytest.mark.topology(ONLY_6)
def test_a_link_local_address_follows_from_the_mac(lab):
    a, b = lab.host("a"), lab.host("b")
    near, far = link_local(a["eth1"].mac), link_local(b["eth1"].mac)
    assert f"inet6 {near}/64 scope link" in a.run("ip", "-6", "addr", "show", "eth1").stdout
    assert a.ping(f"{far}%eth1", within=SOON)
    with Endpoint("a-eth1", a.namespace, near) as one, Endpoint("b-eth1", b.namespace, far) as other:
        connect_pair(one, other)
        assert one.write(64, within=SOON).ok


@pytest.mark.fresh
@pytest.mark.topology(SEGMENT)
def test_an_interface_whose_ipv6_is_off_comes_up_without_and_gets_it_back(lab):
    a = lab.host("a")
    local = f"inet6 {link_local(a['eth1'].mac)}/64 scope link"
    for off in True, False:
        a.sysctl("net/ipv6/conf/eth1/disable_ipv6", int(off))
        for state in "down", "up":
            a.run("ip", "link", "set", "eth1", state)
            lab.scheduler.sleep(0.1)
        assert (local in a.run("ip", "-6", "addr", "show", "eth1").stdout) is not off


@pytest.mark.fresh
@pytest.mark.topology(SEGMENT)
def test_nothing_is_sent_for_an_address_of_ours(lab):
    a, wire = lab.host("a"), lab["hub"]["p1"].capture()

    a["eth1"].add_address(IPv6Interface("2001:db8:10::77/64"))
    lab.scheduler.sleep(120)

    assert list(frames_of(wire)) == []
    assert lab["b"].ping("2001:db8:10::77", within=SOON)


@pytest.mark.fresh
@pytest.mark.topology(SEGMENT)
def test_an_address_that_a_program_adds_is_looked_for(lab):
    a, b = lab.host("a"), lab.host("b")

    a.run("ip", "addr", "add", str(b["eth1"].address(6)), "dev", "eth1")
    lab.scheduler.sleep(2)

    assert "dadfailed" in a.run("ip", "-6", "addr", "show", "eth1").stdout


@pytest.mark.fresh
@pytest.mark.topology(SEGMENT)
def test_addresses_routes_and_neighbours_are_those_of_their_family(lab):
    a, b = lab.host("a"), lab.host("b")
    peer = b["eth1"].address(6).ip

    a["eth1"].set_neighbour(peer, ELSEWHERE)
    assert a["eth1"].neighbour(peer) == ELSEWHERE
    assert not a.ping(str(peer), within=SOON)
    a.run("ip", "neigh", "del", str(peer), "dev", "eth1")
    a.add_route(IPv6Network("::/0"), peer)
    b["eth1"].add_address(IPv6Interface("2001:db8:99::1/64"))
    assert a.ping("2001:db8:99::1", within=SOON)

    before = a["eth1"].address(6)
    assert a["eth1"].remove_address(6) == before
    assert str(before.ip) not in a.run("ip", "addr", "show", "eth1").stdout
    assert a.ping(str(b["eth1"].address().ip), within=SOON)


def frames_of(wire: Capture) -> Iterator[Frame]:
    wire.stop()
    return wire.frames()
