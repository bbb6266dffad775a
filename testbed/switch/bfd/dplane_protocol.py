"""
The protocol between FRR's bfdd and a data plane: "distributed BFD", version 1 (FRR's bfdd/bfddp_packet.h).

bfdd adds, updates and deletes sessions and asks for their counters; the data plane reports states. Bytes that are no
message of it end the connection: there is no way to find the next message.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address

from testbed.switch.bfd.control_packet import State
from testbed.switch.bfd.state_machine import Settings
from testbed.topology import IPAddress

VERSION = 1
_MULTIHOP, _CPI, _IPV6, _PASSIVE, _SHUTDOWN = (1 << bit for bit in (0, 2, 4, 5, 6))
"""Flags of a session. Echo mode is another one, which is ignored: the peer is told that no echo is answered."""
_HEADER = struct.Struct("!BxHHH")  # version, type, ID, length
_SESSION = struct.Struct("!I16s16sIII13xBxxI64s")  # without echo intervals, hold time and TTL
_DISCRIMINATOR = struct.Struct("!I")
_STATE = struct.Struct("!IIIIIIBBBx")
_COUNTERS = struct.Struct("!I4x8Q")
_LONGEST = 4096
_RBIT_CPI, _RBIT_DEMAND = 1, 2


class _Kind(IntEnum):
    ECHO_REQUEST, ECHO_REPLY, ADD_SESSION, DELETE_SESSION, STATE_CHANGE, REQUEST_COUNTERS, COUNTERS = range(7)


class ProtocolError(Exception):
    """Bytes that are not of this protocol."""


@dataclass(frozen=True, slots=True)
class AddSession:
    """A session to add, or whose settings change."""

    settings: Settings
    source: IPAddress
    """Unspecified if bfdd leaves it open."""
    peer: IPAddress
    ifindex: int
    port: str
    multihop: bool


@dataclass(frozen=True, slots=True)
class DeleteSession:
    discriminator: int


@dataclass(frozen=True, slots=True)
class RequestCounters:
    number: int
    """The message's ID, which the answer repeats."""
    discriminator: int


Message = AddSession | DeleteSession | RequestCounters


class Messages:
    """The messages in a stream of bytes."""

    def __init__(self) -> None:
        self._data = b""

    def take(self, data: bytes) -> list[Message]:
        """Return the messages that are complete with `data`. ProtocolError for other bytes; messages that only a data
        plane sends are left out."""
        self._data += data
        found = []
        while len(self._data) >= _HEADER.size:
            version, kind, number, length = _HEADER.unpack_from(self._data)
            if version != VERSION or not _HEADER.size <= length <= _LONGEST:
                raise ProtocolError(f"version {version}, length {length}")
            if len(self._data) < length:
                break
            body, self._data = self._data[_HEADER.size : length], self._data[length:]
            try:
                message = _parsed(kind, number, body)
            except (struct.error, UnicodeDecodeError) as error:
                raise ProtocolError(f"a message of type {kind} and {length} bytes") from error
            if message is not None:
                found.append(message)
        return found


def _parsed(kind: int, number: int, body: bytes) -> Message | None:
    match kind:
        case _Kind.ADD_SESSION:
            return _session(body)
        case _Kind.DELETE_SESSION:
            return DeleteSession(_session(body).settings.discriminator)
        case _Kind.REQUEST_COUNTERS:
            return RequestCounters(number, _DISCRIMINATOR.unpack_from(body)[0])
    return None


def _session(body: bytes) -> AddSession:
    flags, source, peer, discriminator, desired_tx, required_rx, multiplier, ifindex, port = _SESSION.unpack_from(body)
    return AddSession(
        Settings(
            discriminator,
            multiplier,
            desired_tx,
            required_rx,
            passive=bool(flags & _PASSIVE),
            shutdown=bool(flags & _SHUTDOWN),
            control_plane_independent=bool(flags & _CPI),
        ),
        _address(source, flags),
        _address(peer, flags),
        ifindex,
        port.partition(b"\0")[0].decode(),
        bool(flags & _MULTIHOP),
    )


def _address(data: bytes, flags: int) -> IPAddress:
    return IPv6Address(data) if flags & _IPV6 else IPv4Address(data[:4])


@dataclass(frozen=True, slots=True)
class StateChange:
    """What bfdd is to know of a session: its state, and what the peer has sent last. Times are in microseconds."""

    discriminator: int
    state: State = State.DOWN
    remote_discriminator: int = 0
    diagnostic: int = 0
    """The peer's."""
    multiplier: int = 0
    desired_tx: int = 0
    required_rx: int = 0
    required_echo_rx: int = 0
    control_plane_independent: bool = False
    demand: bool = False

    def pack(self) -> bytes:
        flags = self.control_plane_independent * _RBIT_CPI | self.demand * _RBIT_DEMAND
        times = self.desired_tx, self.required_rx, self.required_echo_rx
        rest = self.state, self.diagnostic, self.multiplier
        return _message(
            _Kind.STATE_CHANGE, 0, _STATE.pack(self.discriminator, self.remote_discriminator, flags, *times, *rest)
        )


def counters(number: int, discriminator: int, received: int, sent: int, size: int) -> bytes:
    """Return the answer with the number of control packets of `size` bytes; there are no echo packets.

    bfdd 10.3 makes room in its input buffer after three messages of one read only, and after a hundred answers to
    questions in a row it takes the full buffer for the end of the connection (FRR pull request 22694). So two messages
    that it ignores come before the answer.
    """
    control = received * size, received, sent * size, sent
    ignored = _message(_Kind.ECHO_REPLY, 0, bytes(16))
    return 2 * ignored + _message(_Kind.COUNTERS, number, _COUNTERS.pack(discriminator, *control, 0, 0, 0, 0))


def _message(kind: int, number: int, body: bytes) -> bytes:
    return _HEADER.pack(VERSION, kind, number, _HEADER.size + len(body)) + body
