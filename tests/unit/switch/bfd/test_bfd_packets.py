"""BFD control packets as bytes, as RFC 5880 section 4.1 and scapy have them."""

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.switch.bfd.control_packet import ControlPacket, State, datagram, parse

UP = ControlPacket(State.UP, 0, 3, 0x11223344, 0x55667788, 300_000, 300_000)
UP_BYTES = bytes.fromhex("20c003181122334455667788000493e0000493e000000000")
U32 = st.integers(0, 0xFFFFFFFF)


def test_a_packet_is_what_the_rfc_says() -> None:
    assert UP.pack() == UP_BYTES
    assert parse(UP_BYTES) == UP


@given(
    st.builds(
        ControlPacket,
        st.sampled_from([State.INIT, State.UP]),
        st.integers(0, 31),
        st.integers(1, 255),
        *[st.integers(1, 0xFFFFFFFF)] * 2,
        *[U32] * 3,
        *[st.booleans()] * 4,
    )
)
def test_each_field_survives(packet: ControlPacket) -> None:
    assert parse(packet.pack()) == packet


@pytest.mark.parametrize(
    ("what", "at", "value"),
    [
        ("another version", 0, 0x40),
        ("a multiplier of 0", 2, 0),
        ("a length below 24", 3, 23),
        ("a length beyond the datagram", 3, 25),
        ("authentication", 1, 0xC4),
        ("multipoint", 1, 0xC1),
    ],
)
def test_a_packet_to_discard_is_none(what: str, at: int, value: int) -> None:
    changed = bytearray(UP_BYTES)
    changed[at] = value
    assert parse(bytes(changed)) is None, what


@pytest.mark.parametrize(("state", "taken"), [(0, True), (1, True), (2, False), (3, False)])
def test_only_a_session_that_is_down_may_not_know_its_peer(state: int, taken: bool) -> None:
    found = parse(UP_BYTES[:1] + bytes([state << 6]) + UP_BYTES[2:8] + bytes(4) + UP_BYTES[12:])
    assert (found is not None) == taken


def test_a_discriminator_of_0_is_no_sender() -> None:
    assert parse(UP_BYTES[:4] + bytes(4) + UP_BYTES[8:]) is None


@given(st.binary(max_size=64))
def test_any_bytes_are_a_packet_or_none(data: bytes) -> None:
    found = parse(data)
    assert found is None or found.pack() == data[:3] + b"\x18" + data[4:24]


@pytest.mark.parametrize(
    ("source", "to", "header"),
    [
        (IPv6Address("fe80::1"), IPv6Address("fe80::2"), "6c000000 0020 11 ff"),
        (IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), "45c00034 00000000 ff 11"),
    ],
)
def test_a_datagram_has_the_longest_life_and_correct_checksums(source, to, header: str) -> None:
    data = datagram(source, to, 49152, UP_BYTES)
    size = 40 if source.version == 6 else 20
    assert data.startswith(bytes.fromhex(header))
    assert data[size:].startswith(bytes.fromhex("c000 0ec8 0020"))
    assert data.endswith(UP_BYTES)
    assert ones(source.packed + to.packed + bytes.fromhex("00200011") + data[size:]) == 0xFFFF
    if source.version == 4:
        assert ones(data[:size]) == 0xFFFF


def ones(data: bytes) -> int:
    """The sum in ones' complement: all ones if a checksum in it is correct (RFC 1071)."""
    total = int.from_bytes(data, "big")
    return total % 0xFFFF or 0xFFFF
