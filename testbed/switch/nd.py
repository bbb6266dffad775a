"""
IPv6 neighbour discovery on Ethernet, to and from bytes (RFC 4861 sections 4.3 and 4.4), in terms of ARP.

A solicitation is a request and an advertisement a reply. The sender's address is the source address in a solicitation
and the target in an advertisement; BROADCAST stands for the packet's multicast group.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network

from testbed.kernel.netlink import mac_bytes
from testbed.switch.frames import BROADCAST, ETHERNET, NO_MAC, REPLY, REQUEST

ETH_P_IPV6 = 0x86DD
NEXT_HEADER_AT, TYPE_AT = 20, 54
"""Offsets in the frame, for a filter."""
ICMPV6 = 58
SOLICITATION, ADVERTISEMENT = 135, 136
ALL_NODES = IPv6Address("ff02::1")
ALL_ROUTERS = IPv6Address("ff02::2")
SOLICITED_NODES = IPv6Network("ff02::1:ff00:0/104")
"""Solicited-node multicast groups (RFC 4291 section 2.7.1)."""
NO_IP = IPv6Address(0)

_IPV6 = struct.Struct("!IHBB16s16s")  # version, class and flow; length; next header; hop limit; source; destination
_ND = struct.Struct("!BBHI16s")  # type, code, checksum, flags, target
_OPTION = struct.Struct("!BB6s")  # type, length in units of 8 bytes, MAC
_VERSION = 6 << 28
_HOP_LIMIT = 255
"""A packet that no router has forwarded has this hop limit (RFC 4861 section 7.1)."""
_ROUTER, _SOLICITED, _OVERRIDE = 1 << 31, 1 << 30, 1 << 29
_SOURCE_MAC, _TARGET_MAC = 1, 2


@dataclass(frozen=True, slots=True)
class Nd:
    op: int
    sender_mac: str
    """NO_MAC if it is not in the packet."""
    sender_ip: IPv6Address
    target_ip: IPv6Address
    """The address whose MAC is requested; of an advertisement, its destination."""
    solicited: bool = False
    override: bool = True
    """False: the advertisement asks to keep another MAC."""
    router: bool = False

    @property
    def gratuitous(self) -> bool:
        """Return whether it is an unsolicited advertisement."""
        return self.op == REPLY and not self.solicited

    @property
    def probe(self) -> bool:
        """Return whether it checks for an address in use and claims none: duplicate address detection (RFC 4862)."""
        return self.sender_ip == NO_IP

    @property
    def asker(self) -> str:
        """Return the MAC that an answer goes to: BROADCAST if the asker has no address yet."""
        return BROADCAST if self.probe else self.sender_mac


def solicited_node(ip: IPv6Address) -> IPv6Address:
    """Return the group of hosts whose address may be `ip` (RFC 4291 section 2.7.1)."""
    return IPv6Address(int(SOLICITED_NODES.network_address) | int(ip) & 0xFFFFFF)


def pack(dst: str, src: str, nd: Nd) -> bytes:
    if nd.op == REQUEST:
        kind, option, flags, source, target = SOLICITATION, _SOURCE_MAC, 0, nd.sender_ip, nd.target_ip
        to = solicited_node(target) if dst == BROADCAST else target
    else:
        kind, option, source, target, to = ADVERTISEMENT, _TARGET_MAC, nd.sender_ip, nd.sender_ip, nd.target_ip
        flags = nd.router * _ROUTER | nd.solicited * _SOLICITED | nd.override * _OVERRIDE
    options = b"" if nd.sender_mac == NO_MAC else _OPTION.pack(option, 1, mac_bytes(nd.sender_mac))
    length = _ND.size + len(options)
    checksum = _checksum(source.packed + to.packed, _ND.pack(kind, 0, 0, flags, target.packed) + options)
    mac = b"\x33\x33" + to.packed[12:] if to.is_multicast else mac_bytes(dst)  # RFC 2464 section 7
    return (
        ETHERNET.pack(mac, mac_bytes(src), ETH_P_IPV6)
        + _IPV6.pack(_VERSION, length, ICMPV6, _HOP_LIMIT, source.packed, to.packed)
        + _ND.pack(kind, 0, checksum, flags, target.packed)
        + options
    )


def parse(frame: bytes) -> tuple[IPv6Address, Nd] | None:
    """Return (destination, packet) of an untagged Ethernet frame; None for anything but a valid solicitation or
    advertisement (RFC 4861 section 7.1)."""
    body = frame[ETHERNET.size + _IPV6.size :]
    if len(body) < _ND.size or ETHERNET.unpack_from(frame)[2] != ETH_P_IPV6:
        return None
    version, length, header, hops, source, to = _IPV6.unpack_from(frame, ETHERNET.size)
    body = body[:length]
    if version >> 28 != 6 or header != ICMPV6 or hops != _HOP_LIMIT or len(body) < max(length, _ND.size):
        return None
    kind, code, _, flags, target = _ND.unpack_from(body)
    if kind not in (SOLICITATION, ADVERTISEMENT) or code or _checksum(source + to, body):
        return None
    try:
        options = dict(_options(body[_ND.size :]))
    except ValueError:
        return None
    destination = IPv6Address(to)
    if kind == SOLICITATION:
        nd = Nd(REQUEST, options.get(_SOURCE_MAC, NO_MAC), IPv6Address(source), IPv6Address(target))
        invalid = nd.target_ip.is_multicast or (nd.probe and nd.sender_mac != NO_MAC)
    else:
        solicited, override, router = (bool(flags & flag) for flag in (_SOLICITED, _OVERRIDE, _ROUTER))
        mac = options.get(_TARGET_MAC, NO_MAC)
        nd = Nd(REPLY, mac, IPv6Address(target), destination, solicited, override, router)
        invalid = nd.sender_ip.is_multicast or (solicited and destination.is_multicast)
    return None if invalid else (destination, nd)


def _options(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield (type, MAC). ValueError if the options do not fill the packet exactly."""
    while data:
        size = data[1] * 8 if len(data) > 1 else 0
        if not 0 < size <= len(data):
            raise ValueError("an option of no length, or too long")
        yield data[0], data[2:8].hex(":")
        data = data[size:]


def _checksum(addresses: bytes, body: bytes) -> int:
    """Return the ICMPv6 checksum (RFC 8200 section 8.1); 0 for a packet with a correct checksum in it."""
    data = addresses + struct.pack("!II", len(body), ICMPV6) + body + bytes(len(body) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF
