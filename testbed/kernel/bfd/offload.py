"""
What the ports of a switch do for its BFD sessions: they send the packets and check the peers' (bpf/bfd.bpf.c).

The control plane starts a session with the packet to send and the one to expect. It hears of any other packet, and of a
detection time that is over; until then nothing wakes it. The sessions are in memory shared with the kernel.
"""

import contextlib
import ctypes
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

from testbed.kernel.bpf import BpfObject
from testbed.kernel.c_header import CHeader
from testbed.kernel.rtnetlink import Rtnetlink
from testbed.topology import IPAddress

OBJECT = Path(__file__).with_name("bfd.o")
HEADER = CHeader(Path(__file__).parent / "bpf" / "layout.h")
PORT = 3784
"""UDP port of single-hop sessions (RFC 5881 section 4)."""
PACKET = HEADER.constants["PACKET"]
"""Bytes of a control packet."""
SESSIONS = 128
"""Sessions of a switch."""
SWITCHES = HEADER.constants["SLOTS"] // SESSIONS
_LO, _LO_INDEX = "lo", 1
ETH_P = {4: 0x0800, 6: 0x86DD}
"""EtherTypes by IP version."""
HOPS = HEADER.constants["HOPS"]
_TEMPLATE = struct.Struct("=4sHHIH")  # mark, slot, unused, generation: the MACs; EtherType
_MARK = b"\x02BFD"
_SO_COOKIE = 57
_IP_TTL, _IP_PKTINFO, _IP_RECVTTL = 2, 8, 12
_INTERFACE = (socket.IPPROTO_IP, _IP_PKTINFO), (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO)
_TTL = (socket.IPPROTO_IP, _IP_TTL), (socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT)
_INTEGER = dict(zip((*_INTERFACE, *_TTL), map(struct.Struct, ("=i", "=16xi", "=i", "=i")), strict=True))
"""Where a control message has its number."""
_LONGEST = 2048
_loaded: list[BpfObject] = []


class Arrival(NamedTuple):
    """A packet that the ports did not expect."""

    ifindex: int
    source: IPAddress
    hops: int
    """Its TTL or hop limit."""
    data: bytes


class Duty(NamedTuple):
    """What the ports do for a session. Times are in nanoseconds; 0 is never."""

    packet: bytes
    """The IP packet that they send."""
    shortest_ns: int
    """The shortest time between two packets."""
    spread_ns: int
    """By which that time is longer, at random. Packets leave at its multiples, those of several sessions together."""
    detection_ns: int
    expected: bytes
    """The peer's control packet that changes nothing; empty for none."""


def prepare(failed: Callable[[str], None] = lambda _: None) -> BpfObject:
    """Return this process's programs; the first call loads them. `failed` gets the reasons of a kernel that refuses."""
    if not _loaded:
        _loaded.append(BpfObject(OBJECT, {}, failed))
        with contextlib.suppress(OSError):  # the kernel loads it at its first use otherwise
            subprocess.run(["modprobe", "-q", "sch_fq"], check=False)
    return _loaded[0]


class PortSession:
    """A session as the ports have it, until `close`."""

    def __init__(self, record: Any, slot: int, ethertype: int, send: Callable[[bytes], object]) -> None:
        self._record = record
        self._slot = slot
        self._ethertype = socket.htons(ethertype)
        self._send = send
        self.undo = ExitStack()

    def start(self, duty: Duty, generation: int, *, at_once: bool) -> None:
        """Do this from now on. `generation` is new. With `at_once` the next packet does not wait for its time."""
        record = self._record
        record.generation = 0
        for name in "shortest_ns", "spread_ns", "detection_ns":
            setattr(record, name, getattr(duty, name))
        record.expected[:] = struct.unpack("=3Q", duty.expected.ljust(PACKET, b"\0"))
        if at_once:
            record.next_at = 0
        record.generation = generation
        self._circulate(duty.packet, generation)

    def send(self, packet: bytes) -> None:
        """Send one packet beside the others."""
        self._circulate(packet, 0)

    def _circulate(self, packet: bytes, generation: int) -> None:
        self._send(_TEMPLATE.pack(_MARK, self._slot, 0, generation, self._ethertype) + packet)

    def received(self) -> None:
        """Begin the detection time anew, for a packet that the ports did not expect."""
        self._record.received_at = time.monotonic_ns()

    def counters(self) -> tuple[int, int]:
        """Return the number of expected packets that came, and of those sent."""
        return self._record.received, self._record.sent

    def close(self) -> None:
        """Send nothing more, and expect nothing."""
        self._record.generation = 0
        self.undo.close()


