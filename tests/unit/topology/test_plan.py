"""Plans of topologies that are right."""

from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from itertools import combinations

import pytest

from testbed.topology import (
    POOL,
    Elements,
    EndpointDefinition,
    LinkDefinition,
    NodeDefinition,
    Plan,
    Quality,
    Route,
    RouteDefinition,
    Topology,
    pod_mac,
)

IP_REUSE = """\
name: ip-reuse
topology:
  kinds:
    host: {nic: hardware}
  nodes:
    leaf: {kind: switch, profile: cisco-nxos, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24}}
    client: {kind: host}
    node1: {kind: host}
    node2: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "client:eth1"], vlan: 10}
    - {endpoints: ["leaf:e2", "node1:eth1"], vlan: 20}
    - {endpoints: ["leaf:e3", "node2:eth1"], vlan: 20}
"""
DEFAULT = IPv4Network("0.0.0.0/0")


def plan(text: str) -> Plan:
    return Topology.parse(text).plan()


def lab(nodes: str, links: str = "") -> Plan:
    """A plan from the nodes and links as YAML in flow style."""
    return plan(f"name: lab\ntopology: {{nodes: {{{nodes}}}, links: [{links}]}}")


def address(of: Plan, node: str, interface: str = "eth1") -> str:
    return str(of.nodes[node].interface(interface).address)


class TestTheExample:
    def test_hosts_get_addresses_in_the_subnet_of_their_vlan_in_the_order_of_the_links(self) -> None:
        reuse = plan(IP_REUSE)
        assert [address(reuse, host) for host in ("client", "node1", "node2")] == [
            "10.0.10.2/24",
            "10.0.20.2/24",
            "10.0.20.3/24",
        ]

    def test_a_host_has_its_gateway_and_a_default_route_via_the_svi(self) -> None:
        node1 = plan(IP_REUSE).nodes["node1"]
        assert node1.interface("eth1").gateway == IPv4Address("10.0.20.1")
        assert node1.routes == (Route(DEFAULT, (IPv4Address("10.0.20.1"),)),)

    def test_a_host_interface_carries_an_rdma_device_named_after_both(self) -> None:
        client = plan(IP_REUSE).nodes["client"]
        assert client.interface("eth1").rdma == "client-eth1"
        assert client.nic == "hardware"

    def test_a_management_link_carries_no_rdma_device(self) -> None:
        links = '{endpoints: ["a:eth1", "b:eth1"]}, {endpoints: ["a:mgmt0", "b:mgmt0"], rdma: false}'
        a = lab("a: {kind: host}, b: {kind: host, rdma: false}", links).nodes["a"]
        assert [interface.rdma for interface in a.interfaces] == ["a-eth1", None]

    def test_a_link_may_have_rdma_where_its_host_has_none(self) -> None:
        links = '{endpoints: ["a:eth1", "b:eth1"], rdma: true}, {endpoints: ["a:eth2", "b:eth2"]}'
        b = lab("a: {kind: host}, b: {kind: host, rdma: false}", links).nodes["b"]
        assert [interface.rdma for interface in b.interfaces] == ["b-eth1", None]

    def test_the_switch_has_its_svis_and_access_ports(self) -> None:
        leaf = plan(IP_REUSE).nodes["leaf"]
        assert leaf.profile == "cisco-nxos"
        assert [(svi.vlan, svi.name, str(svi.address)) for svi in leaf.svis] == [
            (10, "vlan10", "10.0.10.1/24"),
            (20, "vlan20", "10.0.20.1/24"),
        ]
        assert [(port.name, port.vlan, port.trunk, port.rdma) for port in leaf.interfaces] == [
            ("e1", 10, (), None),
            ("e2", 20, (), None),
            ("e3", 20, (), None),
        ]

    def test_both_ends_know_each_other_and_links_are_those_same_interfaces(self) -> None:
        reuse = plan(IP_REUSE)
        leaf, client = reuse.links[0]
        assert leaf.peer == ("client", "eth1")
        assert client.peer == ("leaf", "e1")
        assert client == reuse.nodes["client"].interface("eth1")

    def test_mac_addresses_follow_from_the_order(self) -> None:
        reuse = plan(IP_REUSE)
        assert reuse.nodes["leaf"].interface("e3").mac == "02:00:01:00:00:03"
        assert reuse.nodes["leaf"].svis[1].mac == "02:00:01:01:00:00"
        assert reuse.nodes["node2"].interface("eth1").mac == "02:00:04:00:00:01"


