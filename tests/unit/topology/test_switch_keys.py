"""Keys of switches that need more than their form: values of a profile, VLANs with proxy ARP; and `rdma_mode`."""

import pytest

from testbed.errors import InputError
from testbed.switch.profile import load_profiles, value_problems, values_schema
from testbed.topology import Plan, Topology, json_schema

LEAF = """\
name: lab
topology:
  kinds:
    switch: {{profile: sonic, profile_values: {{arp_age: 300}}}}
  nodes:
    leaf:
      kind: switch
      vlans: {{10: 10.0.10.1/24, 20: null}}
{keys}
    a: {{kind: host}}
  links:
    - {{endpoints: ["leaf:e1", "a:eth1"], vlan: 10}}
"""


def planned(*keys: str) -> Plan:
    text = LEAF.format(keys="\n".join(f"      {key}" for key in keys))
    return Topology.parse(text, source="t.yml").plan(profiles=load_profiles(), check_values=value_problems)


def refused(*keys: str) -> str:
    with pytest.raises(InputError) as said:
        planned(*keys)
    return str(said.value)


def test_values_are_merged_over_the_levels_of_the_file() -> None:
    assert dict(planned().nodes["leaf"].profile_values) == {"arp_age": 300}
    leaf = planned("profile_values: {mac_age: 60, lossless_dscp: [3, 5]}").nodes["leaf"]
    assert dict(leaf.profile_values) == {"arp_age": 300, "mac_age": 60, "lossless_dscp": [3, 5]}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["profile_values: {arp_aeg: 300}"], "t.yml:9:33: a switch profile has no value 'arp_aeg'; did you mean"),
        (["profile_values: {arp_age: -1}"], "t.yml:9:33: arp_age: Input should be greater than 0"),
        (["profile_values: {arp_age: 1e9}"], "t.yml:9:33: arp_age: Input should be less than or equal to 10000000"),
        (["profile_values: {arp_age: '300'}"], "t.yml:9:33: arp_age: Input should be a valid number"),
        (["profile_values: {arp_age: true}"], "t.yml:9:33: arp_age: Input should be a valid number"),
        (["profile_values: {arp_refresh: daily}"], "t.yml:9:37: arp_refresh: Input should be 'none', 'probe'"),
        (["profile_values: {refresh_before: 400}"], "refresh_before (400 s) must be less than arp_age (300 s)"),
        (["profile_values: 3"], "t.yml:9:23: 'profile_values' must be a mapping"),
        (["proxy_arp: [20]"], "t.yml:9:19: 'leaf' has no SVI with an address in VLAN 20"),
        (["proxy_arp: [10, 30]"], "t.yml:9:23: 'leaf' has no SVI with an address in VLAN 30"),
        (["proxy_arp: 10"], "t.yml:9:18: 'proxy_arp' must be a list"),
        (["ecmp_seed: 0"], "t.yml:9:18: 'ecmp_seed': Input should be greater than or equal to 1"),
        (["svi_mac: 01:00:5e:00:00:01"], "t.yml:9:16: "),
    ],
)
def test_what_is_wrong_has_its_place(keys: list[str], said: str) -> None:
    assert said in refused(*keys)


def test_the_values_of_an_unknown_profile_are_not_looked_at() -> None:
    assert "unknown profile 'sonc'" in refused("profile: sonc", "profile_values: {x: 1}")


def test_an_svi_has_proxy_arp_where_the_file_says_so() -> None:
    assert [svi.proxy_arp for svi in planned("proxy_arp: [10]").nodes["leaf"].svis] == [True, False]
    assert [svi.proxy_arp for svi in planned().nodes["leaf"].svis] == [False, False]


def test_the_schema_knows_the_values_and_their_ranges() -> None:
    schema = json_schema(values_schema())["$defs"]["NodeDefinition"]["properties"]["profile_values"]["anyOf"][0]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["arp_age"]["exclusiveMinimum"] == 0
    assert schema["properties"]["arp_refresh"]["enum"] == ["none", "probe", "daemon"]
    assert all(value["description"] for value in schema["properties"].values())
    assert "default" not in schema["properties"]["arp_cap"]  # what is not given is the profile's


@pytest.mark.parametrize("mode", ["shared", "exclusive", None])
def test_the_rdma_mode_is_in_the_plan(mode: str | None) -> None:
    key = f"rdma_mode: {mode}" if mode else ""
    text = f"name: lab\ntopology:\n  {key}\n  nodes: {{a: {{kind: host}}}}\n"
    assert Topology.parse(text).plan().rdma_mode == mode


def test_another_rdma_mode_is_refused() -> None:
    with pytest.raises(InputError, match=r"t.yml:3:14: 'rdma_mode'.*shared.*exclusive"):
        Topology.parse(
            "name: lab\ntopology:\n  rdma_mode: private\n  nodes: {a: {kind: host}}\n", source="t.yml"
        ).plan()


def test_the_hash_key_of_a_switch_is_its_own_or_given() -> None:
    assert planned().nodes["leaf"].ecmp_seed == 0
    assert planned("ecmp_seed: 7").nodes["leaf"].ecmp_seed == 7


ANYCAST = """\
name: lab
topology:
  kinds: {{switch: {{vlans: {{10: 10.0.10.1/24}}}}}}
  nodes:
    s1: {{kind: switch, svi_mac: {one}}}
    s2: {{kind: switch, svi_mac: {other}}}
    a: {{kind: host}}
    b: {{kind: host}}
  links:
    - {{endpoints: ["s1:e1", "a:eth1"], vlan: 10}}
    - {{endpoints: ["s2:e1", "b:eth1"], vlan: 10}}
    - {{endpoints: ["s1:e9", "s2:e9"], vlan: 10}}
"""
GATEWAY_MAC = "00:00:5e:00:01:fe"


@pytest.mark.parametrize("other", [GATEWAY_MAC, "00:00:5e:00:01:aa"])
def test_switches_with_an_svi_mac_of_their_own_may_have_one_gateway(other: str) -> None:
    plan = Topology.parse(ANYCAST.format(one=GATEWAY_MAC, other=other)).plan()
    assert [plan.nodes[name].svis[0].mac for name in ("s1", "s2")] == [GATEWAY_MAC, other]
    assert {str(plan.nodes[name].interfaces[0].gateway) for name in "ab"} == {"10.0.10.1"}
    assert {str(plan.nodes[name].interfaces[0].address) for name in "ab"} == {"10.0.10.2/24", "10.0.10.3/24"}


def test_without_it_the_second_gateway_is_refused_with_the_way_on() -> None:
    with pytest.raises(InputError, match="an anycast gateway has 'svi_mac' on each of its switches"):
        Topology.parse(ANYCAST.format(one=GATEWAY_MAC, other="null")).plan()
