"""Virtual routers by VRRP: keys of switches, the gateways of hosts, and what is wrong in a file."""

from ipaddress import ip_address
from itertools import pairwise

import pytest
from refusals import assert_refused_at_caret

from testbed.topology import Plan, Topology
from testbed.topology.addressing import virtual_mac_of
from testbed.topology.changes import between

TWO = """\
name: lab
topology:
  nodes:
    s1: {kind: switch, vlans: {10: [10.0.10.2/24, "2001:db8::2/64"], 20: null}ONE}
    s2: {kind: switch, vlans: {10: [10.0.10.3/24, "2001:db8::3/64"], 20: null}OTHER}
    a: {kind: host}
    b: {kind: host}
  links:
    - {endpoints: ["s1:e1", "a:eth1"], vlan: 10}
    - {endpoints: ["s2:e1", "b:eth1"], vlan: 10}
    - {endpoints: ["s1:up", "s2:up"], trunk: [10]}
"""
FIVE = ", vrrp: {10: {id: 5, address: 10.0.10.1}}"


def text(one: str = FIVE, other: str = FIVE) -> str:
    return TWO.replace("ONE", one).replace("OTHER", other)


def planned(one: str = FIVE, other: str = FIVE) -> Plan:
    return Topology.parse(text(one, other)).plan()


def gateways(plan: Plan) -> dict[str, tuple[str, str]]:
    return {name: (str(end.gateway), str(end.gateway6)) for name in "ab" for end in plan.nodes[name].interfaces}


def test_hosts_have_the_virtual_address_as_their_gateway_and_none_gets_it_as_its_own() -> None:
    plan = planned()
    assert gateways(plan) == {"a": ("10.0.10.1", "2001:db8::2"), "b": ("10.0.10.1", "2001:db8::3")}
    assert [str(plan.nodes[name].interfaces[0].address) for name in "ab"] == ["10.0.10.4/24", "10.0.10.5/24"]


def test_it_is_the_gateway_of_hosts_at_a_switch_that_takes_no_part() -> None:
    assert gateways(planned(other="")) == {"a": ("10.0.10.1", "2001:db8::2"), "b": ("10.0.10.1", "2001:db8::3")}


def test_both_families_have_a_mac_each() -> None:
    both = ', vrrp: {10: {id: 165, address: 10.0.10.1, address6: "2001:db8::1"}}'
    plan = planned(both, both)
    assert gateways(plan)["b"] == ("10.0.10.1", "2001:db8::1")
    assert virtual_mac_of(plan, ip_address("10.0.10.1")) == "00:00:5e:00:01:a5"
    assert virtual_mac_of(plan, ip_address("2001:db8::1")) == "00:00:5e:00:02:a5"
    assert virtual_mac_of(plan, ip_address("10.0.10.2")) is None


def test_values_have_the_defaults_of_the_standard() -> None:
    _, router = planned().nodes["s1"].virtual_routers[0]
    assert (router.priority, router.interval_ms, router.preempt) == (100, 1000, True)
    given = ", vrrp: {10: {id: 5, address: 10.0.10.1, priority: 200, interval: 250, preempt: false}}"
    _, router = planned(given).nodes["s1"].virtual_routers[0]
    assert (router.priority, router.interval_ms, router.preempt) == (200, 250, False)


def test_one_id_may_be_in_several_vlans() -> None:
    """It is one of a LAN: MACs of two VLANs do not meet."""
    one = text().replace("20: null}, vrrp: {10: {id: 5, address: 10.0.10.1}}", "20: 10.0.20.2/24}ROUTERS", 1)
    routers = ", vrrp: {10: {id: 5, address: 10.0.10.1}, 20: {id: 5, address: 10.0.20.1}}"
    plan = Topology.parse(one.replace("ROUTERS", routers)).plan()
    assert [(svi.vlan, router.id) for svi, router in plan.nodes["s1"].virtual_routers] == [(10, 5), (20, 5)]


