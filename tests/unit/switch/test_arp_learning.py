"""Who gets into the ARP table. Tests named as in SONiC's tests/arp/test_arpall.py assert what those do."""

from ipaddress import IPv4Address

import pytest
from simulated_switch import GATEWAY, GATEWAY_MAC, OTHER_GATEWAY, A, B, X, Y, switch

from testbed.switch.core import Send
from testbed.switch.frames import NO_IP, NO_MAC, REPLY, REQUEST, Arp
from testbed.switch.profile import load_profiles

ALL = tuple(load_profiles())

CREATES = {"h3c-comware7", "huawei-ce", "huawei-ce-fixed-mac", "huawei-ce-fixed-all", "huawei-ce-send-ack"}
UPDATES_AT_ONCE = set(ALL) - {"huawei-ce-fixed-mac", "huawei-ce-fixed-all", "huawei-ce-send-ack", "ignore-garp-strict"}


@pytest.mark.parametrize("op", [REQUEST, REPLY], ids=["request", "reply"])
@pytest.mark.parametrize("name", ALL)
def test_gratuitous_arp(name: str, op: int) -> None:
    new, known = switch(name), switch(name)
    known.request(X, A)

    new.garp(X, B, op)
    known.garp(X, B, op)

    assert new.mac(X) == (B if name in CREATES else None)
    assert known.mac(X) == (B if name in UPDATES_AT_ONCE else A)


@pytest.mark.parametrize("name", ALL)
def test_request_of_the_new_owner_updates_except_where_entries_are_guarded(name: str) -> None:
    leaf = switch(name)
    leaf.request(X, A)

    leaf.request(X, B)

    assert leaf.mac(X) == (B if name in UPDATES_AT_ONCE else A)


@pytest.mark.parametrize(
    ("values", "announced", "asked"), [({"garp_update": False}, A, B), ({"request_update": False}, B, A)]
)
def test_announcements_and_requests_have_a_rule_each(values: dict[str, object], announced: str, asked: str) -> None:
    by_garp, by_request = switch("cisco-nxos", **values), switch("cisco-nxos", **values)
    for leaf in by_garp, by_request:
        leaf.request(X, A)

    by_garp.garp(X, B)
    by_request.request(X, B)

    assert (by_garp.mac(X), by_request.mac(X)) == (announced, asked)


@pytest.mark.parametrize("name", ALL)
def test_arp_expect_reply(name: str) -> None:
    leaf = switch(name)
    leaf.fdb(A, "port1")

    leaf.request(X, A)

    assert leaf.mac(X) == A
    assert leaf.sent[-1] == Send(10, A, Arp(REPLY, GATEWAY_MAC, GATEWAY, A, X))
    assert leaf.last("arp.learned") == {
        "switch": "leaf",
        "vlan": 10,
        "ip": str(X),
        "mac": A,
        "port": "port1",
        "reason": "request",
    }


def test_arp_no_reply_other_intf() -> None:
    leaf = switch("sonic")
    before = len(leaf.sent)

    leaf.request(X, A, target=OTHER_GATEWAY)

    assert len(leaf.sent) == before
    assert leaf.mac(X) is None


def test_linux_answers_for_the_address_of_another_interface() -> None:
    leaf = switch("linux-default")

    leaf.request(X, A, target=OTHER_GATEWAY)

    assert leaf.sent[-1].packet == Arp(REPLY, GATEWAY_MAC, OTHER_GATEWAY, A, X)
    assert leaf.mac(X) == A


def test_arp_no_reply_src_out_range() -> None:
    leaf, stranger = switch("sonic"), IPv4Address("10.0.99.1")
    before = len(leaf.sent)

    leaf.request(stranger, A)

    assert len(leaf.sent) == before
    assert leaf.mac(stranger) is None
    assert leaf.last("arp.ignored")["reason"] == "out-of-subnet"


def test_arp_ignore_1_answers_a_sender_from_another_subnet_but_does_not_learn_it() -> None:
    leaf, stranger = switch("sonic", arp_ignore=1), IPv4Address("10.0.99.1")

    leaf.request(stranger, A)

    assert leaf.sent[-1].packet == Arp(REPLY, GATEWAY_MAC, GATEWAY, A, stranger)
    assert leaf.mac(stranger) is None


