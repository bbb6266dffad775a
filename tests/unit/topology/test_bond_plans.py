"""Bonds of hosts and port channels of switches in a file: their plan, and the errors."""

from ipaddress import IPv4Address, IPv4Interface, IPv4Network

import pytest
from refusals import assert_refused_at_caret

from testbed.topology import Bond, Plan, Topology

FILE = """\
name: bonds
topology:
  nodes:
    leaf: {{kind: switch, vlans: {{10: 10.0.10.1/24}}, bonds: {{po1: {{members: [e1, e2]}}}}}}
    other: {{kind: switch, vlans: {{10: }}{other}}}
    h: {{kind: host{host}}}
    g: {{kind: host}}
  links:
    - {{endpoints: ["leaf:e1", "h:eth1"], vlan: 10{first}}}
    - {{endpoints: ["{far}:e2", "h:eth2"], vlan: 10{second}}}
    - {{endpoints: ["leaf:e3", "g:eth1"], vlan: 10}}
    - {{endpoints: ["leaf:e4", "other:e4"], trunk: [10]{third}}}
"""


def text(
    bond: str = "members: [eth1, eth2]",
    *,
    far: str = "leaf",
    other: str = "",
    first: str = "",
    second: str = "",
    third: str = "",
) -> str:
    host = f", bonds: {{bond0: {{{bond}}}}}" if bond else ""
    return FILE.format(host=host, far=far, other=other, first=first, second=second, third=third)


def plan(given: str) -> Plan:
    return Topology.parse(given, source="t.yml").plan()


def test_a_bond_has_the_address_the_device_and_the_vlan_in_the_place_of_its_members() -> None:
    made = plan(text())
    bond, channel = made.nodes["h"].interface("bond0"), made.nodes["leaf"].interface("po1")
    assert (bond.address, bond.gateway) == (IPv4Interface("10.0.10.2/24"), IPv4Address("10.0.10.1"))
    assert (bond.rdma, bond.mac, bond.peer) == ("h-bond0", "02:00:03:00:00:01", ("leaf", "po1"))
    assert bond.bond == Bond("802.3ad", ("eth1", "eth2"), "layer3+4", "slow")
    assert (channel.vlan, channel.trunk, channel.peer) == (10, (), ("h", "bond0"))
    for member in (made.nodes["h"].interface("eth1"), made.nodes["leaf"].interface("e2")):
        assert (member.addresses, member.rdma, member.vlan, member.trunk) == ((), None, None, ())
        assert member.master == ("bond0" if member.node == "h" else "po1")
    assert [port.name for port in made.nodes["leaf"].ports] == ["e3", "e4", "po1"]
    assert made.nodes["h"].routes[0].destination == IPv4Network("0.0.0.0/0")
    assert [end.master for end in made.links[0]] == ["po1", "bond0"]


def test_all_keys_of_a_bond() -> None:
    keys = "mode: active-backup, members: [eth1, eth2], primary: eth2, mac: 02:00:00:00:99:01, ipv4: 10.0.10.77/24"
    bond = plan(text(keys)).nodes["h"].interface("bond0")
    assert (bond.mac, bond.address) == ("02:00:00:00:99:01", IPv4Interface("10.0.10.77/24"))
    assert bond.bond == Bond("active-backup", ("eth1", "eth2"), primary="eth2")
    keys = "members: [eth1, eth2], hash: layer2, lacp_rate: fast, min_links: 2, system: 44:38:39:be:ef:aa"
    bond = plan(text(f"{keys}, broadcast_neighbor: true")).nodes["h"].interface("bond0").bond
    assert bond == Bond(
        "802.3ad", ("eth1", "eth2"), "layer2", "fast", 2, "", "44:38:39:be:ef:aa", broadcast_neighbor=True
    )


def test_port_channels_between_switches_are_no_loop_and_may_be_routed() -> None:
    links = "".join(f'    - {{endpoints: ["a:e{n}", "b:e{n}"]}}\n' for n in (1, 2))
    nodes = "".join(f"    {name}: {{kind: switch, bonds: {{po1: {{members: [e1, e2]}}}}}}\n" for name in "ab")
    for routing in ("static", "frr"):
        made = plan(f"name: two\ntopology:\n  routing: {routing}\n  nodes:\n{nodes}  links:\n{links}")
        channel = made.nodes["a"].interface("po1")
        assert (channel.routed, channel.vlan) == ((True, None) if routing == "frr" else (False, 1))
        assert [port.name for port in made.nodes["a"].routed_ports] == ["po1"] * (routing == "frr")


