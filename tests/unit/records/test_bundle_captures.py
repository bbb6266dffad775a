"""What the packets of a capture say, and captures that are damaged, cut off or no captures."""

import struct
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest
from lab_traffic import ACKNOWLEDGE, BROADCAST, CLIENT, MS, SERVER, SWITCH, ZERO, arp, ethernet, mac, pcap
from lab_traffic import roce as packet

from testbed.records import merged_captures
from testbed.records.bundle import captures
from testbed.records.bundle.captures import Capture
from testbed.records.frame_decoder import decode

A, B = "10.0.20.1", "10.0.20.2"
NOBODY = str(ip_address(0))
OTHER = "02:00:09:00:00:01"
SEQUENCE_ERROR, NOT_READY, SEND_ONLY = 0x60, 0x20, 0x04
roce = partial(packet, opcode=SEND_ONLY)


def read(tmp_path: Path, *packets: tuple[int, bytes]) -> Capture:
    path = tmp_path / "n1.pcap"
    pcap(path, packets)
    return captures.read(path, "hosts/n1.pcap", "n1", "eth1")


def pfc(src: str, priority: int, quanta: int) -> bytes:
    times = [quanta if one == priority else 0 for one in range(8)]
    return ethernet(src, "01:80:c2:00:00:01", 0x8808, struct.pack("!HH8H", 0x0101, 1 << priority, *times))


def icmp(code: int, mtu: int, *, port: int = 4791) -> bytes:
    """A router's message about a packet from A to B."""
    quoted = struct.pack("!BBHHHBBH", 0x45, 0, 1100, 0, 0x4000, 64, 17, 0) + ip_address(A).packed + ip_address(B).packed
    quoted += struct.pack("!HHHH", 50000, port, 1080, 0)
    body = struct.pack("!BBHHH", 3, code, 0, 0, mtu) + quoted
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, 64, 1, 0)
    return ethernet(SWITCH, CLIENT, 0x0800, head + ip_address("10.0.20.254").packed + ip_address(A).packed + body)


def icmp6(kind: int, code: int, mtu: int) -> bytes:
    ips = ip_address("fd00::1").packed + ip_address("fd00::2").packed
    quoted = struct.pack("!IHBB", 6 << 28, 1000, 17, 64) + ips + struct.pack("!HHHH", 50000, 4791, 1000, 0)
    body = struct.pack("!BBHI", kind, code, 0, mtu) + quoted
    return ethernet(SWITCH, CLIENT, 0x86DD, struct.pack("!IHBB", 6 << 28, len(body), 58, 64) + ips + body)


@pytest.mark.parametrize(
    ("frame", "reason", "mtu"),
    [
        (icmp(4, 1400), "too large", 1400),
        (icmp(4, 0), "too large", 0),
        (icmp(0, 9), "no route", None),
        (icmp(1, 0), "host", None),
        (icmp(3, 0), "port", None),
        (icmp(13, 0), "prohibited", None),
        (icmp6(2, 0, 1400), "too large", 1400),
        (icmp6(1, 3, 0), "host", None),
    ],
)
def test_messages_about_roce_packets(frame: bytes, reason: str, mtu: int | None) -> None:
    found = decode(frame).refusal
    assert found
    assert (found.reason, found.mtu) == (reason, mtu)
    assert str(ip_address(found.target)) in (B, "fd00::2")


def test_messages_about_other_packets_are_left_out() -> None:
    assert decode(icmp(3, 0, port=53)).refusal is None
    cut = decode(icmp(4, 1400)[:50])
    assert (cut.refusal, cut.cut) == (None, True)


def test_two_answers_to_one_request_are_a_dispute(tmp_path: Path) -> None:
    asked = arp(CLIENT, A, B)
    answers = [arp(of, B, A, dst=CLIENT, op=2) for of in (SERVER, OTHER)]
    found = read(tmp_path, (0, asked), (MS, answers[0]), (2 * MS, answers[1]))
    assert found.disputed == {(0, B): {SERVER, OTHER}}
    assert found.claims[0, B, OTHER].first == ZERO + 2 * MS


