"""Files written for containerlab load, as far as they speak of the network."""

from ipaddress import IPv4Interface

import pytest

from testbed.errors import InputError
from testbed.topology import Node, Plan, Topology

TWO_HOSTS_AND_A_ROUTER = """
# Typical of a tutorial: addresses and routes are set by commands.
name: routed

topology:
  kinds:
    linux:
      image: ghcr.io/srl-labs/network-multitool:latest
  nodes:
    router:
      kind: linux
      exec:
        - sysctl -w net.ipv4.ip_forward=1
        - ip addr add 192.168.1.1/24 dev eth1
        - ip addr add 192.168.2.1/24 dev eth2
    pc1:
      kind: linux
      exec:
        - ip addr add 192.168.1.10/24 dev eth1
        - ip route add 192.168.2.0/24 via 192.168.1.1
    pc2:
      kind: linux
      exec:
        - ip addr add 192.168.2.10/24 dev eth1
        - bash -c "ip route add 192.168.1.0/24 via 192.168.2.1"

  links:
    - endpoints: ["router:eth1", "pc1:eth1"]
    - endpoints: ["router:eth2", "pc2:eth1"]
"""

HOSTS_ON_A_BRIDGE = """
# Typical of a layer-2 lab: a bridge, defaults, groups and labels for the graph, MTU.
name: br01
topology:
  defaults:
    kind: linux
    env: {LAB: br01, TRIES: 3, DEBUG: true}
    exec: [ip link show]
  kinds:
    linux: {image: "alpine:3", env: {LAB: kind}}
  nodes:
    br-clab: {kind: bridge, group: leaf}
    client1: {labels: {graph-level: 2}, env: {DEBUG: "no"}}
    client2: {exec: ["echo '$LAB' two"]}
    client3:
  links:
    - {endpoints: ["client1:eth1", "br-clab:eth1"], mtu: 9000}
    - endpoints: ["client2:eth1", "br-clab:eth2"]
    - endpoints: ["client3:eth1", "br-clab:eth3"]
"""

EXTENDED_LINKS = """
# Typical of a generated file: links in the extended format, with MACs and addresses.
name: extended
topology:
  nodes:
    l1: {kind: linux, image: alpine}
    l2: {kind: linux, image: alpine}
  links:
    - type: veth
      mtu: 1500
      endpoints:
        - node: l1
          interface: eth1
          mac: 02:00:00:00:00:01
          ipv4: 192.168.0.1/24
        - {node: l2, interface: eth1, ipv4: 192.168.0.2/24}
    - endpoints: ["l1:eth2", "l2:eth2"]
      ipv4: [10.0.0.1/30, 10.0.0.2/30]
      labels: {role: storage}
    - endpoints: ["l1:net3", "l2:net3"]
"""


def plan(text: str) -> Plan:
    return Topology.parse(text).plan()


def addresses(node: Node) -> dict[str, IPv4Interface | None]:
    return {interface.name: interface.address for interface in node.interfaces}


def test_a_linux_node_is_a_container_without_addresses_of_our_own() -> None:
    found = plan(TWO_HOSTS_AND_A_ROUTER)
    nodes = found.nodes
    assert {node.kind for node in nodes.values()} == {"linux"}
    assert found.images == ["ghcr.io/srl-labs/network-multitool:latest"]
    assert addresses(nodes["router"]) == {"eth1": None, "eth2": None}
    assert nodes["pc1"].routes == ()
    assert nodes["pc1"].interfaces[0].rdma == "pc1-eth1"


def test_commands_are_split_into_words_as_a_shell_would() -> None:
    nodes = plan(TWO_HOSTS_AND_A_ROUTER).nodes
    assert nodes["router"].exec[1] == ("ip", "addr", "add", "192.168.1.1/24", "dev", "eth1")
    assert nodes["pc2"].exec[1] == ("bash", "-c", "ip route add 192.168.1.0/24 via 192.168.2.1")


