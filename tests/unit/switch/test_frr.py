"""What FRR is configured with, and which routes it should find."""

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Network

from testbed.switch.frr import bgpd_conf, shortest_paths
from testbed.switch.profile import profile
from testbed.topology import Topology
from testbed.topology.fabrics import fat_tree, leaf_spine

FABRIC = leaf_spine(leaves=2, spines=2, hosts=1, routing="frr").topology().plan()
HOSTS1, HOSTS2 = IPv4Network("10.1.1.0/24"), IPv4Network("10.1.2.0/24")


def test_the_configuration_of_a_leaf() -> None:
    assert (
        bgpd_conf(FABRIC.nodes["leaf1"], profile("sonic"))
        == """\
router bgp 4200000003
 bgp router-id 10.255.0.3
 no bgp ebgp-requires-policy
 bgp bestpath as-path multipath-relax
 neighbor fabric peer-group
 neighbor fabric remote-as external
 neighbor fabric bfd 3 300 300
 neighbor e2 interface peer-group fabric
 neighbor e3 interface peer-group fabric
 address-family ipv4 unicast
  redistribute connected
  maximum-paths 64
 exit-address-family
 address-family ipv6 unicast
  neighbor fabric activate
  redistribute connected
  maximum-paths 64
 exit-address-family
"""
    )


def test_host_routes_are_announced_from_a_table_of_their_own() -> None:
    text = bgpd_conf(replace(FABRIC.nodes["leaf1"], host_routes=True), profile("sonic"))
    assert text.count("  redistribute connected\n  redistribute table-direct 10\n") == 2


def test_a_host_route_leads_to_all_switches_that_announce_it_and_not_from_them() -> None:
    host = IPv4Network("10.1.1.7/32")
    leaf1, leaf2 = FABRIC.nodes["leaf1"], FABRIC.nodes["leaf2"]
    one_subnet = replace(FABRIC, nodes={**FABRIC.nodes, "leaf2": replace(leaf2, svis=leaf1.svis)})
    one = shortest_paths(one_subnet, hosts={"leaf1": [host]})
    both = shortest_paths(one_subnet, hosts={"leaf1": [host], "leaf2": [host]})
    assert {name: routes.get(host) for name, routes in one.items()} == {
        "spine1": ("e1",),
        "spine2": ("e1",),
        "leaf1": None,
        "leaf2": ("e2", "e3"),
    }
    assert {name: routes.get(host) for name, routes in both.items()} == {
        "spine1": ("e1", "e2"),
        "spine2": ("e1", "e2"),
        "leaf1": None,
        "leaf2": None,
    }


def test_routes_go_over_all_shortest_paths() -> None:
    assert shortest_paths(FABRIC) == {
        "spine1": {HOSTS1: ("e1",), HOSTS2: ("e2",)},
        "spine2": {HOSTS1: ("e1",), HOSTS2: ("e2",)},
        "leaf1": {HOSTS2: ("e2", "e3")},
        "leaf2": {HOSTS1: ("e2", "e3")},
    }


def test_either_end_of_a_link_takes_it_out_and_a_spine_goes_by_the_other_leaf() -> None:
    found = shortest_paths(FABRIC, {("spine1", "e1")})
    assert found == shortest_paths(FABRIC, {("leaf1", "e2")})
    assert found["leaf1"] == {HOSTS2: ("e3",)}
    assert found["leaf2"] == {HOSTS1: ("e3",)}
    assert found["spine1"] == {HOSTS1: ("e2",), HOSTS2: ("e2",)}


def test_a_subnet_that_is_cut_off_or_has_no_port_up_is_nobodys() -> None:
    cut_off = shortest_paths(FABRIC, {("leaf2", "e2"), ("leaf2", "e3")})
    assert cut_off["leaf1"] == cut_off["leaf2"] == {}
    assert HOSTS2 not in shortest_paths(FABRIC, {("leaf2", "e1")})["leaf1"]


