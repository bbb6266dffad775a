"""Bounds of the table and of the CPU, and what follows from the FDB."""

from ipaddress import IPv4Address

import pytest
from simulated_switch import A, B, X, Y, switch

from testbed.switch.frames import BROADCAST, NO_MAC, REQUEST, Arp


def address(number: int, vlan: int = 10) -> IPv4Address:
    return IPv4Address(f"10.0.{vlan}.0") + number


def test_a_full_table_refuses() -> None:
    leaf = switch("cisco-nxos", arp_cap=2)
    for number in (1, 2, 3):
        leaf.request(address(number), A)

    assert [ip for _, ip in leaf.neighbours] == [address(1), address(2)]
    assert leaf.last("arp.refused")["ip"] == str(address(3))


def test_a_full_table_evicts_the_entry_confirmed_longest_ago() -> None:
    leaf = switch("sonic", arp_cap=2)
    leaf.request(address(1), A)
    leaf.request(address(2), A)
    leaf.request(address(1), A)

    leaf.request(address(3), A)

    assert sorted(ip for _, ip in leaf.neighbours) == [address(1), address(3)]
    assert leaf.last("arp.evicted")["ip"] == str(address(2))


def test_a_bound_per_svi_leaves_the_others_alone() -> None:
    leaf = switch("h3c-comware7", arp_cap_per_svi=1)
    for vlan in (10, 20):
        for number in (1, 2):
            leaf.garp(address(number, vlan), A, vlan=vlan)

    assert sorted(leaf.neighbours) == [(10, address(1)), (20, address(1, 20))]


def test_a_bound_per_svi_evicts_from_that_svi() -> None:
    leaf = switch("sonic", arp_cap_per_svi=1)
    for vlan, number in ((20, 1), (10, 1), (10, 2)):
        leaf.packet(vlan, Arp(REQUEST, A, address(number, vlan), NO_MAC, address(254, vlan)))

    assert sorted(leaf.neighbours) == [(10, address(2)), (20, address(1, 20))]


def test_a_full_svi_evicts_its_own_entries_only() -> None:
    leaf = switch("sonic", garp_new=True, arp_cap_per_svi=1)
    for ip, vlan in ((address(1, 20), 20), (address(1), 10), (address(2), 10)):
        leaf.garp(ip, A, vlan=vlan)

    assert sorted(leaf.neighbours) == [(10, address(2)), (20, address(1, 20))]


def test_the_answer_to_a_miss_has_its_place_in_a_full_table() -> None:
    leaf = switch("cisco-nxos", arp_cap=1)
    leaf.miss(X)

    leaf.reply(X, A)

    assert leaf.mac(X) == A


def test_an_aged_entry_makes_room() -> None:
    leaf = switch("arista-eos", arp_cap=1, arp_cap_per_svi=1)
    leaf.request(X, A)
    leaf.wait_until(14400)

    leaf.request(Y, B)

    assert leaf.mac(Y) == B


def test_unresolved_addresses_take_room_until_they_fail() -> None:
    leaf = switch("arista-eos", arp_cap=1)

    leaf.miss(X)
    leaf.miss(Y)
    assert leaf.requests_for(Y) == []
    assert leaf.forgotten == [(10, Y)]
    leaf.wait_until(3)
    leaf.miss(Y)

    assert len(leaf.requests_for(Y)) == 1


def test_a_bound_set_while_it_runs_keeps_what_is_there_and_lets_nothing_in() -> None:
    leaf = switch("cisco-nxos")
    for number in (1, 2, 3):
        leaf.request(address(number), A)

    leaf.set(arp_cap=2)
    leaf.request(address(4), A)

    assert [ip for _, ip in leaf.neighbours] == [address(1), address(2), address(3)]


@pytest.mark.parametrize("pps", [1, 600])
def test_arp_to_the_cpu_is_limited_to_a_burst_and_a_rate(pps: int) -> None:
    leaf = switch("arista-eos", arp_pps=pps, arp_age=1_000_000)

    for _ in range(pps + 50):
        leaf.request(X, A)
    assert len(leaf.sent) == pps
    leaf.wait_until(0.5)
    for _ in range(pps):
        leaf.request(X, A)
    assert len(leaf.sent) == pps + pps // 2
    leaf.wait_until(100)
    leaf.sent.clear()
    for _ in range(pps + 50):
        leaf.request(X, A)

    assert len(leaf.sent) == pps  # an idle time is not saved up


def test_the_loss_is_told_when_it_begins_and_counted_when_it_ends() -> None:
    leaf = switch("arista-eos", arp_pps=1)
    for _ in range(4):
        leaf.request(X, A)
    leaf.wait_until(1)
    leaf.request(X, A)
    leaf.wait_until(2)
    leaf.request(X, A)
    leaf.request(X, A)

    limited = [event.fields for event in leaf.events if event.kind == "arp.limited"]
    assert [fields["packets"] for fields in limited] == [1, 3, 1]
    assert limited[0]["reason"] == "arp-rate"


def test_the_loss_of_a_single_packet_is_told_once() -> None:
    leaf = switch("arista-eos", arp_pps=1)
    leaf.request(X, A)
    leaf.request(X, A)
    leaf.wait_until(1)
    leaf.request(X, A)

    assert leaf.kinds("arp.limited") == ["arp.limited"]


def test_a_rate_set_while_it_runs_holds_from_then_on() -> None:
    leaf = switch("arista-eos", arp_pps=1, miss_pps=1)
    leaf.request(address(1), A)
    leaf.miss(address(100))

    leaf.set(arp_pps=2, miss_pps=3)
    for number in range(2, 9):
        leaf.request(address(number), A)
        leaf.miss(address(100 + number))
        leaf.set(garp_new=True)  # gives no new burst

    assert len(leaf.kinds("arp.learned")) == 1 + 2
    assert len(leaf.kinds("arp.miss")) == 1 + 3