def test_commands_of_all_levels_follow_each_other_and_variables_are_merged() -> None:
    nodes = plan(HOSTS_ON_A_BRIDGE).nodes
    assert nodes["br-clab"].kind == "bridge"
    assert nodes["client2"].exec == (("ip", "link", "show"), ("echo", "$LAB", "two"))
    assert nodes["client3"].exec == (("ip", "link", "show"),)
    assert dict(nodes["client1"].env) == {"LAB": "kind", "TRIES": "3", "DEBUG": "no"}
    assert dict(nodes["client2"].env) == {"LAB": "kind", "TRIES": "3", "DEBUG": "true"}
    assert (nodes["br-clab"].exec, nodes["br-clab"].env) == ((), ())
    assert nodes["client1"].interface("eth1").mtu == 9000


def test_addresses_that_the_file_gives_a_link_are_those_of_its_ends() -> None:
    nodes = plan(EXTENDED_LINKS).nodes
    assert {name: str(address) for name, address in addresses(nodes["l1"]).items()} == {
        "eth1": "192.168.0.1/24",
        "eth2": "10.0.0.1/30",
        "net3": "None",
    }
    assert nodes["l1"].interface("eth1").mac == "02:00:00:00:00:01"
    assert str(nodes["l2"].interface("eth2").address) == "10.0.0.2/30"


def test_a_host_beside_a_linux_node_has_a_planned_address_and_runs_commands_too() -> None:
    nodes = plan(
        """
name: mixed
topology:
  nodes:
    a: {kind: host, exec: ["true"], env: {A: b}}
    b: {kind: linux}
    leaf: {kind: switch, vlans: {1: 10.0.0.1/24}}
  links:
    - endpoints: ["a:eth1", "leaf:e1"]
    - endpoints: ["b:eth1", "leaf:e2"]
"""
    ).nodes
    assert (addresses(nodes["a"]), addresses(nodes["b"])) == ({"eth1": IPv4Interface("10.0.0.2/24")}, {"eth1": None})
    assert (len(nodes["a"].routes), nodes["b"].routes) == (1, ())
    assert (nodes["a"].exec, nodes["a"].env) == ((("true",),), (("A", "b"),))


def test_a_group_is_between_the_kind_and_the_node() -> None:
    nodes = plan(
        """
name: groups
topology:
  defaults: {kind: linux, env: {LEVEL: defaults}}
  kinds: {linux: {env: {LEVEL: kind, KIND: "1"}, exec: ["true"]}}
  groups:
    rack: {env: {LEVEL: group, GROUP: "1"}, exec: [hostname]}
    leaves: {kind: switch, profile: sonic, exec: [passed over]}
  nodes:
    a: {group: rack}
    b: {group: rack, env: {LEVEL: node}}
    c: {group: only an annotation}
    leaf: {group: leaves}
"""
    ).nodes
    assert [(name, dict(nodes[name].env), len(nodes[name].exec)) for name in "abc"] == [
        ("a", {"LEVEL": "group", "KIND": "1", "GROUP": "1"}, 2),
        ("b", {"LEVEL": "node", "KIND": "1", "GROUP": "1"}, 2),
        ("c", {"LEVEL": "kind", "KIND": "1"}, 1),
    ]
    assert (nodes["leaf"].kind, nodes["leaf"].profile) == ("switch", "sonic")


def test_the_group_may_be_that_of_the_kind_or_of_the_defaults() -> None:
    nodes = plan(
        """
name: groups
topology:
  defaults: {group: machines}
  kinds: {switch: {group: leaves}}
  groups: {machines: {kind: host, nic: hardware}, leaves: {profile: sonic}}
  nodes: {a: , leaf: {kind: switch}}
"""
    ).nodes
    assert (nodes["a"].kind, nodes["a"].nic) == ("host", "hardware")
    assert nodes["leaf"].profile == "sonic"


EMPTY = """
name: empty_keys
topology:
  defaults:
  kinds:
  groups:
  nodes: {a_1: {kind: linux, labels: , exec: , env: }, 7: {kind: bridge}}
  links:
  faults:
"""


def test_a_key_with_nothing_behind_it_is_empty() -> None:
    assert list(plan(EMPTY).nodes) == ["a_1", "7"]


