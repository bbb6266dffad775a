"""Ethernet frames of a RoCE network as fields for people: ARP, neighbour discovery, and RoCE v2 down to the AETH.

Sources: IBTA Architecture Specification 1.4 (chapter 9, annex A17) for BTH, RETH, AETH and RoCE v2; RFC 826, RFC 4861.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address

Fields = list[tuple[str, str]]

VLAN_TAGS = (0x8100, 0x88A8)
ARP, IPV4, IPV6 = 0x0806, 0x0800, 0x86DD
PAUSE = 0x8808
"""EtherType of MAC control frames: PAUSE and PFC."""
UDP, TCP, ICMP, ICMPV6 = 17, 6, 1, 58
ROCE_PORT = 4791
NEIGHBOUR = {133: "router solicitation", 134: "router advertisement", 135: "neighbour solicitation",
             136: "neighbour advertisement"}  # fmt: skip

RC_OPCODES = (
    "SEND First", "SEND Middle", "SEND Last", "SEND Last with Immediate", "SEND Only", "SEND Only with Immediate",
    "RDMA WRITE First", "RDMA WRITE Middle", "RDMA WRITE Last", "RDMA WRITE Last with Immediate", "RDMA WRITE Only",
    "RDMA WRITE Only with Immediate", "RDMA READ Request", "RDMA READ Response First", "RDMA READ Response Middle",
    "RDMA READ Response Last", "RDMA READ Response Only", "Acknowledge", "ATOMIC Acknowledge", "Compare & Swap",
    "Fetch & Add",
)  # fmt: skip
"""By the lower five bits of a BTH's opcode; the upper three are 0 for RC."""
TRANSPORTS = ("RC", "UC", "RD", "UD", "CNP", "XRC", "transport 6", "transport 7")
WITH_RETH = {"RDMA WRITE First", "RDMA WRITE Only", "RDMA WRITE Only with Immediate", "RDMA READ Request"}
WITH_AETH = {"RDMA READ Response First", "RDMA READ Response Last", "RDMA READ Response Only", "Acknowledge",
             "ATOMIC Acknowledge"}  # fmt: skip
RESPONSES = WITH_AETH | {"RDMA READ Response Middle"}
CNP = 0x81
NAKS = ("PSN sequence error", "invalid request", "remote access error", "remote operational error",
        "invalid RD request")  # fmt: skip


@dataclass(slots=True)
class Packet:
    """`kind` is arp, nd, roce, cnp, pause, tcp, icmp, udp or other; `layers` has the fields of each header."""

    src: str
    dst: str
    kind: str = "other"
    vlan: int | None = None
    source: str = ""
    target: str = ""
    """IP addresses of the packet. Of ARP and neighbour discovery: of the sender, and the one that is asked for."""
    ecn: int = 0
    text: str = ""
    layers: list[tuple[str, Fields]] = field(default_factory=list)
    detail: str = ""
    """Of RoCE what comes behind the operation, the queue pair and the PSN."""
    opcode: str = ""
    qpn: int = 0
    psn: int = 0
    nak: str = ""
    """Why a NAK was sent; of a receiver that is not ready "receiver not ready"."""
    claim: str = ""
    """The MAC that ARP or neighbour discovery says its sender's address is at."""
    reply: bool = False

    @property
    def is_request(self) -> bool:
        return self.kind == "roce" and self.opcode not in RESPONSES


def mac(data: bytes) -> str:
    return data.hex(":")


def decode(data: bytes) -> Packet:
    """The fields of a frame. A header that is cut off ends the fields, and nothing is raised."""
    packet = Packet(src=mac(data[6:12]), dst=mac(data[:6]))
    try:
        _ethernet(packet, data)
    except (IndexError, ValueError):
        packet.text = packet.text or "a frame that is cut off"
    return packet


def _number(data: bytes, at: int, size: int) -> int:
    if at + size > len(data):
        raise ValueError
    return int.from_bytes(data[at : at + size])


def _ethernet(packet: Packet, data: bytes) -> None:
    fields: Fields = [("destination", packet.dst), ("source", packet.src)]
    packet.layers.append(("Ethernet", fields))
    at, ethertype = 14, _number(data, 12, 2)
    while ethertype in VLAN_TAGS:
        tag = _number(data, at, 2)
        packet.vlan = tag & 0xFFF
        fields.append(("VLAN", f"{packet.vlan}, priority {tag >> 13}"))
        at, ethertype = at + 4, _number(data, at + 2, 2)
    fields.append(("type", f"0x{ethertype:04x}"))
    if ethertype == ARP:
        _arp(packet, data, at)
    elif ethertype == IPV4:
        _ipv4(packet, data, at)
    elif ethertype == IPV6:
        _ipv6(packet, data, at)
    elif ethertype == PAUSE:
        _pause(packet, data, at)
    else:
        packet.text = f"a frame of type 0x{ethertype:04x}"