class TestDeterminism:
    def test_the_same_text_gives_the_same_plan(self) -> None:
        assert plan(IP_REUSE) == plan(IP_REUSE)
        assert repr(plan(IP_REUSE)) == repr(plan(IP_REUSE))

    def test_a_file_and_a_text_and_python_give_the_same_plan(self, tmp_path) -> None:
        (file := tmp_path / "topology.clab.yml").write_text("\N{BOM}" + IP_REUSE, encoding="utf-8")
        python = Topology(
            name="ip-reuse",
            topology=Elements(
                kinds={"host": NodeDefinition(nic="hardware")},
                nodes={
                    "leaf": NodeDefinition(
                        kind="switch",
                        profile="cisco-nxos",
                        vlans={10: IPv4Interface("10.0.10.1/24"), 20: IPv4Interface("10.0.20.1/24")},
                    ),
                    **{name: NodeDefinition(kind="host") for name in ("client", "node1", "node2")},
                },
                links=[
                    LinkDefinition(
                        endpoints=[
                            EndpointDefinition(node="leaf", interface=f"e{index}"),
                            EndpointDefinition(node=host, interface="eth1"),
                        ],
                        vlan=vlan,
                    )
                    for index, host, vlan in [(1, "client", 10), (2, "node1", 20), (3, "node2", 20)]
                ],
            ),
        )
        assert Topology.load(file).plan() == plan(IP_REUSE) == python.plan()

    @pytest.mark.parametrize("hosts", [1, 2, 8, 253, 300])
    def test_macs_addresses_and_rdma_names_are_unique_at_every_size(self, hosts: int) -> None:
        big = lab(
            "sw: {kind: switch}, " + ", ".join(f"h{i}: {{kind: host}}" for i in range(hosts)),
            ", ".join(f"{{endpoints: ['sw:p{i}', 'h{i}:eth1']}}" for i in range(hosts)),
        )
        ends = [end for node in big.nodes.values() for end in node.interfaces]
        macs = [end.mac for end in ends] + [svi.mac for node in big.nodes.values() for svi in node.svis]
        addresses = [end.address for end in ends if end.address]
        assert len(set(macs)) == len(macs) == 2 * hosts + 1
        assert len(set(addresses)) == len(addresses) == hosts
        assert len({end.rdma for end in ends if end.rdma}) == hosts
        assert all(address.network == addresses[0].network for address in addresses)

    def test_pods_have_macs_of_their_own_range(self) -> None:
        macs = {pod_mac("ip-reuse", f"pod-{i}") for i in range(1000)}
        assert len(macs) == 1000
        assert all(mac.startswith("06:") and len(mac) == 17 for mac in macs)
        assert pod_mac("ip-reuse", "pod-a") == "06:d9:51:bf:46:b4"
        assert pod_mac("other-lab", "pod-a") != pod_mac("ip-reuse", "pod-a")


