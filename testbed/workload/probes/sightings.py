"""Where the packets of probes were seen, by which interfaces in which direction, and when.

A packet socket in each node gets the probes only, from all its interfaces. So a path is what the packets took, by
whatever forwards them, and not what tables say.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from testbed.kernel.packet_socket import OUTGOING, PacketSocket
from testbed.lab.interface import Interface
from testbed.lab.node import Node

MAGIC = b"\x7etestbed"
"""The begin of a probe's data."""
NUMBER = struct.Struct("=8sQ")
"""The begin of a probe: MAGIC and its number."""
ALL = 3
"""ETH_P_ALL."""
BUFFER = 8 << 20
SEEN = 192
"""Bytes of a frame that are looked at: the headers of a tunnel and of RoCE before the number."""
EXPRESSION = " or ".join(
    f"(ether[{at}:2] = {kind} and ether[{at + length + 2}:2] = {port} and ether[{at + length + 8}] = 0x64)"
    for base in (0, 50)
    for at, kind, length, port in ((base + 12, 0x0800, 22, 4791), (base + 12, 0x86DD, 42, 4791))
)
"""RoCE v2 over IPv4 or IPv6, also in VXLAN over IPv4, with the opcode of a SEND of UD."""


class Seen(NamedTuple):
    """A frame at an interface of a node, on its way in or out; `t_ns` is CLOCK_REALTIME."""

    t_ns: int
    out: bool
    interface: Interface


class Sightings:
    """The probes that nodes see from now on, by their numbers. Close it."""

    def __init__(self, nodes: Sequence[Node[Any]]) -> None:
        self.lost = 0
        """Frames that were not looked at in time: the paths are not whole."""
        self._found: dict[int, list[Seen]] = defaultdict(list)
        self._undo = ExitStack()
        self._sockets: list[tuple[Node[Any], PacketSocket]] = []
        there = [node for node in nodes if not (node.gone or node.shares)]
        program = _compiled(there[0])
        try:
            for node in there:
                with node.entered():
                    socket = PacketSocket(ALL, BUFFER, program)
                self._undo.callback(socket.close)
                socket.begin_times()
                self._sockets.append((node, socket))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._undo.close()

    def look(self) -> None:
        """Take what the nodes have seen."""
        for node, socket in self._sockets:
            names: dict[str, Interface] = {}
            for name, to, t_ns, data in socket.timed_frames(SEEN):
                at = data.find(MAGIC)
                if at < 0 or len(data) < at + NUMBER.size:
                    continue
                names = names or {end.name_now: end for end in node.interfaces.values() if not _upper(end)}
                if name in names:
                    number = NUMBER.unpack_from(data, at)[1]
                    self._found[number].append(Seen(t_ns, to == OUTGOING, names[name]))
            self.lost += socket.lost()

    def take(self, number: int) -> list[Seen]:
        """Return where a probe was seen, in the order of times, and forget it."""
        return sorted(self._found.pop(number, []), key=lambda seen: seen.t_ns)


def _upper(end: Interface) -> bool:
    return bool(end.plan and end.plan.bond)


def _compiled(node: Node[Any]) -> list[tuple[int, int, int, int]]:
    """Return EXPRESSION as a classic BPF program, by tcpdump."""
    _, *steps = node.use("tcpdump", "-y", "EN10MB", "-ddd", EXPRESSION).stdout.split("\n")
    return [_step(line.split()) for line in steps if line]


def _step(words: Iterable[str]) -> tuple[int, int, int, int]:
    code, if_true, if_false, operand = map(int, words)
    return code, if_true, if_false, operand