def _arp(packet: Packet, data: bytes, at: int) -> None:
    operation = _number(data, at + 6, 2)
    sender_mac, target_mac = mac(data[at + 8 : at + 14]), mac(data[at + 18 : at + 24])
    sender = str(IPv4Address(data[at + 14 : at + 18]))
    target = str(IPv4Address(data[at + 24 : at + 28]))
    packet.kind, packet.source, packet.target = "arp", sender, target
    packet.claim, packet.reply = ("" if sender == "0.0.0.0" else sender_mac), operation == 2  # noqa: S104, an ARP probe
    if sender == target:
        packet.text = f"gratuitous ARP: {sender} is at {sender_mac}"
    elif packet.reply:
        packet.text = f"ARP reply: {sender} is at {sender_mac}"
    else:
        packet.text = f"ARP request: who has {target}? tell {sender}"
    packet.layers.append(("ARP", [
        ("operation", {1: "1, request", 2: "2, reply"}.get(operation, str(operation))), ("sender MAC", sender_mac),
        ("sender IP", sender), ("target MAC", target_mac), ("target IP", target),
    ]))  # fmt: skip


def _pause(packet: Packet, data: bytes, at: int) -> None:
    packet.kind = "pause"
    if _number(data, at, 2) != 0x0101:
        packet.text = "PAUSE"
        return
    enabled = _number(data, at + 2, 2)
    times = {f"priority {one}": _number(data, at + 4 + 2 * one, 2) for one in range(8) if enabled >> one & 1}
    packet.text = "PFC: " + ", ".join(f"{name} {'pause' if time else 'resume'}" for name, time in times.items())
    packet.layers.append(("PFC", [(name, f"{time} quanta of 512 bit times") for name, time in times.items()]))


def _ipv4(packet: Packet, data: bytes, at: int) -> None:
    words, traffic_class = _number(data, at, 1) & 0xF, _number(data, at + 1, 1)
    protocol, length = _number(data, at + 9, 1), _number(data, at + 2, 2)
    source, target = IPv4Address(data[at + 12 : at + 16]), IPv4Address(data[at + 16 : at + 20])
    _ip(packet, "IPv4", source, target, traffic_class, ttl=_number(data, at + 8, 1))
    if _number(data, at + 6, 2) & 0x1FFF:
        packet.text = f"a fragment from {source} to {target}"
    else:
        _payload(packet, protocol, data[: at + length], at + 4 * words)


def _ipv6(packet: Packet, data: bytes, at: int) -> None:
    first, length = _number(data, at, 4), _number(data, at + 4, 2)
    source, target = IPv6Address(data[at + 8 : at + 24]), IPv6Address(data[at + 24 : at + 40])
    _ip(packet, "IPv6", source, target, first >> 20 & 0xFF, ttl=_number(data, at + 7, 1))
    _payload(packet, _number(data, at + 6, 1), data[: at + 40 + length], at + 40)


def _ip(
    packet: Packet, name: str, source: IPv4Address | IPv6Address, target: IPv4Address | IPv6Address,
    traffic_class: int, ttl: int,
) -> None:  # fmt: skip
    packet.source, packet.target, packet.ecn = str(source), str(target), traffic_class & 3
    ecn = ("not ECN-capable", "ECT(1)", "ECT(0)", "CE, congestion was experienced")[packet.ecn]
    packet.layers.append((name, [
        ("source", packet.source), ("destination", packet.target), ("DSCP", str(traffic_class >> 2)), ("ECN", ecn),
        ("TTL" if name == "IPv4" else "hop limit", str(ttl)),
    ]))  # fmt: skip


def _payload(packet: Packet, protocol: int, data: bytes, at: int) -> None:
    between = f"from {packet.source} to {packet.target}"
    if protocol == ICMPV6 and (kind := _number(data, at, 1)) in NEIGHBOUR:
        _neighbour(packet, kind, data, at)
    elif protocol in (ICMP, ICMPV6):
        packet.kind, packet.text = "icmp", f"ICMP type {_number(data, at, 1)} {between}"
    elif protocol == UDP:
        source, target = _number(data, at, 2), _number(data, at + 2, 2)
        packet.layers.append(("UDP", [("source port", str(source)), ("destination port", str(target))]))
        if target == ROCE_PORT:
            _bth(packet, data, at + 8)
        else:
            packet.kind, packet.text = "udp", f"UDP {between}, port {target}"
    elif protocol == TCP:
        packet.kind, packet.text = "tcp", f"TCP {between}, port {_number(data, at + 2, 2)}"
    else:
        packet.text = f"IP protocol {protocol} {between}"


