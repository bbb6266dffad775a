"""Ethernet frames, decoded: ARP, PAUSE and PFC, IP, neighbour discovery, ICMP about RoCE, and RoCE v2 down to the AETH.

Sources: RFC 826 and 5227 (ARP), RFC 4861 (neighbour discovery), RFC 792 and 4443 (ICMP), IEEE 802.1Q (tags, PFC),
InfiniBand Architecture Specification 1.4, volume 1, chapter 9 and annex A17 (RoCE v2).
"""

from dataclasses import dataclass
from struct import Struct, error
from typing import Literal, NamedTuple

TAGS = (0x8100, 0x88A8)
ARP, IPV4, IPV6, MAC_CONTROL = 0x0806, 0x0800, 0x86DD, 0x8808
ICMP, TCP, UDP, ICMPV6 = 1, 6, 17, 58
PFC = 0x0101
SOLICITATION, ADVERTISEMENT = 135, 136
UNREACHABLE, V6_UNREACHABLE, V6_TOO_LARGE = 3, 1, 2
"""Types of ICMP, and of ICMPv6."""
TOO_LARGE, PORT = "too large", "port"
REASONS = {0: "no route", 1: "host", 2: "protocol", 3: PORT, 4: TOO_LARGE, 13: "prohibited"}
V6_REASONS = {0: "no route", 1: "prohibited", 3: "host", 4: PORT}
"""Why a packet was not sent on, by the code (RFC 792, 1812, 4443)."""
FLAGS = ((0x80, "router"), (0x40, "solicited"), (0x20, "override"))
ROCE_PORT = 4791
ICRC = 4
CNP = 0x81
TRANSPORTS = ("RC", "UC", "RD", "UD", "CNP", "XRC", "transport 6", "transport 7")
"""Transports by the upper three bits of an opcode."""
OPERATIONS = (
    "SEND First", "SEND Middle", "SEND Last", "SEND Last with Immediate", "SEND Only", "SEND Only with Immediate",
    "RDMA WRITE First", "RDMA WRITE Middle", "RDMA WRITE Last", "RDMA WRITE Last with Immediate", "RDMA WRITE Only",
    "RDMA WRITE Only with Immediate", "RDMA READ Request", "RDMA READ Response First", "RDMA READ Response Middle",
    "RDMA READ Response Last", "RDMA READ Response Only", "Acknowledge", "ATOMIC Acknowledge", "Compare & Swap",
    "Fetch & Add",
)  # fmt: skip
"""Operations by the lower five bits of an opcode."""
WITH_RETH, WITH_AETH, RESPONSES = {0x06, 0x0A, 0x0B, 0x0C}, {0x0D, 0x0F, 0x10, 0x11, 0x12}, range(0x0D, 0x13)
RC_REQUESTS = {*range(0x0D), 0x13, 0x14, 0x16, 0x17}
"""Opcodes of a reliable connection: SEND, WRITE, READ request, atomics and SEND with invalidate."""
NAKS = (
    "PSN sequence error",
    "invalid request",
    "remote access error",
    "remote operational error",
    "invalid RD request",
)
"""NAKs by the lower five bits of a syndrome."""

_TYPE, _TAG = Struct("!H"), Struct("!HH")
_ARP, _ARP_OF_IPV4 = Struct("!6sH6s4s6s4s"), b"\x00\x01\x08\x00\x06\x04"
_PFC, _IPV4, _IPV6 = Struct("!HH8H"), Struct("!BBH2xHBB2x4s4s"), Struct("!IHBB16s16s")
_PORTS, _ICMP, _NEIGHBOUR = Struct("!HH"), Struct("!B"), Struct("!B3xB3x16s")
_BTH, _RETH, _AETH = Struct("!BBHII"), Struct("!QII"), Struct("!I")
_REFUSED, _V6_REFUSED = Struct("!BB4xH"), Struct("!BB2xI")
_QUOTED, _V6_QUOTED = Struct("!B8xB6x4s"), Struct("!6xB17x16s")


class Resolution(NamedTuple):
    """An ARP packet, or a neighbour solicitation or advertisement. `mac` is the sender's in the packet, empty if there
    is none; `sender` is the address that it claims, and `target` the one that it asks for."""

    protocol: Literal["arp", "nd"]
    asks: bool
    mac: bytes
    sender: bytes
    target: bytes
    target_mac: bytes = b""
    """The target's MAC, only in ARP."""
    flags: tuple[str, ...] = ()
    """Flags of an advertisement: router, solicited, override."""

    @property
    def gratuitous(self) -> bool:
        """True for an ARP claim that nobody asked for. An advertisement has flags for it, which a copy may lack."""
        return self.protocol == "arp" and self.sender == self.target and any(self.sender)