class TestInheritance:
    def test_defaults_give_way_to_kinds_and_kinds_to_nodes(self) -> None:
        inherited = plan("""\
name: lab
topology:
  defaults: {kind: host, nic: hardware, profile: sonic}
  kinds:
    host: {rdma: false}
    switch: {vlans: {1: null, 2: null}}
  nodes:
    a:
    b: {nic: rxe, rdma: true}
    sw: {kind: switch, vlans: {2: 10.0.2.1/24}}
  links:
    - endpoints: [a:eth1, b:eth1]
""")
        a, b, sw = inherited.nodes.values()
        assert (a.nic, a.interface("eth1").rdma) == ("hardware", None)
        assert (b.nic, b.interface("eth1").rdma) == ("rxe", "b-eth1")
        assert (sw.profile, [(svi.vlan, svi.address) for svi in sw.svis]) == (
            "sonic",
            [(1, None), (2, IPv4Interface("10.0.2.1/24"))],
        )

    def test_anchors_and_merge_keys_work(self) -> None:
        merged = plan("""\
name: lab
topology:
  nodes:
    a: &host {kind: host, nic: hardware, labels: {rack: 1, spare: no}}
    b: {<<: *host, nic: rxe}
    c: {<<: [*host, {rdma: false}]}
  links:
    - {endpoints: [a:eth1, b:eth1]}
    - {endpoints: [a:eth2, c:eth1]}
""")
        assert [node.nic for node in merged.nodes.values()] == ["hardware", "rxe", "hardware"]
        assert merged.nodes["c"].interface("eth1").rdma is None

    def test_containerlabs_annotations_have_no_effect(self) -> None:
        plain = lab("a: {kind: host}, b: {kind: host}", "{endpoints: [a:eth1, b:eth1]}")
        noted = lab(
            "a: {kind: host, group: compute, labels: {graph-icon: host}}, b: {kind: host}",
            "{endpoints: [a:eth1, b:eth1], labels: {cable: 7}}",
        )
        assert noted == plain


class TestLinks:
    def test_the_extended_format_takes_mac_and_address_for_each_end(self) -> None:
        extended = plan("""\
name: lab
topology:
  nodes: {a: {kind: host}, b: {kind: host}}
  links:
    - type: veth
      mtu: 9000
      endpoints:
        - {node: a, interface: eth1, mac: "02:AA:00:00:00:01", ipv4: 192.168.1.6/29}
        - {node: b, interface: eth1}
""")
        a, b = extended.links[0]
        assert (a.mac, str(a.address), a.mtu) == ("02:aa:00:00:00:01", "192.168.1.6/29", 9000)
        assert (str(b.address), b.mtu) == ("192.168.1.1/29", 9000)

    def test_the_brief_format_takes_addresses_in_the_order_of_the_endpoints(self) -> None:
        brief = lab(
            "sw: {kind: switch, vlans: {1: 10.0.0.1/24}}, a: {kind: host}, b: {kind: host}, c: {kind: host}",
            "{endpoints: [a:eth1, sw:e1], ipv4: [10.0.0.9/24]}, {endpoints: [sw:e2, b:eth1]},"
            "{endpoints: [sw:e3, c:eth1], ipv4: [null, 10.0.0.2/24]}",
        )
        assert [address(brief, host) for host in "abc"] == ["10.0.0.9/24", "10.0.0.3/24", "10.0.0.2/24"]

    def test_hosts_without_any_address_share_a_subnet_of_the_pool_link_by_link(self) -> None:
        pairs = lab(
            "a: {kind: host}, b: {kind: host}, c: {kind: host}",
            "{endpoints: [a:eth1, b:eth1]}, {endpoints: [a:eth2, c:eth1]}",
        )
        assert [address(pairs, "a"), address(pairs, "b")] == ["198.18.0.1/24", "198.18.0.2/24"]
        assert [address(pairs, "a", "eth2"), address(pairs, "c")] == ["198.18.1.1/24", "198.18.1.2/24"]
        assert pairs.nodes["a"].routes == ()

    def test_the_pool_goes_around_subnets_that_the_file_names(self) -> None:
        around = lab(
            "a: {kind: host}, b: {kind: host}",
            "{endpoints: [a:eth1, b:eth1]}, {endpoints: [a:eth2, b:eth2], ipv4: [198.18.0.5/24]}",
        )
        assert address(around, "a") == "198.18.1.1/24"
        assert IPv4Interface(address(around, "a")).network.subnet_of(POOL)

    def test_a_bridge_joins_its_hosts_in_one_subnet(self) -> None:
        bridged = lab(
            "br: {kind: bridge}, a: {kind: host}, b: {kind: host}, sw: {kind: switch, vlans: {5: 10.5.0.254/24}}",
            "{endpoints: [br:p1, a:eth1]}, {endpoints: [br:p2, b:eth1]}, {endpoints: [br:p3, sw:e1], vlan: 5}",
        )
        assert [address(bridged, "a"), address(bridged, "b")] == ["10.5.0.1/24", "10.5.0.2/24"]
        assert bridged.nodes["b"].routes == (Route(DEFAULT, (IPv4Address("10.5.0.254"),)),)

    def test_a_switch_without_vlans_puts_all_ports_in_vlan_1(self) -> None:
        flat = lab(
            "sw: {kind: switch}, a: {kind: host}, b: {kind: host}",
            "{endpoints: [sw:e1, a:eth1]}, {endpoints: [sw:e2, b:eth1]}",
        )
        assert [port.vlan for port in flat.nodes["sw"].interfaces] == [1, 1]
        assert [address(flat, "a"), address(flat, "b")] == ["198.18.0.1/24", "198.18.0.2/24"]

    def test_a_host_may_be_attached_twice_to_one_subnet(self) -> None:
        twice = lab(
            "sw: {kind: switch, vlans: {1: 10.0.0.1/24}}, a: {kind: host}",
            "{endpoints: [sw:e1, a:eth1]}, {endpoints: [sw:e2, a:eth2]}",
        )
        assert [address(twice, "a", "eth1"), address(twice, "a", "eth2")] == ["10.0.0.2/24", "10.0.0.3/24"]
        assert len(twice.nodes["a"].routes) == 1


