"""Neighbour discovery on the wire."""

from ipaddress import IPv6Address

import pytest
from simulated_switch import GATEWAY_MAC, A

from testbed.switch.frames import BROADCAST, NO_MAC, REPLY, REQUEST
from testbed.switch.nd import ALL_NODES, NO_IP, Nd, pack, parse, solicited_node
from testbed.switch.packets import gratuitous

X = IPv6Address("2001:db8:10::1")
GATEWAY = IPv6Address("2001:db8:10::fe")

SOLICITATION = bytes.fromhex(
    "3333ff000001 0200000000fe 86dd"
    "60000000 0020 3a ff 20010db80010000000000000000000fe ff0200000000000000000001ff000001"
    "87 00 1a0f 00000000 20010db8001000000000000000000001 0101 0200000000fe"
)
"""As scapy writes it."""
ASK = Nd(REQUEST, GATEWAY_MAC, GATEWAY, X)


def changed(at: int, to: int, frame: bytes = SOLICITATION) -> bytes:
    """The frame with another byte in its ICMPv6 message, and the checksum made to fit."""
    wrong = bytearray(frame)
    difference = (to - wrong[at]) << (8 if at % 2 == 0 else 0)
    wrong[at] = to
    checksum = (int.from_bytes(wrong[56:58]) - difference) % 0xFFFF
    wrong[56:58] = checksum.to_bytes(2)
    return bytes(wrong)


def test_pack_is_rfc_4861() -> None:
    assert pack(BROADCAST, GATEWAY_MAC, ASK).hex() == SOLICITATION.hex()


@pytest.mark.parametrize(
    ("dst", "packet", "destination"),
    [
        (BROADCAST, ASK, solicited_node(X)),
        (A, ASK, X),
        (BROADCAST, Nd(REQUEST, NO_MAC, NO_IP, X), solicited_node(X)),
        (A, Nd(REPLY, GATEWAY_MAC, GATEWAY, X, solicited=True, router=True), X),
        (A, Nd(REPLY, NO_MAC, GATEWAY, X, solicited=True, override=False), X),
        (BROADCAST, Nd(REPLY, GATEWAY_MAC, GATEWAY, ALL_NODES), ALL_NODES),
    ],
    ids=["question", "unicast question", "probe", "answer", "answer without MAC", "announcement"],
)
def test_parse_reads_what_pack_writes_and_ignores_padding(dst: str, packet: Nd, destination: IPv6Address) -> None:
    assert parse(pack(dst, GATEWAY_MAC, packet) + bytes(18)) == (destination, packet)


@pytest.mark.parametrize(
    ("ip", "mac"), [(X, "33:33:ff:00:00:01"), (IPv6Address("2001:db8::aa:bbcc:ddee"), "33:33:ff:cc:dd:ee")]
)
def test_a_question_goes_to_the_group_of_its_target(ip: IPv6Address, mac: str) -> None:
    assert pack(BROADCAST, GATEWAY_MAC, Nd(REQUEST, GATEWAY_MAC, GATEWAY, ip))[:6].hex(":") == mac


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        SOLICITATION[:77],
        SOLICITATION[:85],
        SOLICITATION[:12] + b"\x08\x00" + SOLICITATION[14:],
        SOLICITATION[:14] + b"\x40" + SOLICITATION[15:],
        SOLICITATION[:20] + b"\x11" + SOLICITATION[21:],
        changed(54, 133),
        changed(55, 1),
        SOLICITATION[:21] + b"\xfe" + SOLICITATION[22:],
        SOLICITATION[:-1] + b"\x00",
        changed(79, 0),
        changed(79, 2),
        changed(62, 0xFF),
    ],
    ids=[
        "empty",
        "short",
        "cut",
        "not IPv6",
        "not version 6",
        "not ICMPv6",
        "another type",
        "a code",
        "routed",
        "corrupt",
        "option without length",
        "option too long",
        "target is a group",
    ],
)
def test_parse_leaves_other_and_invalid_frames_alone(frame: bytes) -> None:
    assert parse(SOLICITATION) is not None
    assert parse(frame) is None


def test_a_probe_tells_no_mac_and_an_announcement_answers_nobody() -> None:
    assert parse(pack(BROADCAST, A, Nd(REQUEST, A, NO_IP, X))) is None
    assert parse(pack(BROADCAST, A, Nd(REPLY, A, X, ALL_NODES, solicited=True))) is None


def test_a_host_announces_itself_to_all() -> None:
    frame = gratuitous(A, X)

    assert frame[:12].hex(":") == f"33:33:00:00:00:01:{A}"
    assert parse(frame) == (ALL_NODES, Nd(REPLY, A, X, ALL_NODES))


def test_gratuitous_and_probe() -> None:
    assert Nd(REPLY, A, X, ALL_NODES).gratuitous
    assert not Nd(REPLY, A, X, GATEWAY, solicited=True).gratuitous
    assert not ASK.gratuitous
    assert Nd(REQUEST, NO_MAC, NO_IP, X).probe