class Offload:
    """The ports of a switch, made in its namespace; `number` is the switch's among those of this kernel."""

    def __init__(self, kernel: Rtnetlink, number: int) -> None:
        self._first = number * SESSIONS
        self._object = prepare()
        self._undo = ExitStack()
        self._udp = {version: self._listen(version) for version in (4, 6)}
        self._templates = {version: self._loopback(ethertype) for version, ethertype in ETH_P.items()}
        kernel.set_fair_queue(_LO_INDEX, 2 * SESSIONS)
        self._undo.callback(self._object.attach_tcx("comes_round", _LO_INDEX).close)

    def _listen(self, version: int) -> socket.socket:
        """Return the socket of a family, with the program that keeps expected packets away from it."""
        family = socket.AF_INET if version == 4 else socket.AF_INET6
        udp = self._undo.enter_context(socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))
        if version == 4:
            options = [(socket.IPPROTO_IP, _IP_PKTINFO), (socket.IPPROTO_IP, _IP_RECVTTL)]
        else:
            names = socket.IPV6_V6ONLY, socket.IPV6_RECVPKTINFO, socket.IPV6_RECVHOPLIMIT
            options = [(socket.IPPROTO_IPV6, name) for name in names]
        for level, name in options:
            udp.setsockopt(level, name, 1)
        self._object.filter("comes_in", udp)
        udp.bind(("", PORT))
        return udp

    def _loopback(self, ethertype: int) -> socket.socket:
        """Return the socket that sends templates, and gets those of an EtherType that the program passes up."""
        end = self._undo.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK))
        end.bind((_LO, ethertype))
        return end

    @cached_property
    def _records(self) -> Any:
        """The kernel's records, mapped by the process that uses them: a fork does not have its parent's."""
        return self._object.array("sessions", HEADER.structures["session"], HEADER.constants["SLOTS"])

    def filenos(self) -> list[int]:
        """Return descriptors that are readable when there may be something for `arrivals`, for `expired`."""
        return [one.fileno() for one in (*self._udp.values(), *self._templates.values())]

    def arrivals(self) -> Iterator[Arrival]:
        """Yield the packets that no session expected."""
        for udp in self._udp.values():
            with contextlib.suppress(BlockingIOError):
                while True:
                    data, hidden, _, (source, *_) = udp.recvmsg(_LONGEST, _LONGEST)
                    numbers = {(level, kind): _INTEGER[level, kind].unpack_from(value) for level, kind, value in hidden}
                    ifindex, hops = (
                        next((numbers[key][0] for key in keys if key in numbers), 0) for keys in (_INTERFACE, _TTL)
                    )
                    yield Arrival(ifindex, ip_address(source.partition("%")[0]), hops, data)

    def expired(self) -> Iterator[int]:
        """Yield the numbers of sessions whose detection time is over; the ports do nothing for them until `start`."""
        for end in self._templates.values():
            with contextlib.suppress(BlockingIOError):
                while True:
                    frame = end.recv(_LONGEST)
                    if len(frame) < _TEMPLATE.size or not frame.startswith(_MARK):
                        continue
                    _, slot, _, generation, _ = _TEMPLATE.unpack_from(frame)
                    if self._records[slot].generation == generation:
                        yield slot - self._first

    def session(self, number: int, version: int, discriminator: int, ifindex: int) -> PortSession:
        """Take up a session of an interface, by its number on the switch, its IP version and its discriminator."""
        slot = self._first + number
        record = self._records[slot]
        ctypes.memset(ctypes.byref(record), 0, ctypes.sizeof(record))
        record.ifindex, record.random = ifindex, int.from_bytes(os.urandom(8), "little") | 1
        taken = PortSession(record, slot, ETH_P[version], self._templates[version].send)
        cookie = self._udp[version].getsockopt(socket.SOL_SOCKET, _SO_COOKIE, 8)
        for place in struct.pack("!I", discriminator) + bytes(4), bytes(4) + struct.pack("=I", ifindex):
            self._object.update("slots", cookie + place, struct.pack("=I", slot))
            taken.undo.callback(self._object.delete, "slots", cookie + place)
        return taken

    def close(self) -> None:
        self._undo.close()