class TestSwitchesTogether:
    TWO = (
        "s1: {kind: switch, vlans: {10: 10.0.0.1/24, 20: null}},"
        "s2: {kind: switch, vlans: {10: 10.0.0.2/24, 20: null}},"
        "a: {kind: host}, b: {kind: host}"
    )

    def test_a_trunk_makes_one_segment_of_a_vlan_on_two_switches(self) -> None:
        both = lab(
            self.TWO,
            "{endpoints: [s1:u, s2:u], trunk: [20, 10]}, {endpoints: [s1:e1, a:eth1], vlan: 10},"
            "{endpoints: [s2:e1, b:eth1], vlan: 10}",
        )
        assert both.links[0][0].trunk == (10, 20)
        assert both.links[0][0].vlan is None
        assert [address(both, "a"), address(both, "b")] == ["10.0.0.3/24", "10.0.0.4/24"]

    def test_a_hosts_gateway_is_the_svi_of_the_switch_it_is_attached_to(self) -> None:
        both = lab(
            self.TWO,
            "{endpoints: [s1:u, s2:u], trunk: [10]}, {endpoints: [s2:e1, a:eth1], vlan: 10},"
            "{endpoints: [s1:e1, b:eth1], vlan: 10}",
        )
        assert str(both.nodes["a"].interface("eth1").gateway) == "10.0.0.2"
        assert str(both.nodes["b"].interface("eth1").gateway) == "10.0.0.1"

    def test_switches_that_announce_host_routes_share_a_subnet_and_a_gateway_address(self) -> None:
        plan = Topology.parse(
            "name: lab\ntopology:\n  routing: frr\n  nodes:\n"
            "    s1: {kind: switch, vlans: {10: 10.0.0.1/24}, host_routes: true}\n"
            "    s2: {kind: switch, vlans: {20: 10.0.0.1/24}, host_routes: true}\n"
            "    a: {kind: host}\n    b: {kind: host}\n  links:\n"
            "    - {endpoints: [s1:u, s2:u]}\n"
            "    - {endpoints: [s2:e1, a:eth1], vlan: 20}\n"
            "    - {endpoints: [s1:e1, b:eth1], vlan: 10}\n"
        ).plan()
        assert [address(plan, "a"), address(plan, "b")] == ["10.0.0.2/24", "10.0.0.3/24"]
        assert {str(plan.nodes[name].interface("eth1").gateway) for name in "ab"} == {"10.0.0.1"}
        assert plan.nodes["s1"].svis[0].mac != plan.nodes["s2"].svis[0].mac

    def test_behind_a_layer_2_switch_the_gateway_is_the_next_svi(self) -> None:
        chain = lab(
            "l2: {kind: switch, vlans: {10: null}}, l3: {kind: switch, vlans: {10: 10.0.0.1/24}}, a: {kind: host}",
            "{endpoints: [l2:u, l3:e1], trunk: [10]}, {endpoints: [l2:e1, a:eth1], vlan: 10}",
        )
        assert chain.nodes["a"].routes == (Route(DEFAULT, (IPv4Address("10.0.0.1"),)),)

    def test_an_access_link_and_two_addresses_of_a_31_make_a_routed_link(self) -> None:
        fabric = lab(
            "leaf: {kind: switch, vlans: {10: 10.0.10.1/24, 100: 10.1.0.0/31},"
            " routes: [{to: default, via: 10.1.0.1}]},"
            "spine: {kind: switch, vlans: {100: 10.1.0.1/31}, routes: [{to: 10.0.10.0/24, via: 10.1.0.0}]}",
            "{endpoints: [leaf:u1, spine:d1], vlan: 100}",
        )
        assert fabric.nodes["leaf"].routes == (Route(DEFAULT, (IPv4Address("10.1.0.1"),)),)
        assert fabric.nodes["spine"].routes == (Route(IPv4Network("10.0.10.0/24"), (IPv4Address("10.1.0.0"),)),)

    def test_a_trunk_to_a_host_has_the_hosts_own_vlan_beside_it(self) -> None:
        trunked = lab(
            "sw: {kind: switch, vlans: {10: 10.0.0.1/24, 20: null}}, a: {kind: host}",
            "{endpoints: [sw:e1, a:eth1], vlan: 10, trunk: [20]}",
        )
        port = trunked.nodes["sw"].interface("e1")
        assert (port.vlan, port.trunk) == (10, (20,))
        assert address(trunked, "a") == "10.0.0.2/24"


