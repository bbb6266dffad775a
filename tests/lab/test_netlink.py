"""What testbed's own rtnetlink makes and reads is what pyroute2, which is somebody else's, finds in the kernel."""

import socket
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path

import pytest
from pyroute2 import IPRoute

from testbed.kernel import netns, sysctl
from testbed.kernel import rtnetlink as rt
from testbed.kernel.changes import Changes
from testbed.kernel.link_readings import STATISTICS
from testbed.kernel.links import End
from testbed.kernel.rtnetlink import MAIN, Rtnetlink

NEAR, FAR = End("near", "02:00:00:00:00:01", 4000), End("far", "02:00:00:00:00:02", 1400)


@pytest.fixture
def both():
    """Two sockets in one namespace: ours and pyroute2's."""
    netns.create("one")
    netns.create("other")
    try:
        with netns.entered("one"), Rtnetlink() as kernel, IPRoute() as ip:
            yield kernel, ip
    finally:
        netns.delete("one")
        netns.delete("other")


@pytest.fixture
def veth(both):
    """The index of a veth pair's end that is up, its other end up in the other namespace."""
    kernel, _ = both
    kernel.add_veth(7, NEAR, FAR, netns.path("other"))
    kernel.set_link(7, up=True)
    with netns.entered("other"), Rtnetlink() as there:
        there.set_link(there.index("far"), up=True)
    return 7


def test_messages_that_find_no_room_are_counted(both, veth):
    kernel, _ = both
    with Rtnetlink() as small, Rtnetlink() as large:
        small.listen([rt.LINK], buffer=1)
        large.listen([rt.LINK], buffer=1 << 20)
        for mtu in range(2000, 2050):
            kernel.set_link(veth, mtu=mtu)
        came, all_ = len(list(small.news())), len(list(large.news()))
        assert came < all_
        assert (small.lost(), large.lost()) == (all_ - came, 0)
        kernel.set_link(veth, mtu=1500)
        assert len(list(small.news())) == len(list(large.news()))
        assert small.lost() == 0


def test_a_directory_that_was_made_while_inotify_had_no_room_is_watched(tmp_path):
    files = [tmp_path / "a", tmp_path / "b"]
    for file in files:
        file.touch()
    most = sysctl.read("fs/inotify/max_queued_events")
    sysctl.write("fs/inotify/max_queued_events", 4)
    try:
        with Changes([], tmp_path) as changes:
            for number in range(8):  # equal events that follow each other are one
                files[number % 2].write_text("x")
            (tmp_path / "job").mkdir()
            changes.drain()
            (tmp_path / "job" / "output.log").touch()
            assert changes.pending()
    finally:
        sysctl.write("fs/inotify/max_queued_events", most)


def link(ip, name):
    [found] = ip.get_links(ifname=name)
    information = found.get_attr("IFLA_LINKINFO")
    return found, information.get_attr("IFLA_INFO_KIND"), information.get_attr("IFLA_INFO_DATA")


def test_a_veth_pair_is_born_in_two_namespaces(both, veth):
    kernel, ip = both
    found, kind, _ = link(ip, "near")
    assert (found["index"], kind, found.get_attr("IFLA_ADDRESS"), found.get_attr("IFLA_MTU")) == (7, "veth", *NEAR[1:])
    with netns.entered("other"), IPRoute() as there:
        found, kind, _ = link(there, "far")
        assert (kind, found.get_attr("IFLA_ADDRESS"), found.get_attr("IFLA_MTU")) == ("veth", *FAR[1:])
    assert kernel.carry([veth])


@pytest.mark.parametrize(("vlan_aware", "pvid"), [(False, 1), (True, 0)])
def test_a_bridge(both, veth, vlan_aware, pvid):
    kernel, ip = both
    index = kernel.add_bridge("br", NEAR.mac, vlan_aware=vlan_aware)
    found, kind, data = link(ip, "br")
    assert (found["index"], kind, found.get_attr("IFLA_ADDRESS")) == (index, "bridge", NEAR.mac)
    assert kernel.is_up(index)
    assert data.get_attr("IFLA_BR_MCAST_SNOOPING") == 0
    assert data.get_attr("IFLA_BR_VLAN_FILTERING") == vlan_aware
    assert data.get_attr("IFLA_BR_VLAN_DEFAULT_PVID") == pvid
    kernel.enslave(veth, index)
    assert link(ip, "near")[0].get_attr("IFLA_MASTER") == index
    kernel.delete_link(index)
    assert not ip.link_lookup(ifname="br")