class Refusal(NamedTuple):
    """An ICMP message about a RoCE packet to `target` that was not sent on. `mtu` is set where it was too large."""

    reason: str
    target: bytes
    mtu: int | None


@dataclass(slots=True)
class Roce:
    """A RoCE v2 packet to queue pair `qp`; `payload` is a length in bytes, and flags are 0 or 1."""

    qp: int
    opcode: int
    psn: int
    partition_key: int = 0xFFFF
    acknowledge: int = 0
    solicited: int = 0
    migration: int = 0
    fecn: int = 0
    becn: int = 0
    reth: tuple[int, int, int] | None = None
    """Virtual address, remote key, length."""
    syndrome: int | None = None
    acknowledgement: str = ""
    """The syndrome in words."""
    nak: str = ""
    """The reason of a negative acknowledgement; empty if it is none."""
    msn: int = 0
    payload: int = 0

    @property
    def request(self) -> bool:
        return self.opcode in RC_REQUESTS

    @property
    def response(self) -> bool:
        """True for a response of any transport."""
        return self.opcode & 0x1F in RESPONSES

    @property
    def name(self) -> str:
        operation = self.opcode & 0x1F
        name = OPERATIONS[operation] if operation < len(OPERATIONS) else f"opcode {operation}"
        return "CNP" if self.opcode == CNP else f"{TRANSPORTS[self.opcode >> 5]} {name}"


@dataclass(slots=True)
class Frame:
    """A frame as far as it is known and not cut off. Addresses are in wire format."""

    dst: bytes
    src: bytes
    ethertype: int | None = None
    tags: tuple[tuple[int, int], ...] = ()
    """VLAN and priority, the outer ones first."""
    pfc: dict[int, int] | None = None
    """Quanta of pause by priority; 0 resumes it."""
    ip: tuple[bytes, bytes] | None = None
    """Source and destination."""
    dscp: int = 0
    ecn: int = 0
    ttl: int = 0
    """TTL of IPv4, or hop limit of IPv6."""
    protocol: int | None = None
    """Protocol of an IP packet; None in a later fragment."""
    ports: tuple[int, int] | None = None
    """Source and destination of UDP or TCP."""
    icmp: int | None = None
    """Type of an ICMP or ICMPv6 packet."""
    resolution: Resolution | None = None
    refusal: Refusal | None = None
    roce: Roce | None = None
    cut: bool = False


def decode(data: bytes) -> Frame:
    """Decode a frame; cut off and unknown parts are left out."""
    frame, at = Frame(data[:6], data[6:12]), 14
    try:
        [frame.ethertype] = _TYPE.unpack_from(data, 12)
        while frame.ethertype in TAGS:
            tag, frame.ethertype = _TAG.unpack_from(data, at)
            at, frame.tags = at + _TAG.size, (*frame.tags, (tag & 0xFFF, tag >> 13))
        if reader := _READERS.get(frame.ethertype):
            reader(frame, data, at)
    except error:
        frame.cut = True
    return frame


def _arp(frame: Frame, data: bytes, at: int) -> None:
    kind, operation, mac, sender, target_mac, target = _ARP.unpack_from(data, at)
    if kind == _ARP_OF_IPV4 and operation in (1, 2):
        frame.resolution = Resolution("arp", operation == 1, mac, sender, target, target_mac)


def _mac_control(frame: Frame, data: bytes, at: int) -> None:
    operation, enabled, *quanta = _PFC.unpack_from(data, at)
    if operation == PFC:
        frame.pfc = {priority: quanta[priority] for priority in range(8) if enabled >> priority & 1}


def _ipv4(frame: Frame, data: bytes, at: int) -> None:
    words, traffic_class, length, offset, ttl, protocol, source, target = _IPV4.unpack_from(data, at)
    frame.ip, frame.dscp, frame.ecn, frame.ttl = (source, target), traffic_class >> 2, traffic_class & 3, ttl
    if not offset & 0x1FFF:
        _payload(frame, protocol, data[: at + length], at + (words & 0xF) * 4)


def _ipv6(frame: Frame, data: bytes, at: int) -> None:
    first, length, protocol, ttl, source, target = _IPV6.unpack_from(data, at)
    frame.ip, frame.dscp, frame.ecn, frame.ttl = (source, target), first >> 22 & 0x3F, first >> 20 & 3, ttl
    _payload(frame, protocol, data[: at + _IPV6.size + length], at + _IPV6.size)


