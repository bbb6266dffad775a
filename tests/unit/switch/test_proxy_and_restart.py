"""An SVI that answers for its subnet, and a control plane that comes back from a warm reboot."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, IPv6Interface

from simulated_switch import GATEWAY, GATEWAY_MAC, SVIS, A, B, Switch, X, Y, switch

from testbed.switch.frames import BROADCAST, NO_IP, REQUEST
from testbed.switch.nd import NO_IP as NO_IP6
from testbed.switch.nd import NO_MAC, Nd
from testbed.switch.profile import profile

ELSEWHERE = IPv4Address("10.0.20.9")
UNUSED6 = IPv6Address("2001:db8:10::77")
PROXY = (replace(SVIS[0], proxy_arp=True, address6=IPv6Interface("2001:db8:10::fe/64")), *SVIS[1:])


def proxy(name: str = "sonic") -> Switch:
    leaf = Switch(profile(name), PROXY)
    leaf.sent.clear()  # what it announces of itself
    return leaf


def answers(leaf: Switch) -> list[tuple[str, str]]:
    return [(sent.dst, str(sent.packet.sender_ip)) for sent in leaf.sent if sent.packet.op != REQUEST]


def test_it_answers_for_every_other_address_of_the_subnet() -> None:
    leaf = proxy()
    leaf.request(X, A, Y)
    assert answers(leaf) == [(A, str(Y))]
    assert leaf.sent[-1].packet.sender_mac == GATEWAY_MAC
    assert leaf.last("arp.proxied") == {"switch": "leaf", "vlan": 10, "ip": str(Y), "mac": A}


def test_its_own_address_is_no_proxy() -> None:
    leaf = proxy()
    leaf.request(X, A, GATEWAY)
    assert answers(leaf) == [(A, str(GATEWAY))]
    assert leaf.kinds("arp.proxied") == []


def test_it_does_not_answer_for_other_subnets_nor_for_who_asks() -> None:
    leaf = proxy()
    leaf.request(X, A, ELSEWHERE)
    leaf.garp(X, A)
    leaf.request(NO_IP, A, Y)
    assert answers(leaf) == []


def test_without_the_key_it_answers_for_itself_only() -> None:
    leaf = switch("sonic")
    leaf.request(X, A, Y)
    assert answers(leaf) == []


def test_an_advertisement_in_anothers_place_overrides_nothing() -> None:
    leaf = proxy()
    leaf.packet(10, Nd(REQUEST, A, IPv6Address("2001:db8:10::1"), UNUSED6))
    answer = leaf.sent[-1].packet
    assert isinstance(answer, Nd)
    assert (answer.sender_ip, answer.override, answer.solicited) == (UNUSED6, False, True)
    leaf.packet(10, Nd(REQUEST, NO_MAC, NO_IP6, UNUSED6))  # duplicate address detection
    assert leaf.sent[-1].packet is answer


def test_after_a_warm_reboot_every_entry_is_asked_for_by_broadcast_and_fresh() -> None:
    leaf = switch("arista-eos")
    leaf.request(X, A)
    leaf.now = 14_000
    leaf.restart()
    assert leaf.requests_for(X) == [BROADCAST]
    assert leaf.last("arp.restored")["entries"] == 1
    leaf.wait_until(14_000 + 14_399)
    assert leaf.mac(X) == A
    leaf.wait_until(14_000 + 14_401)
    assert leaf.mac(X) is None


def test_an_owner_that_answers_with_another_mac_is_learned() -> None:
    leaf = switch("arista-eos")
    leaf.request(X, A)
    leaf.restart()
    leaf.reply(X, B)
    assert leaf.mac(X) == B


def test_what_was_being_resolved_is_forgotten_and_may_be_asked_again() -> None:
    leaf = switch("arista-eos")
    leaf.miss(Y)
    leaf.restart()
    assert (10, Y) in leaf.forgotten
    assert leaf.plane.neighbours(0, 4) == []
    leaf.miss(Y)
    assert leaf.requests_for(Y) == [BROADCAST, BROADCAST]


def test_the_refresh_daemon_begins_anew() -> None:
    leaf = switch("sonic")
    leaf.request(X, A)
    leaf.now = 100
    leaf.restart()
    leaf.sent.clear()
    leaf.wait_until(219)
    assert leaf.requests_for(X) == []
    leaf.wait_until(220)
    assert leaf.requests_for(X) == [BROADCAST]


def test_a_warm_reboot_ends_what_an_outage_of_the_cpu_postponed() -> None:
    leaf = switch("huawei-ce")  # it probes at 1200 s, three times in 15 s
    leaf.request(X, A)
    leaf.wait_until(1100)
    leaf.resume(1300)
    leaf.restart()
    leaf.wait_until(1300 + 1214)
    assert leaf.mac(X) == A
    leaf.wait_until(1300 + 1215)
    assert leaf.mac(X) is None
