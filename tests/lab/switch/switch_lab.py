"""What the tests of a switch share: leaf.clab.yml's addresses, frames that hosts send, what ports and tables show."""

import socket
from ipaddress import IPv4Address

from testbed import Lab
from testbed.lab import Host, Node
from testbed.lab.capture import Capture, Frame
from testbed.switch.frames import BROADCAST, NO_MAC, REQUEST, Arp, pack, parse

LEAF = "leaf.clab.yml"
A, B, C = "10.0.10.2", "10.0.20.2", "10.0.20.3"
SVI_10, SVI_20 = "10.0.10.1", "10.0.20.1"
NOBODY = "10.0.20.77"

EXPERIMENTAL = b"\x88\xb5"
"""EtherType of IEEE 802 for local experiments: no kernel reacts to it."""
EXACT_S = 0.02
"""What a deadline of the control plane may be late."""


def ethernet(dst: str, src: str, payload: bytes = EXPERIMENTAL) -> bytes:
    return bytes.fromhex((dst + src).replace(":", "")) + payload.ljust(48, b"\0")


def send(host: Host, *frames: bytes) -> None:
    with host.entered(), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as wire:
        wire.bind(("eth1", 0))
        for frame in frames:
            wire.send(frame)


def send_udp(host: Host, ip: str, count: int, *, dscp: int = 0) -> None:
    with host.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
        for _ in range(count):
            udp.sendto(b"data", (ip, 9))


def request(host: Host, target: str) -> bytes:
    """A host's broadcast question for the MAC of `target`."""
    mac, ip = host["eth1"].mac, host["eth1"].address().ip
    return pack(BROADCAST, mac, Arp(REQUEST, mac, ip, NO_MAC, IPv4Address(target)))


def captured(capture: Capture) -> list[Frame]:
    capture.stop()
    return list(capture.frames())


def arps(capture: Capture, op: int, sender_mac: str) -> list[Arp]:
    found = [parse(frame.data) for frame in captured(capture)]
    return [arp for arp in found if arp is not None and (arp.op, arp.sender_mac) == (op, sender_mac)]


def svi_mac(lab: Lab) -> str:
    return lab.switch("leaf").svi_mac()


def know_the_gateways(lab: Lab) -> None:
    """The hosts ask for nothing by themselves: what ARP there is on the wire is the switch's."""
    for name in "abcd":
        interface = lab.host(name)["eth1"]
        interface.set_neighbour(interface.gateway(), svi_mac(lab))


def arp_row(lab: Lab, ip: str) -> dict | None:
    return next((row for row in lab.switch("leaf").tables()["arp"] if row["ip"] == ip), None)


def kernel_neighbours(node: Node) -> dict[str, str | None]:
    with node.entered():
        return {entry.get_attr("NDA_DST"): entry.get_attr("NDA_LLADDR") for entry in node.ip.get_neighbours(family=2)}


def seconds(first: dict, then: dict) -> float:
    return (then["t"] - first["t"]) / 1e9


def only(events: list[dict]) -> dict:
    (event,) = events
    return event