def test_an_address_that_moves_is_no_dispute(tmp_path: Path) -> None:
    before, after = (arp(of, B, B) for of in (SERVER, OTHER))
    asked = arp(CLIENT, A, B)
    answers = [arp(of, B, A, dst=CLIENT, op=2) for of in (SERVER, OTHER)]
    assert read(tmp_path, (0, before), (MS, after), (2 * MS, after)).disputed == {}
    assert read(tmp_path, (0, asked), (1, answers[0]), (2, asked), (3, answers[1])).disputed == {}
    assert read(tmp_path, (0, before), (MS, after), (2 * MS, before)).disputed == {(0, B): {SERVER, OTHER}}


def test_addresses_of_different_vlans_are_different(tmp_path: Path) -> None:
    claims = [arp(of, B, B, vlan=vlan) for of, vlan in ((SERVER, 10), (OTHER, 20), (SERVER, 10))]
    assert read(tmp_path, *enumerate(claims)).disputed == {}


def test_probes_claim_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, (0, arp(OTHER, NOBODY, B))).claims == {}


def test_requests_that_are_sent_again(tmp_path: Path) -> None:
    psns = [5, 6, 7, 6, 7, 8, 8]
    sent = [(n * 10 * MS, roce(CLIENT, SERVER, (A, B), psn=psn)) for n, psn in enumerate(psns)]
    other = [(MS, roce(CLIENT, SERVER, (A, B), psn=5, qp=99))]
    answers = [(n * 10 * MS + 5, roce(SERVER, CLIENT, (B, A), psn=5, opcode=ACKNOWLEDGE)) for n in range(7)]
    found = read(tmp_path, *sorted(sent + other + answers))
    assert found.again == {A: 2}
    assert found.senders == {A, B}
    assert found.flows[0, CLIENT, SERVER, A, B].packets == 8


def test_packets_out_of_order_are_not_sent_again(tmp_path: Path) -> None:
    found = read(tmp_path, *((n, roce(CLIENT, SERVER, (A, B), psn=psn)) for n, psn in enumerate([5, 8, 6, 7, 9])))
    assert not found.again


def test_a_mirror_of_both_directions_has_each_packet_twice(tmp_path: Path) -> None:
    sent = [(n * MS * 5 + twice, roce(CLIENT, SERVER, (A, B), psn=n)) for n in range(9) for twice in (0, 900)]
    found = read(tmp_path, *sent)
    assert not found.again
    assert found.remarks == ["hosts/n1.pcap has packets twice: which were sent again is not known"]


def test_naks_marks_and_notifications(tmp_path: Path) -> None:
    naks = [
        (n, roce(SERVER, CLIENT, (B, A), opcode=ACKNOWLEDGE, syndrome=syndrome, psn=n))
        for n, syndrome in enumerate([SEQUENCE_ERROR, NOT_READY, 0x1F])
    ]
    marked = bytearray(roce(CLIENT, SERVER, (A, B)))
    marked[15] = 3
    notified = roce(SERVER, CLIENT, (B, A), opcode=0x81)
    found = read(tmp_path, *naks, (10, bytes(marked)), (11, notified))
    assert found.naks == {(B, A, "PSN sequence error"): 1, (B, A, "receiver not ready"): 1}
    assert (found.marked, found.notified) == ({B: 1}, {B: 1})


def test_pause_frames_and_refusals(tmp_path: Path) -> None:
    found = read(tmp_path, (0, pfc(SERVER, 3, 0xFFFF)), (MS, pfc(SERVER, 3, 0)), (2 * MS, icmp(4, 1400)))
    assert found.pauses == {(SERVER, 3): [(ZERO, 0xFFFF), (ZERO + MS, 0)]}
    [((router, target, reason, mtu), times)] = found.refusals.items()
    assert (router, target, reason, mtu, times.packets) == ("10.0.20.254", B, "too large", 1400, 1)


def test_a_pcapng_is_read_with_its_interface(tmp_path: Path) -> None:
    path = tmp_path / "n1.pcapng"
    with path.open("wb") as file:
        writer = merged_captures.Writer(file, "somebody", "")
        writer.interface("ens1f0np0", "", 1, 262144)
        writer.packet(0, ZERO + 7, roce(CLIENT, SERVER, (A, B)), 60)
    found = captures.read(path, "n1.pcapng", "n1", "")
    assert (found.packets, found.began, found.interface, found.remarks) == (1, ZERO + 7, "ens1f0np0", [])
    assert found.senders == {A}


def big_endian(frame: bytes, *, unit: bytes = b"\x06", stamp: int = (ZERO + 1000) // 1000) -> bytes:
    def block(kind: int, body: bytes) -> bytes:
        total = struct.pack(">I", len(body) + 12)
        return struct.pack(">I", kind) + total + body + total

    padded = frame + bytes(-len(frame) % 4)
    option = struct.pack(">HH", 9, 1) + unit + bytes(3) + struct.pack(">HH", 0, 0)
    return (
        block(0x0A0D0D0A, struct.pack(">IHHq", 0x1A2B3C4D, 1, 0, -1))
        + block(1, struct.pack(">HHI", 1, 0, 0) + option)
        + block(4, b"name")
        + block(6, struct.pack(">IIIII", 0, stamp >> 32, stamp & 0xFFFFFFFF, len(frame), len(frame)) + padded)
    )


def test_a_pcapng_of_the_other_byte_order(tmp_path: Path) -> None:
    path = tmp_path / "n1.pcapng"
    path.write_bytes(big_endian(roce(CLIENT, SERVER, (A, B))))
    found = captures.read(path, "n1.pcapng", "n1", "eth1")
    assert (found.began, found.senders, found.remarks) == (ZERO + 1000, {A}, [])


def truncated(tmp_path: Path) -> bytes:
    pcap(tmp_path / "whole", [(n, roce(CLIENT, SERVER, (A, B), psn=n)) for n in range(3)])
    return (tmp_path / "whole").read_bytes()[:-5]


@pytest.mark.parametrize(
    ("data", "packets", "words"),
    [
        (b"", 0, "x is no capture: neither pcap nor pcapng"),
        (b"junk" * 100, 0, "x is no capture: neither pcap nor pcapng"),
        (big_endian(b"\0" * 60)[:-7], 0, "x is cut off or damaged after 0 packets"),
        (big_endian(b"\0" * 60) + b"\0" * 8, 1, "x is cut off or damaged after 1 packets"),
        (big_endian(b"\0" * 60, unit=b"\xff"), 1, ""),
        (struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 276) + b"\0" * 99, 0, "link type 276"),
        (struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + b"\xff" * 99, 0, "cut off or damaged after 0"),
    ],
    ids=["empty", "junk", "cut", "no block", "a strange unit", "any", "a large packet"],
)
def test_what_is_damaged_is_said(tmp_path: Path, data: bytes, packets: int, words: str) -> None:
    (tmp_path / "x").write_bytes(data)
    found = captures.read(tmp_path / "x", "x", "n1", "")
    assert found.packets == packets
    assert words in "".join(found.remarks)
    assert len(found.remarks) == bool(words)


def test_a_file_that_ends_in_a_packet(tmp_path: Path) -> None:
    (tmp_path / "n1.pcap").write_bytes(truncated(tmp_path))
    found = captures.read(tmp_path / "n1.pcap", "n1.pcap", "n1", "")
    assert found.remarks == ["n1.pcap is cut off or damaged after 2 packets"]
    assert found.flows[0, CLIENT, SERVER, A, B].packets == 2


def test_packets_that_are_cut_off_say_less(tmp_path: Path) -> None:
    frame = roce(CLIENT, SERVER, (A, B))
    found = read(tmp_path, (0, frame[:40]), (1, frame[:54]), (2, frame), (3, b""), (4, mac(BROADCAST)))
    assert found.remarks == ["hosts/n1.pcap: 3 packets are cut off in their headers: what they say is not known"]
    assert found.flows[0, CLIENT, SERVER, A, B].packets == 2


def test_only_so_many_packets_and_facts_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captures, "MOST_PACKETS", 40)
    monkeypatch.setattr(captures, "MOST_KEYS", 10)
    claims = [(n, arp(f"02:00:00:00:00:{n:02x}", f"10.0.0.{n}", B)) for n in range(1, 60)]
    found = read(tmp_path, *claims)
    assert (found.packets, len(found.claims)) == (40, 10)
    assert found.remarks == ["hosts/n1.pcap has more than 40 packets: the others are not read"]
