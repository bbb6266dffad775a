"""What neighbour discovery has of its own in the table; the rest it shares with ARP, whose tests show it."""

from ipaddress import IPv4Interface, IPv6Address, IPv6Interface

import pytest
from simulated_switch import GATEWAY_MAC, A, B, Switch
from simulated_switch import X as X4

from testbed.switch.core import Send
from testbed.switch.frames import BROADCAST, NO_MAC, REPLY, REQUEST, Arp
from testbed.switch.nd import ALL_NODES, NO_IP, Nd
from testbed.switch.profile import load_profiles, profile
from testbed.topology import Svi, link_local

GATEWAY, OTHER_GATEWAY = IPv6Address("2001:db8:10::fe"), IPv6Address("2001:db8:20::fe")
OWN = link_local(GATEWAY_MAC)
X, Y = IPv6Address("2001:db8:10::1"), IPv6Address("2001:db8:10::2")
NEAR = link_local(A)
SVIS = (
    Svi(10, "vlan10", GATEWAY_MAC, IPv4Interface("10.0.10.254/24"), IPv6Interface(f"{GATEWAY}/64")),
    Svi(20, "vlan20", GATEWAY_MAC, None, IPv6Interface(f"{OTHER_GATEWAY}/64")),
    Svi(30, "vlan30", GATEWAY_MAC, IPv4Interface("10.0.30.254/24")),
)

ALL = tuple(load_profiles())
CREATES = {"h3c-comware7", "huawei-ce", "huawei-ce-fixed-mac", "huawei-ce-fixed-all", "huawei-ce-send-ack"}
UPDATES_AT_ONCE = set(ALL) - {"huawei-ce-fixed-mac", "huawei-ce-fixed-all", "huawei-ce-send-ack", "ignore-garp-strict"}


def switch(name: str, **values: object) -> Switch:
    return Switch(profile(name).replace(**values), SVIS)


def solicit(leaf: Switch, ip: IPv6Address, mac: str, target: IPv6Address = GATEWAY, vlan: int = 10) -> None:
    leaf.packet(vlan, Nd(REQUEST, mac, ip, target))


def advertise(leaf: Switch, ip: IPv6Address, mac: str, *, override: bool = True) -> None:
    leaf.packet(10, Nd(REPLY, mac, ip, OWN, solicited=True, override=override))


def announce(leaf: Switch, ip: IPv6Address, mac: str, *, override: bool = True, vlan: int = 10) -> None:
    leaf.packet(vlan, Nd(REPLY, mac, ip, ALL_NODES, override=override))


@pytest.mark.parametrize("name", ALL)
def test_an_unsolicited_advertisement_counts_as_a_gratuitous_arp(name: str) -> None:
    new, known = switch(name), switch(name)
    solicit(known, X, A)

    announce(new, X, B)
    announce(known, X, B)

    assert new.mac(X) == (B if name in CREATES else None)
    assert known.mac(X) == (B if name in UPDATES_AT_ONCE else A)


@pytest.mark.parametrize("name", ALL)
def test_a_solicitation_for_the_svi_is_learned_and_answered(name: str) -> None:
    leaf = switch(name)

    solicit(leaf, X, A)

    assert leaf.mac(X) == A
    assert leaf.sent[-1] == Send(10, A, Nd(REPLY, GATEWAY_MAC, GATEWAY, X, solicited=True, router=True))
    assert leaf.last("nd.learned") == {"switch": "leaf", "vlan": 10, "ip": str(X), "mac": A, "reason": "request"}


def test_a_solicitation_without_its_mac_is_answered_to_the_one_that_is_known() -> None:
    leaf = switch("cisco-nxos")
    solicit(leaf, X, NO_MAC)
    assert leaf.sent == []

    solicit(leaf, X, A)
    solicit(leaf, X, NO_MAC)

    assert [sent.dst for sent in leaf.sent] == [A, A]
    assert leaf.mac(X) == A


@pytest.mark.parametrize("name", ALL)
def test_no_profile_answers_for_the_address_of_another_interface(name: str) -> None:
    leaf = switch(name)
    before = len(leaf.sent)

    solicit(leaf, X, A, target=OTHER_GATEWAY)

    assert len(leaf.sent) == before


def test_the_link_local_address_is_the_switchs_too_and_link_local_neighbours_are_learned() -> None:
    leaf = switch("cisco-nxos")

    solicit(leaf, NEAR, A, target=OWN)

    assert leaf.mac(NEAR) == A
    assert leaf.sent == [Send(10, A, Nd(REPLY, GATEWAY_MAC, OWN, NEAR, solicited=True, router=True))]


def test_in_a_vlan_without_ipv6_nothing_is_learned() -> None:
    leaf = switch("h3c-comware7")

    solicit(leaf, NEAR, A, target=OWN, vlan=30)
    announce(leaf, NEAR, A, vlan=30)
    leaf.miss(X, vlan=30)

    assert not leaf.sent
    assert not leaf.events
    assert leaf.forgotten == [(30, X)]


def test_an_address_of_another_subnet_is_not_learned() -> None:
    leaf = switch("h3c-comware7")

    announce(leaf, IPv6Address("2001:db8:99::1"), A)

    assert leaf.last("nd.ignored")["reason"] == "out-of-subnet"


