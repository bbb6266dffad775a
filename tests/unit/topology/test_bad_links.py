"""Links of a topology file that are wrong."""

import pytest
from refusals import assert_refused_at_caret, refused, with_links


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("rate: ^100", "the number 100 is not a number with a unit (kbit, mbit, gbit), such as 100mbit"),
        ("rate: ^100mb", "the string '100mb' is not a number with a unit"),
        ("rate: ^1kbit", "rate 1kbit is not in 8kbit..800gbit"),
        ("rate: ^900gbit", "rate 900gbit is not in 8kbit..800gbit"),
        ("delay: ^-1us", "the string '-1us' is not a number with a unit (us, ms, s), such as 50us"),
        ("delay: ^101s", "delay 101s is longer than 100s"),
        ("loss: ^101", "less than or equal to 100"),
        ("queue: ^0, rate: 1gbit", "greater than or equal to 1"),
        ("queue: ^100", "'queue' needs 'rate'"),
        ("ecn: ^100", "'ecn' needs 'rate'"),
        ("jitter: ^1ms", "'jitter' needs 'delay'"),
        ("rate: 1gbit, queue: 64, ecn: ^65", "'ecn' is above the queue's 64 packets"),
        ("rate: 1gbit, ecn: ^1001", "'ecn' is above the queue's 1000 packets"),
    ],
)
def test_the_quality_of_a_link(keys: str, message: str) -> None:
    assert_refused_at_caret(with_links(f"{{endpoints: [a:eth1, b:eth1], {keys}}}"), message)


