"""Nodes of a topology file that are wrong."""

import pytest
from refusals import assert_refused_at_caret, refused, with_node

from testbed.topology import Topology
from testbed.topology.values import check_rdma


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "{kind: host, ^image: alpine}",
            "'image' is a key of a linux, not of a host; allowed: routes, sysctls, bonds, nic, rdma, ",
        ),
        (
            "{kind: linux, network-mode: ^'container:x'}",
            "the lab has no container 'x' whose network 'n' can share; there are: none",
        ),
        (
            "{kind: linux, network-mode: ^joined}",
            "'network-mode' must be none, bridge or container:NODE, not the string",
        ),
        (
            "{kind: linux, stages: {create: {exec: [{command: ls, target: ^host}]}}}",
            "'target: host' runs a command on the machine with the containers, which a lab does not have",
        ),
        (
            "{kind: linux, stages: {create: {wait-for: [{^nodes: n}]}}}",
            "unknown key 'nodes' in an entry of 'wait-for'; allowed: node, stage; did you mean 'node'?",
        ),
        (
            "{kind: linux, stages: ^{create: {wait-for: [{node: m}]}}}",
            "stage 'create' of 'n' waits for 'm', which is no node of `linux`; there are: n",
        ),
        ("{kind: linux, wait-for: ^[n]}", "nodes wait for each other"),
        (
            "{kind: linux, healthcheck: {test: ^ls}}",
            "'test' must begin with CMD, CMD-SHELL or NONE, not the string 'ls'",
        ),
        ("{kind: linux, mgmt-ipv4: ^10.0.0.1}", "10.0.0.1 is not in 172.20.20.0/24, the management network"),
        ("{kind: linux, sysctls: ^{a: 1}}", "'a' is not the name of a sysctl such as net.ipv4.ip_forward"),
        ("{kind: linux, sysctls: ^{net.ipv4/../../vm: 1}}", "'net.ipv4/../../vm' is not the name of a sysctl"),
        (
            "{kind: linux, sysctls: ^{vm.swappiness: 1}}",
            "sysctl 'vm.swappiness' belongs to the machine, not to a node; a node has only",
        ),
        (
            "{kind: linux, sysctls: ^{net.ipv4.ip_forward: true}}",
            "sysctl 'net.ipv4.ip_forward' must be a number or a string, not true",
        ),
        (
            "{kind: switch, sysctls: ^{vm.swappiness: 1}}",
            "sysctl 'vm.swappiness' belongs to the machine, not to a node",
        ),
        ("{kind: bridge, ^sysctls: {net.ipv4.ip_forward: 1}}", "'sysctls' is a key of a host, not of a bridge"),
        ("{kind: bridge, ^exec: [ls]}", "'exec' is a key of a host, not of a bridge; allowed: stp, labels, group"),
        ("{kind: linux, exec: [^'echo \"a']}", "the string 'echo \"a' is not a command: no closing quotation"),
        ("{kind: linux, exec: [^' ']}", "a command is empty"),
        ("{kind: linux, exec: ^ls}", "'exec' must be a list, not the string 'ls'"),
        ("{kind: linux, env: ^{A: 1.10}}", "variable 'A' must be a string, not the number 1.1; quote it"),
        ("{kind: linux, env: ^{a-b: x}}", "'a-b' is not the name of an environment variable"),
        ("{kind: linux, env: ^{__IMPORT_ENV: 'true'}}", "'__IMPORT_ENV' imports variables; testbed does not"),
        ("{kind: ^nokia_srlinux}", "kind 'nokia_srlinux' is not supported; supported: host, switch, bridge"),
        (
            "{kind: ^swich}",
            "kind 'swich' is not supported; supported: host, switch, bridge, linux, ovs-bridge; did you mean 'switch'?",
        ),
        ("{kind: ^[host]}", "kind a list is not supported"),
        ("^{}", "node 'n' has no kind; add one to it, its group or topology.defaults: host, switch, bridge"),
        ("^null", "node 'n' has no kind"),
        ("^host", "'n' must be a mapping, not the string 'host'"),
        (
            "{kind: host, nic: ^hardwar}",
            "'nic' must be 'hardware' or 'rxe', not the string 'hardwar'; did you mean 'hardware'?",
        ),
        (
            "{kind: host, rdma: ^yes}",
            "'rdma' must be true, false or a NIC such as {device: mlx5_0}, not the string 'yes'",
        ),
        (
            "{kind: host, ^vlans: {1: }}",
            "'vlans' is a key of a switch, not of a host; allowed: routes, sysctls, bonds, nic, rdma",
        ),
        ("{kind: bridge, ^nic: rxe}", "'nic' is a key of a host, not of a bridge; allowed: stp, labels, group"),
        ("{kind: switch, profile: ^7}", "'profile' must be a string, not the number 7; quote it"),
        ("{kind: switch, vlans: ^[10]}", "'vlans' must be a mapping, not a list"),
        ("{kind: switch, vlans: {^4095: }}", "VLAN 4095 is not in 1..4094"),
        ("{kind: switch, vlans: {^0: }}", "VLAN 0 is not in 1..4094"),
        ("{kind: switch, vlans: {^'10': }}", "key '10' must be an integer, not the string '10'"),
        (
            "{kind: switch, vlans: {1: ^10.0.0.1}}",
            "the string '10.0.0.1' lacks the length of its prefix; for example 10.0.0.1/24",
        ),
        ("{kind: switch, vlans: {1: ^10.0.0.256/24}}", "the string '10.0.0.256' is not an IPv4 address"),
        ("{kind: switch, vlans: {1: ^10.0.0.0/24}}", "10.0.0.0/24 is the network or broadcast address of 10.0.0.0/24"),
        ("{kind: switch, vlans: {1: ^10.0.0.1/33}}", "prefix length '33' of the string '10.0.0.1/33' is not in 1..31"),
        ("{kind: switch, vlans: {1: ^224.0.0.1/24}}", "224.0.0.1 cannot be the address of an interface"),
        ("{kind: switch, vlans: {1: ^2001:db8::1::/64}}", "the string '2001:db8::1::' is not an IPv6 address"),
        ("{kind: switch, vlans: {1: ^2001:db8::1}}", "lacks the length of its prefix; for example 2001:db8::1/64"),
        ("{kind: switch, vlans: {1: ^2001:db8::/64}}", "2001:db8::/64 is the routers' anycast address in"),
        (
            "{kind: switch, vlans: {1: ^2001:db8::1/128}}",
            "prefix length '128' of the string '2001:db8::1/128' is not in 1..127",
        ),
        ("{kind: switch, vlans: {1: ^fe80::1/64}}", "fe80::1 is link-local: such an address follows from the MAC here"),
        ("{kind: switch, vlans: {1: ^'::ffff:10.0.0.1/96'}}", "cannot be the address of an interface"),
        ("{kind: switch, vlans: {1: ^ff02::1/64}}", "ff02::1 cannot be the address of an interface"),
        (
            "{kind: switch, vlans: {1: [10.0.0.1/24, ^10.0.1.1/24]}}",
            "an SVI has one IPv4 address; the first is 10.0.0.1/24",
        ),
        ("{kind: switch, vlans: {1: [10.0.0.1/24, ^7]}}", "expected an address such as 10.0.10.1/24, not the number 7"),
        ("{kind: switch, vlans: {1: ^{}}}", "expected an address such as 10.0.10.1/24, not a mapping"),
        ("{kind: switch, vlans: {1: ^24}}", "expected an address such as 10.0.10.1/24, not the number 24"),
        ("{kind: host, labels: ^{a: [1]}}", "label 'a' must be a string, a number or a boolean, not a list"),
        ("{kind: host, routes: [^{to: default}]}", "a route lacks the key 'via'"),
        ("{kind: host, routes: [{to: ^any, via: 10.0.0.1}]}", "'to' must be 'default' or a subnet such as"),
        ("{kind: host, routes: [{to: ^10.0.0.1/8, via: 10.0.0.1}]}", "10.0.0.1/8 has host bits set"),
        ("{kind: host, routes: [{to: default, via: ^5}]}", "'via' must be the next hop's address"),
        ("{kind: host, routes: [{to: default, via: ^[]}]}", "'via' is an empty list"),
        ("{kind: host, routes: [{to: default, via: ^[10.0.0.1, x]}]}", "the string 'x' is not an IPv4 address"),
        ("{kind: host, routes: [{to: default, via: ^[10.0.0.1, 10.0.0.1]}]}", "10.0.0.1 is twice in 'via'"),
        ("{kind: host, routes: [{to: default, via: ^fe80::1}]}", "link-local next hops are not supported"),
        ("{kind: host, routes: [{to: default, via: ^ff02::1}]}", "ff02::1 cannot be the address of an interface"),
        (
            "{kind: switch, vlans: {1: 10.0.0.1/24}, routes: [{to: default, via: [10.0.0.2, ^10.0.9.1]}]}",
            "10.0.9.1 is in no subnet of 'n'; its subnets: 10.0.0.0/24",
        ),
        ("{kind: host, routes: [{to: default, via: ^10.0.0.1}]}", "10.0.0.1 is in no subnet of 'n'; its subnets: none"),
    ],
)
def test_a_node(body: str, message: str) -> None:
    assert_refused_at_caret(with_node(body), message)


