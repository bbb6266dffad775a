"""Frames, captures and events as a lab leaves them: a client behind leaf:e1, a server behind leaf:e2."""

import struct
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from testbed.protocol import Event

CLIENT, SERVER, SWITCH = "02:00:02:00:00:01", "02:00:03:00:00:01", "02:00:01:01:00:00"
BROADCAST = "ff:ff:ff:ff:ff:ff"
ZERO = 1_767_225_610_000_000_000
"""CLOCK_REALTIME at t = 0."""
MS = 1_000_000
WRITE, ACKNOWLEDGE = 0x0A, 0x11


def mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def ethernet(src: str, dst: str, kind: int, body: bytes, *, vlan: int | None = None) -> bytes:
    tag = b"" if vlan is None else struct.pack(">HH", 0x8100, vlan)
    return mac(dst) + mac(src) + tag + struct.pack(">H", kind) + body


def arp(src: str, sender: str, target: str, *, dst: str = BROADCAST, op: int = 1, vlan: int | None = None) -> bytes:
    head = struct.pack(">HHBBH", 1, 0x0800, 6, 4, op)
    body = head + mac(src) + ip_address(sender).packed + mac(dst if op == 2 else "00" * 6) + ip_address(target).packed
    return ethernet(src, dst, 0x0806, body, vlan=vlan)


def roce(
    src: str,
    dst: str,
    ips: tuple[str, str],
    *,
    qp: int = 17,
    opcode: int = WRITE,
    psn: int = 7,
    syndrome: int = 0,
    vlan: int | None = None,
) -> bytes:
    bth = struct.pack(">BBHII", opcode, 0, 0xFFFF, qp, psn) + struct.pack(">I", syndrome << 24) + bytes(4)
    udp = struct.pack(">HHHH", 50000, 4791, 8 + len(bth), 0) + bth
    near, far = map(ip_address, ips)
    if near.version == 4:
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + near.packed + far.packed
        return ethernet(src, dst, 0x0800, ip + udp, vlan=vlan)
    ip = struct.pack(">IHBB", 6 << 28, len(udp), 17, 64) + near.packed + far.packed
    return ethernet(src, dst, 0x86DD, ip + udp, vlan=vlan)


def pcap(file: Path, packets: Sequence[tuple[int, bytes]]) -> None:
    """Write frames at times of the events, in nanoseconds, as tcpdump does it."""
    data = struct.pack("<IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1)
    for t, frame in packets:
        seconds, nanoseconds = divmod(ZERO + t, 10**9)
        data += struct.pack("<IIII", seconds, nanoseconds, len(frame), len(frame)) + frame
    file.write_bytes(data)


def event(t: int, kind: str, node: str = "", text: str = "", **data: Any) -> Event:
    return {"t": t, "kind": kind, "node": node, "text": text, "data": data}


def learned(t: int, port: str = "e2", ip: str = "10.0.20.100", of: str = SERVER) -> Event:
    return event(t, "arp.learned", "leaf", f"ARP {ip} is at {of}", vlan=20, ip=ip, mac=of, port=port, reason="request")


def row(node: str, interface: str, of: str, peer: str = "") -> dict[str, Any]:
    return {"node": node, "interface": interface, "mac": of, "peer": peer}


POD, NEXT = "10.0.20.100", "10.0.20.101"
TO_POD = ("10.0.10.2", POD)
REQUEST = arp(SERVER, POD, "10.0.20.1")
