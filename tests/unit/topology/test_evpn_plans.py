"""EVPN in a file: what is planned of VXLAN networks and Ethernet segments, and the errors."""

from ipaddress import IPv4Address, IPv4Interface

import pytest
from refusals import assert_refused_at_caret

from testbed.topology import Plan, Topology

SYSTEM = 'system: "44:38:39:be:ef:aa", '
SEGMENT = f"bonds: {{po1: {{members: [e1], {SYSTEM}es_id: 7}}}}"
FILE = """\
name: evpn
topology:
  routing: evpn
  groups:
    leaf:
      kind: switch
      svi_mac: "02:00:00:aa:aa:aa"
      vlans: {10: 10.0.10.1/24, 20: }
      vnis: {10: 10010, 20: 10020}
      l3vni: 4001
  nodes:
    spine: {kind: switch}
    leaf1: {group: leaf, SEGMENT}
    leaf2: {group: leaf, SEGMENT}
    a: {kind: host, bonds: {bond0: {members: [eth1, eth2]}}}
    b: {kind: host}
    c: {kind: host}
  links:
    - {endpoints: ["leaf1:u1", "spine:d1"]}
    - {endpoints: ["leaf2:u1", "spine:d2"]}
    - {endpoints: ["leaf1:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["leaf2:e1", "a:eth2"], vlan: 10}
    - {endpoints: ["leaf2:e2", "b:eth1"], vlan: 10}
    - {endpoints: ["leaf1:e3", "c:eth1"], vlan: 20}
""".replace("SEGMENT", SEGMENT)


def plan(text: str = FILE) -> Plan:
    return Topology.parse(text, source="t.yml").plan()


def test_vlans_with_one_vni_are_one_subnet_with_an_anycast_gateway() -> None:
    made = plan()
    ends = [made.nodes["a"].interface("bond0"), made.nodes["b"].interface("eth1")]
    assert [end.address for end in ends] == [IPv4Interface("10.0.10.2/24"), IPv4Interface("10.0.10.3/24")]
    assert {end.gateway for end in ends} == {IPv4Address("10.0.10.1")}
    leaf = made.nodes["leaf1"]
    assert [(svi.vlan, svi.vni, svi.network) for svi in leaf.svis] == [(10, 10010, "vni10010"), (20, 10020, "vni10020")]
    assert (leaf.vtep, leaf.l3vni, leaf.anycast) == (IPv4Address("10.255.0.2"), 4001, True)
    assert (made.nodes["spine"].vtep, made.nodes["spine"].bgp.evpn) == (None, True)  # type: ignore[union-attr]
    assert leaf.bonds[0].bond.es_id == 7  # type: ignore[union-attr]


def test_routed_links_carry_what_vxlan_adds() -> None:
    assert [link[0].mtu for link in plan().links] == [9100, 9100, 1500, 1500, 1500, 1500]
    given = FILE.replace('"spine:d1"]}', '"spine:d1"], mtu: 1550}')
    assert plan(given).links[0][0].mtu == 1550


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("vnis: {10: 10010, 20", "vnis: {10: 10010, ^30", "VNI 10020 is without a VLAN: 30 is not among the VLANs of"),
        ("20: 10020", "20: ^10010", "VNI 10010 is also that of VLAN 10 of 'leaf1'"),
        ("20: 10020", "20: ^4001", "VNI 4001 is also that of 'l3vni' of 'leaf1'"),
        ("20: 10020", "20: ^16777216", "VNI 16777216 is not in 1..16777215"),
        ("      vnis: {10: 10010, 20: 10020}\n", "", "'l3vni' routes between VLANs with a VNI, and 'leaf1' has none"),
        ("  routing: evpn\n", "", "VXLAN networks need 'routing: evpn' in the topology"),
        ('"spine:d1"]}', '"spine:d1"], mtu: ^1549}', "packets of leaf1:e1 have 1500 bytes, and 50 more in the tunnel"),
        (
            'leaf1:u1", "spine:d1"]}',
            'leaf1:u1", "spine:d1"], trunk: [10]}',
            "'leaf1' has no routed link, by which VXLAN reaches other switches",
        ),
        ("members: [eth1, eth2]", "members: [eth1, eth2], ^es_id: 1", "'es_id' is for port channels of switches"),
        (
            "leaf1: {group: leaf",
            "leaf1: {group: leaf, host_routes: true",
            "'host_routes' is without EVPN: 'leaf1' announces its neighbours by 'vnis'",
        ),
    ],
)
def test_a_wrong_network_is_refused_where_it_is_wrong(old: str, new: str, message: str) -> None:
    text = FILE.replace(old, new, 1)
    assert text != FILE
    if "^" in text:
        assert_refused_at_caret(text, message)
    else:
        with pytest.raises(Exception, match=message.split(":", maxsplit=1)[0].replace("(", r"\(")):
            plan(text)


APART = FILE.replace('"leaf2:e1", "a:eth2"', '"leaf2:e1", "b:eth9"').replace("[eth1, eth2]", "[eth1]")
"""Each leaf has a segment to a host of its own."""


def test_one_segment_leads_to_one_host() -> None:
    wrong = "'system' and 'es_id' of leaf2:po1, which leads to b, are also of leaf1:po1, which leads to a, in line 13"
    text = APART.replace("es_id: 7", "es_id: ^7").replace("^", "", 1)
    assert_refused_at_caret(text, wrong)


def test_a_segment_has_the_mac_of_its_lacp_system() -> None:
    text = APART.replace(f"{SYSTEM}es_id", "^es_id", 1).replace("es_id: 7}}}\n    a:", "es_id: 8}}}\n    a:")
    assert_refused_at_caret(text, "an Ethernet segment has the MAC of its LACP system: add 'system'")


def test_a_segment_is_for_vlans_with_a_network() -> None:
    text = FILE.replace("vnis: {10: 10010, 20: 10020}", "vnis: {20: 10020}").replace("es_id", "^es_id", 1)
    assert_refused_at_caret(text, "an Ethernet segment is for VLANs with a VNI; of leaf1:po1 without one: 10")


def test_a_network_joins_broadcasts_and_so_can_close_a_loop() -> None:
    text = FILE.replace("  links:\n", '  links:\n    - ^{endpoints: ["leaf1:p", "leaf2:p"], trunk: [10]}\n')
    assert_refused_at_caret(text, "this link closes a layer-2 loop")
