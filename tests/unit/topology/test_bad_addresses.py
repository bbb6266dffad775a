"""Addresses, subnets and routes of a topology file that cannot be."""

import pytest
from refusals import HEAD, assert_refused_at_caret, refused, with_node


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (
            ["{endpoints: [sw:e1, a:eth1], ipv6: [null, ^fd01::7/64]}"],
            "fd01::7/64 of a:eth1 is outside fd00::/64, the subnet of VLAN 1 of sw",
        ),
        (
            ["{endpoints: [sw:e1, a:eth1], ipv6: [null, ^fd00::1/64]}"],
            "fd00::1 of a:eth1 is also that of the SVI of VLAN 1 on sw, in line 4",
        ),
        (
            ["{endpoints: [sw:e1, a:eth1], ipv6: [^fd00::7/64]}"],
            "sw:e1 is a port of a switch and cannot have an address; give the address to a VLAN in 'vlans'",
        ),
        (
            ["{endpoints: [a:eth1, b:eth1], ipv6: [^fd00::7/48]}"],
            "fd00::/48 of the link a:eth1 – b:eth1 overlaps fd00::/64 of VLAN 1 of sw, in line 4",
        ),
        (["{endpoints: [sw:e1, a:eth1], mtu: ^1279}"], "MTU 1279 is below 1280, which the IPv6 of 'sw' needs"),
        (
            ["{endpoints: [a:eth1, b:eth1], mtu: ^1000, ipv6: [fd09::7/64]}"],
            "MTU 1000 is below 1280, which the IPv6 of 'a' needs",
        ),
    ],
)
def test_links_with_ipv6(links: list[str], message: str) -> None:
    head = HEAD.replace("10: 10.0.10.1/24, 20: null", "1: [10.0.10.1/24, fd00::1/64]")
    assert_refused_at_caret(head + "".join(f"    - {link}\n" for link in links), message)


def test_an_ipv6_subnet_without_room_for_its_hosts() -> None:
    (line,) = refused(
        "name: lab\ntopology:\n  nodes: {sw: {kind: switch, vlans: {1: fd00::1/126}}, a: {kind: host},"
        " b: {kind: host}, c: {kind: host}}\n"
        "  links: [{endpoints: [sw:e1, a:e]}, {endpoints: [sw:e2, b:e]}, {endpoints: [sw:e3, c:e]}]\n"
    )
    assert "fd00::/126 of VLAN 1 of sw has 3 usable addresses, but needs 4" in line


def test_subnets_of_two_vlans_overlap() -> None:
    assert_refused_at_caret(
        with_node("{kind: switch, vlans: {10: 10.0.10.1/24, 20: ^10.0.0.1/16}}"),
        "10.0.0.0/16 of VLAN 20 of n overlaps 10.0.10.0/24 of VLAN 10 of n, in line 4",
    )


def test_one_subnet_on_two_switches_that_no_link_joins() -> None:
    lines = refused(
        "name: lab\ntopology:\n  nodes:\n    s1: {kind: switch, vlans: {10: 10.0.0.1/24}}\n"
        "    s2: {kind: switch, vlans: {10: 10.0.0.2/24}}\n"
    )
    assert lines == [
        "t.yml:5:36: 10.0.0.0/24 of VLAN 10 of s2 overlaps 10.0.0.0/24 of VLAN 10 of s1, in line 4: "
        "segments without a link between them need separate subnets"
    ]


def test_a_subnet_without_room_for_its_hosts() -> None:
    hosts = "".join(f"    h{i}: {{kind: host}}\n" for i in range(6))
    links = "".join(f"    - {{endpoints: ['sw:e{i}', 'h{i}:eth1']}}\n" for i in range(6))
    (line,) = refused(
        f"name: lab\ntopology:\n  nodes:\n    sw: {{kind: switch, vlans: {{1: 10.0.0.1/29}}}}\n{hosts}  links:\n{links}"
    )
    assert line == "t.yml:4:35: 10.0.0.0/29 of VLAN 1 of sw has 6 usable addresses, but needs 7"


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        ("[{to: default, via: ^10.0.0.2}]", "10.0.0.2 is an address of 'a' itself"),
        ("[{to: default, via: ^10.1.0.1}]", "10.1.0.1 is in no subnet of 'a'; its subnets: 10.0.0.0/24, fd00::/64"),
        ("[{to: default, via: 10.0.0.1}, {to: ^0.0.0.0/0, via: 10.0.0.9}]", "'a' has two routes to 0.0.0.0/0"),
        ("[{to: 10.9.0.0/16, via: ^fd00::1}]", "fd00::1 is IPv6, but 10.9.0.0/16 is not"),
        ("[{to: default, via: ^fd01::1}]", "fd01::1 is in no subnet of 'a'; its subnets: 10.0.0.0/24, fd00::/64"),
    ],
)
def test_routes(routes: str, message: str) -> None:
    assert_refused_at_caret(
        "name: lab\ntopology:\n  nodes:\n    sw: {kind: switch, vlans: {1: [10.0.0.1/24, fd00::1/64]}}\n"
        f"    a: {{kind: host, routes: {routes}}}\n  links:\n    - endpoints: [sw:e1, a:eth1]\n",
        message,
    )


def test_the_pool_is_used_up() -> None:
    hosts = "".join(f"    h{i}: {{kind: host}}\n" for i in range(1026))
    links = "".join(f"    - endpoints: ['h{i}:eth1', 'h{i + 1}:eth1']\n" for i in range(0, 1026, 2))
    (line,) = refused(f"name: lab\ntopology:\n  nodes:\n{hosts}  links:\n{links}")
    assert line.startswith("t.yml:1543:7: the pool has no subnet left for the link h1024:eth1 – h1025:eth1")
