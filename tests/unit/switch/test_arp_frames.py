"""ARP frames on the wire."""

from ipaddress import IPv4Address

import pytest
from simulated_switch import GATEWAY_MAC, A, X, Y

from testbed.switch.frames import BROADCAST, NO_MAC, REPLY, REQUEST, Arp, pack, parse, unicast
from testbed.switch.packets import gratuitous

REQUEST_ON_THE_WIRE = bytes.fromhex(
    "ffffffffffff 0200000000fe 08060001 0800 06 04 0001 0200000000fe 0a000a01 000000000000 0a000a02"
)


def test_pack_is_rfc_826() -> None:
    assert pack(BROADCAST, GATEWAY_MAC, Arp(REQUEST, GATEWAY_MAC, X, NO_MAC, Y)) == REQUEST_ON_THE_WIRE


def test_parse_reads_what_pack_writes_and_ignores_padding() -> None:
    arp = Arp(REPLY, A, X, GATEWAY_MAC, Y)

    assert parse(pack(GATEWAY_MAC, A, arp) + bytes(18)) == arp


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        REQUEST_ON_THE_WIRE[:41],
        REQUEST_ON_THE_WIRE[:12] + b"\x08\x00" + REQUEST_ON_THE_WIRE[14:],
        REQUEST_ON_THE_WIRE[:14] + b"\x00\x06" + REQUEST_ON_THE_WIRE[16:],
        REQUEST_ON_THE_WIRE[:20] + b"\x00\x08" + REQUEST_ON_THE_WIRE[22:],
    ],
    ids=["empty", "short", "not ARP", "not Ethernet", "inverse ARP"],
)
def test_parse_leaves_other_frames_alone(frame: bytes) -> None:
    assert parse(frame) is None


def test_a_host_announces_itself_with_a_request_for_its_own_address() -> None:
    frame = gratuitous(A, X)

    assert frame[:12].hex(":") == f"{BROADCAST}:{A}"
    assert parse(frame) == Arp(REQUEST, A, X, NO_MAC, X)


def test_gratuitous_and_probe() -> None:
    assert Arp(REQUEST, A, X, NO_MAC, X).gratuitous
    assert not Arp(REQUEST, A, X, NO_MAC, Y).gratuitous
    assert Arp(REQUEST, A, IPv4Address(0), NO_MAC, Y).probe


@pytest.mark.parametrize(("mac", "ok"), [(A, True), (BROADCAST, False), (NO_MAC, False), ("01:00:5e:00:00:01", False)])
def test_unicast(mac: str, ok: bool) -> None:
    assert unicast(mac) is ok
