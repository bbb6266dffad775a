"""The control plane follows SVIs, and what the kernel flushes: pure, by its effects."""

from ipaddress import IPv4Address, IPv4Interface, IPv6Interface

from testbed.switch.control import ControlPlane
from testbed.switch.core import Event, Send
from testbed.switch.frames import BROADCAST, NO_MAC, REPLY, REQUEST, Arp
from testbed.switch.profile import profile
from testbed.topology.plan import Svi

MAC, OTHER, HOST = "02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:0a"
SVI = Svi(10, "vlan10", MAC, IPv4Interface("10.0.10.1/24"))
ASKER = IPv4Address("10.0.10.2")


def plane() -> ControlPlane:
    made = ControlPlane("leaf", (SVI,), profile("sonic"), lambda: 0.0)
    made.start(0)
    return made


def asked(made: ControlPlane, target: str, vlan: int = 10, sender: IPv4Address = ASKER) -> list[tuple[str, str]]:
    """The answers to a broadcast request: sender's MAC and address."""
    request = Arp(REQUEST, HOST, sender, NO_MAC, IPv4Address(target))
    sent = [effect for effect in made.on_packet(1, vlan, request) if isinstance(effect, Send)]
    return [(one.packet.sender_mac, str(one.packet.sender_ip)) for one in sent if one.packet.op == REPLY]


def kinds(effects: list[object]) -> list[str]:
    return [effect.kind for effect in effects if isinstance(effect, Event)]


def test_answers_have_the_mac_and_the_addresses_of_now() -> None:
    made = plane()
    assert asked(made, "10.0.10.1") == [(MAC, "10.0.10.1")]
    made.on_svi(2, 10, OTHER, (IPv4Interface("10.0.10.1/24"), IPv4Interface("10.0.10.200/24")))
    assert asked(made, "10.0.10.200") == [(OTHER, "10.0.10.200")]
    made.on_svi(3, 10, OTHER, (IPv4Interface("10.0.10.200/24"),))
    assert asked(made, "10.0.10.1") == []
    made.on_svi(4, 30, OTHER, (IPv4Interface("10.0.30.1/24"),))
    assert asked(made, "10.0.30.1", 30, IPv4Address("10.0.30.2")) == [(OTHER, "10.0.30.1")]


def test_entries_go_with_the_last_address_of_their_family() -> None:
    made = plane()
    asked(made, "10.0.10.1")
    assert [row["ip"] for row in made.neighbours(1, 4)] == [str(ASKER)]
    assert kinds(made.on_svi(2, 10, MAC, (IPv6Interface("fd00::1/64"),))) == ["arp.cleared"]
    assert made.neighbours(3, 4) == []
    assert asked(made, "10.0.10.1") == []


def test_a_request_is_from_the_address_in_the_subnet_of_its_target() -> None:
    made = plane()
    made.on_svi(1, 10, MAC, (IPv4Interface("10.0.10.1/24"), IPv4Interface("10.9.0.1/24")))
    (request,) = [effect for effect in made.on_miss(2, 10, IPv4Address("10.9.0.7")) if isinstance(effect, Send)]
    assert (request.dst, str(request.packet.sender_ip)) == (BROADCAST, "10.9.0.1")


def test_what_the_kernel_flushes_goes_and_what_is_unknown_is_nothing() -> None:
    made = plane()
    asked(made, "10.0.10.1")
    assert made.on_flushed(2, 10, IPv4Address("10.0.10.99")) == []
    assert kinds(made.on_flushed(3, 10, ASKER)) == ["arp.cleared"]
    assert made.neighbours(4, 4) == []
