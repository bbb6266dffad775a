"""Fabrics: what each kind consists of, that every host is reached, that its file says the same, and what is refused."""

from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv4Network, ip_address
from itertools import product

import pytest

from testbed.errors import InputError
from testbed.switch.profile import load_profiles
from testbed.topology import IPAddress, IPNetwork, Node, Plan, Topology
from testbed.topology.fabrics import KINDS, Fabric, fat_tree, leaf_spine, make, rail_optimized, single, text, two_tier
from testbed.topology.fabrics.addresses import FAMILIES, Families


def pairs(*values: Sequence[int]) -> list[tuple[int, ...]]:
    """Return combinations in which each two values of different options meet: few, and as good as all of them at
    finding what only two options together break. All orders of the first two options, with the others in turn."""
    first, second, *others = values
    return [
        (one, two, *(option[(i + j) % len(option)] for option in others))
        for i, one in enumerate(first)
        for j, two in enumerate(second)
    ]


ROUTED = [
    *(single(hosts) for hosts in (1, 4, 253)),
    *(two_tier(switches, hosts) for switches, hosts in product((1, 3), (1, 5))),
    *(leaf_spine(leaves, spines, hosts) for leaves, spines, hosts in pairs((1, 2, 5), (1, 2, 4), (1, 3))),
    *(leaf_spine(groups * rails, 3, hosts, rails) for groups, rails, hosts in pairs((1, 2, 3), (2, 4, 8), (1, 2))),
    *(rail_optimized(pods, 6, rails, f"{n}:1") for pods, n, rails in pairs((1, 2, 3), (1, 2, 6), (1, 4))),
    *(fat_tree(k) for k in (2, 4, 6)),
]
BRIDGED = [
    *(single(hosts, bridged=True) for hosts in (1, 300)),
    *(two_tier(switches, 3, bridged=True) for switches in (1, 4)),
    *(leaf_spine(4, 1, 2, rails, bridged=True) for rails in (1, 2, 4)),
    leaf_spine(2, 2, 2, 2, bridged=True),
    rail_optimized(3, 7, 2, "7:1", bridged=True),
    fat_tree(2, bridged=True),
]
ROUTED += [
    *(single(4, family=family) for family in (6, "dual")),
    *(two_tier(3, 2, family=family) for family in (6, "dual")),
    *(leaf_spine(4, 2, 2, rails, family=family) for rails, family in product((1, 2), (6, "dual"))),
    *(rail_optimized(2, 6, 4, "3:1", family=family) for family in (6, "dual")),
    *(fat_tree(4, family=family) for family in (6, "dual")),
]
BRIDGED += [
    *(leaf_spine(4, 1, 2, rails, bridged=True, family=family) for rails, family in product((1, 2), (6, "dual"))),
    *(fat_tree(2, bridged=True, family=family) for family in (6, "dual")),
]
ROUTED += [
    *(leaf_spine(4, 2, 2, rails, parallel=3, family=family) for rails, family in product((1, 2), (4, "dual"))),
    *(rail_optimized(2, 8, 2, spines=spines) for spines in (1, 2, 4)),
]
ALL = ROUTED + BRIDGED


def commands(fabrics: list[Fabric]) -> list[str]:
    return [fabric.command.removeprefix("testbed topology new ") for fabric in fabrics]


every = pytest.mark.parametrize("fabric", ALL, ids=commands(ALL))
every_routed = pytest.mark.parametrize("fabric", ROUTED, ids=commands(ROUTED))


def hosts(plan: Plan) -> list[Node]:
    return [node for node in plan.nodes.values() if node.kind == "host"]


def names(plan: Plan, prefix: str) -> list[str]:
    return [name for name in plan.nodes if name.rstrip("0123456789") == prefix]


def links_between(plan: Plan) -> Counter[tuple[str, str]]:
    return Counter((a.node, b.node) for a, b in plan.links)