class TestRoutes:
    SWITCH = "sw: {kind: switch, vlans: {1: 10.0.0.1/24}}"

    def test_routes_of_a_host_replace_the_automatic_default(self) -> None:
        own = lab(
            f"{self.SWITCH}, a: {{kind: host, routes: [{{to: 10.9.0.0/16, via: 10.0.0.1}}]}}",
            "{endpoints: [sw:e1, a:eth1]}",
        )
        assert own.nodes["a"].routes == (Route(IPv4Network("10.9.0.0/16"), (IPv4Address("10.0.0.1"),)),)

    def test_a_route_may_have_several_next_hops(self) -> None:
        both = lab(
            "leaf: {kind: switch, vlans: {101: 10.1.0.1/31, 102: 10.1.0.3/31},"
            " routes: [{to: default, via: [10.1.0.2, 10.1.0.0]}, {to: 10.9.0.0/16, via: [10.1.0.0]}]}"
        )
        assert both.nodes["leaf"].routes == (
            Route(DEFAULT, (IPv4Address("10.1.0.2"), IPv4Address("10.1.0.0"))),
            Route(IPv4Network("10.9.0.0/16"), (IPv4Address("10.1.0.0"),)),
        )

    def test_in_python_a_route_is_written_in_the_same_ways(self) -> None:
        one, other = IPv4Address("10.1.0.0"), IPv4Address("10.1.0.2")
        routes = [RouteDefinition(to=DEFAULT, via=via) for via in (one, [one], "10.1.0.0", (one, other))]
        assert [route.via for route in routes] == [(one,), (one,), (one,), (one, other)]
        assert [route.model_dump()["via"] for route in routes[2:]] == ["10.1.0.0", ["10.1.0.0", "10.1.0.2"]]

    def test_an_empty_list_is_no_route_at_all(self) -> None:
        none = lab(f"{self.SWITCH}, a: {{kind: host, routes: []}}", "{endpoints: [sw:e1, a:eth1]}")
        assert none.nodes["a"].routes == ()

    def test_the_default_is_via_the_first_interface_with_a_gateway(self) -> None:
        dual = lab(
            f"{self.SWITCH}, a: {{kind: host}}, b: {{kind: host}}",
            "{endpoints: [a:eth1, b:eth1]}, {endpoints: [sw:e1, a:eth2]}",
        )
        assert dual.nodes["a"].routes == (Route(DEFAULT, (IPv4Address("10.0.0.1"),)),)


