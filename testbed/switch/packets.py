"""ARP and neighbour discovery in one form: the same requests and answers for addresses of both families."""

from ipaddress import IPv4Address, IPv6Address

from testbed.switch import frames, nd
from testbed.switch.frames import BROADCAST, NO_MAC, REPLY, REQUEST, Arp
from testbed.switch.nd import ALL_NODES, Nd
from testbed.topology.plan import Family, IPAddress

Packet = Arp | Nd
PROTOCOLS: dict[Family, str] = {4: "arp", 6: "nd"}
"""The name of a family's packets and events."""


def request(mac: str, ip: IPAddress, target: IPAddress) -> Packet:
    """Make the request of `ip` at `mac` for `target`, an address of the same family."""
    if isinstance(ip, IPv4Address) and isinstance(target, IPv4Address):
        return Arp(REQUEST, mac, ip, NO_MAC, target)
    assert isinstance(ip, IPv6Address)
    assert isinstance(target, IPv6Address)
    return Nd(REQUEST, mac, ip, target)


def answer(asked: Packet, mac: str, *, proxied: bool = False) -> Packet:
    """Answer as a router: for its own address, or as a proxy without the override flag (RFC 4861 section 7.2.8)."""
    if isinstance(asked, Arp):
        return Arp(REPLY, mac, asked.target_ip, asked.sender_mac, asked.sender_ip)
    to = ALL_NODES if asked.probe else asked.sender_ip
    return Nd(REPLY, mac, asked.target_ip, to, solicited=not asked.probe, override=not proxied, router=True)


def announcement(mac: str, ip: IPAddress, *, router: bool) -> Packet:
    """Announce one's own address to all: a request for itself (RFC 5227 section 3), or an unsolicited advertisement
    (RFC 4861 section 7.2.6)."""
    if isinstance(ip, IPv4Address):
        return Arp(REQUEST, mac, ip, NO_MAC, ip)
    return Nd(REPLY, mac, ip, ALL_NODES, router=router)


def pack(dst: str, src: str, packet: Packet) -> bytes:
    return frames.pack(dst, src, packet) if isinstance(packet, Arp) else nd.pack(dst, src, packet)


def gratuitous(mac: str, ip: IPAddress) -> bytes:
    """Return the frame by which a host announces its address: gratuitous ARP, or an unsolicited advertisement."""
    return pack(BROADCAST, mac, announcement(mac, ip, router=False))