def test_misses_have_a_limit_of_their_own() -> None:
    leaf = switch("arista-eos", miss_pps=2)
    for number in range(1, 6):
        leaf.miss(address(number))
    leaf.request(X, A)

    assert leaf.kinds("arp.miss") == ["arp.miss"] * 2
    assert leaf.mac(X) == A


def test_fdb_changes_are_events() -> None:
    leaf = switch("cisco-nxos")
    leaf.fdb(A, "port1")
    leaf.fdb(A, "port1")
    leaf.fdb(A, "port2")
    leaf.fdb(A, None)
    leaf.fdb(A, None)

    assert leaf.kinds() == ["fdb.learned", "fdb.moved", "fdb.aged"]
    assert leaf.last("fdb.moved") == {"switch": "leaf", "vlan": 10, "mac": A, "port": "port2", "old_port": "port1"}


class TestLosslessUnknownUnicast:
    """The fix of SIGCOMM 2016: ARP lives 4 h, the MAC 5 min; lossless packets must not be flooded in between."""

    def test_is_blocked_while_the_fdb_does_not_know_the_mac(self) -> None:
        leaf = switch("msft-2016-tor-fixed")
        leaf.fdb(A, "port1")
        leaf.request(X, A)
        assert leaf.blocked == set()

        leaf.fdb(A, None)
        assert leaf.blocked == {(10, X)}
        leaf.fdb(A, "port1")

        assert leaf.blocked == set()

    def test_is_flooded_before_the_fix(self) -> None:
        leaf = switch("msft-2016-tor")
        leaf.fdb(A, "port1")
        leaf.request(X, A)

        leaf.fdb(A, None)

        assert leaf.blocked == set()

    def test_ends_with_the_entry_and_follows_its_mac(self) -> None:
        leaf = switch("msft-2016-tor-fixed")
        leaf.fdb(B, "port2")
        leaf.request(X, A)
        leaf.request(Y, A)
        assert leaf.blocked == {(10, X), (10, Y)}

        leaf.request(X, B)
        leaf.clear(Y)

        assert leaf.blocked == set()

    def test_starts_and_ends_with_the_value(self) -> None:
        leaf = switch("msft-2016-tor")
        leaf.request(X, A)

        leaf.set(lossless_unknown_unicast="drop")
        assert leaf.blocked == {(10, X)}
        leaf.set(lossless_unknown_unicast="flood")

        assert leaf.blocked == set()


def test_addresses_that_were_not_found_go_before_entries() -> None:
    leaf = switch("sonic", arp_cap=3)
    leaf.request(address(1), A)
    for number in (7, 8):
        leaf.miss(address(number))
    leaf.wait_until(100)  # they have failed, and stay for the daemon to ask again

    leaf.request(address(2), B)

    assert [ip for _, ip in leaf.neighbours] == [address(1), address(2)]
    assert leaf.last("arp.evicted") == {"switch": "leaf", "vlan": 10, "ip": str(address(7)), "reason": "not-found"}


def test_a_bound_that_was_lowered_holds_from_the_next_entry_on() -> None:
    leaf = switch("sonic")
    for number in range(1, 21):
        leaf.request(address(number), A)

    leaf.set(arp_cap=5)
    leaf.request(address(30), A)

    assert [ip for _, ip in leaf.neighbours] == [address(number) for number in (17, 18, 19, 20, 30)]


def test_an_address_that_is_missed_again_counts_once() -> None:
    leaf = switch("sonic", arp_cap=2, arp_full="refuse")
    leaf.miss(Y)
    leaf.wait_until(10)  # it has failed, and stays for the daemon to ask again
    leaf.miss(Y)

    leaf.request(X, A)

    assert leaf.mac(X) == A


def test_an_entry_that_was_asked_for_is_still_evicted_first() -> None:
    leaf = switch("huawei-ce", arp_cap=2, arp_full="evict")
    leaf.request(address(1), A)
    leaf.wait_until(10)
    leaf.request(address(2), B)
    leaf.wait_until(1201)
    assert (leaf.requests_for(address(1)), leaf.requests_for(address(2))) == ([A], [])

    leaf.request(address(3), A)

    assert leaf.last("arp.evicted")["ip"] == str(address(1))


def test_addresses_that_are_being_resolved_are_not_evicted() -> None:
    leaf = switch("sonic", arp_cap=2)
    for number in (1, 2):
        leaf.miss(address(number))

    leaf.request(address(3), A)

    assert leaf.last("arp.refused")["ip"] == str(address(3))


def test_a_switch_that_does_not_ask_drops_and_says_so_once_until_the_owner_speaks() -> None:
    leaf = switch("sonic", miss="drop")
    for _ in range(3):
        leaf.miss(X)
    assert leaf.requests_for(X) == []
    assert leaf.forgotten == [(10, X)] * 3
    assert leaf.last("arp.unasked") == {"switch": "leaf", "vlan": 10, "ip": str(X)}
    assert leaf.kinds("arp.") == ["arp.unasked"]

    leaf.request(X, A)
    assert leaf.mac(X) == A

    leaf.clear(X)
    leaf.miss(X)
    assert leaf.kinds("arp.").count("arp.unasked") == 2


def test_a_switch_that_asks_again_does_not_remember_whom_it_did_not_ask_for() -> None:
    leaf = switch("sonic", miss="drop")
    leaf.miss(X)
    leaf.set(miss="resolve")
    leaf.miss(X)
    assert leaf.requests_for(X) == [BROADCAST]
