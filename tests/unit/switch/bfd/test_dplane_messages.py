"""Messages between bfdd and its data plane. The bytes are those that FRR's bfdd/bfddp_packet.h lays out in C."""

import struct
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.switch.bfd.control_packet import State
from testbed.switch.bfd.dplane_protocol import (
    AddSession,
    DeleteSession,
    Messages,
    ProtocolError,
    RequestCounters,
    StateChange,
    counters,
)
from testbed.switch.bfd.state_machine import Settings

PEER, HERE = IPv6Address("fe80::2"), IPv6Address("fe80::1")
IPV6, PASSIVE, SHUTDOWN, MULTIHOP, CPI = 1 << 4, 1 << 5, 1 << 6, 1 << 0, 1 << 2


def add(kind: int = 2, flags: int = IPV6, source: bytes = HERE.packed, peer: bytes = PEER.packed) -> bytes:
    times = 300_000, 200_000, 50_000, 50_000, 0
    body = struct.pack("!I16s16sI5IBBH", flags, source, peer, 7, *times, 255, 3, 0)
    body += struct.pack("!I64s", 5, b"e2")
    return struct.pack("!BBHHH", 1, 0, kind, 0, 8 + len(body)) + body


def test_a_session_to_add() -> None:
    assert len(add()) == 140
    (message,) = Messages().take(add())
    assert message == AddSession(Settings(7, 3, 300_000, 200_000), HERE, PEER, 5, "e2", multihop=False)


def test_its_flags() -> None:
    (message,) = Messages().take(add(flags=PASSIVE | SHUTDOWN | MULTIHOP | CPI, peer=bytes([10, 0, 0, 1]).ljust(16)))
    assert isinstance(message, AddSession)
    assert message.peer == IPv4Address("10.0.0.1")
    settings = message.settings
    assert (settings.passive, settings.shutdown, settings.control_plane_independent, message.multihop) == (True,) * 4


def test_messages_come_in_any_pieces() -> None:
    asked = struct.pack("!BBHHHI", 1, 0, 5, 9, 12, 7)
    stream, messages, found = add() + asked + add(kind=3), Messages(), []
    for at in range(len(stream)):
        found += messages.take(stream[at : at + 1])
    assert [type(one) for one in found] == [AddSession, RequestCounters, DeleteSession]
    assert found[1:] == [RequestCounters(9, 7), DeleteSession(7)]


@pytest.mark.parametrize("kind", [0, 1, 4, 6, 99])
def test_other_messages_are_left_out(kind: int) -> None:
    assert Messages().take(struct.pack("!BBHHH", 1, 0, kind, 0, 8) + add())[0] == Messages().take(add())[0]


@pytest.mark.parametrize(
    "header", [struct.pack("!BBHHH", *each) for each in ((2, 0, 2, 0, 140), (1, 0, 2, 0, 7), (1, 0, 2, 0, 9999))]
)
def test_bytes_of_something_else_are_an_error(header: bytes) -> None:
    with pytest.raises(ProtocolError):
        Messages().take(header + bytes(200))


def test_a_message_that_is_too_short_for_its_type_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="type 2 and 10 bytes"):
        Messages().take(struct.pack("!BBHHH", 1, 0, 2, 0, 10) + bytes(2))


@given(st.binary(max_size=400))
def test_any_bytes_are_messages_or_an_error(data: bytes) -> None:
    messages = Messages()
    try:
        messages.take(data)
        messages.take(b"")
    except ProtocolError:
        pass


def test_a_change_of_state_and_counters() -> None:
    change = StateChange(7, State.UP, 9, 3, 4, 300_000, 200_000, 50_000, control_plane_independent=True, demand=True)
    assert change.pack() == struct.pack(
        "!BBHHHIIIIIIBBBB", 1, 0, 4, 0, 36, 7, 9, 3, 300_000, 200_000, 50_000, 3, 3, 4, 0
    )
    sent = counters(9, 7, received=10, sent=20, size=24)
    ignored = struct.pack("!BBHHH16x", 1, 0, 1, 0, 24)
    assert sent == 2 * ignored + struct.pack("!BBHHHII8Q", 1, 0, 6, 9, 80, 7, 0, 240, 10, 480, 20, 0, 0, 0, 0)
