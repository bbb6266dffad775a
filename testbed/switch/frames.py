"""ARP on Ethernet, to and from bytes (RFC 826), with struct only: a packet library's import is too slow in a guest."""

import struct
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import ClassVar

from testbed.kernel.netlink import mac_bytes

ETH_P_ARP = 0x0806
REQUEST = 1
REPLY = 2
BROADCAST = "ff:ff:ff:ff:ff:ff"
NO_MAC = "00:00:00:00:00:00"
NO_IP = IPv4Address(0)

ETHERNET = struct.Struct("!6s6sH")
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_ARP_ON_ETHERNET = (1, 0x0800, 6, 4)  # hardware type, protocol type, address lengths


@dataclass(frozen=True, slots=True)
class Arp:
    op: int
    sender_mac: str
    sender_ip: IPv4Address
    target_mac: str
    target_ip: IPv4Address
    override: ClassVar = True
    """Claims an address whatever is known of it; an IPv6 advertisement may leave that out."""

    @property
    def gratuitous(self) -> bool:
        """Return whether sender and target are one address, in a request or a reply (RFC 5227 section 3)."""
        return self.sender_ip == self.target_ip

    @property
    def probe(self) -> bool:
        """Return whether it checks for an address in use and claims none (RFC 5227 section 1.1)."""
        return self.sender_ip == NO_IP

    @property
    def asker(self) -> str:
        """Return the MAC that an answer goes to."""
        return self.sender_mac


def pack(dst: str, src: str, arp: Arp) -> bytes:
    sender = mac_bytes(arp.sender_mac), arp.sender_ip.packed
    target = mac_bytes(arp.target_mac), arp.target_ip.packed
    header = ETHERNET.pack(mac_bytes(dst), mac_bytes(src), ETH_P_ARP)
    return header + _ARP.pack(*_ARP_ON_ETHERNET, arp.op, *sender, *target)


def parse(frame: bytes) -> Arp | None:
    """Return the ARP packet of an untagged Ethernet frame; None for anything but an IPv4 ARP request or reply."""
    if len(frame) < ETHERNET.size + _ARP.size or ETHERNET.unpack_from(frame)[2] != ETH_P_ARP:
        return None
    *kind, op, sender_mac, sender_ip, target_mac, target_ip = _ARP.unpack_from(frame, ETHERNET.size)
    if tuple(kind) != _ARP_ON_ETHERNET or op not in (REQUEST, REPLY):
        return None
    return Arp(op, sender_mac.hex(":"), IPv4Address(sender_ip), target_mac.hex(":"), IPv4Address(target_ip))


def unicast(mac: str) -> bool:
    """Return whether one station can own this address: neither a group address nor all zeros."""
    return mac != NO_MAC and not int(mac[:2], 16) & 1