class TestWhatAKindConsistsOf:
    def test_single(self) -> None:
        plan = single(hosts=5).topology().plan()
        assert list(plan.nodes) == ["leaf1", "host1", "host2", "host3", "host4", "host5"]
        assert [(a.name, b.node, b.name) for a, b in plan.links] == [(f"e{n}", f"host{n}", "eth1") for n in range(1, 6)]

    def test_two_tier(self) -> None:
        plan = two_tier(switches=3, hosts=2).topology().plan()
        assert len(hosts(plan)) == 6
        assert [node.name for node in plan.nodes.values() if node.kind == "switch"] == [
            "core1",
            "access1",
            "access2",
            "access3",
        ]
        assert links_between(plan)["access2", "core1"] == 1

    def test_leaf_spine(self) -> None:
        plan = leaf_spine(leaves=4, spines=2, hosts=16).topology().plan()
        assert (len(names(plan, "leaf")), len(names(plan, "spine")), len(hosts(plan))) == (4, 2, 64)
        between = links_between(plan)
        assert all(between[leaf, spine] == 1 for leaf in names(plan, "leaf") for spine in names(plan, "spine"))
        assert between["leaf2", "host17"] == between["leaf4", "host64"] == 1
        assert len(plan.links) == 4 * 2 + 64

    def test_a_leaf_with_32_uplinks_to_two_spines(self) -> None:
        plan = rail_optimized(pods=2, hosts=32, rails=1, spines=2).topology().plan()
        assert links_between(plan)["pod1-leaf1", "spine2"] == 16
        assert len(next(route for route in plan.nodes["pod1-leaf1"].routes).via) == 32

    def test_rail_only_nothing_joins_two_rails(self) -> None:
        plan = rail_optimized(pods=3, hosts=4, rails=2, spines=2, rail_only=True).topology().plan()
        joined = {(a.node, b.node) for a, b in plan.links if "spine" in b.node}
        assert {(leaf[-1], spine[4]) for leaf, spine in joined} == {("1", "1"), ("2", "2")}
        assert links_between(plan)["pod3-leaf2", "rail2-spine1"] == 2
        targets = {str(route.destination) for route in plan.nodes["rail2-spine1"].routes}
        assert targets == {f"10.2.{pod}.0/24" for pod in (1, 2, 3)}

    def test_with_rails_each_nic_of_a_host_is_on_a_leaf_of_its_own(self) -> None:
        plan = leaf_spine(leaves=4, spines=2, hosts=3, rails=2).topology().plan()
        assert len(hosts(plan)) == 12
        for host in hosts(plan):
            group = 0 if int(host.name.removeprefix("host")) <= 6 else 2
            assert [(i.name, i.peer[0]) for i in host.interfaces] == [
                ("eth1", f"leaf{group + 1}"),
                ("eth2", f"leaf{group + 2}"),
            ]
            assert [i.address.network for i in host.interfaces if i.address] == [
                IPv4Network(f"10.1.{group // 2 + 1}.0/24"),
                IPv4Network(f"10.2.{group // 2 + 1}.0/24"),
            ]

    @pytest.mark.parametrize(("ratio", "spines"), [("1:1", 14), ("7:1", 2), ("14:1", 1), ("7:2", 4)])
    def test_the_oversubscription_of_a_rail_decides_how_many_spines_there_are(self, ratio: str, spines: int) -> None:
        plan = rail_optimized(pods=2, hosts=14, rails=4, oversubscription=ratio).topology().plan()
        assert len(names(plan, "spine")) == spines
        for pod, rail in product((1, 2), (1, 2, 3, 4)):
            leaf = plan.nodes[f"pod{pod}-leaf{rail}"]
            peers = Counter(port.peer[0].rstrip("0123456789") for port in leaf.interfaces)
            assert peers == {"host": 14, "spine": spines}
            assert {port.peer[1] for port in leaf.interfaces if port.peer[0].startswith("host")} == {f"eth{rail}"}

    def test_fat_tree(self) -> None:
        plan = fat_tree(k=4).topology().plan()
        switches = [node for node in plan.nodes.values() if node.kind == "switch"]
        assert (len(switches), len(hosts(plan)), len(plan.links)) == (20, 16, 48)
        for switch in switches:
            assert len(switch.interfaces) == 4, switch.name
        peers = {switch.name: [port.peer[0] for port in switch.interfaces] for switch in switches}
        assert peers["pod2-edge1"] == ["host5", "host6", "pod2-agg1", "pod2-agg2"]
        assert peers["core1"] == ["pod1-agg1", "pod2-agg1", "pod3-agg1", "pod4-agg1"]
        assert peers["core4"] == ["pod1-agg2", "pod2-agg2", "pod3-agg2", "pod4-agg2"]

    def test_the_numbers_of_a_fat_tree_are_those_of_the_paper(self) -> None:
        plan = fat_tree(k=8).topology().plan()
        assert (len(hosts(plan)), len(names(plan, "core"))) == (8**3 // 4, (8 // 2) ** 2)


class TestEvery:
    @every
    def test_addresses_macs_and_rdma_names_are_unique(self, fabric: Fabric) -> None:
        plan = fabric.topology().plan()
        ends = [end for pair in plan.links for end in pair]
        svis = [address.ip for node in plan.nodes.values() for svi in node.svis for address in svi.addresses]
        for found in (
            [address.ip for end in ends for address in end.addresses] + svis,
            [end.mac for end in ends],
            [end.rdma for end in ends if end.rdma],
            [(end.node, end.name) for end in ends],
        ):
            assert len(set(found)) == len(found)
        families = list(FAMILIES[fabric.family])
        for host in hosts(plan):
            for end in host.interfaces:
                assert end.rdma
                assert [address.version for address in end.addresses] == families

    @every
    def test_the_file_plans_to_the_same_plan(self, fabric: Fabric) -> None:
        plan = fabric.topology().plan(profiles=load_profiles())
        assert Topology.parse(text(fabric)).plan(profiles=load_profiles()) == plan

    @every
    def test_a_packet_finds_its_way_over_every_next_hop(self, fabric: Fabric) -> None:
        """From the first host to an address of every host, and back; of equal next hops each one must do."""
        network = _Network(fabric.topology().plan())
        first, *others = hosts(network.plan)
        for host in others:
            for one, other in ((first, host), (host, first)):
                for interface in other.interfaces:
                    assert interface.addresses
                    assert all(network.walk(one.name, address.ip) for address in interface.addresses)

    @every_routed
    def test_a_packet_to_nobody_ends_at_a_switch_without_a_route(self, fabric: Fabric) -> None:
        network = _Network(fabric.topology().plan())
        for host in hosts(network.plan):
            assert not network.walk(host.name, ip_address("10.1.199.5"))
            assert not network.walk(host.name, ip_address("2001:db8:1:199::5"))

    @every_routed
    def test_every_spine_is_a_next_hop(self, fabric: Fabric) -> None:
        plan = fabric.topology().plan()
        for node in plan.nodes.values():
            up = [port for port in node.interfaces if port.peer[0].startswith("spine")]
            if up:
                assert [route.destination.version for route in node.routes] == list(FAMILIES[fabric.family])
                assert all(len(route.via) == len(up) for route in node.routes)

    def test_with_frr_links_between_switches_have_no_addresses_and_switches_no_routes(self) -> None:
        for kind in "two-tier", "leaf-spine", "rail-optimized", "fat-tree":
            fabric = make(kind, {"routing": "frr"})
            plan = Topology.parse(text(fabric)).plan(profiles=load_profiles())
            assert plan == fabric.topology().plan(profiles=load_profiles())
            assert fabric.command.endswith(" --routing frr")
            for node in plan.nodes.values():
                between = [port for port in node.interfaces if plan.nodes[port.peer[0]].kind == node.kind == "switch"]
                assert node.routed_ports == between
                if node.kind == "switch":
                    assert between
                    assert node.routes == ()

    def test_with_evpn_hosts_of_a_rail_or_pod_are_one_subnet_behind_all_leaves(self) -> None:
        for kind, subnets in (("two-tier", 1), ("leaf-spine", 1), ("rail-optimized", 4), ("fat-tree", 4)):
            fabric = make(kind, {"routing": "evpn"})
            plan = Topology.parse(text(fabric)).plan(profiles=load_profiles())
            assert plan == fabric.topology().plan(profiles=load_profiles())
            assert fabric.command.endswith(" --routing evpn")
            ends = [end for host in hosts(plan) for end in host.interfaces]
            assert len({end.address.network for end in ends if end.address}) == subnets
            for end in ends:
                leaf = plan.nodes[end.peer[0]]
                svi = next(svi for svi in leaf.svis if svi.vlan == leaf.interface(end.peer[1]).vlan)
                assert (svi.address.ip, svi.mac) == (end.gateway, "02:00:00:00:00:fe")  # type: ignore[union-attr]
                assert leaf.l3vni == 4001
                assert svi.vni == 10_000 + 10 * int(str(svi.address).split(".")[1])

    @pytest.mark.parametrize("routing", ["frr", "evpn"])
    @pytest.mark.parametrize(
        ("kind", "options", "rails"),
        [
            ("leaf-spine", {"leaves": 4}, 1),
            ("leaf-spine", {"leaves": 8, "rails": 2, "family": "dual"}, 2),
            ("rail-optimized", {"rails": 3}, 3),
            ("fat-tree", {"k": 8}, 1),
        ],
    )
    def test_with_two_tors_a_host_has_a_bond_to_two_leaves_that_are_one(
        self, kind: str, options: dict[str, int | str], rails: int, routing: str
    ) -> None:
        fabric = make(kind, {**options, "dual_tor": True, "routing": routing})
        plan = Topology.parse(text(fabric)).plan(profiles=load_profiles())
        assert plan == fabric.topology().plan(profiles=load_profiles())
        assert {len(host.bonds) for host in hosts(plan)} == {rails}
        segments = Counter[tuple[str, int]]()
        for host in hosts(plan):
            for end in host.bonds:
                assert end.bond
                assert end.bond.mode == "802.3ad"
                assert end.bond.broadcast_neighbor == (routing == "frr")
                peers = [host.interface(member).peer for member in end.bond.members]
                leaves = [plan.nodes[node] for node, _ in peers]
                assert len({leaf.name for leaf in leaves}) == 2
                channels = [
                    leaf.interface(leaf.interface(port).master) for leaf, (_, port) in zip(leaves, peers, strict=True)
                ]
                found = {(port.bond.system, port.bond.es_id) for port in channels if port.bond}
                assert len(found) == 1
                segments.update(found)
                svis = [leaf.svis[0] for leaf in leaves]
                assert {(svi.mac, svi.address.ip) for svi in svis if svi.address} == {
                    ("02:00:00:00:00:fe", end.gateway)
                }
                assert {leaf.host_routes for leaf in leaves} == {routing == "frr"}
        if routing == "evpn":
            assert set(segments.values()) == {1}
            assert all(number for _, number in segments)

    def test_without_a_word_on_routing_two_tors_have_frr(self) -> None:
        fabric = leaf_spine(4, 2, 2, dual_tor=True)
        assert fabric.command == (
            "testbed topology new leaf-spine --leaves 4 --spines 2 --hosts 2 --rails 1 --dual-tor --routing frr"
        )
        assert (len(hosts(fabric.topology().plan())), fabric.about[0]) == (
            4,
            "4 leaves, 2 spines, 4 hosts with 1 bond each; routed.",
        )

    def test_a_fat_tree_with_two_tors_has_half_the_hosts_and_all_switches(self) -> None:
        plain, dual = (fat_tree(8, dual_tor=wanted, routing="frr").topology().plan() for wanted in (False, True))
        assert (len(hosts(plain)), len(hosts(dual))) == (128, 64)
        assert {*plain.nodes} - {*dual.nodes} == {f"host{number}" for number in range(65, 129)}
        assert len({end.address.network for host in hosts(dual) for end in host.bonds if end.address}) == 16

    @every
    def test_the_command_in_its_head_makes_the_same_file(self, fabric: Fabric) -> None:
        kind, *words = fabric.command.removeprefix("testbed topology new ").split()
        options = {
            name.removeprefix("--"): int(value) if value.isdecimal() else value
            for name, value in zip(words[:-1:2], words[1:-1:2], strict=True)
        }
        again = make(kind, {**options, "bridged": words[-1] == "--bridged"})
        assert again.family == fabric.family
        assert text(again) == text(fabric)
        assert f"`{fabric.command}`" in text(fabric)


class TestManagement:
    """The management network that jobs need: mgmt0 on each host, and a host that launches it."""

    @pytest.mark.parametrize("family", [4, 6, "dual"])
    @pytest.mark.parametrize("kind", KINDS)
    def test_every_host_is_on_it_and_the_fabric_is_as_before(self, kind: str, family: Families) -> None:
        plain, managed = (make(kind, {"family": family, "management": wanted}) for wanted in (False, True))
        plan = Topology.parse(text(managed)).plan(profiles=load_profiles())
        assert plan == managed.topology().plan(profiles=load_profiles())
        ends = [node.interface("mgmt0") for node in hosts(plan)]
        assert [end.node for end in ends] == [*(node.name for node in hosts(plain.topology().plan())), "launcher"]
        assert len({end.address.network for end in ends if end.address}) == 1
        assert [end.rdma for end in ends] == [None] * len(ends)
        for node in hosts(plain.topology().plan()):
            assert plan.nodes[node.name].interface("eth1") == node.interface("eth1")
            assert plan.nodes[node.name].routes == node.routes

    def test_the_file_says_how_it_was_made(self) -> None:
        fabric = single(hosts=1, management=True)
        assert fabric.command == "testbed topology new single --hosts 1 --routed --management"
        assert """\
    # the management network, for what launches jobs
    mgmt: {kind: bridge}
    launcher:
  links:
""" in text(fabric)
        assert '    - {endpoints: ["mgmt:e2", "launcher:mgmt0"], rdma: false}\n' in text(fabric)


class _Network:
    """Forwarding by a plan: to a connected subnet, else by the longest route, over each of its next hops."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.owner: dict[IPAddress, str] = {}
        self.connected: dict[str, list[IPNetwork]] = {}
        for node in plan.nodes.values():
            own = [address for part in (*node.interfaces, *node.svis) for address in part.addresses]
            self.owner |= {address.ip: node.name for address in own}
            self.connected[node.name] = [address.network for address in own]

    def walk(self, here: str, target: IPAddress, path: tuple[str, ...] = ()) -> bool:
        """Whether `target` is reached over every next hop of every node on the way; a way back to one is a loop."""
        assert here not in path, f"{target}: {path} and back to {here}"
        if any(target in network for network in self.connected[here]):
            return True
        fitting = [route for route in self.plan.nodes[here].routes if target in route.destination]
        if not fitting:
            return False
        hops = max(fitting, key=lambda route: route.destination.prefixlen).via
        return all(self.walk(self.owner[hop], target, (*path, here)) for hop in hops)


class TestTheFile:
    def test_it_is_short_and_says_what_it_is(self) -> None:
        assert (
            text(two_tier(switches=2, hosts=1))
            == """\
# 2 access switches under one core, 1 host on each; routed.
# The hosts of rail R, access switch A are in VLAN R0, 10.R.A.0/24, with their switch as gateway.
# A link between switches is a VLAN of its own and a /31. Routes are static; several next hops are ECMP.
#
# Made by `testbed topology new two-tier --switches 2 --hosts 1 --routed`. Change what you like;
# `testbed topology check FILE` says what it becomes, `testbed graph FILE` draws it.
name: two-tier
topology:
  defaults: {kind: host}
  kinds:
    host: {nic: hardware}
    switch: {profile: sonic}
  nodes:
    # core1
    core1:
      kind: switch
      vlans:
        1001: 10.255.0.0/31  # to access1
        1002: 10.255.0.2/31  # to access2
      routes:
        - {to: 10.1.1.0/24, via: 10.255.0.1}  # access1
        - {to: 10.1.2.0/24, via: 10.255.0.3}  # access2
    # access1 and host1
    access1:
      kind: switch
      vlans:
        10: 10.1.1.1/24  # the hosts
        1001: 10.255.0.1/31  # to core1
      routes:
        - {to: default, via: 10.255.0.0}
    host1:
    # access2 and host2
    access2:
      kind: switch
      vlans:
        10: 10.1.2.1/24  # the hosts
        1002: 10.255.0.3/31  # to core1
      routes:
        - {to: default, via: 10.255.0.2}
    host2:
  links:
    # access1 to host1 and to core1
    - {endpoints: ["access1:e1", "host1:eth1"], vlan: 10}
    - {endpoints: ["access1:e2", "core1:e1"], vlan: 1001}
    # access2 to host2 and to core1
    - {endpoints: ["access2:e1", "host2:eth1"], vlan: 10}
    - {endpoints: ["access2:e2", "core1:e2"], vlan: 1002}
"""
        )

    def test_edited_it_still_loads(self) -> None:
        file = text(leaf_spine(leaves=2, spines=2, hosts=2, rails=2))
        for old, new in (
            ("nic: hardware", "nic: rxe"),
            ("host1: &host1 {routes:", "host1: &host1 {rdma: false, routes:"),
            ("    host4: *host1\n", "    host4: *host1\n    probe: {routes: []}\n"),
            (
                '    - {endpoints: ["leaf1:e1", "host1:eth1"], vlan: 10}\n',
                '    - {endpoints: ["leaf1:e1", "host1:eth1"], vlan: 10, rate: 100mbit}\n'
                '    - {endpoints: ["leaf1:e99", "probe:eth1"], vlan: 10}\n',
            ),
        ):
            assert file.count(old) == 1
            file = file.replace(old, new)
        plan = Topology.parse(file).plan()
        assert {host.nic for host in hosts(plan)} == {"rxe"}
        assert [plan.nodes[name].interface("eth1").rdma for name in ("host1", "host4", "probe")] == [
            None,
            None,
            "probe-eth1",
        ]
        assert str(plan.nodes["probe"].interface("eth1").address) == "10.1.1.3/24"


class TestRefusals:
    @pytest.mark.parametrize(
        ("kind", "options", "message"),
        [
            ("fat-tree", {"k": 5}, "k is 5; it must be an even number"),
            ("fat-tree", {"k": 0}, "k is 0; it must be an even number"),
            ("fat-tree", {"k": -2}, "k is -2; it must be an even number"),
            ("fat-tree", {"k": 20}, "k is 20, which makes 4000 links between switches; there are VLANs for 3094"),
            ("fat-tree", {"k": 10**9}, "k is 1000000000; each pod needs subnets\n  At most 254."),
            ("fat-tree", {"k": 18}, "`testbed topology new fat-tree --k 18 --routed` would write"),
            ("fat-tree", {"k": 16}, "would write"),
            ("fat-tree", {"k": 14, "family": "dual"}, "would write"),
            ("fat-tree", {"k": 22, "routing": "frr"}, "would write"),
            ("single", {"hosts": 5553, "bridged": True}, "would write"),
            ("single", {"hosts": 0}, "hosts is 0; at least 1 is needed"),
            ("single", {"hosts": 254}, "hosts is 254: 254 hosts in a subnet, and a /24 has addresses for 253"),
            ("single", {"hosts": 65534, "bridged": True}, "a /16 has addresses for 65533 and a gateway"),
            ("two-tier", {"switches": 0}, "switches is 0"),
            ("two-tier", {"switches": 255}, "switches is 255; each has a number in an address\n  At most 254."),
            ("leaf-spine", {"leaves": 2, "rails": 4}, "rails is 4 and leaves is 2: rail 3 has no leaf"),
            ("leaf-spine", {"leaves": 6, "rails": 4}, "the last group would have no leaf of rail 4"),
            ("leaf-spine", {"leaves": 4, "hosts": 64, "rails": 4}, "hosts is 64: 256 hosts in a subnet"),
            ("leaf-spine", {"spines": 0}, "spines is 0"),
            ("leaf-spine", {"spines": 10**9}, "leaves is 4, which makes 4000000000 links between switches"),
            ("leaf-spine", {"leaves": 100, "rails": 100}, "rails is 100; each needs a VLAN\n  At most 99."),
            ("rail-optimized", {"hosts": 8, "oversubscription": "7:1"}, "hosts is 8: 1.14 uplinks for a leaf\n"),
            ("rail-optimized", {"oversubscription": "0:1"}, "oversubscription is '0:1'; expected downlinks:uplinks"),
            ("rail-optimized", {"oversubscription": "7"}, "oversubscription is '7'; expected downlinks:uplinks"),
            ("rail-optimized", {"pods": 255}, "pods is 255"),
            ("rail-optimized", {"spines": 3}, "spines is 3: the 4 uplinks of a leaf cannot be divided evenly"),
            ("leaf-spine", {"parallel": 0}, "parallel is 0; at least 1 is needed"),
            ("leaf-spine", {"spines": 1, "parallel": 2, "bridged": True}, "2 links between the same two switches"),
            ("leaf-spain", {}, "fabric kind 'leaf-spain' does not exist\n  Did you mean leaf-spine? Kinds: single, "),
            ("leaf-spine", {"family": 5}, "family is 5; expected 4, 6 or dual"),
            ("single", {"spines": 2}, "single has no option 'spines'\n  It has: hosts, bridged, family, management."),
            ("single", {"routing": "frr"}, "single has no option 'routing'"),
            ("leaf-spine", {"routing": "ospf"}, "routing is 'ospf'; expected static, frr or evpn"),
            ("fat-tree", {"routing": "frr", "bridged": True}, "a bridged fabric has no routing: routing is frr"),
            ("two-tier", {"dual_tor": True}, "two-tier has no option 'dual_tor'"),
            ("fat-tree", {"k": 6, "dual_tor": True}, "k is 6: the 3 edge switches of a pod are no pairs\n  Choose"),
            (
                "leaf-spine",
                {"dual_tor": True, "routing": "static"},
                "dual_tor: two leaves cannot announce the same hosts by static routes\n  Choose frr or evpn.",
            ),
            (
                "leaf-spine",
                {"dual_tor": True, "bridged": True},
                "dual_tor: two leaves cannot announce the same hosts b",
            ),
            (
                "leaf-spine",
                {"dual_tor": True, "leaves": 3},
                "leaves is 3 and rails is 1: the last group would have no second leaf of rail 1",
            ),
        ],
    )
    def test_what_cannot_be_made_is_one_error_that_names_the_value(
        self, kind: str, options: dict[str, int | str], message: str
    ) -> None:
        with pytest.raises(InputError) as refused:
            make(kind, options)
        assert message in str(refused.value)
        assert refused.value.exit_status == 2

    @pytest.mark.parametrize(
        ("kind", "options", "loop"),
        [
            ("leaf-spine", {"leaves": 3}, "leaf1 – spine1 – leaf3 – spine2 – leaf1 is a layer-2 loop"),
            ("leaf-spine", {"leaves": 4, "rails": 2}, "leaf1 – spine1 – leaf3 – spine2 – leaf1"),
            ("rail-optimized", {}, "pod1-leaf1 – spine1 – pod2-leaf1 – spine4 – pod1-leaf1"),
            ("fat-tree", {"k": 4}, "pod1-agg1 – core1 – pod4-agg1 – core4 – pod1-agg1"),
        ],
    )
    def test_bridged_a_loop_is_refused_with_the_reason(self, kind: str, options: dict[str, int], loop: str) -> None:
        with pytest.raises(InputError) as refused:
            make(kind, {**options, "bridged": True})
        assert loop in refused.value.message
        assert "no spanning tree" in refused.value.message

    def test_the_largest_of_each_kind_is_made(self) -> None:
        for kind, options in (
            ("single", {"hosts": 253}),
            ("two-tier", {"switches": 254, "hosts": 2}),
            ("leaf-spine", {"leaves": 16, "spines": 16, "hosts": 64}),
            ("rail-optimized", {"pods": 4, "hosts": 32, "rails": 8}),
            ("single", {"hosts": 5552, "bridged": True}),
            ("fat-tree", {"k": 14}),
            ("fat-tree", {"k": 12, "family": "dual"}),
            ("fat-tree", {"k": 20, "routing": "frr"}),
        ):
            make(kind, options).topology()

    @pytest.mark.parametrize(
        ("kind", "options"), [("leaf-spine", {"leaves": 64, "spines": 49, "hosts": 1}), ("fat-tree", {"k": 20})]
    )
    def test_links_that_frr_routes_are_not_limited_by_vlans(self, kind: str, options: dict[str, int]) -> None:
        links = [link for section in make(kind, {**options, "routing": "frr"}).sections for link in section.links]
        assert sum("vlan" not in link for link in links) > 3094

    def test_every_kind_can_be_made_without_options(self) -> None:
        for kind in KINDS:
            assert hosts(make(kind, {}).topology().plan())