def test_arp_garp_no_update() -> None:
    leaf = switch("sonic")

    leaf.garp(X, A)
    assert leaf.mac(X) is None
    assert leaf.last("arp.ignored")["reason"] == "garp-creates-nothing"

    leaf.request(X, A)
    leaf.garp(X, B)
    assert leaf.mac(X) == B
    assert leaf.last("arp.updated")["old_mac"] == A


def test_arp_garp_enabled() -> None:
    leaf = switch("sonic", garp_new=True)

    leaf.garp(X, A)

    assert leaf.mac(X) == A


def test_arp_garp_out_of_subnet_not_learned() -> None:
    leaf, stranger = switch("sonic", garp_new=True), IPv4Address("10.0.99.1")

    leaf.garp(stranger, A)

    assert leaf.mac(stranger) is None


def test_neighbor_mac() -> None:
    """One address, its MAC changed twice: the entry follows (tests/arp/test_neighbor_mac.py)."""
    leaf = switch("sonic")

    for mac in (A, B, A):
        leaf.request(X, mac)
        assert leaf.mac(X) == mac


def test_an_updated_entry_has_the_port_of_its_new_mac() -> None:
    leaf = switch("sonic")
    leaf.fdb(A, "port1")
    leaf.request(X, A)

    leaf.request(X, B)
    assert leaf.plane.neighbours(0, 4)[0]["port"] is None
    leaf.fdb(B, "port2")
    leaf.request(X, B)

    assert leaf.plane.neighbours(0, 4)[0]["port"] == "port2"


def test_a_request_between_two_hosts_updates_but_does_not_create() -> None:
    leaf = switch("cisco-nxos")

    leaf.request(X, A, target=Y)
    assert leaf.mac(X) is None
    assert leaf.sent == []

    leaf.request(X, A)
    leaf.request(X, B, target=Y)
    assert leaf.mac(X) == B


def test_a_reply_nobody_asked_for_creates_nothing() -> None:
    leaf = switch("cisco-nxos")

    leaf.reply(X, A)

    assert leaf.mac(X) is None
    assert leaf.last("arp.ignored")["reason"] == "reply-creates-nothing"


def test_strict_profile_believes_only_answers_to_its_own_requests() -> None:
    leaf = switch("ignore-garp-strict")
    leaf.request(X, A)
    leaf.reply(X, B)
    assert leaf.mac(X) == A

    leaf.wait_until(1470)  # asks the owner it knows
    leaf.reply(X, B)
    assert leaf.mac(X) == B
    leaf.reply(X, A)

    assert leaf.mac(X) == B


def test_own_address_and_impossible_macs_are_not_learned() -> None:
    leaf = switch("h3c-comware7")

    leaf.garp(GATEWAY, A)
    leaf.garp(X, "01:00:5e:00:00:01")
    leaf.garp(X, NO_MAC)

    assert leaf.neighbours == {}
    assert [event.fields["reason"] for event in leaf.events] == ["own-address", "invalid-mac", "invalid-mac"]


def test_who_announces_the_gateways_address_is_told_that_it_is_taken() -> None:
    leaf = switch("cisco-nxos")

    leaf.garp(GATEWAY, A)

    assert leaf.sent == [Send(10, A, Arp(REPLY, GATEWAY_MAC, GATEWAY, A, GATEWAY))]


def test_address_probe_is_answered_and_not_learned() -> None:
    leaf = switch("sonic")

    leaf.request(NO_IP, A)

    assert leaf.sent[-1].packet.op == REPLY
    assert leaf.neighbours == {}
    assert leaf.events == []


def test_each_vlan_has_its_own_entries_and_a_vlan_without_address_none() -> None:
    leaf = switch("h3c-comware7")

    leaf.garp(IPv4Address("10.0.20.1"), A, vlan=20)
    leaf.garp(X, B, vlan=30)

    assert leaf.neighbours == {(20, IPv4Address("10.0.20.1")): A}


def test_sonic_announces_its_own_addresses() -> None:
    assert [sent.packet.sender_ip for sent in switch("sonic").sent] == [GATEWAY, OTHER_GATEWAY]
    assert switch("cisco-nxos").sent == []