def test_a_routed_port_channel_is_one_at_both_ends() -> None:
    links = "".join(f'    - {{endpoints: ["a:e{n}", "b:e{n}"]}}\n' for n in (1, 2))
    nodes = "    a: {kind: switch, bonds: {po1: {members: ^[e1, e2]}}}\n    b: {kind: switch}\n"
    wrong = "the routed links of a:po1 are one port at its end, and several at the other: b:e1, b:e2"
    assert_refused_at_caret(f"name: two\ntopology:\n  routing: frr\n  nodes:\n{nodes}  links:\n{links}", wrong)


CHANNEL = ", bonds: {po9: {members: [e2]SYSTEM}}"
SYSTEM = ", system: 44:38:39:be:ef:aa"


def test_a_bond_to_two_switches_is_of_one_lacp_system_or_active_backup() -> None:
    backup = plan(text("mode: active-backup, members: [eth1, eth2]", far="other").replace("e1, e2", "e1"))
    assert backup.nodes["h"].interface("bond0").peer == ("leaf", "po1")
    given = text(far="other", other=CHANNEL.replace("SYSTEM", SYSTEM), third="").replace("[e1, e2]", f"[e1]{SYSTEM}")
    made = plan(given)
    assert [made.nodes[name].bonds[0].bond.system for name in ("leaf", "other")] == ["44:38:39:be:ef:aa"] * 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (text("members: [eth1, ^eth3]"), "'h' has no link 'eth3'; there are: eth1, eth2"),
        (text("members: [eth1, ^eth1]"), "h:eth1 is already a member of bond0"),
        (text("members: ^[]"), "too few entries in 'members': 0, at least 1"),
        (text("members: [eth1], mode: ^lacp"), "'mode'"),
        (text("members: [eth1, eth2], ^primary: eth1"), "'primary' is for bonds of mode active-backup"),
        (text("members: [eth1], mode: active-backup, primary: ^eth2"), "'eth2' is not among the members of h:bond0"),
        (
            text("members: [eth1, eth2], mode: balance-xor, ^lacp_rate: fast"),
            "'lacp_rate' is for bonds of mode 802.3ad",
        ),
        (
            text("members: [eth1, eth2], min_links: ^3"),
            "h:bond0 has never a carrier: it has 2 members, fewer than 'min_links'",
        ),
        (text("members: [eth1, eth2], mode: balance-xor, ^min_links: 1"), "'min_links' is for bonds of mode 802.3ad"),
        (
            text("members: [eth1, eth2], mode: active-backup, ^hash: layer2"),
            "'hash' is for bonds of mode 802.3ad and balance-xor",
        ),
        (text(first=", ipv4: [null, ^10.0.10.9/24]"), "h:eth1 is a member of bond0: give the address to the bond"),
        (text(second=", mtu: ^9000"), "links of one bond have one 'mtu': leaf:e2 has 9000, leaf:e1 has 1500"),
        (
            text("members: ^[eth1, eth2]", far="other").replace("[e1, e2]", "[e1]"),
            "the members of h:bond0 end at leaf, other, which are not one system to it",
        ),
        (
            text("mode: balance-xor, members: ^[eth1, eth2]", far="other").replace("[e1, e2]", "[e1]"),
            "use mode active-backup",
        ),
        (
            text("members: ^[eth1, eth2]", far="other", other=CHANNEL.replace("SYSTEM", "")).replace(
                "[e1, e2]", "[e1]"
            ),
            "give their port channels the same 'system'",
        ),
    ],
)
def test_a_wrong_bond_is_refused_where_it_is_wrong(given: str, message: str) -> None:
    assert_refused_at_caret(given, message)


def test_a_name_that_is_taken_is_refused() -> None:
    assert_refused_at_caret(
        text("").replace("kind: host}", "kind: host, bonds: {^eth1: {members: [eth2]}}}", 1), "h:eth1 is used twice"
    )
    assert_refused_at_caret(text("").replace("po1: ", "vlan7: ^"), "'vlan7' is kept for the switch's own interfaces")


def test_a_real_cable_is_in_no_bond() -> None:
    ends = "[{node: leaf, interface: e1, hardware: ens1}, {node: h, interface: eth1, hardware: ens2}]"
    given = text("members: [^eth1, eth2]").replace('["leaf:e1", "h:eth1"]', ends)
    assert_refused_at_caret(given, "the cable of h:eth1 is real: bonds are of links that the lab makes")
