"""When entries go, and what a switch does to keep them."""

from ipaddress import IPv4Address
from typing import Any

import pytest
from simulated_switch import A, B, Switch, X, Y, switch

from testbed.switch.frames import BROADCAST

LIFETIMES = {
    "linux-default": 38,
    "cisco-nxos": 1500,
    "cisco-ios": 14402,
    "arista-eos": 14400,
    "cumulus-3-4plus": 1083,
    "cumulus-3-0": 14403,
    "sonic": 1800,
    "h3c-comware7": 1200,
    "huawei-ce": 1215,
    "nokia-sar": 14400,
    "msft-2016-tor": 14400,
}


@pytest.mark.parametrize(("name", "seconds"), LIFETIMES.items())
def test_an_entry_whose_owner_is_gone_lives_exactly_so_long(name: str, seconds: int) -> None:
    leaf = switch(name)
    leaf.wait_until(7)
    leaf.request(X, A)

    leaf.wait_until(7 + seconds - 0.001)
    assert leaf.mac(X) == A
    leaf.wait_until(7 + seconds)

    assert leaf.mac(X) is None
    assert leaf.last("arp.aged") == {"switch": "leaf", "vlan": 10, "ip": str(X), "mac": A}


@pytest.mark.parametrize("drawn", [0.0, 0.5, 1.0])
def test_each_entry_of_ios_lives_up_to_half_an_hour_longer_and_is_then_asked_for_twice(drawn: float) -> None:
    leaf, ends = switch("cisco-ios"), 14400 + drawn * 1800
    leaf.drawn = drawn
    leaf.request(X, A)
    leaf.drawn = 0.25

    leaf.wait_until(ends - 0.001)
    assert leaf.requests_for(X) == []
    leaf.wait_until(ends + 0.5)
    assert leaf.requests_for(X) == [A]
    leaf.reply(X, A)
    leaf.wait_until(2 * ends + 1.4)

    assert leaf.requests_for(X) == [A, A]
    leaf.wait_until(2 * ends + 2.6)
    assert leaf.requests_for(X) == [A, A, A]
    assert leaf.mac(X) is None


def test_each_arp_packet_of_the_owner_starts_the_age_anew() -> None:
    leaf = switch("arista-eos")
    leaf.request(X, A)
    leaf.wait_until(14000)
    leaf.request(X, A)

    leaf.wait_until(14000 + 14399)
    assert leaf.mac(X) == A
    leaf.wait_until(14000 + 14400)

    assert leaf.mac(X) is None


def test_a_packet_the_profile_ignores_does_not_renew() -> None:
    leaf = switch("ignore-garp-strict", arp_refresh="none")
    leaf.request(X, A)
    leaf.wait_until(1000)
    leaf.garp(X, A)
    leaf.request(X, A)

    leaf.wait_until(1500)

    assert leaf.mac(X) is None


def test_probes_go_to_the_known_mac_before_the_end() -> None:
    leaf = switch("cisco-nxos")
    leaf.request(X, A)

    leaf.wait_until(1469.999)
    assert leaf.requests_for(X) == []
    leaf.wait_until(1470)
    assert leaf.requests_for(X) == [A]
    leaf.wait_until(1499)

    assert leaf.requests_for(X) == [A, A, A]
    assert leaf.kinds("arp.refresh") == ["arp.refresh"] * 3


def test_an_answered_probe_keeps_the_entry_for_another_age() -> None:
    leaf = switch("cisco-nxos")
    leaf.request(X, A)
    leaf.wait_until(1471)
    leaf.reply(X, A)

    leaf.wait_until(1471 + 1499)
    assert leaf.mac(X) == A
    leaf.wait_until(1471 + 1500)

    assert leaf.mac(X) is None
    assert leaf.kinds("arp.confirmed") == ["arp.confirmed"]


def test_huawei_asks_everybody_the_last_time_and_so_finds_a_silent_new_owner() -> None:
    leaf = switch("huawei-ce")
    leaf.request(X, A)

    leaf.wait_until(1210)
    assert leaf.requests_for(X) == [A, A, BROADCAST]
    leaf.reply(X, B)

    assert leaf.mac(X) == B


def test_sonic_daemon_finds_a_silent_new_owner_within_its_period() -> None:
    leaf = switch("sonic")
    leaf.request(X, A)

    leaf.wait_until(119)
    assert leaf.requests_for(X) == []
    leaf.wait_until(120)
    assert leaf.requests_for(X) == [BROADCAST]
    leaf.reply(X, B)

    assert leaf.mac(X) == B
    assert leaf.last("arp.refresh")["entries"] == 1