def test_switches_without_a_link_may_have_one_id_and_two_addresses() -> None:
    apart = "\n".join(line for line in text(other=", vrrp: {10: {id: 5, address: 10.0.11.1}}").splitlines()[:-1])
    plan = Topology.parse(apart.replace("10.0.10.3", "10.0.11.3").replace("2001:db8::3", "2001:db9::3")).plan()
    assert gateways(plan)["b"] == ("10.0.11.1", "2001:db9::3")


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (", vrrp: {10: {id: ^0, address: 10.0.10.1}}", "", "greater than or equal to 1"),
        (", vrrp: {10: {id: ^256, address: 10.0.10.1}}", "", "less than or equal to 255"),
        (", vrrp: {10: {id: 5, address: 10.0.10.1, priority: ^255}}", "", "less than or equal to 254"),
        (", vrrp: {10: {id: 5, address: 10.0.10.1, interval: ^15}}", "", "15 ms is no multiple of 10 ms"),
        (", vrrp: {10: {id: 5, address: ^10.0.10.1/24}}", "", "expected an address without a prefix length"),
        (', vrrp: {10: {id: 5, address: ^"2001:db8::1"}}', "", "2001:db8::1 is an IPv6 address, not an IPv4 one"),
        (", vrrp: {10: {id: 5, address: ^10.0.10.255}}", "", "network or broadcast address of 10.0.10.0/24"),
        (", vrrp: {10: {id: 5, address: ^10.0.9.1}}", "", "is outside 10.0.10.0/24, the subnet of VLAN 10 of s1"),
        (", vrrp: {10: ^{id: 5}}", "", "the virtual router 5 has no address: give 'address', 'address6' or both"),
        (
            ", vrrp: {20: {id: 5, address: ^10.0.20.1}}",
            "",
            "'vrrp' needs an SVI with an IPv4 address of its own in VLAN 20 of 's1', beside 10.0.20.1",
        ),
        (
            ", vrrp: {30: {id: 5, address: ^10.0.20.1}}",
            "",
            "'vrrp' needs an SVI with an IPv4 address of its own in VLAN 30 of 's1', beside 10.0.20.1",
        ),
        (
            ", vrrp: {10: {id: 5, address: ^10.0.10.2}}",
            "",
            "10.0.10.2 of the virtual router 5 of VLAN 10 on s1 is also that of the SVI of VLAN 10 on s1, in line 4; "
            "the SVIs of a virtual router have addresses of their own",
        ),
        (
            FIVE,
            ", vrrp: {10: {id: 6, address: ^10.0.10.1}}",
            "10.0.10.1 of the virtual router 6 of VLAN 10 on s2 is also that of the virtual router 5 of VLAN 10 on s1, "
            "in line 4; the switches of one virtual router have the same 'id'",
        ),
        (
            FIVE,
            ", vrrp: {10: {id: 5, address: ^10.0.10.9}}",
            "the virtual router 5 of VLAN 10 on s2 has the address 10.0.10.9, the virtual router 5 of VLAN 10 on s1 "
            "has 10.0.10.1, in line 4: with one id they are one",
        ),
        (
            ", svi_mac: ^00:00:5e:00:01:05, vrrp: {10: {id: 5, address: 10.0.10.1}}",
            "",
            "00:00:5e:00:01:05 is the MAC of the virtual router 5 of VLAN 10 on s1",
        ),
    ],
)
def test_what_is_wrong_has_its_place(one: str, other: str, message: str) -> None:
    assert_refused_at_caret(text(one, other), message)


def test_a_host_cannot_have_the_virtual_address() -> None:
    link = '{endpoints: ["s2:e1", "b:eth1"], vlan: 10, ipv4: [null, ^10.0.10.1/24]}'
    assert_refused_at_caret(
        text().replace('{endpoints: ["s2:e1", "b:eth1"], vlan: 10}', link),
        "10.0.10.1 of b:eth1 is also that of the virtual router 5 of VLAN 10 on s1, in line 4",
    )


def test_a_router_comes_goes_and_changes_while_its_switch_stays() -> None:
    plans = [planned(""), planned(), planned(FIVE.replace("}}", ", priority: 200}}")), planned("")]
    for before, now in pairwise(plans):
        changes = between(before, now)
        assert "s1" in [new.name for _, new in changes.nodes]
        assert changes.anew == {}
