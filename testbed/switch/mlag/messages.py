"""
What the two switches of a pair send each other: frames of IEEE's EtherType for local experiments.

A hello each second; between hellos the changes of tables and port channels, numbered, in frames with several records.
The first byte tells them apart.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address

from testbed.kernel.netlink import mac_bytes
from testbed.topology.plan import IPAddress

ETHERTYPE = 0x88B5
"""IEEE 802, table 5: Local Experimental EtherType 1."""
GROUP = "01:80:c2:00:00:0e"
"""The address of all neighbours on a link (IEEE 802.1Q, table 8-1): no bridge forwards it."""
HELLO, SYNC = 0, 1
"""The first byte."""
LONGEST = 1400
"""Bytes of records in a frame."""
_HELLO = struct.Struct("!B6sIIIII")  # kind, system, number, session, session of the other, last, acknowledged
_SYNC = struct.Struct("!BII")  # kind, session, sequence
_CHANNEL = struct.Struct("!BHB")  # 1, number, up
_MAC = struct.Struct("!BH6sHB")  # 2, VLAN, MAC, number of the port channel, present
_NEIGHBOUR = struct.Struct("!BH6sB")  # 4 or 6, VLAN, MAC, length of the address, which follows
_CHANNEL_RECORD, _MAC_RECORD = 1, 2


@dataclass(frozen=True, slots=True)
class Hello:
    system: str
    number: int
    """The sender's own: the lower of the two is active."""
    session: int
    hears: int
    """The session of the other switch as the sender hears it; 0: it hears none."""
    last: int
    """The number of the last sync frame of its session."""
    received: int
    """The number of the other's last sync frame up to which it has all."""


@dataclass(frozen=True, slots=True)
class Sync:
    session: int
    sequence: int
    records: bytes


@dataclass(frozen=True, slots=True)
class Channel:
    """A port channel of the sender, by the number that both know, is up or down."""

    number: int
    up: bool


@dataclass(frozen=True, slots=True)
class Mac:
    """The sender has seen a MAC behind a port channel of both, or on a port of its own (0), or sees it no longer."""

    vlan: int
    mac: str
    channel: int
    present: bool


@dataclass(frozen=True, slots=True)
class Neighbour:
    """The sender has heard that an address is at a MAC."""

    vlan: int
    ip: IPAddress
    mac: str


Record = Channel | Mac | Neighbour


def pack_hello(hello: Hello) -> bytes:
    numbers = hello.number, hello.session, hello.hears, hello.last, hello.received
    return _HELLO.pack(HELLO, mac_bytes(hello.system), *numbers)


def pack_sync(sync: Sync) -> bytes:
    return _SYNC.pack(SYNC, sync.session, sync.sequence) + sync.records


def unpack(payload: bytes) -> Hello | Sync | None:
    """Read a frame's payload; None for another protocol's."""
    if len(payload) >= _HELLO.size and payload[0] == HELLO:
        _, system, *numbers = _HELLO.unpack_from(payload)
        return Hello(system.hex(":"), *numbers)
    if len(payload) >= _SYNC.size and payload[0] == SYNC:
        _, session, sequence = _SYNC.unpack_from(payload)
        return Sync(session, sequence, payload[_SYNC.size :])
    return None


def pack_records(records: Iterable[Record]) -> Iterator[bytes]:
    """Yield the records of one frame after the other."""
    body = b""
    for packed in map(_pack, records):
        if len(body) + len(packed) > LONGEST:
            yield body
            body = b""
        body += packed
    if body:
        yield body


def _pack(record: Record) -> bytes:
    match record:
        case Channel(number, up):
            return _CHANNEL.pack(_CHANNEL_RECORD, number, up)
        case Mac(vlan, mac, channel, present):
            return _MAC.pack(_MAC_RECORD, vlan, mac_bytes(mac), channel, present)
        case Neighbour(vlan, ip, mac):
            return _NEIGHBOUR.pack(ip.version, vlan, mac_bytes(mac), len(ip.packed)) + ip.packed


def unpack_records(body: bytes) -> Iterator[Record]:
    """Yield records; what pads a short frame to Ethernet's minimum is zeros, and no record."""
    at = 0
    while at < len(body) and (kind := body[at]):
        if kind == _CHANNEL_RECORD:
            _, number, up = _CHANNEL.unpack_from(body, at)
            yield Channel(number, bool(up))
            at += _CHANNEL.size
        elif kind == _MAC_RECORD:
            _, vlan, mac, number, present = _MAC.unpack_from(body, at)
            yield Mac(vlan, mac.hex(":"), number, bool(present))
            at += _MAC.size
        else:
            _, vlan, mac, length = _NEIGHBOUR.unpack_from(body, at)
            at += _NEIGHBOUR.size + length
            yield Neighbour(vlan, ip_address(body[at - length : at]), mac.hex(":"))
