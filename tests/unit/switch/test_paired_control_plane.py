"""The control plane of one of two switches that are one gateway: what it reports, and what it takes from the other."""

from simulated_switch import GATEWAY, GATEWAY_MAC, SVIS, A, B, Switch, X, Y, switch

from testbed.switch.frames import NO_MAC, REPLY, REQUEST, Arp
from testbed.switch.profile import profile


def paired(name: str = "cisco-nxos", **values: object) -> Switch:
    return Switch(profile(name).replace(**values), SVIS, paired=True)


def state(leaf: Switch) -> list[tuple[str, str, str]]:
    return [(row["ip"], row["mac"], row["state"]) for row in leaf.plane.neighbours(leaf._ns(), 4)]


def test_what_a_packet_makes_or_confirms_is_reported_and_nothing_else() -> None:
    leaf = paired()
    leaf.request(X, A)
    leaf.request(X, A)
    leaf.garp(Y, B)
    assert leaf.heard == [(X, A), (X, A)], "NX-OS makes no entry of a gratuitous ARP"
    leaf.told(Y, B)
    leaf.miss(Y)
    assert leaf.heard == [(X, A), (X, A)], "what the other switch has told is not told back"


def test_a_switch_that_is_alone_reports_nothing() -> None:
    leaf = switch("cisco-nxos")
    leaf.request(X, A)
    assert leaf.heard == []


def test_an_address_of_the_other_switch_is_synced_until_a_packet_comes_here() -> None:
    leaf = paired()
    leaf.told(X, A)
    assert (leaf.mac(X), state(leaf)) == (A, [(str(X), A, "synced")])
    assert leaf.last("arp.learned")["reason"] == "mlag"
    leaf.request(X, A)
    assert state(leaf) == [(str(X), A, "resolved")]
    leaf.told(X, A)
    assert state(leaf) == [(str(X), A, "resolved")]


def test_it_lives_while_either_switch_hears_it() -> None:
    leaf = paired(arp_age=100, arp_refresh="none")
    leaf.told(X, A)
    for second in 90, 180, 270:
        leaf.wait_until(second)
        leaf.told(X, A)
    leaf.wait_until(360)
    assert leaf.mac(X) == A
    leaf.wait_until(400)
    assert leaf.mac(X) is None


def test_another_mac_is_followed_whatever_the_profile_says_of_packets() -> None:
    leaf = paired(on_mac_change="drop")
    leaf.request(X, A)
    leaf.told(X, B)
    assert (leaf.mac(X), leaf.last("arp.updated")["reason"]) == (B, "mlag")


def test_an_answer_that_a_hash_has_led_here_makes_an_entry() -> None:
    leaf = paired()
    leaf.reply(X, A)
    assert (leaf.mac(X), leaf.heard) == (A, [(X, A)])
    alone = switch("cisco-nxos")
    alone.reply(X, A)
    assert alone.mac(X) is None


def test_it_ends_a_wait_for_an_answer() -> None:
    leaf = paired()
    leaf.miss(X)
    leaf.told(X, A)
    assert leaf.mac(X) == A
    asked = len(leaf.requests_for(X))
    leaf.wait_until(30)
    assert len(leaf.requests_for(X)) == asked


def test_the_other_switch_as_the_gateway_is_no_event() -> None:
    leaf = paired()
    leaf.packet(10, Arp(REQUEST, GATEWAY_MAC, GATEWAY, NO_MAC, X))
    assert leaf.kinds("arp.") == []
    leaf.packet(10, Arp(REPLY, A, GATEWAY, GATEWAY_MAC, GATEWAY))
    assert leaf.last("arp.ignored")["reason"] == "own-address", "a thief of the address is one"


def test_addresses_of_its_own_and_of_other_subnets_are_not_taken() -> None:
    leaf = paired()
    leaf.told(GATEWAY, A)
    leaf.told(X, A, vlan=20)
    assert state(leaf) == []