def test_by_autostate_a_subnet_goes_with_the_ports_of_its_vlan_with_all_ports_or_never() -> None:
    plan = Topology.parse("""
name: two
topology:
  routing: frr
  nodes:
    near:
      kind: switch
      vlans: {10: 10.0.10.1/24, 20: 10.0.20.1/24, 30: 10.0.30.1/24}
      bonds: {po1: {members: [e1, e4]}}
    far: {kind: switch, vlans: {40: 10.0.40.1/24}}
    h: {kind: host, bonds: {bond0: {members: [eth1, eth2]}}}
    i: {kind: host}
    j: {kind: host}
    t: {kind: switch, vlans: {20: , 30: }}
    k: {kind: host}
  links:
    - {endpoints: ["near:e1", "h:eth1"], vlan: 10}
    - {endpoints: ["near:e4", "h:eth2"], vlan: 10}
    - {endpoints: ["near:e2", "t:e1"], trunk: [20]}
    - {endpoints: ["t:e2", "k:eth1"], vlan: 20}
    - {endpoints: ["near:e3", "far:e1"]}
    - {endpoints: ["far:e2", "i:eth1"], vlan: 40}
    - {endpoints: ["t:e3", "j:eth1"], vlan: 30}
""").plan()

    def announced(autostate: str, *dead: tuple[str, str], hosts: Sequence[IPv4Network] = ()) -> list[str]:
        found = shortest_paths(plan, dead, {"near": hosts}, {"near": autostate})["far"]
        return [str(network) for network in found]

    assert announced("vlan") == ["10.0.10.0/24", "10.0.20.0/24"]
    assert announced("vlan", ("near", "e1")) == ["10.0.10.0/24", "10.0.20.0/24"]
    gone = ("near", "e1"), ("h", "eth2")
    assert announced("vlan", *gone) == announced("vlan", ("near", "po1")) == ["10.0.20.0/24"]
    assert announced("vlan", ("near", "e2")) == ["10.0.10.0/24"]
    every = ["10.0.10.0/24", "10.0.20.0/24", "10.0.30.0/24"]
    assert announced("bridge", *gone) == announced("none", *gone) == every
    assert announced("bridge", *gone, ("near", "e2")) == []
    assert announced("none", *gone, ("near", "e2")) == every
    hosts = IPv4Network("10.0.10.7/32"), IPv4Network("10.0.20.7/32")
    assert announced("vlan", *gone, hosts=hosts) == ["10.0.20.0/24", "10.0.20.7/32"]


def test_in_a_fat_tree_an_edge_switch_reaches_every_other_one_over_all_its_uplinks() -> None:
    found = shortest_paths(fat_tree(k=4, routing="frr").topology().plan())
    assert len(found) == 20
    assert set(found["pod1-edge1"].values()) == {("e3", "e4")}
    assert len(found["pod1-edge1"]) == 7


def test_links_with_a_vlan_are_not_routed() -> None:
    plan = Topology.parse("""
name: mixed
topology:
  routing: frr
  nodes:
    a: {kind: switch, vlans: {10: 10.0.10.1/24}}
    b: {kind: switch, vlans: {10: null}}
    c: {kind: switch, vlans: {20: 10.0.20.1/24}}
    h: {kind: host}
    i: {kind: host}
  links:
    - {endpoints: ["a:e1", "b:e1"], vlan: 10}
    - {endpoints: ["a:e2", "c:e2"]}
    - {endpoints: ["b:e2", "h:eth1"], vlan: 10}
    - {endpoints: ["c:e1", "i:eth1"], vlan: 20}
""").plan()
    assert [f"{i.node}:{i.name}" for node in plan.nodes.values() for i in node.routed_ports] == ["a:e2", "c:e2"]
    assert [node.name for node in plan.nodes.values() if node.bgp] == ["a", "c"]
    assert shortest_paths(plan)["c"] == {IPv4Network("10.0.10.0/24"): ("e2",)}