def test_sonic_daemon_asks_again_for_what_failed() -> None:
    leaf = switch("sonic")
    leaf.miss(X)
    leaf.wait_until(10)
    assert leaf.kinds("arp.failed") == ["arp.failed"]
    asked = len(leaf.requests_for(X))

    leaf.wait_until(120)
    assert leaf.requests_for(X)[asked:] == [BROADCAST]
    leaf.reply(X, B)

    assert leaf.mac(X) == B


def test_the_daemon_gives_a_failed_address_up_after_the_age() -> None:
    leaf = switch("sonic")
    leaf.miss(X)

    leaf.wait_until(3 + 1800)

    assert leaf.plane.neighbours(0, 4) == []


class TestMiss:
    def test_asks_three_times_then_drops_what_waits(self) -> None:
        leaf = switch("arista-eos")

        leaf.miss(X)
        leaf.wait_until(2.999)
        assert leaf.requests_for(X) == [BROADCAST] * 3
        assert leaf.forgotten == []
        leaf.wait_until(3)

        assert leaf.forgotten == [(10, X)]
        assert leaf.kinds("arp.") == ["arp.miss", "arp.failed"]
        assert leaf.plane.next_deadline is None

    def test_answer_makes_an_entry(self) -> None:
        leaf = switch("arista-eos")
        leaf.miss(X)

        leaf.reply(X, A)
        leaf.wait_until(10)

        assert leaf.mac(X) == A
        assert leaf.requests_for(X) == [BROADCAST]

    def test_the_host_speaking_first_is_as_good_as_an_answer(self) -> None:
        leaf = switch("arista-eos")
        leaf.miss(X)

        leaf.garp(X, A)

        assert leaf.mac(X) == A

    def test_a_second_packet_does_not_start_a_second_resolution(self) -> None:
        leaf = switch("arista-eos")
        leaf.miss(X)

        leaf.miss(X)

        assert leaf.requests_for(X) == [BROADCAST]

    def test_hold_down_drops_without_asking_until_it_is_over(self) -> None:
        leaf = switch("cisco-nxos")
        leaf.miss(X)
        leaf.wait_until(3)
        asked = len(leaf.requests_for(X))

        leaf.wait_until(182)
        leaf.miss(X)
        assert len(leaf.requests_for(X)) == asked
        assert leaf.forgotten == [(10, X)] * 2
        leaf.wait_until(183)
        leaf.miss(X)

        assert len(leaf.requests_for(X)) == asked + 1

    def test_a_host_in_hold_down_that_speaks_is_learned(self) -> None:
        leaf = switch("cisco-nxos")
        leaf.miss(X)
        leaf.wait_until(10)

        leaf.request(X, A)

        assert leaf.mac(X) == A

    def test_huawei_fake_entry_waits_three_seconds_on_one_request(self) -> None:
        leaf = switch("huawei-ce")

        leaf.miss(X)
        leaf.wait_until(3)
        leaf.miss(X)

        assert leaf.requests_for(X) == [BROADCAST] * 2

    def test_a_known_address_is_installed_again(self) -> None:
        leaf = switch("cisco-nxos")
        leaf.request(X, A)
        leaf.neighbours.clear()

        leaf.miss(X)

        assert leaf.mac(X) == A
        assert leaf.requests_for(X) == []

    def test_an_address_outside_the_subnet_is_not_asked_for(self) -> None:
        leaf = switch("cisco-nxos")

        leaf.miss(IPv4Address("192.0.2.1"))

        assert leaf.sent == []


def test_shortening_the_age_while_it_runs() -> None:
    leaf = switch("arista-eos", hold_down=180)
    leaf.miss(Y)  # is due between the old end and the new one
    leaf.request(X, A)
    leaf.wait_until(100)

    leaf.set(arp_age=150)
    leaf.wait_until(149)
    assert leaf.mac(X) == A
    leaf.wait_until(150)

    assert leaf.mac(X) is None


def test_the_daemon_follows_the_values_while_it_runs() -> None:
    leaf = switch("sonic")
    leaf.request(X, A)
    leaf.wait_until(100)

    leaf.set(refresh_period=60)
    leaf.wait_until(159)
    assert leaf.requests_for(X) == []
    leaf.wait_until(160)
    assert leaf.requests_for(X) == [BROADCAST]
    leaf.set(arp_refresh="none")
    leaf.wait_until(1000)

    assert leaf.requests_for(X) == [BROADCAST]


