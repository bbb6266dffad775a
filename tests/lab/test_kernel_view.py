"""Addresses, MACs and MTUs are the kernel's, whoever changed them; each change is an event."""

import os
import socket

import pytest

from testbed.topology import Topology

PAIR = Topology.parse("""
name: pair
topology:
  rdma_mode: exclusive
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24}}
    a: {kind: host}
    b: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10, rdma: false}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10, rdma: false}
""")
SO_RCVBUFFORCE = 33
MAC = "02:00:00:00:00:99"
pytestmark = [pytest.mark.topology(PAIR), pytest.mark.fresh]


def told(log):
    return [(event["node"], event["kind"], event["text"]) for event in log.events]


def test_an_address_that_a_command_moves_has_its_new_owner(lab, log):
    a, b = lab.host("a")["eth1"], lab.host("b")["eth1"]
    moved, own = a.address(), b.address()
    a.node.run("ip", "address", "del", str(moved), "dev", "eth1")
    lab.scheduler.sleep(1)
    b.node.run("ip", "address", "add", str(moved), "dev", "eth1")
    assert 4 not in a.addresses
    assert [one for one in b.all_addresses if one.version == 4] == [own, moved]
    assert b.address() == own
    lost, got = (event for event in log.events if event["kind"] == "address")
    assert (lost["node"], lost["text"]) == ("a", f"eth1 no longer has {moved}")
    assert (got["node"], got["data"]) == ("b", {"interface": "eth1", "ip": str(moved.ip), "has": True})
    assert 1e9 <= got["t"] - lost["t"] < 1.1e9


def test_links_routes_and_members_that_a_command_changes_are_told(lab, log):
    a = lab.host("a")
    for words in (
        "link set eth1 down",
        f"link set eth1 address {MAC}",
        "link set eth1 mtu 1400",
        "link set eth1 up",
        "link add br9 address 02:00:00:00:00:98 type bridge",
        "link set eth1 master br9",
        "link set eth1 nomaster",
        "link del br9",
        "route add 192.0.2.0/24 via 10.0.10.1",
        "route del 192.0.2.0/24",
    ):
        a.run("ip", *words.split())
    assert (a["eth1"].mac, a["eth1"].mtu) == (MAC, 1400)
    texts = [
        text
        for node, kind, text in told(log)
        if node == "a" and kind in ("link", "route") and not text.startswith("br9 has")  # it follows its port
    ]
    assert texts == [
        "eth1 down",
        f"eth1 has MAC {MAC}",
        "eth1 has MTU 1400",
        "eth1 up",
        "br9 is new",
        "eth1 is in br9",
        "eth1 is in no bridge or bond",
        "br9 is gone",
        "route to 192.0.2.0/24 by 10.0.10.1",
        "no route to 192.0.2.0/24 by 10.0.10.1",
        "no route to default by 10.0.10.1",  # it went with the link; the kernel is asked after its messages
    ]


def test_a_route_that_goes_with_an_address_or_a_link_is_told(lab, log):
    a = lab.host("a")
    own, gateway = a["eth1"].address(), "10.0.10.1"
    a.run("ip", "route", "add", "192.0.2.0/24", "via", gateway)
    a.run("ip", "address", "del", str(own), "dev", "eth1")
    lab.scheduler.catch_up()
    words = f"ip address add {own} dev eth1; ip route add 198.51.100.0/24 via {gateway}; ip link set eth1 down"
    a.run("sh", "-c", words)
    lab.scheduler.catch_up()
    routes = [text for node, kind, text in told(log) if (node, kind) == ("a", "route")]
    default = f"no route to default by {gateway}"
    assert [text for text in routes if text != default] == [
        f"route to 192.0.2.0/24 by {gateway}",
        f"no route to 192.0.2.0/24 by {gateway}",
        f"route to 198.51.100.0/24 by {gateway}",
        f"no route to 198.51.100.0/24 by {gateway}",
    ]
    assert routes.count(default) == 1


def test_a_route_that_loses_one_of_its_next_hops_is_told(lab, log):
    a = lab.host("a")
    for words in (
        "link add d0 type dummy",
        "address add 10.8.0.1/24 dev d0",
        "link set d0 up",
        "route add 203.0.113.0/24 nexthop via 10.0.10.1 nexthop via 10.8.0.2",
        "link set d0 down",
    ):
        a.run("ip", *words.split())
        lab.scheduler.catch_up()
    assert [text for node, kind, text in told(log) if (node, kind) == ("a", "route")] == [
        "route to 203.0.113.0/24 by 10.0.10.1, 10.8.0.2",
        "route to 203.0.113.0/24 by 10.0.10.1",
    ]


def test_a_route_that_replaces_another_one_is_told_once(lab, log):
    a = lab.host("a")
    for gateway in "10.0.10.1", "10.0.10.3":
        a.run("ip", "route", "replace", "203.0.113.0/24", "via", gateway)
        lab.scheduler.catch_up()
    a.run("ip", "route", "append", "203.0.113.0/24", "via", "10.0.10.1")
    lab.scheduler.catch_up()
    assert [text for node, kind, text in told(log) if (node, kind) == ("a", "route")] == [
        f"route to 203.0.113.0/24 by 10.0.10.{number}" for number in (1, 3, 1)
    ]


def test_a_carrier_that_is_lost_is_told(lab, log):
    a, b = lab.host("a"), lab.host("b")
    a.run("ip", "link", "set", "eth1", "down")
    lab.scheduler.sleep(2)
    a.run("ip", "link", "set", "eth1", "up")
    lab.scheduler.sleep(2)
    assert [text for node, kind, text in told(log) if (node, kind) == ("leaf", "link")] == [
        "e1 has no carrier",
        "e1 has a carrier",
    ]
    assert [text for node, kind, text in told(log) if (node, kind) == ("a", "link")] == ["eth1 down", "eth1 up"]
    assert not [node for node, kind, _ in told(log) if kind == "link" and node == b.name]


def test_a_change_while_something_is_waited_for_has_its_own_time(lab, log):
    a = lab.host("a")
    a.spawn("sh", "-c", "sleep 2; ip address add 192.0.2.1/32 dev eth1; sleep 2; ip address del 192.0.2.1/32 dev eth1")
    lab.scheduler.sleep(10)
    first, second = (event["t"] for event in log.events if event["kind"] == "address")
    assert 2e9 <= second - first < 2.1e9


def test_after_notifications_were_lost_the_view_is_read_again(lab, log):
    a = lab.host("a")
    notifications = socket.socket(fileno=os.dup(a.context.view.fileno()))
    notifications.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4096)
    notifications.close()
    there = [f"192.0.2.{number}/32" for number in range(1, 101)]
    lines = [*(f"address add {address} dev eth1" for address in there), "route add 203.0.113.0/24 via 10.0.10.1"]
    a.run("ip", "-batch", "-", text="\n".join(lines) + "\n")
    assert [str(one) for one in a["eth1"].all_addresses][1:] == there
    told = [event["data"]["ip"] for event in log.events if event["kind"] == "address"]
    assert sorted(told) == sorted(address.partition("/")[0] for address in there)
    assert "route to 203.0.113.0/24 by 10.0.10.1" in [event["text"] for event in log.events if event["kind"] == "route"]
