"""IPv6 in plans: beside IPv4, and instead of it."""

from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network

import pytest

from testbed.topology import Elements, NodeDefinition, Plan, Route, Topology, link_local

NODES = """
    leaf: {kind: switch, vlans: {10: [10.0.10.1/24, 2001:db8:10::1/64], 20: 2001:db8:20::1/64, 30: 10.0.30.1/24}}
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
"""


def plan(nodes: str, *links: str) -> Plan:
    lines = "".join(f"    - {{{link}}}\n" for link in links)
    return Topology.parse(f"name: lab\ntopology:\n  nodes:{nodes}  links:\n{lines}").plan()


def addresses(of: Plan, node: str, interface: str = "eth1") -> list[str]:
    return [str(address) for address in of.nodes[node].interface(interface).addresses]


def leaf_with(*links: str) -> Plan:
    return plan(NODES, *links)


def test_a_host_has_an_address_of_each_family_that_its_vlan_has() -> None:
    leaf = leaf_with(
        "endpoints: [leaf:e1, a:eth1], vlan: 10",
        "endpoints: [leaf:e2, b:eth1], vlan: 20",
        "endpoints: [leaf:e3, c:eth1], vlan: 30",
    )

    assert [addresses(leaf, host) for host in "abc"] == [
        ["10.0.10.2/24", "2001:db8:10::2/64"],
        ["2001:db8:20::2/64"],
        ["10.0.30.2/24"],
    ]
    assert [[str(address) for address in svi.addresses] for svi in leaf.nodes["leaf"].svis] == [
        ["10.0.10.1/24", "2001:db8:10::1/64"],
        ["2001:db8:20::1/64"],
        ["10.0.30.1/24"],
    ]


def test_a_host_has_a_gateway_and_a_default_route_of_each_family() -> None:
    leaf = leaf_with("endpoints: [leaf:e1, a:eth1], vlan: 10", "endpoints: [leaf:e2, b:eth1], vlan: 20")

    a, b = leaf.nodes["a"], leaf.nodes["b"]
    assert (a.interface("eth1").gateway, a.interface("eth1").gateway6) == (
        IPv4Address("10.0.10.1"),
        IPv6Address("2001:db8:10::1"),
    )
    assert a.routes == (
        Route(IPv4Network("0.0.0.0/0"), (IPv4Address("10.0.10.1"),)),
        Route(IPv6Network("::/0"), (IPv6Address("2001:db8:10::1"),)),
    )
    assert b.interface("eth1").gateway is None
    assert b.routes == (Route(IPv6Network("::/0"), (IPv6Address("2001:db8:20::1"),)),)


@pytest.mark.parametrize(
    "link",
    [
        "endpoints: [{node: a, interface: eth1, ipv6: fd00::9/64}, b:eth1]",
        "endpoints: [a:eth1, b:eth1], ipv6: [fd00::9/64]",
    ],
    ids=["extended", "brief"],
)
def test_one_ipv6_address_on_a_link_gives_the_other_end_one(link: str) -> None:
    pair = plan("\n    a: {kind: host}\n    b: {kind: host}\n", link)

    assert [addresses(pair, host) for host in "ab"] == [["fd00::9/64"], ["fd00::1/64"]]


def test_both_families_on_a_link() -> None:
    pair = plan(
        "\n    a: {kind: host}\n    b: {kind: host}\n",
        "endpoints: [a:eth1, b:eth1], ipv4: [192.0.2.1/31, 192.0.2.0/31], ipv6: [fd00::/127, fd00::1/127]",
    )

    assert [addresses(pair, host) for host in "ab"] == [["192.0.2.1/31", "fd00::/127"], ["192.0.2.0/31", "fd00::1/127"]]


def test_routes_of_either_family_and_a_default_of_that_of_its_next_hop() -> None:
    routed = plan(
        "\n    leaf: {kind: switch, vlans: {1: [10.0.0.1/24, 2001:db8::1/64]}}\n"
        "    a: {kind: host, routes: [{to: default, via: 2001:db8::1}, {to: 10.9.0.0/16, via: 10.0.0.1},"
        " {to: 2001:db8:9::/48, via: 2001:db8::1}]}\n",
        "endpoints: [leaf:e1, a:eth1]",
    )

    assert [(str(route.destination), ", ".join(map(str, route.via))) for route in routed.nodes["a"].routes] == [
        ("::/0", "2001:db8::1"),
        ("10.9.0.0/16", "10.0.0.1"),
        ("2001:db8:9::/48", "2001:db8::1"),
    ]


def test_a_vlan_of_a_node_replaces_that_of_its_kind_whole() -> None:
    inherited = Topology.parse(
        "name: lab\ntopology:\n  kinds: {switch: {vlans: {1: [10.0.0.1/24, fd00::1/64], 2: fd02::1/64}}}\n"
        "  nodes: {leaf: {kind: switch, vlans: {1: fd01::1/64}}}\n"
    ).plan()

    assert [svi.addresses for svi in inherited.nodes["leaf"].svis] == [
        (IPv6Interface("fd01::1/64"),),
        (IPv6Interface("fd02::1/64"),),
    ]


def test_in_python_a_vlan_takes_what_a_file_has() -> None:
    four, six = IPv4Interface("10.0.0.1/24"), IPv6Interface("fd00::1/64")
    leaf = NodeDefinition(kind="switch", vlans={1: four, 2: IPv6Interface("fd02::1/64"), 3: None, 4: []})
    both = NodeDefinition(kind="switch", vlans={1: [IPv4Interface("10.0.1.1/24"), six]})
    lab = Topology(name="lab", topology=Elements(nodes={"leaf": leaf, "both": both})).plan()

    assert [len(svi.addresses) for svi in lab.nodes["leaf"].svis] == [1, 1, 0, 0]
    assert lab.nodes["both"].svis[0].address6 == six


def test_the_link_local_address_of_a_mac() -> None:
    assert str(link_local("02:00:04:00:00:01")) == "fe80::4ff:fe00:1"  # RFC 4291 appendix A


def test_a_linux_node_has_the_families_that_the_file_gives_it() -> None:
    linux = plan(
        "\n    leaf: {kind: switch, vlans: {1: [10.0.0.1/24, fd00::1/64]}}\n"
        "    a: {kind: linux, image: alpine}\n    b: {kind: linux, image: alpine}\n    c: {kind: host}\n",
        "endpoints: [leaf:e1, a:eth1], ipv6: [null, fd00::a/64]",
        "endpoints: [leaf:e2, b:eth1], ipv4: [null, 10.0.0.9/24]",
        "endpoints: [leaf:e3, c:eth1]",
    )

    assert [addresses(linux, node) for node in "abc"] == [
        ["fd00::a/64"],
        ["10.0.0.9/24"],
        ["10.0.0.2/24", "fd00::2/64"],
    ]