def test_clear_one_and_clear_all() -> None:
    leaf = switch("arista-eos")
    leaf.request(X, A)
    leaf.request(Y, B)

    leaf.clear(X)
    assert leaf.neighbours == {(10, Y): B}
    leaf.clear()

    assert leaf.neighbours == {}
    assert leaf.kinds("arp.cleared") == ["arp.cleared"] * 2


def test_table_shows_what_is_known_and_what_is_not() -> None:
    leaf = switch("cisco-nxos")
    leaf.fdb(A, "port1")
    leaf.request(Y, A)
    leaf.miss(X)

    assert leaf.plane.neighbours(90_500_000_000, 4) == [
        {"vlan": 10, "ip": str(X), "state": "asking", "mac": None, "port": None, "age": None},
        {"vlan": 10, "ip": str(Y), "state": "resolved", "mac": A, "port": "port1", "age": 90.5},
    ]
    assert leaf.plane.fdb.rows() == [{"vlan": 10, "mac": A, "port": "port1"}]


def test_the_daemon_keeps_its_time_when_another_value_of_the_profile_changes() -> None:
    leaf = switch("sonic")
    leaf.request(X, A)
    for second in range(100, 1700, 100):
        leaf.wait_until(second)
        leaf.set(arp_cap=4000 + second)

    assert len(leaf.requests_for(X)) == 1600 // leaf.plane.profile.refresh_period


class TestACpuThatComesBack:
    def test_asks_the_owner_before_it_forgets_an_entry(self) -> None:
        leaf = switch("cisco-nxos")
        leaf.request(X, A)

        leaf.resume(2000)
        assert leaf.mac(X) == A
        asked = len(leaf.requests_for(X))
        assert asked == 1
        leaf.reply(X, A)
        leaf.wait_until(2100)

        assert leaf.mac(X) == A

    def test_forgets_an_entry_whose_owner_does_not_answer_now(self) -> None:
        leaf = switch("cisco-nxos")
        leaf.request(X, A)
        profile = leaf.plane.profile

        leaf.resume(2000)
        leaf.wait_until(2000 + profile.refresh_before - 0.001)
        assert leaf.mac(X) == A
        assert len(leaf.requests_for(X)) == profile.refresh_probes
        leaf.wait_until(2000 + profile.refresh_before)

        assert leaf.mac(X) is None

    def test_runs_the_refresh_daemon_once(self) -> None:
        leaf = switch("sonic")
        leaf.request(X, A)

        leaf.resume(1700)

        assert len(leaf.requests_for(X)) == 1


def test_an_entry_confirmed_after_its_last_request_is_asked_for_in_time_again() -> None:
    leaf = switch("cisco-nxos", arp_age=100, refresh_before=90, refresh_probes=1)
    leaf.request(Y, B)  # whose end comes before that of X
    leaf.wait_until(1)
    leaf.request(X, A)
    leaf.wait_until(12)
    leaf.reply(X, A)

    leaf.wait_until(21)
    assert len(leaf.requests_for(X)) == 1
    leaf.wait_until(23)

    assert len(leaf.requests_for(X)) == 2


def test_a_miss_while_the_cpu_is_out_leaves_an_entry_alone_and_lets_others_be_missed_again() -> None:
    leaf = switch("arista-eos")
    leaf.request(X, A)
    leaf.plane.pause(0)

    leaf.miss(X)  # it was on its way when the entry was made
    leaf.miss(Y)

    assert leaf.mac(X) == A
    assert leaf.forgotten == [(10, Y)]
    assert leaf.kinds() == ["arp.learned"]


def test_only_the_time_for_which_the_cpu_was_out_postpones_an_end() -> None:
    leaf = switch("cisco-nxos")  # 30 s before an end at 1500 s it asks, three times
    leaf.request(X, A)
    leaf.wait_until(1000)
    leaf.plane.pause(1000 * 10**9)
    leaf.set(arp_age=60)

    leaf.now = 1010
    leaf.resume(1010)

    assert leaf.mac(X) is None