def test_the_quality_of_one_direction() -> None:
    link = "{endpoints: [a:eth1, {node: b, interface: eth1, ecn: ^9, queue: 8}], rate: 1gbit}"
    assert_refused_at_caret(with_links(link), "'ecn' is above the queue's 8 packets")


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("{endpoints: ^[a:eth1]}", "too few entries in 'endpoints': 1, at least 2"),
        ("{endpoints: ^[a:eth1, b:eth1, b:eth2]}", "too many entries in 'endpoints': 3, at most 2"),
        ("{endpoints: ^a:eth1}", "'endpoints' must be a list, not the string 'a:eth1'"),
        ("{endpoints: [^a, b:eth1]}", "the string 'a' is not an endpoint such as 'leaf:e1' (node:interface)"),
        ("{endpoints: [^'a:b:c', b:eth1]}", "the string 'a:b:c' is not an endpoint"),
        ("{endpoints: [^5, b:eth1]}", "an entry of 'endpoints' must be a mapping, not the number 5"),
        ("^{vlan: 10}", "a link lacks the key 'endpoints'"),
        ("{endpoints: [^'a:e/1', b:eth1]}", "the string 'e/1' is not a usable interface name: letters, digits"),
        ("{endpoints: [^'a:e123456789012345', b:eth1]}", "is not a usable interface name"),
        ("{endpoints: [^'a:lo', b:eth1]}", "Linux uses the interface name 'lo' in every network namespace"),
        ("{endpoints: [a:eth1, b:eth1], mtu: ^67}", "MTU 67 is not in 68..65535 bytes"),
        ("{endpoints: [a:eth1, b:eth1], mtu: ^65536}", "MTU 65536 is not in 68..65535 bytes"),
        ("{endpoints: [a:eth1, b:eth1], mtu: ^1500.0}", "'mtu' must be an integer, not the number 1500.0"),
        ("{endpoints: [a:eth1, b:eth1], mtu: ^0150}", "'mtu' must be an integer, not the string '0150'"),
        ("{endpoints: [sw:e1, b:eth1], vlan: ^4095}", "VLAN 4095 is not in 1..4094"),
        ("{endpoints: [sw:e1, b:eth1], vlan: ^true}", "'vlan' must be an integer, not true"),
        ("{endpoints: [sw:e1, b:eth1], trunk: ^[]}", "too few entries in 'trunk': 0, at least 1"),
        ("{endpoints: [a:eth1, b:eth1], ipv6: ^[]}", "too few entries in 'ipv6': 0, at least 1"),
        (
            "{endpoints: [a:eth1, b:eth1], ipv6: [^10.0.0.1/24]}",
            "10.0.0.1/24 is an IPv4 address; write it under 'ipv4'",
        ),
        (
            "{endpoints: [a:eth1, b:eth1], ipv4: [^2001:db8::1/64]}",
            "2001:db8::1/64 is an IPv6 address; write it under 'ipv6'",
        ),
        (
            "{endpoints: [{node: a, interface: eth1, ipv6: ^2001:db8::1/64}, b:eth1], ipv6: [2001:db8::2/64]}",
            "a:eth1 has an address here and in the link's 'ipv6'",
        ),
        (
            "{endpoints: [a:eth1, b:eth1], ^impairment: {}}",
            "containerlab's key 'impairment' is not supported in a link: a link has 'delay', 'jitter'",
        ),
        (
            "{type: ^macvlan, endpoint: {node: a, interface: eth1}, host-interface: eno1}",
            "containerlab's link type 'macvlan' is not supported: it needs an interface of the machine that runs",
        ),
        ("{type: ^vet, endpoints: [a:eth1, b:eth1]}", "link type 'vet' is not supported; supported: veth, dummy, host"),
        ("^{type: host, endpoint: a:eth1}", "a link of type 'host' lacks the key 'host-interface'"),
        (
            "{endpoints: [{node: a, interface: eth1, mac: ^'03:00:00:00:00:01'}, b:eth1]}",
            "03:00:00:00:00:01 is not a unicast MAC address",
        ),
        ("{endpoints: [{node: a, interface: eth1, mac: ^x}, b:eth1]}", "the string 'x' is not a MAC address such as"),
        (
            "{endpoints: [{node: a, interface: eth1, mac: ^'06:00:00:00:00:01'}, b:eth1]}",
            "addresses that start with 06 are reserved for pods",
        ),
        (
            "{endpoints: [{node: a, ^iface: eth1}, b:eth1]}",
            "unknown key 'iface' in an endpoint; allowed: delay, ecn, hardware, interface",
        ),
    ],
)
def test_a_link(link: str, message: str) -> None:
    assert_refused_at_caret(with_links(link), message)


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (["{endpoints: [sw:e1, ^aa:eth1], vlan: 10}"], "unknown node 'aa'; nodes: sw, a, b, br; did you mean 'a'?"),
        (
            ["{endpoints: [a:eth1, ^'mgmt-net:x']}"],
            "unknown node 'mgmt-net'; nodes: sw, a, b, br; containerlab's special endpoint of this name is",
        ),
        (
            ["{endpoints: [a:eth1, ^'macvlan:x']}"],
            "containerlab's special endpoint 'macvlan' is not supported: it needs an interface of the machine",
        ),
        (
            ["{endpoints: [a:eth1, b:eth1]}", "{endpoints: [^a:eth1, b:eth2]}"],
            "interface a:eth1 is used twice; the first is in line 9",
        ),
        (["^{endpoints: [a:eth1, a:eth2]}"], "both ends of the link are on node 'a'"),
        (["{endpoints: [a:eth1, ^a:eth1]}"], "interface a:eth1 is used twice"),
        (["{endpoints: [^sw:vlan10, a:eth1], vlan: 10}"], "port name 'vlan10' is kept for the switch's own interfaces"),
        (["{endpoints: [^br:br0, a:eth1]}"], "port name 'br0' is kept for the bridge's own interfaces"),
        (["{endpoints: [sw:e1, a:eth1], vlan: ^30}"], "VLAN 30 is not among the VLANs of 'sw': 10, 20"),
        (["^{endpoints: [sw:e1, a:eth1]}"], "which VLAN of 'sw'? Add 'vlan' or 'trunk'; VLANs of 'sw': 10, 20"),
        (["{endpoints: [a:eth1, b:eth1], ^vlan: 10}"], "'vlan' needs a switch at one end of the link"),
        (["{endpoints: [a:eth1, br:p1], ^trunk: [10]}"], "'trunk' needs a switch at one end of the link"),
        (["{endpoints: [sw:e1, a:eth1], ^trunk: [10]}"], "host 'a' receives untagged frames only: add 'vlan'"),
        (["{endpoints: [sw:e1, br:p1], ^trunk: [10]}"], "bridge 'br' has no VLANs"),
        (["{endpoints: [sw:e1, a:eth1], vlan: 10, trunk: [20, ^20]}"], "VLAN 20 is twice in the trunk"),
        (["{endpoints: [sw:e1, a:eth1], vlan: 10, trunk: [^10]}"], "VLAN 10 is both the access VLAN and in the trunk"),
        (["{endpoints: [sw:e1, a:eth1], vlan: 10, trunk: [^30]}"], "VLAN 30 is not among the VLANs of 'sw'"),
        (
            ["{endpoints: [sw:e1, a:eth1], vlan: 10, ipv4: [^10.0.10.7/24]}"],
            "sw:e1 is a port of a switch and cannot have an address;",
        ),
        (
            ["{endpoints: [br:p1, a:eth1], ipv4: [^10.0.10.7/24]}"],
            "br:p1 is a port of a bridge and cannot have an address",
        ),
        (
            ["{endpoints: [sw:e1, a:eth1], vlan: 10, ipv4: [null, ^10.0.11.7/24]}"],
            "10.0.11.7/24 of a:eth1 is outside 10.0.10.0/24, the subnet of VLAN 10 of sw",
        ),
        (
            ["{endpoints: [sw:e1, a:eth1], vlan: 10, ipv4: [null, ^10.0.10.7/25]}"],
            "10.0.10.7/25 of a:eth1 has another prefix length than 10.0.10.0/24, the subnet of VLAN 10 of sw",
        ),
        (
            ["{endpoints: [sw:e1, a:eth1], vlan: 10, ipv4: [null, ^10.0.10.1/24]}"],
            "10.0.10.1 of a:eth1 is also that of the SVI of VLAN 10 on sw, in line 4",
        ),
        (
            ["{endpoints: [a:eth1, b:eth1], ipv4: [10.0.9.1/24, ^10.0.9.1/24]}"],
            "10.0.9.1 of b:eth1 is also that of a:eth1, in line 9",
        ),
        (
            ["{endpoints: [a:eth1, b:eth1], ipv4: [^10.0.10.9/25]}"],
            "10.0.10.0/25 of the link a:eth1 – b:eth1 overlaps 10.0.10.0/24 of VLAN 10 of sw, in line 4",
        ),
        (
            ["{endpoints: [{node: a, interface: eth1, ipv4: ^10.0.9.1/24}, b:eth1], ipv4: [10.0.9.2/24]}"],
            "a:eth1 has an address here and in the link's 'ipv4'",
        ),
        (
            [
                "{endpoints: [{node: a, interface: eth1, mac: 02:00:00:00:00:aa}, b:eth1]}",
                "{endpoints: [{node: a, interface: eth2, mac: ^02:00:00:00:00:AA}, b:eth2]}",
            ],
            "02:00:00:00:00:aa of a:eth2 is also that of a:eth1",
        ),
        (
            ["{endpoints: [{node: a, interface: eth1, mac: ^02:00:03:00:00:01}, b:eth1]}"],
            "02:00:03:00:00:01 of a:eth1 is also that of b:eth1",
        ),
        (
            ["{endpoints: [br:p1, sw:e1], vlan: 10}", "^{endpoints: [br:p2, sw:e2], vlan: 10}"],
            "this link closes a layer-2 loop (bridge br): 'stp: true' on a switch or bridge in it runs",
        ),
    ],
)
def test_links(links: list[str], message: str) -> None:
    assert_refused_at_caret(with_links(*links), message)


def test_a_trunk_with_two_links_is_a_loop_in_its_vlan() -> None:
    lines = refused(
        "name: lab\ntopology:\n  nodes: {s1: {kind: switch}, s2: {kind: switch}}\n  links:\n"
        "    - {endpoints: [s1:e1, s2:e1], trunk: [1]}\n    - {endpoints: [s1:e2, s2:e2]}\n"
    )
    assert lines == [
        "t.yml:6:7: this link closes a layer-2 loop (VLAN 1 of s1): 'stp: true' on a switch or bridge in it runs "
        "spanning tree, 'routing: frr' routes between switches"
    ]
