"""Fabrics that BGP routes, wrongly described."""

import pytest
from refusals import assert_refused_at_caret, with_node

LINKS = """\
  nodes:
    a: {kind: switch, vlans: {10: 10.0.10.1/24}}
    b: {kind: switch, vlans: {10: null}}
  links:
"""


def test_an_unknown_routing_is_refused_with_those_there_are() -> None:
    link = '    - {endpoints: ["a:e1", "b:e1"]}\n'
    assert_refused_at_caret(
        f"name: lab\ntopology:\n  routing: ^ospf\n{LINKS}{link}",
        "'routing' must be 'static', 'frr' or 'evpn', not the string 'ospf'",
    )


@pytest.mark.parametrize(
    "link", ['{endpoints: ["a:e1", "b:e1"], vlan: 10}', '{endpoints: ["a:e1", "b:e1"], trunk: [10]}']
)
def test_frr_without_a_routed_link_is_refused(link: str) -> None:
    assert_refused_at_caret(
        f"name: lab\ntopology:\n  ^routing: frr\n{LINKS}    - {link}\n",
        "'routing: frr' needs a routed link: one between two switches, without 'vlan' and 'trunk'",
    )


def test_host_routes_without_bgp_to_announce_them() -> None:
    assert_refused_at_caret(
        with_node("{kind: switch, ^host_routes: true}"),
        "'host_routes' needs a routed link of 'n' ('routing: frr' or 'evpn'): BGP announces them",
    )


RACKS = (
    "name: lab\ntopology:\n  routing: frr\n  nodes:\n"
    "    s1: {kind: switch, vlans: {10: 10.0.0.1/24}, host_routes: true}\n"
    "    s2: {kind: switch, vlans: {10: 10.0.0.1/24, 20: null}, host_routes: true}\n"
    "    a: {kind: host}\n    b: {kind: host}\n  links:\n    - {endpoints: [s1:u, s2:u]}\n"
)


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (
            ["{endpoints: [s1:e1, a:eth1], vlan: 10, ipv4: [null, ^10.0.0.1/24]}"],
            "10.0.0.1 of a:eth1 is also that of the SVI of VLAN 10 on s1, in line 5",
        ),
        (
            [
                "{endpoints: [s1:e1, a:eth1], vlan: 10, ipv4: [null, 10.0.0.9/24]}",
                "{endpoints: [s2:e1, b:eth1], vlan: 10, ipv4: [null, ^10.0.0.9/24]}",
            ],
            "10.0.0.9 of b:eth1 is also that of a:eth1, in line 11",
        ),
    ],
)
def test_an_address_twice_in_a_subnet_of_several_switches(links: list[str], message: str) -> None:
    assert_refused_at_caret(RACKS + "".join(f"    - {link}\n" for link in links), message)


def test_a_gateway_address_twice_in_one_broadcast_domain() -> None:
    link = "    - {endpoints: [s1:t, s2:t], trunk: [10]}\n"
    assert_refused_at_caret(
        RACKS.replace("vlans: {10: 10.0.0.1/24, 20", "vlans: {10: ^10.0.0.1/24, 20") + link,
        "10.0.0.1 of the SVI of VLAN 10 on s2 is also that of the SVI of VLAN 10 on s1, in line 5; "
        "an anycast gateway has 'svi_mac' on each of its switches",
    )


def test_the_mtu_of_a_routed_link_is_one_for_ipv6() -> None:
    link = '    - {endpoints: ["a:e1", "b:e1"], mtu: ^1000}\n'
    assert_refused_at_caret(
        f"name: lab\ntopology:\n  routing: frr\n{LINKS}{link}", "MTU 1000 is below 1280, which the IPv6 of 'a' needs"
    )