def test_an_svi_has_the_mtu_of_the_ports_of_its_vlan() -> None:
    leaf = plan("""\
name: lab
topology:
  nodes:
    leaf: {kind: switch, vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24, 30: 10.0.30.1/24, 40: 10.0.40.1/24}}
    far: {kind: switch, vlans: {20: , 30: }}
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
  links:
    - {endpoints: ["leaf:e1", "a:eth1"], vlan: 10, mtu: 9000}
    - {endpoints: ["leaf:e2", "b:eth1"], vlan: 10, mtu: 4200}
    - {endpoints: ["leaf:e3", "c:eth1"], vlan: 20}
    - {endpoints: ["leaf:up", "far:up"], trunk: [20, 30], mtu: 9216}
""").nodes["leaf"]
    assert {vlan: leaf.mtu_in(vlan) for vlan in (10, 20, 30, 40)} == {10: 4200, 20: 1500, 30: 9216, 40: 9216}


def test_subnets_of_a_large_lab_never_overlap() -> None:
    pairs = 40
    many = lab(
        ", ".join(f"h{i}: {{kind: host}}" for i in range(2 * pairs)),
        ", ".join(
            f"{{endpoints: ['h{2 * i}:eth1', 'h{2 * i + 1}:eth1']"
            + (f", ipv4: [198.18.{i}.33/27]}}" if i % 3 == 0 else "}")
            for i in range(pairs)
        ),
    )
    networks = [a.address.network for a, _ in many.links if a.address]
    assert len(networks) == pairs
    assert not any(one.overlaps(other) for one, other in combinations(networks, 2))


def test_profiles_are_checked_when_the_caller_knows_them() -> None:
    topology = Topology.parse(IP_REUSE)
    assert topology.plan(profiles=["cisco-nxos", "sonic"]) == topology.plan()


class TestTheQualityOfALink:
    def test_without_a_word_about_it_there_are_no_bounds(self) -> None:
        assert plan(IP_REUSE).nodes["client"].interface("eth1").sends == Quality()

    def test_it_is_that_of_both_directions_and_an_end_may_differ(self) -> None:
        here = lab(
            "a: {kind: host}, s: {kind: switch}",
            "{endpoints: [{node: a, interface: eth1, delay: 1ms, loss: 2}, 's:e1'],"
            " rate: 2.5gbit, delay: 50us, queue: 64, ecn: 32}",
        )
        assert here.nodes["s"].interface("e1").sends == Quality(rate=2_500_000_000, delay=50e-6, queue=64, ecn=32)
        from_a = Quality(rate=2_500_000_000, delay=1e-3, loss=2.0, queue=64, ecn=32)
        assert here.nodes["a"].interface("eth1").sends == from_a