def with_a_node(name: str) -> str:
    return (
        f"name: lab\ntopology:\n  nodes: {{a: {{kind: host}}, {name}: {{kind: host}}}}\n"
        f"  links:\n    - endpoints: [a:eth1, {name}:eth1]\n"
    )


def test_a_name_too_long_for_an_rdma_device() -> None:
    """IB_DEVICE_NAME_MAX is 64, with the final zero byte."""
    (line,) = refused(with_a_node("n" * 59))
    assert line.startswith("t.yml:5:27: ")
    assert "-eth1' is too long for an RDMA device: at most 63 characters" in line
    with pytest.raises(ValueError, match="is not the name of an RDMA device"):
        check_rdma("m" * 64)


def test_the_longest_names_of_rdma_devices() -> None:
    plan = Topology.parse(with_a_node("n" * 58)).plan()
    assert plan.nodes["n" * 58].interface("eth1").rdma == "n" * 58 + "-eth1"
    assert check_rdma("m" * 63) == "m" * 63


def test_two_interfaces_with_one_rdma_name() -> None:
    (line,) = refused(
        "name: lab\ntopology:\n  nodes: {a: {kind: host}, a-b: {kind: host}}\n"
        "  links:\n    - endpoints: [a:b-c, a-b:c]\n"
    )
    assert line == "t.yml:5:26: a-b:c and a:b-c would both have the RDMA device 'a-b-c'; rename one of them"