@pytest.mark.parametrize(("action", "stay"), [("keep", True), ("resolve", True), ("purge", False)])
def test_the_profile_says_what_becomes_of_the_entries_behind_a_port_that_goes_down(action: str, stay: bool) -> None:
    leaf = _two_neighbours(action)

    leaf.fdb(A, None, lost="flushed")
    leaf.port_down("e1")

    assert (leaf.mac(X) == A, leaf.mac(Y)) == (stay, B)
    assert leaf.requests_for(X) == leaf.requests_for(Y) == []
    if not stay:
        assert leaf.last("arp.cleared") == {
            "switch": "leaf", "vlan": 10, "ip": str(X), "mac": A, "reason": "port-down"
        }  # fmt: skip


@pytest.mark.parametrize("action", ["keep", "resolve", "purge"])
@pytest.mark.parametrize("lost", ["aged", "flushed"])
def test_a_mac_that_the_fdb_loses_while_its_port_is_up_leaves_the_entry_alone(action: str, lost: Any) -> None:
    leaf = _two_neighbours(action)

    leaf.fdb(A, None, lost=lost)
    leaf.wait_until(60)

    assert (leaf.mac(X), leaf.requests_for(X)) == (A, [])


@pytest.mark.parametrize("action", ["resolve", "purge"])
def test_a_cpu_that_is_out_does_nothing_about_a_port_that_goes_down(action: str) -> None:
    leaf = _two_neighbours(action)
    leaf.plane.pause(0)

    leaf.port_down("e1")
    leaf.resume(60)

    assert (leaf.mac(X), leaf.requests_for(X)) == (A, [])


def test_behind_a_port_that_goes_down_an_entry_that_no_answer_has_confirmed_is_probed_and_goes() -> None:
    leaf = _two_neighbours("resolve")

    leaf.port_down("e1")

    asked = []
    for second in range(1, 10):
        leaf.wait_until(second)
        asked.append((len(leaf.requests_for(X)), leaf.mac(X)))
    assert asked == [*[(0, A)] * 4, (1, A), (2, A), (3, A), (3, None), (3, None)]
    assert leaf.requests_for(X) == [A] * 3
    assert leaf.last("arp.failed") == {"switch": "leaf", "vlan": 10, "ip": str(X), "reason": "no-answer"}
    assert leaf.mac(Y) == B


def test_sonic_goes_on_asking_for_a_neighbour_whose_port_went_down() -> None:
    leaf = switch("sonic")
    leaf.fdb(A, "e1")
    leaf.request(X, A)
    leaf.port_down("e1")
    leaf.wait_until(10)
    assert leaf.mac(X) is None

    leaf.wait_until(121)

    assert leaf.requests_for(X)[-1] == BROADCAST


@pytest.mark.parametrize(("second", "mac"), [(6, A), (6, B), (7.5, A)])
def test_an_answer_ends_the_probing(second: float, mac: str) -> None:
    leaf = _two_neighbours("resolve")
    leaf.port_down("e1")
    leaf.wait_until(second)

    leaf.reply(X, mac)
    leaf.wait_until(60)

    assert leaf.mac(X) == mac
    assert len(leaf.requests_for(X)) == int(second) - 4


def test_a_request_of_the_owner_does_not_end_the_probing() -> None:
    leaf = _two_neighbours("resolve")
    leaf.port_down("e1")
    leaf.wait_until(6)

    leaf.request(X, A)
    leaf.wait_until(60)

    assert leaf.mac(X) is None


def test_an_entry_that_an_answer_has_confirmed_is_not_probed_until_it_gets_another_mac_without_one() -> None:
    leaf = switch("arista-eos", port_down="resolve")
    leaf.fdb(A, "e1")
    leaf.miss(X)
    leaf.reply(X, A)
    asked = len(leaf.requests_for(X))
    leaf.request(X, A)

    leaf.port_down("e1")
    leaf.wait_until(60)
    assert (leaf.mac(X), len(leaf.requests_for(X))) == (A, asked)

    leaf.fdb(B, "e1")
    leaf.garp(X, B)
    leaf.port_down("e1")
    leaf.wait_until(120)

    assert leaf.mac(X) is None


def test_after_a_warm_reboot_an_entry_is_not_confirmed() -> None:
    leaf = switch("arista-eos", port_down="resolve")
    leaf.fdb(A, "e1")
    leaf.miss(X)
    leaf.reply(X, A)

    leaf.restart()
    leaf.port_down("e1")
    leaf.wait_until(60)

    assert leaf.mac(X) is None


def _two_neighbours(port_down: str) -> Switch:
    leaf = switch("arista-eos", port_down=port_down)
    leaf.fdb(A, "e1")
    leaf.fdb(B, "e2")
    leaf.request(X, A)
    leaf.request(Y, B)
    return leaf