_READERS = {ARP: _arp, IPV4: _ipv4, IPV6: _ipv6, MAC_CONTROL: _mac_control}


def _payload(frame: Frame, protocol: int, data: bytes, at: int) -> None:
    frame.protocol = protocol
    if protocol in (UDP, TCP):
        frame.ports = _PORTS.unpack_from(data, at)
        if protocol == UDP and frame.ports[1] == ROCE_PORT:
            _roce(frame, data, at + 8)
    elif protocol in (ICMP, ICMPV6):
        [frame.icmp] = _ICMP.unpack_from(data, at)
        if protocol == ICMPV6 and frame.icmp in (SOLICITATION, ADVERTISEMENT):
            _neighbour(frame, data, at)
        elif protocol == ICMP and frame.icmp == UNREACHABLE:
            _refused(frame, data, at)
        elif protocol == ICMPV6 and frame.icmp in (V6_UNREACHABLE, V6_TOO_LARGE):
            _refused_v6(frame, data, at)


def _refused(frame: Frame, data: bytes, at: int) -> None:
    _, code, mtu = _REFUSED.unpack_from(data, at)
    words, protocol, target = _QUOTED.unpack_from(data, at + _REFUSED.size)
    _, port = _PORTS.unpack_from(data, at + _REFUSED.size + (words & 0xF) * 4)
    if (protocol, port) == (UDP, ROCE_PORT) and code in REASONS:
        frame.refusal = Refusal(REASONS[code], target, mtu if REASONS[code] == TOO_LARGE else None)


def _refused_v6(frame: Frame, data: bytes, at: int) -> None:
    kind, code, mtu = _V6_REFUSED.unpack_from(data, at)
    protocol, target = _V6_QUOTED.unpack_from(data, at + _V6_REFUSED.size)
    _, port = _PORTS.unpack_from(data, at + _V6_REFUSED.size + _IPV6.size)
    large = kind == V6_TOO_LARGE
    reason = TOO_LARGE if large else V6_REASONS.get(code, "")
    if (protocol, port) == (UDP, ROCE_PORT) and reason:
        frame.refusal = Refusal(reason, target, mtu if large else None)


def _neighbour(frame: Frame, data: bytes, at: int) -> None:
    """Decode a claim: an advertisement claims its target, a solicitation its source for the MAC that it names."""
    kind, bits, target = _NEIGHBOUR.unpack_from(data, at)
    asks, mac = kind == SOLICITATION, b""
    at += _NEIGHBOUR.size
    while at + 8 <= len(data) and data[at + 1]:
        if data[at] == (1 if asks else 2):
            mac = data[at + 2 : at + 8]
        at += data[at + 1] * 8
    sender = frame.ip[0] if asks and frame.ip else target
    flags = () if asks else tuple(name for bit, name in FLAGS if bits & bit)
    frame.resolution = Resolution("nd", asks, mac, sender, target, flags=flags)


def _roce(frame: Frame, data: bytes, at: int) -> None:
    opcode, flags, key, qp, psn = _BTH.unpack_from(data, at)
    at, operation = at + _BTH.size, opcode & 0x1F
    roce = frame.roce = Roce(
        qp & 0xFFFFFF, opcode, psn & 0xFFFFFF, key, psn >> 31, flags >> 7, flags >> 6 & 1, qp >> 31, qp >> 30 & 1
    )
    if operation in WITH_RETH:
        roce.reth = _RETH.unpack_from(data, at)
        at += _RETH.size
    elif operation in WITH_AETH:
        [word] = _AETH.unpack_from(data, at)
        roce.syndrome, roce.msn = word >> 24, word & 0xFFFFFF
        roce.acknowledgement, roce.nak = _acknowledgement(word >> 29, word >> 24 & 0x1F)
        at += _AETH.size
    padding = flags >> 4 & 3
    roce.payload = max(0, len(data) - at - padding - ICRC)


def _acknowledgement(kind: int, value: int) -> tuple[str, str]:
    """Return a syndrome in words, and the reason if it is a negative one."""
    if kind == 0:
        return "ACK" if value == 0x1F else f"ACK, {value} credits", ""
    if kind == 1:
        return f"RNR NAK, timer {value}", "receiver not ready"
    if kind == 3:
        reason = NAKS[value] if value < len(NAKS) else f"code {value}"
        return f"NAK: {reason}", reason
    return "reserved", ""