class TestEntryCheck:
    """Huawei's guards of an existing entry."""

    def test_fixed_mac_drops_the_packet_and_does_not_answer_it(self) -> None:
        leaf = switch("huawei-ce-fixed-mac")
        leaf.request(X, A)
        answers = len(leaf.sent)

        leaf.request(X, B)

        assert len(leaf.sent) == answers
        assert leaf.last("arp.ignored")["reason"] == "mac-changed"

    @pytest.mark.parametrize(("name", "port"), [("huawei-ce-fixed-mac", "port2"), ("huawei-ce-fixed-all", "port1")])
    def test_the_same_mac_on_another_port(self, name: str, port: str) -> None:
        leaf = switch(name)
        leaf.fdb(A, "port1")
        leaf.request(X, A)

        leaf.fdb(A, "port2")
        leaf.request(X, A)

        assert leaf.plane.neighbours(0, 4)[0]["port"] == port

    def test_fixed_all_neither_answers_nor_confirms_from_the_wrong_port(self) -> None:
        leaf = switch("huawei-ce-fixed-all")
        leaf.fdb(A, "port1")
        leaf.request(X, A)
        leaf.wait_until(600)
        leaf.fdb(A, "port2")
        answers = len(leaf.sent)

        leaf.request(X, A)
        assert len(leaf.sent) == answers
        leaf.wait_until(1215)

        assert leaf.mac(X) is None

    def test_fixed_all_remembers_the_port_of_a_mac_that_left_the_fdb(self) -> None:
        leaf = switch("huawei-ce-fixed-all")
        leaf.fdb(A, "port1")
        leaf.request(X, A)
        leaf.fdb(A, None)
        leaf.request(X, A)

        leaf.fdb(A, "port2")
        leaf.request(X, A)

        assert leaf.last("arp.ignored")["reason"] == "port-changed"

    def test_send_ack_keeps_the_old_owner_if_it_answers(self) -> None:
        leaf = switch("huawei-ce-send-ack")
        leaf.request(X, A)

        leaf.garp(X, B)
        assert leaf.requests_for(X) == [A]
        leaf.wait_until(2)
        leaf.reply(X, A)
        leaf.wait_until(60)

        assert leaf.mac(X) == A
        assert leaf.last("arp.ignored")["reason"] == "old-owner-answered"

    def test_send_ack_updates_when_the_old_owner_is_silent_and_the_new_one_answers(self) -> None:
        leaf = switch("huawei-ce-send-ack")
        leaf.request(X, A)

        leaf.garp(X, B)
        leaf.wait_until(3)
        assert leaf.requests_for(X) == [A, B]
        leaf.garp(X, B)  # not an answer
        assert leaf.mac(X) == A
        leaf.reply(X, B)

        assert leaf.mac(X) == B
        assert leaf.last("arp.updated")["reason"] == "verified"

    def test_send_ack_hears_the_old_owner_first(self) -> None:
        leaf = switch("huawei-ce-send-ack")
        leaf.request(X, A)

        leaf.garp(X, B)
        leaf.reply(X, B)

        assert leaf.mac(X) == A

    def test_send_ack_deals_with_one_claim_at_a_time(self) -> None:
        leaf = switch("huawei-ce-send-ack")
        leaf.request(X, A)

        leaf.garp(X, B)
        leaf.wait_until(1)
        leaf.garp(X, "02:00:00:00:00:0c")
        leaf.wait_until(3)

        assert leaf.requests_for(X) == [A, B]

    def test_send_ack_keeps_the_entry_when_both_are_silent(self) -> None:
        leaf = switch("huawei-ce-send-ack")
        leaf.request(X, A)

        leaf.garp(X, B)
        leaf.wait_until(5.999)
        assert leaf.kinds("arp.ignored") == []
        leaf.wait_until(6)

        assert leaf.mac(X) == A
        assert leaf.last("arp.ignored")["reason"] == "claimant-silent"

    def test_send_ack_verifies_again_the_next_time(self) -> None:
        leaf = switch("huawei-ce-send-ack")
        leaf.request(X, A)
        leaf.garp(X, B)
        leaf.wait_until(10)

        leaf.garp(X, B)

        assert leaf.requests_for(X) == [A, B, A]
