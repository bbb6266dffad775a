"""BFD control packets (RFC 5880 section 4.1), and the UDP packets that carry them (RFC 5881 section 4)."""

import struct
from dataclasses import dataclass
from enum import IntEnum

from testbed.kernel.bfd.offload import HOPS, PORT
from testbed.topology import IPAddress

VERSION = 1
_PACKET = struct.Struct("!BBBBIIIII")
_AUTHENTICATED = _PACKET.size + 2
"""The shortest packet with an authentication section."""
_POLL, _FINAL, _CPI, _AUTHENTICATION, _DEMAND, _MULTIPOINT = (1 << bit for bit in (5, 4, 3, 2, 1, 0))
_UDP = struct.Struct("!HHHH")
_IPV4 = struct.Struct("!BBHHHBBH4s4s")
_IPV6 = struct.Struct("!IHBB16s16s")
_UDP_PROTOCOL = 17
CS6 = 48 << 2
"""The traffic class of network control (RFC 4594 section 3.1), as FRR sets it."""


class State(IntEnum):
    ADMIN_DOWN, DOWN, INIT, UP = range(4)

    def __str__(self) -> str:
        return self.name.lower().replace("_", "-")


DIAGNOSTICS = (
    "no diagnostic",
    "control detection time expired",
    "echo function failed",
    "neighbor signaled session down",
    "forwarding plane reset",
    "path down",
    "concatenated path down",
    "administratively down",
    "reverse concatenated path down",
)
"""Names of the diagnostic codes, from 0."""
NO_DIAGNOSTIC, DETECTION_EXPIRED, NEIGHBOUR_DOWN, ADMINISTRATIVELY_DOWN = 0, 1, 3, 7


@dataclass(frozen=True, slots=True)
class ControlPacket:
    """A packet without authentication. Times are in microseconds."""

    state: State
    diagnostic: int
    multiplier: int
    mine: int
    """The sender's discriminator."""
    yours: int
    desired_tx: int
    required_rx: int
    required_echo_rx: int = 0
    poll: bool = False
    final: bool = False
    control_plane_independent: bool = False
    demand: bool = False

    def pack(self) -> bytes:
        bits = self.poll * _POLL | self.final * _FINAL | self.control_plane_independent * _CPI | self.demand * _DEMAND
        first = VERSION << 5 | self.diagnostic, self.state << 6 | bits, self.multiplier, _PACKET.size
        times = self.desired_tx, self.required_rx, self.required_echo_rx
        return _PACKET.pack(*first, self.mine, self.yours, *times)


def parse(data: bytes) -> ControlPacket | None:
    """Return the packet; None for one that a receiver discards whatever its session, or that is authenticated (RFC 5880
    section 6.8.6)."""
    if len(data) < _PACKET.size:
        return None
    version, bits, multiplier, length, mine, yours, *times = _PACKET.unpack_from(data)
    state = State(bits >> 6)
    if version >> 5 != VERSION or not _PACKET.size <= length <= len(data) or bits & (_AUTHENTICATION | _MULTIPOINT):
        return None
    if not multiplier or not mine or (not yours and state > State.DOWN):
        return None
    flags = (bool(bits & flag) for flag in (_POLL, _FINAL, _CPI, _DEMAND))
    return ControlPacket(state, version & 0x1F, multiplier, mine, yours, *times, *flags)


def datagram(source: IPAddress, to: IPAddress, source_port: int, data: bytes) -> bytes:
    """Return the IP packet with `data` for a single-hop session."""
    length = _UDP.size + len(data)
    addresses = source.packed + to.packed
    pseudo = addresses + struct.pack("!IHH", length, 0, _UDP_PROTOCOL)
    udp = _UDP.pack(source_port, PORT, length, 0) + data
    udp = _UDP.pack(source_port, PORT, length, _checksum(pseudo + udp) or 0xFFFF) + data
    if source.version == 6:
        return _IPV6.pack(6 << 28 | CS6 << 20, length, _UDP_PROTOCOL, HOPS, source.packed, to.packed) + udp
    fields = 0x45, CS6, _IPV4.size + length, 0, 0, HOPS, _UDP_PROTOCOL
    header = _IPV4.pack(*fields, 0, source.packed, to.packed)
    return _IPV4.pack(*fields, _checksum(header), source.packed, to.packed) + udp


def _checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    data += bytes(len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF
