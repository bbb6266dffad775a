import struct
from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import CLIENT_IP, IP, RETH, SVI, A, arp, ethernet, raw, roce

from testbed.report.decode import decode


def fields(data: bytes, layer: str) -> dict[str, str]:
    return dict(dict(decode(data).layers)[layer])


def test_a_write_has_its_bth_and_reth() -> None:
    data = roce(A, 0x06, 12_060_457, RETH, 1024)
    packet = decode(data)
    assert (packet.kind, packet.opcode, packet.qpn, packet.psn) == ("roce", "RDMA WRITE First", 17, 12_060_457)
    assert (packet.dst, packet.src, packet.source, packet.target) == (A, SVI, CLIENT_IP, IP)
    assert packet.is_request
    assert fields(data, "BTH")["destination QP"] == "17 (0x000011)"
    assert fields(data, "RETH") == {
        "virtual address": "0x0000000000001000", "remote key": "0x0000035f", "DMA length": "4096 bytes",
    }  # fmt: skip
    assert fields(data, "Payload") == {"length": "1024 bytes"}
    assert packet.detail == "4096 bytes to be written"


@pytest.mark.parametrize(
    ("syndrome", "meaning", "nak"),
    [
        (0x1F, "ACK", ""),
        (0x05, "ACK, 5 credits", ""),
        (0x2E, "RNR NAK, timer 14", "receiver not ready"),
        (0x60, "NAK: PSN sequence error", "PSN sequence error"),
        (0x62, "NAK: remote access error", "remote access error"),
    ],
)
def test_an_acknowledge_has_its_syndrome_in_words(syndrome: int, meaning: str, nak: str) -> None:
    data = roce(A, 0x11, 5, bytes([syndrome, 0, 0, 9]))
    packet = decode(data)
    assert (packet.detail, packet.nak, packet.is_request) == (meaning, nak, False)
    assert fields(data, "AETH")["MSN"] == "9"


def test_a_cnp_is_no_request() -> None:
    packet = decode(roce(A, 0x81, 0, bytes(16)))
    assert (packet.kind, packet.opcode, packet.is_request) == ("cnp", "CNP", False)


def test_a_congestion_mark_is_read() -> None:
    assert decode(roce(A, 0x0A, 1, RETH, ecn=3)).ecn == 3


@pytest.mark.parametrize(
    ("frame", "text", "claim"),
    [
        (arp(A, IP, "10.0.20.1"), f"ARP request: who has 10.0.20.1? tell {IP}", A),
        (arp(A, IP, "10.0.20.1", 2, SVI), f"ARP reply: {IP} is at {A}", A),
        (arp(A, IP, IP), f"gratuitous ARP: {IP} is at {A}", A),
        (arp(A, "0.0.0.0", IP), f"ARP request: who has {IP}? tell 0.0.0.0", ""),  # noqa: S104, a probe of RFC 5227
    ],
)
def test_arp_says_what_it_asks_or_claims(frame: bytes, text: str, claim: str) -> None:
    packet = decode(frame)
    assert (packet.kind, packet.text, packet.claim) == ("arp", text, claim)


def advertisement(flags: int) -> bytes:
    target = IPv6Address("fd00::100").packed
    icmp = struct.pack("!BBHI", 136, 0, 0, flags << 24) + target + b"\x02\x01" + raw(A)
    ip = struct.pack("!IHBB", 6 << 28, len(icmp), 58, 255) + target + IPv6Address("ff02::1").packed
    return ethernet("33:33:00:00:00:01", A, 0x86DD, ip + icmp)


def test_neighbour_discovery_has_its_flags() -> None:
    packet = decode(advertisement(0x20))
    assert (packet.kind, packet.claim) == ("nd", A)
    assert packet.text == f"unsolicited neighbour advertisement: fd00::100 is at {A}"
    assert fields(advertisement(0x60), "Neighbour discovery")["flags"] == "solicited, override"


def test_a_vlan_tag_is_read_and_pfc_behind_it() -> None:
    pfc = struct.pack("!HH8H", 0x0101, 1 << 3, *[9] * 8)
    data = ethernet("01:80:c2:00:00:01", A, 0x8100, b"\x60\x14\x88\x08" + pfc)
    packet = decode(data)
    assert (packet.vlan, packet.kind, packet.text) == (20, "pause", "PFC: priority 3 pause")


@given(st.binary(max_size=120))
def test_whatever_a_frame_is_it_is_decoded(data: bytes) -> None:
    assert decode(data).text


@given(st.integers(0, 90))
def test_a_frame_that_is_cut_off_is_decoded_up_to_there(length: int) -> None:
    assert decode(roce(A, 0x06, 1, RETH, 64)[:length]).text
