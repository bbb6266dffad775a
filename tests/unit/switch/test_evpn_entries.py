"""A switch of an EVPN fabric: which entries are its own, which are the fabric's, and how they become the other's."""

from dataclasses import replace

import pytest
from simulated_switch import GATEWAY, SVIS, A, B, Switch, X, Y

from testbed.switch.core import Send
from testbed.switch.frames import BROADCAST, NO_MAC, REQUEST, Arp
from testbed.switch.profile import profile

VNI = (replace(SVIS[0], vni=10010), SVIS[1], replace(SVIS[2], vni=10030))
UNKNOWN = "02:00:00:00:00:99"
NETWORK, VTEP, OTHER_VTEP = "vni10010", ("10.255.0.4",), ("10.255.0.5",)


@pytest.fixture
def leaf() -> Switch:
    made = Switch(profile("sonic"), VNI)
    made.fdb(A, "e1")
    made.fdb(B, NETWORK, vteps=VTEP)
    return made


def row(leaf: Switch, number: int = 0) -> dict[str, object]:
    rows = leaf.plane.neighbours(leaf._ns(), 4)
    return {key: rows[number][key] for key in ("state", "mac", "port")}


def test_an_entry_of_the_fabric_is_in_the_table_and_not_written_to_the_kernel(leaf: Switch) -> None:
    leaf.fabric(X, B)
    assert row(leaf) == {"state": "remote", "mac": B, "port": NETWORK}
    assert leaf.last("arp.learned") == {
        **{"switch": "leaf", "vlan": 10, "ip": str(X), "mac": B, "port": NETWORK, "reason": "evpn"}
    }
    leaf.wait_until(7200)
    assert (leaf.mac(X), leaf.forgotten, leaf.requests_for(X)) == (B, [], [])
    leaf.fabric(X, None)
    assert leaf.plane.neighbours(leaf._ns(), 4) == []
    assert leaf.last("arp.cleared")["reason"] == "evpn"


def test_a_request_that_another_switch_has_flooded_teaches_nothing(leaf: Switch) -> None:
    leaf.request(X, B)
    leaf.garp(X, UNKNOWN)
    assert leaf.plane.neighbours(leaf._ns(), 4) == []


def test_an_answer_from_behind_another_switch_counts_if_this_one_has_asked(leaf: Switch) -> None:
    """The other switch has bridged the answer to this one's MAC, and has not heard it."""
    leaf.reply(X, B)
    assert leaf.plane.neighbours(leaf._ns(), 4) == []
    leaf.miss(X)
    leaf.request(X, B)
    assert row(leaf)["state"] == "asking"
    leaf.reply(X, B)
    assert row(leaf) == {"state": "resolved", "mac": B, "port": NETWORK}
    leaf.fabric(X, B)
    assert row(leaf)["state"] == "remote"


def test_an_answer_may_come_before_its_mac(leaf: Switch) -> None:
    leaf.miss(X)
    leaf.reply(X, UNKNOWN)
    assert row(leaf) == {"state": "resolved", "mac": UNKNOWN, "port": None}
    leaf.fdb(UNKNOWN, NETWORK, vteps=VTEP)
    leaf.fabric(X, UNKNOWN)
    assert row(leaf) == {"state": "remote", "mac": UNKNOWN, "port": NETWORK}


def test_whatever_a_host_here_sends_is_announced(leaf: Switch) -> None:
    leaf.request(X, A, target=Y)
    assert row(leaf) == {"state": "resolved", "mac": A, "port": "e1"}
    assert leaf.mac(X) == A


def test_without_a_network_a_request_for_others_creates_nothing() -> None:
    plain = Switch(profile("sonic"))
    plain.fdb(A, "e1")
    plain.request(X, A, target=Y)
    assert plain.plane.neighbours(0, 4) == []


def test_an_address_that_moves_with_its_mac_is_taken_over_and_handed_back(leaf: Switch) -> None:
    leaf.fabric(X, A)
    leaf.garp(X, A)
    assert row(leaf) == {"state": "resolved", "mac": A, "port": "e1"}
    moved = leaf.last("arp.updated")
    assert (moved["old_port"], moved["port"], moved["reason"]) == (NETWORK, "e1", "garp")
    leaf.fdb(A, NETWORK, vteps=VTEP)
    leaf.fabric(X, A)
    assert row(leaf) == {"state": "remote", "mac": A, "port": NETWORK}
    assert (leaf.mac(X), leaf.forgotten) == (A, [])


@pytest.mark.parametrize(("claim", "mac"), [("take", A), ("keep", B)])
def test_the_profile_says_whether_a_host_here_gets_an_address_of_another_switch(
    leaf: Switch, claim: str, mac: str
) -> None:
    leaf.set(evpn_claim=claim)
    leaf.fabric(X, B)
    leaf.garp(X, A)
    assert (leaf.mac(X), row(leaf)["mac"]) == (mac, mac)
    if claim == "keep":
        assert leaf.last("arp.ignored")["reason"] == "remote"


def test_entries_of_the_fabric_do_not_count_for_the_bounds_of_the_table(leaf: Switch) -> None:
    leaf.set(arp_cap=1)
    leaf.fabric(Y, B)
    leaf.garp(X, A)
    assert leaf.mac(X) == A
    leaf.clear()
    assert [found["ip"] for found in leaf.plane.neighbours(0, 4)] == [str(Y)]


def test_a_mac_behind_another_far_end_has_moved_and_disables_no_port(leaf: Switch) -> None:
    leaf.set(mac_moves=2)
    for vteps in (OTHER_VTEP, VTEP, OTHER_VTEP):
        leaf.fdb(B, NETWORK, vteps=vteps)
    assert leaf.last("fdb.moved") == {
        **{"switch": "leaf", "vlan": 10, "mac": B, "port": NETWORK, "old_port": NETWORK, "reason": "evpn"},
        "vteps": list(OTHER_VTEP),
    }
    assert leaf.disabled == set()
    assert leaf.plane.fdb.rows()[1] == {"vlan": 10, "mac": B, "port": NETWORK, "vteps": list(OTHER_VTEP)}
    leaf.fdb(B, None, lost="evpn")
    assert leaf.last("fdb.flushed")["reason"] == "evpn"


def test_a_vlan_without_an_address_is_heard_and_probed_from_no_address(leaf: Switch) -> None:
    leaf.fdb(A, "e1", vlan=30)
    leaf.packet(30, Arp(REQUEST, A, X, NO_MAC, Y))
    assert leaf.mac(X, vlan=30) == A
    leaf.wait_until(121)
    assert leaf.sent[-1] == Send(30, BROADCAST, Arp(REQUEST, SVIS[2].mac, type(GATEWAY)(0), NO_MAC, X))
