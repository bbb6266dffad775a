"""Ethernet frames, decoded as far as events name what is in them: ARP, neighbour discovery, RoCE v2, addresses of IP.

Sources: RFC 826 and 5227 (ARP), RFC 4861 (neighbour discovery), IEEE 802.1Q (tags), InfiniBand Architecture
Specification volume 1, section 9 and annex A17 (RoCE v2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TAGS = (b"\x81\x00", b"\x88\xa8")
ARP, IPV4, IPV6 = b"\x08\x06", b"\x08\x00", b"\x86\xdd"
UDP, ICMPV6 = 17, 58
SOLICITATION, ADVERTISEMENT = 135, 136
ROCE_PORT = (4791).to_bytes(2)
ACKNOWLEDGE, CNP = 0x11, 0x81
RC_REQUESTS = {*range(0x0D), 0x13, 0x14, 0x16, 0x17}
"""SEND, WRITE, READ request, atomics and SEND with invalidate of a reliable connection."""
NAKS = {
    0: "PSN sequence error", 1: "invalid request", 2: "remote access error", 3: "remote operational error",
    4: "invalid RD request",
}  # fmt: skip
"""By the lower bits of the syndrome."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """An ARP packet, or a neighbour solicitation or advertisement. `mac` is the sender's as the packet has it, empty
    where it names none; `sender` is the address that it claims, and `target` the one it asks for."""

    protocol: Literal["arp", "nd"]
    asks: bool
    mac: bytes
    sender: bytes
    target: bytes

    @property
    def gratuitous(self) -> bool:
        """A claim that nobody asked for. Of ARP only: an advertisement says so in flags that a copy may lack."""
        return self.protocol == "arp" and self.sender == self.target and any(self.sender)


@dataclass(frozen=True, slots=True)
class Roce:
    """A RoCE v2 packet to queue pair `qp`; `syndrome` is that of an acknowledgement."""

    qp: int
    opcode: int
    psn: int
    syndrome: int | None

    @property
    def request(self) -> bool:
        return self.opcode in RC_REQUESTS

    @property
    def nak(self) -> str:
        """Why it is a negative acknowledgement; empty if it is none."""
        if self.syndrome is None:
            return ""
        match self.syndrome >> 5 & 3:
            case 1:
                return "receiver not ready"
            case 3:
                return NAKS.get(self.syndrome & 0x1F, f"code {self.syndrome & 0x1F}")
        return ""


@dataclass(frozen=True, slots=True)
class Frame:
    """`ip` is the source and the destination of an IP packet. Addresses are as they are on the wire."""

    dst: bytes
    src: bytes
    ip: tuple[bytes, bytes] | None = None
    resolution: Resolution | None = None
    roce: Roce | None = None


def decode(data: bytes) -> Frame | None:
    """None for what is too short to be a frame; what is cut off or unknown inside is left out."""
    start = 12
    while data[start : start + 2] in TAGS:
        start += 4
    if len(data) < start + 2:
        return None
    dst, src, kind, body = data[:6], data[6:12], data[start : start + 2], start + 2
    if kind == ARP:
        return Frame(dst, src, resolution=_arp(data[body : body + 28]))
    if kind == IPV4 and len(data) >= body + 20:
        ip = data[body + 12 : body + 16], data[body + 16 : body + 20]
        whole = not (data[body + 6] & 0x1F or data[body + 7])  # a later fragment has no header of UDP
        inner = body + (data[body] & 0xF) * 4
        return Frame(dst, src, ip, roce=_roce(data, inner) if whole and data[body + 9] == UDP else None)
    if kind == IPV6 and len(data) >= body + 40:
        ip, inner = (data[body + 8 : body + 24], data[body + 24 : body + 40]), body + 40
        if data[body + 6] == ICMPV6:
            return Frame(dst, src, ip, resolution=_nd(ip[0], data[inner:]))
        return Frame(dst, src, ip, roce=_roce(data, inner) if data[body + 6] == UDP else None)
    return Frame(dst, src)


def _arp(packet: bytes) -> Resolution | None:
    ethernet_and_ipv4 = b"\x00\x01\x08\x00\x06\x04"
    if len(packet) < 28 or packet[:6] != ethernet_and_ipv4:
        return None
    return Resolution("arp", packet[6:8] == b"\x00\x01", packet[8:14], packet[14:18], packet[24:28])


def _nd(source: bytes, packet: bytes) -> Resolution | None:
    """An advertisement claims its target; a solicitation claims its source for the MAC that it names."""
    if len(packet) < 24 or packet[0] not in (SOLICITATION, ADVERTISEMENT):
        return None
    asks, target, options = packet[0] == SOLICITATION, packet[8:24], packet[24:]
    wanted, mac = 1 if asks else 2, b""
    while len(options) >= 8 and options[1]:
        if options[0] == wanted:
            mac = options[2:8]
        options = options[options[1] * 8 :]
    return Resolution("nd", asks, mac, source if asks else target, target)


def _roce(data: bytes, udp: int) -> Roce | None:
    if data[udp + 2 : udp + 4] != ROCE_PORT or len(data) < udp + 20:
        return None
    bth = udp + 8
    opcode = data[bth]
    syndrome = data[bth + 12] if opcode == ACKNOWLEDGE and len(data) > bth + 12 else None
    return Roce(int.from_bytes(data[bth + 5 : bth + 8]), opcode, int.from_bytes(data[bth + 9 : bth + 12]), syndrome)