def test_devices_on_others(both, veth):
    kernel, ip = both
    bridge = kernel.add_bridge("br", vlan_aware=True)
    index = kernel.add_svi("vlan30", bridge, 30, 1450)
    found, kind, data = link(ip, "vlan30")
    assert (found["index"], kind, data.get_attr("IFLA_VLAN_ID")) == (index, "vlan", 30)
    assert (found.get_attr("IFLA_LINK"), found.get_attr("IFLA_MTU")) == (bridge, 1450)
    [own] = [entry for entry in ip.get_vlans() if entry["index"] == bridge]
    assert "'vid': 30" in str(own)
    kernel.add_macvlan("vf", veth, "02:00:00:00:00:09")
    found, kind, data = link(ip, "vf")
    assert (kind, found.get_attr("IFLA_LINK"), found.get_attr("IFLA_ADDRESS")) == ("macvlan", veth, "02:00:00:00:00:09")
    assert data.get_attr("IFLA_MACVLAN_MODE") == "bridge"
    kernel.add_ifb("ifb7")
    assert link(ip, "ifb7")[1] == "ifb"
    assert kernel.is_up(kernel.index("ifb7"))


def test_values_of_an_interface(both, veth):
    kernel, ip = both
    for namespace, interface in (("one", "near"), ("other", "far")):
        with netns.entered(namespace):  # it would send reports of its own
            Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6").write_text("1")
    kernel.set_link(veth, mac="02:00:00:00:00:07", mtu=1300)
    found, _, _ = link(ip, "near")
    assert (found.get_attr("IFLA_ADDRESS"), kernel.mtu(veth)) == ("02:00:00:00:00:07", 1300)
    assert kernel.is_up(veth)  # what is not given stays
    counted = link(ip, "near")[0].get_attr("IFLA_STATS64")
    assert kernel.statistics(veth) == {name: counted[name] for name in STATISTICS}
    assert [name for name in counted if name in STATISTICS] == [*STATISTICS]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind(("near", 0))
        before = kernel.statistics(veth)["tx_bytes"]
        wire.send(bytes(60))
    assert kernel.statistics(veth)["tx_bytes"] == before + 60
    everywhere = kernel.all_statistics()
    assert everywhere[veth] == kernel.statistics(veth)
    assert everywhere.keys() == {found["index"] for found in ip.get_links()}
    kernel.set_link(veth, up=False)
    assert not kernel.is_up(veth)
    assert not kernel.carry([veth])


@pytest.mark.parametrize(
    ("text", "broadcast"),
    [("10.1.2.3/24", "10.1.2.255"), ("10.1.2.3/31", None), ("10.1.2.3/32", None), ("fd00::3/64", None)],
)
def test_addresses(both, veth, text, broadcast):
    kernel, ip = both
    address = ip_interface(text)
    for _ in range(2):  # the second time it is there
        kernel.set_address(veth, address)
    assert (veth, address) in list(kernel.addresses())
    [found] = [entry for entry in ip.get_addr(index=veth) if entry.get_attr("IFA_ADDRESS") == str(address.ip)]
    assert found["prefixlen"] == address.network.prefixlen
    assert found.get_attr("IFA_BROADCAST") == broadcast
    kernel.delete_address(veth, address)
    assert (veth, address) not in list(kernel.addresses())


@pytest.mark.parametrize(("text", "to"), [("10.1.2.{}", "10.9.0.0/16"), ("fd00::{}", "fd09::/64")])
@pytest.mark.parametrize("hops", [1, 2])
def test_routes(both, veth, text, to, hops):
    kernel, ip = both
    first = ip_interface(f"{text.format(1)}/{24 if '.' in to else 64}")
    kernel.set_address(veth, first)
    via = [ip_address(text.format(number)) for number in range(2, 2 + hops)]
    kernel.add_route(ip_network(to), via)
    with pytest.raises(FileExistsError):
        kernel.add_route(ip_network(to), via)
    kernel.add_route(ip_network(to), via, replace=True)
    [route] = [route for route in ip.get_routes(table=MAIN) if route.get_attr("RTA_DST") == to.partition("/")[0]]
    found = [route] if route.get_attr("RTA_GATEWAY") else route.get_attr("RTA_MULTIPATH")
    assert sorted(hop.get_attr("RTA_GATEWAY") for hop in found) == sorted(map(str, via))


@pytest.mark.parametrize("text", ["10.1.2.9", "fd00::9"])
def test_neighbours(both, veth, text):
    kernel, ip = both
    address = ip_address(text)
    kernel.set_neighbour(veth, address, "02:00:00:00:00:05")
    [entry] = [entry for entry in kernel.neighbours(address.version) if entry.ip == address]
    assert (entry.index, entry.state, entry.mac) == (veth, "PERMANENT", "02:00:00:00:00:05")
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    [found] = ip.get_neighbours(family=family, dst=text)
    assert found.get_attr("NDA_LLADDR") == "02:00:00:00:00:05"
    kernel.delete_neighbour(veth, address)
    assert address not in [entry.ip for entry in kernel.neighbours(address.version)]
