"""What frames are decoded to: what a rule needs, and nothing that is not there."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab_traffic import ACKNOWLEDGE, CLIENT, SERVER, WRITE, arp, ethernet, mac, roce

from testbed.records.frame_decoder import Resolution, Roce, decode

V4, V6 = ("10.0.10.2", "10.0.20.100"), ("2001:db8::1", "2001:db8::2")


def packed(text: str) -> bytes:
    return ip_address(text).packed


@pytest.mark.parametrize("vlan", [None, 20])
def test_an_arp_request_asks_and_claims(vlan: int | None) -> None:
    frame = decode(arp(CLIENT, "10.0.10.2", "10.0.10.1", vlan=vlan))
    assert frame.resolution == Resolution(
        "arp", True, mac(CLIENT), packed("10.0.10.2"), packed("10.0.10.1"), target_mac=bytes(6)
    )
    assert not frame.resolution.gratuitous
    assert frame.src == mac(CLIENT)


@pytest.mark.parametrize(("sender", "gratuitous"), [("10.0.10.2", True), ("0.0.0.0", False)])  # noqa: S104  # no host is listened on
def test_a_gratuitous_arp_claims_what_it_asks_for_and_a_probe_claims_nothing(sender: str, gratuitous: bool) -> None:
    frame = decode(arp(CLIENT, sender, sender))
    assert frame.resolution is not None
    assert frame.resolution.gratuitous is gratuitous


def test_a_neighbour_advertisement_claims_its_target_for_the_mac_in_its_option() -> None:
    icmp = bytes([136, 0, 0, 0, 0x60, 0, 0, 0]) + packed(V6[0]) + bytes([2, 1]) + mac(CLIENT)
    ip = (6 << 28).to_bytes(4) + len(icmp).to_bytes(2) + bytes([58, 255]) + packed(V6[0]) + packed("ff02::1")
    frame = decode(ethernet(CLIENT, "33:33:00:00:00:01", 0x86DD, ip + icmp))
    assert frame.resolution == Resolution(
        "nd", False, mac(CLIENT), packed(V6[0]), packed(V6[0]), flags=("solicited", "override")
    )


@pytest.mark.parametrize("ips", [V4, V6])
@pytest.mark.parametrize("vlan", [None, 10])
def test_a_roce_request_of_either_family(ips: tuple[str, str], vlan: int | None) -> None:
    frame = decode(roce(CLIENT, SERVER, ips, qp=0x12, psn=0xABCDEF, vlan=vlan))
    assert frame.ip == (packed(ips[0]), packed(ips[1]))
    assert frame.roce == Roce(0x12, WRITE, 0xABCDEF)
    assert frame.roce.request


@pytest.mark.parametrize(
    ("syndrome", "reason"),
    [(0x00, ""), (0x1F, ""), (0x20, "receiver not ready"), (0x60, "PSN sequence error"), (0x62, "remote access error")],
)
def test_the_syndrome_says_whether_it_is_a_nak(syndrome: int, reason: str) -> None:
    frame = decode(roce(SERVER, CLIENT, V4, opcode=ACKNOWLEDGE, syndrome=syndrome))
    assert frame.roce is not None
    assert frame.roce.nak == reason
    assert not frame.roce.request


def test_a_later_fragment_has_no_header_of_udp() -> None:
    data = bytearray(roce(CLIENT, SERVER, V4))
    data[21] = 1
    frame = decode(bytes(data))
    assert frame.ip
    assert frame.roce is None


@given(st.integers(0, 80), st.sampled_from([arp(CLIENT, *V4), roce(CLIENT, SERVER, V4), roce(CLIENT, SERVER, V6)]))
def test_what_is_cut_off_is_left_out(length: int, whole: bytes) -> None:
    frame = decode(whole[:length])
    assert (frame.ethertype is None) == (length < 14)
    if length < 34:
        assert (frame.ip, frame.resolution, frame.roce) == (None, None, None)
        assert frame.cut


@given(st.binary(max_size=100))
def test_whatever_a_frame_holds_is_read(data: bytes) -> None:
    for kind in (0x0806, 0x0800, 0x86DD, 0x8100):
        decode(ethernet(CLIENT, SERVER, kind, data))