def _neighbour(packet: Packet, kind: int, data: bytes, at: int) -> None:
    packet.kind, packet.reply = "nd", kind == 136
    name = NEIGHBOUR[kind]
    if kind not in (135, 136):
        packet.text = name
        return
    target = str(IPv6Address(data[at + 8 : at + 24]))
    fields: Fields = [("type", f"{kind}, {name}"), ("target", target)]
    option, link = at + 24, ""
    while option + 8 <= len(data) and data[option + 1]:
        if data[option] in (1, 2):
            link = mac(data[option + 2 : option + 8])
            fields.append(("source link address" if data[option] == 1 else "target link address", link))
        option += 8 * data[option + 1]
    packet.claim = link
    if kind == 136:
        flags = data[at + 4]
        names = [flag for bit, flag in ((0x80, "router"), (0x40, "solicited"), (0x20, "override")) if flags & bit]
        fields.append(("flags", ", ".join(names) or "none"))
        packet.source = target
        solicited = "solicited" if flags & 0x40 else "unsolicited"
        packet.text = f"{solicited} neighbour advertisement: {target} is at {link or packet.src}"
    else:
        packet.text = f"neighbour solicitation: who has {target}? tell {packet.source}"
    packet.target = target
    packet.layers.append(("Neighbour discovery", fields))


def _bth(packet: Packet, data: bytes, at: int) -> None:
    """Base transport header and what follows it; the last four bytes of the packet are the ICRC."""
    opcode, flags = _number(data, at, 1), _number(data, at + 1, 1)
    word, sequence = _number(data, at + 4, 4), _number(data, at + 8, 4)
    packet.qpn, packet.psn = word & 0xFFFFFF, sequence & 0xFFFFFF
    transport, operation = TRANSPORTS[opcode >> 5], opcode & 0x1F
    if opcode == CNP:
        packet.kind, packet.opcode = "cnp", "CNP"
    else:
        name = RC_OPCODES[operation] if operation < len(RC_OPCODES) else f"opcode {operation}"
        packet.kind, packet.opcode = "roce", name
    shown = packet.opcode if packet.kind == "cnp" else f"{transport} {packet.opcode}"
    pad = flags >> 4 & 3
    packet.layers.append(("BTH", [
        ("opcode", f"0x{opcode:02x}, {shown}"), ("destination QP", f"{packet.qpn} (0x{packet.qpn:06x})"),
        ("PSN", str(packet.psn)), ("acknowledge request", "yes" if sequence >> 31 else "no"),
        ("solicited event", "yes" if flags >> 7 else "no"), ("migration request", "yes" if flags >> 6 & 1 else "no"),
        ("FECN, BECN", f"{word >> 31}, {word >> 30 & 1}"), ("partition key", f"0x{_number(data, at + 2, 2):04x}"),
    ]))  # fmt: skip
    packet.text, at = shown, at + 12
    if packet.opcode in WITH_RETH:
        length = _number(data, at + 12, 4)
        packet.layers.append(("RETH", [
            ("virtual address", f"0x{_number(data, at, 8):016x}"), ("remote key", f"0x{_number(data, at + 8, 4):08x}"),
            ("DMA length", f"{length} bytes"),
        ]))  # fmt: skip
        packet.detail = f"{length} bytes to be {'read' if 'READ' in packet.opcode else 'written'}"
        at += 16
    elif packet.opcode in WITH_AETH and packet.kind == "roce":
        _aeth(packet, _number(data, at, 1), _number(data, at + 1, 3))
        at += 4
    payload = len(data) - at - pad - 4
    if payload > 0 and packet.kind == "roce":
        packet.layers.append(("Payload", [("length", f"{payload} bytes")]))


def _aeth(packet: Packet, syndrome: int, msn: int) -> None:
    kind, value = syndrome >> 5, syndrome & 0x1F
    if kind == 0:
        meaning = "ACK" + ("" if value == 0x1F else f", {value} credits")
    elif kind == 1:
        packet.nak = "receiver not ready"
        meaning = f"RNR NAK, timer {value}"
    elif kind == 3:
        packet.nak = NAKS[value] if value < len(NAKS) else f"code {value}"
        meaning = f"NAK: {packet.nak}"
    else:
        meaning = "reserved"
    packet.layers.append(("AETH", [("syndrome", f"0x{syndrome:02x}, {meaning}"), ("MSN", str(msn))]))
    packet.detail = meaning
