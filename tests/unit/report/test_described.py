import struct
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import CLIENT_IP, IP, RETH, SVI, A, arp, ethernet, raw, roce

from testbed.records.frame_decoder import decode
from testbed.report.described import Packet, describe


def described(data: bytes) -> Packet:
    return describe(decode(data))


def fields(data: bytes, layer: str) -> dict[str, str]:
    return dict(described(data).layers[layer])


def test_a_write_has_its_bth_and_reth() -> None:
    data = roce(A, 0x06, 12_060_457, RETH, 1024)
    packet = described(data)
    assert (packet.kind, packet.text, packet.qpn, packet.psn) == ("roce", "RC RDMA WRITE First", 17, 12_060_457)
    assert (packet.dst, packet.src, packet.source, packet.target) == (A, SVI, CLIENT_IP, IP)
    assert packet.is_request
    assert fields(data, "BTH")["destination QP"] == "17 (0x000011)"
    assert fields(data, "RETH") == {
        "virtual address": "0x0000000000001000",
        "remote key": "0x0000035f",
        "DMA length": "4096 bytes",
    }
    assert fields(data, "Payload") == {"length": "1024 bytes"}
    assert packet.detail == "4096 bytes to write"


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
    packet = described(data)
    assert (packet.detail, packet.nak, packet.is_request) == (meaning, nak, False)
    assert fields(data, "AETH")["MSN"] == "9"


def test_a_cnp_is_no_request() -> None:
    packet = described(roce(A, 0x81, 0, bytes(16)))
    assert (packet.kind, packet.text, packet.is_request) == ("cnp", "CNP", False)


def test_a_congestion_mark_is_read() -> None:
    assert described(roce(A, 0x0A, 1, RETH, ecn=3)).ecn == 3


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
    packet = described(frame)
    assert (packet.kind, packet.text, packet.claim) == ("arp", text, claim)


def advertisement(flags: int) -> bytes:
    target = IPv6Address("fd00::100").packed
    icmp = struct.pack("!BBHI", 136, 0, 0, flags << 24) + target + b"\x02\x01" + raw(A)
    ip = struct.pack("!IHBB", 6 << 28, len(icmp), 58, 255) + target + IPv6Address("ff02::1").packed
    return ethernet("33:33:00:00:00:01", A, 0x86DD, ip + icmp)


def test_neighbour_discovery_has_its_flags() -> None:
    packet = described(advertisement(0x20))
    assert (packet.kind, packet.claim) == ("nd", A)
    assert packet.text == f"unsolicited neighbour advertisement: fd00::100 is at {A}"
    assert fields(advertisement(0x60), "Neighbour discovery")["flags"] == "solicited, override"


def test_a_vlan_tag_is_read_and_pfc_behind_it() -> None:
    pfc = struct.pack("!HH8H", 0x0101, 1 << 3, *[9] * 8)
    data = ethernet("01:80:c2:00:00:01", A, 0x8100, b"\x60\x14\x88\x08" + pfc)
    packet = described(data)
    assert (packet.kind, packet.text) == ("pause", "PFC: priority 3 pause")
    assert fields(data, "Ethernet")["VLAN"] == "20, priority 3"


@given(st.binary(max_size=120))
def test_whatever_a_frame_is_it_is_decoded(data: bytes) -> None:
    assert described(data).text


@given(st.integers(0, 90))
def test_a_frame_that_is_cut_off_is_decoded_up_to_there(length: int) -> None:
    assert described(roce(A, 0x06, 1, RETH, 64)[:length]).text


def tagged(data: bytes) -> bytes:
    return data[:12] + b"\x81\x00\x60\x14" + data[12:]


def over_ipv6(data: bytes) -> bytes:
    """The UDP datagram of an IPv4 frame, from fd00::1 to fd00::2."""
    udp = data[34:]
    head = (
        struct.pack("!IHBB", 6 << 28, len(udp), 17, 64) + IPv6Address("fd00::1").packed + IPv6Address("fd00::2").packed
    )
    return data[:12] + b"\x86\xdd" + head + udp


PFC = ethernet("01:80:c2:00:00:01", A, 0x8808, struct.pack("!HH8H", 0x0101, 1 << 3, *[0] * 8))
WRITE, ACK, NAK = roce(A, 0x0A, 7, RETH, 64), roce(A, 0x11, 7, b"\x1f\0\0\1"), roce(A, 0x11, 7, b"\x62\0\0\1")


@pytest.mark.parametrize("change", [bytes, tagged])
@pytest.mark.parametrize(
    ("data", "text", "layers"),
    [
        (arp(A, IP, "10.0.20.1"), f"ARP request: who has 10.0.20.1? tell {IP}", "ARP"),
        (arp(A, IP, IP), f"gratuitous ARP: {IP} is at {A}", "ARP"),
        (advertisement(0x60), f"solicited neighbour advertisement: fd00::100 is at {A}", "IPv6, Neighbour discovery"),
        (WRITE, "RC RDMA WRITE Only", "IPv4, UDP, BTH, RETH, Payload"),
        (over_ipv6(WRITE), "RC RDMA WRITE Only", "IPv6, UDP, BTH, RETH, Payload"),
        (ACK, "RC Acknowledge", "IPv4, UDP, BTH, AETH"),
        (NAK, "RC Acknowledge", "IPv4, UDP, BTH, AETH"),
        (roce(A, 0x81, 0, bytes(16)), "CNP", "IPv4, UDP, BTH"),
        (PFC, "PFC: priority 3 resume", "PFC"),
    ],
)
def test_the_text_of_a_frame_agrees_with_what_events_match(
    data: bytes, text: str, layers: str, change: Callable[[bytes], bytes]
) -> None:
    frame, packet = decode(change(data)), described(change(data))
    assert (packet.text, ", ".join(packet.layers)) == (text, f"Ethernet, {layers}")
    assert frame.tags == (((20, 3),) if change is tagged else ())
    assert (raw(packet.src), raw(packet.dst)) == (frame.src, frame.dst)
    assert (packet.kind in ("arp", "nd"), packet.kind in ("roce", "cnp")) == (bool(frame.resolution), bool(frame.roce))
    if found := frame.resolution:
        assert (packet.claim, packet.reply) == (found.mac.hex(":"), not found.asks)
        assert [packet.source, packet.target] == [str(ip_address(one)) for one in (found.sender, found.target)]
        assert found.gratuitous == text.startswith("gratuitous")
    elif frame.ip:
        assert (packet.source, packet.target) == tuple(str(ip_address(one)) for one in frame.ip)
    if found := frame.roce:
        assert (packet.qpn, packet.psn, packet.nak) == (found.qp, found.psn, found.nak)
        assert packet.is_request == found.request == (text == "RC RDMA WRITE Only")
        assert found.nak == ("remote access error" if data == NAK else "")