def test_who_looks_whether_the_address_is_taken_is_told_so_as_all_are() -> None:
    leaf = switch("cisco-nxos")

    leaf.packet(10, Nd(REQUEST, NO_MAC, NO_IP, GATEWAY))

    assert leaf.sent == [Send(10, BROADCAST, Nd(REPLY, GATEWAY_MAC, GATEWAY, ALL_NODES, router=True))]
    assert not leaf.neighbours


def test_a_miss_is_asked_for_from_the_link_local_address_until_it_is_answered() -> None:
    leaf = switch("cisco-nxos")
    leaf.miss(X)
    leaf.wait_until(1.5)

    advertise(leaf, X, A)

    question = Send(10, BROADCAST, Nd(REQUEST, GATEWAY_MAC, OWN, X))
    assert leaf.sent == [question, question]
    assert leaf.mac(X) == A
    assert leaf.kinds() == ["nd.miss", "nd.learned"]


def test_an_answer_without_its_mac_confirms_the_one_that_was_asked() -> None:
    leaf = switch("cisco-nxos")
    solicit(leaf, X, A)
    leaf.wait_until(1475)
    assert leaf.requests_for(X) == [A]

    advertise(leaf, X, NO_MAC, override=False)
    leaf.wait_until(1600)

    assert leaf.mac(X) == A
    assert leaf.kinds("nd.confirmed") == ["nd.confirmed"]


def test_an_answer_without_a_mac_that_nobody_asked_for_is_ignored() -> None:
    leaf = switch("cisco-nxos")

    advertise(leaf, X, NO_MAC, override=False)

    assert leaf.last("nd.ignored")["reason"] == "invalid-mac"


@pytest.mark.parametrize(("asked_first", "kept"), [("owner", A), ("claimant", B)])
def test_a_guarded_entry_takes_answers_without_a_mac_for_those_of_whom_it_asked(asked_first: str, kept: str) -> None:
    leaf = switch("huawei-ce-send-ack")
    solicit(leaf, X, A)
    solicit(leaf, X, B)
    if asked_first == "claimant":
        leaf.wait_until(3.5)

    advertise(leaf, X, NO_MAC, override=False)

    assert leaf.requests_for(X)[-1] == (A if asked_first == "owner" else B)
    assert leaf.mac(X) == kept


@pytest.mark.parametrize("solicited", [True, False])
def test_without_the_override_flag_another_mac_changes_nothing(solicited: bool) -> None:
    leaf = switch("h3c-comware7")
    solicit(leaf, X, A)

    (advertise if solicited else announce)(leaf, X, B, override=False)

    assert leaf.mac(X) == A
    assert leaf.last("nd.ignored") | {"port": ""} == {
        "switch": "leaf",
        "vlan": 10,
        "ip": str(X),
        "mac": B,
        "old_mac": A,
        "reason": "no-override",
        "port": "",
    }


def test_a_switch_that_announces_does_so_in_both_families() -> None:
    leaf = switch("sonic")

    assert [(sent.vlan, type(sent.packet).__name__, str(sent.packet.sender_ip)) for sent in leaf.sent] == [
        (10, "Arp", "10.0.10.254"),
        (10, "Nd", str(GATEWAY)),
        (20, "Nd", str(OTHER_GATEWAY)),
        (30, "Arp", "10.0.30.254"),
    ]
    assert all(sent.packet.gratuitous and sent.dst == BROADCAST for sent in leaf.sent)


def test_each_family_has_its_own_bound() -> None:
    leaf = switch("cisco-nxos", arp_cap=1)
    leaf.request(X4, A)

    solicit(leaf, X, A)
    solicit(leaf, Y, B)

    assert sorted(str(ip) for _, ip in leaf.neighbours) == [str(X4), str(X)]
    assert leaf.last("nd.refused")["ip"] == str(Y)


def test_a_full_table_evicts_an_entry_of_the_same_family() -> None:
    leaf = switch("sonic", arp_cap=1)
    leaf.request(X4, A)
    solicit(leaf, X, A)

    solicit(leaf, Y, B)

    assert sorted(str(ip) for _, ip in leaf.neighbours) == [str(X4), str(Y)]
    assert leaf.last("nd.evicted")["ip"] == str(X)


def test_both_families_share_the_way_to_the_cpu() -> None:
    """SONiC's CoPP has ARP and neighbour discovery in one trap group."""
    leaf = switch("sonic", arp_pps=2)

    leaf.request(X4, A)
    solicit(leaf, X, A)
    solicit(leaf, Y, B)
    leaf.packet(10, Arp(REQUEST, B, X4 + 1, NO_MAC, X4))

    assert leaf.mac(Y) is None
    assert leaf.kinds("nd.limited") + leaf.kinds("arp.limited") == ["nd.limited", "arp.limited"]


def test_tables_and_clearing_are_of_one_family() -> None:
    leaf = switch("cisco-nxos")
    leaf.request(X4, A)
    solicit(leaf, Y, B)
    solicit(leaf, X, A)

    assert [row["ip"] for row in leaf.plane.neighbours(0, 6)] == [str(X), str(Y)]
    assert [row["ip"] for row in leaf.plane.neighbours(0, 4)] == [str(X4)]
    leaf.clear()
    assert leaf.kinds("arp.cleared") == ["arp.cleared"]
    assert not leaf.kinds("nd.cleared")