def test_a_link_may_end_at_the_machine_that_runs_the_containers_and_at_the_management_bridge() -> None:
    nodes = plan(
        """
name: outside
topology:
  nodes: {a: {kind: linux, image: "alpine:3"}, b: {kind: linux}}
  links:
    - {endpoints: ["a:eth1", "host:a-eth1"], mtu: 9000}
    - {type: host, endpoint: {node: b, interface: eth1, mac: "02:00:00:00:00:0b"}, host-interface: b-eth1}
    - {type: mgmt-net, endpoint: "a:eth2", host-interface: a-eth2}
    - {endpoints: ["b:eth2", "mgmt-net:b-eth2"]}
"""
    ).nodes
    assert [(node.name, node.kind) for node in nodes.values()][2:] == [("host", "host"), ("mgmt-net", "bridge")]
    host = nodes["host"]
    assert [(end.name, end.peer, end.rdma, end.address) for end in host.interfaces] == [
        ("a-eth1", ("a", "eth1"), None, None),
        ("b-eth1", ("b", "eth1"), None, None),
    ]
    assert (host.ipv6, host.routes, host.interface("a-eth1").mtu) == (True, (), 9000)
    assert nodes["b"].interface("eth1").mac == "02:00:00:00:00:0b"
    assert [end.peer for end in nodes["mgmt-net"].interfaces] == [("a", "eth2"), ("b", "eth2")]


CONTAINER_HOST = """
name: host-kind
topology:
  nodes:
    machine: {{kind: host, exec: [ip addr add 192.0.2.1/24 dev to-pc]}}
    pc: {{kind: linux{pc}}}
  links: [{{endpoints: ["pc:eth1", "{end}:to-pc"]}}]
"""


@pytest.mark.parametrize("end", ["host", "machine"])
def test_beside_an_image_a_host_is_containerlab_s(end: str) -> None:
    topology = Topology.parse(CONTAINER_HOST.format(pc=", image: x", end=end), source="t.yml")
    nodes = topology.plan().nodes
    assert list(nodes) == ["machine", "pc"]
    (to_pc,) = nodes["machine"].interfaces
    assert (to_pc.name, to_pc.rdma, to_pc.address, nodes["machine"].ipv6) == ("to-pc", None, None, True)
    (found,) = [note for note in topology.notes if note.key == "kind"]
    assert found.where == "t.yml:5:5"
    assert "'kind: host' is containerlab's, the machine that runs the containers" in found.text


@pytest.mark.parametrize("pc", ["", ", image: x, nic: hardware"])
def test_without_an_image_or_with_a_key_of_ours_a_host_is_testbed_s(pc: str) -> None:
    topology = Topology.parse(CONTAINER_HOST.format(pc=pc, end="machine"))
    machine = topology.plan().nodes["machine"]
    (to_pc,) = machine.interfaces
    assert (to_pc.rdma, str(to_pc.address), machine.ipv6) == ("machine-to-pc", "198.18.0.1/24", False)
    assert "kind" not in {note.key for note in topology.notes}


def test_a_mistyped_node_does_not_become_the_container_host() -> None:
    text = CONTAINER_HOST.format(pc="", end="host")
    with pytest.raises(InputError, match=r"unknown node 'host'; nodes: machine, pc; containerlab's special endpoint"):
        plan(text)


def test_sysctls_of_all_levels_are_merged_and_ipv6_is_on() -> None:
    nodes = plan(
        """
name: sysctls
topology:
  defaults: {kind: linux, sysctls: {net.ipv4.ip_forward: 1, net.ipv4.conf.all.rp_filter: 0}}
  nodes:
    a: {sysctls: {net.ipv4.conf.all.rp_filter: 2, net/ipv4/conf/eth1.5/forwarding: "1"}}
    b: {kind: bridge}
    c: {kind: host}
    d: {kind: switch, sysctls: {net.ipv4.conf.vlan1.arp_ignore: 0}}
"""
    ).nodes
    assert nodes["d"].sysctls[-1] == ("net/ipv4/conf/vlan1/arp_ignore", "0")
    assert nodes["a"].sysctls == (
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv4/conf/all/rp_filter", "2"),
        ("net/ipv4/conf/eth1.5/forwarding", "1"),
    )
    assert nodes["b"].sysctls == ()
    assert [nodes[name].ipv6 for name in "abc"] == [True, False, False]


def test_the_container_host_is_one_node() -> None:
    text = CONTAINER_HOST.format(pc=", image: x", end="host").replace("    pc:", "    other: {kind: host}\n    pc:")
    with pytest.raises(
        InputError, match="'other' and 'machine' are the same machine, the one that runs the containers"
    ):
        plan(text)
