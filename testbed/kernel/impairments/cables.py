"""
Bad cables: losses, and frames that arrive damaged, which no program of a node can see (bpf/impairments.bpf.c).

The programs are on all ports alike, so that their presence says nothing.
"""

import math
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from testbed.kernel import netns
from testbed.kernel.bpf import BpfObject
from testbed.kernel.c_header import CHeader

OBJECT = Path(__file__).with_name("impairments.o")
HEADER = CHeader(Path(__file__).parent / "bpf" / "layout.h")
PROGRAMS = {"goes_out": HEADER.constants["EGRESS"], "comes_in": HEADER.constants["INGRESS"]}
WHOLE = (1 << 32) - 1
_SO_NETNS_COOKIE = 71
_PLACE = struct.Struct("=QII")
_IMPAIRMENT = struct.Struct("=IIIIIIQQ")
_loaded: list[BpfObject] = []


class Impairment(NamedTuple):
    """What a cable does to packets of one direction, in percent."""

    loss: float = 0.0
    loss_burst: float = 1.0
    """Average number of packets lost in a row."""
    corrupt: float = 0.0


class Counted(NamedTuple):
    """Packets of one direction that were lost, and those that arrived damaged, so far."""

    lost: int
    corrupted: int


def prepare(failed: Callable[[str], None] = lambda _: None) -> BpfObject:
    """Return this process's programs; the first call loads them. `failed` gets the reasons of a kernel that refuses."""
    if not _loaded:
        _loaded.append(BpfObject(OBJECT, {}, failed))
    return _loaded[0]


class Cables:
    """The programs on the ports of a lab, until `close`."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._object = prepare(failed)
        self._undo = ExitStack()

    def close(self) -> None:
        self._undo.close()

    def attach(self, namespace: str, ifindex: int) -> None:
        """Put the programs on a port."""
        with netns.entered(namespace):
            for program in PROGRAMS:
                self._undo.callback(self._object.attach_tcx(program, ifindex).close)

    def set(self, namespace: str, ifindex: int, wanted: Impairment, *, incoming: bool) -> None:
        """Impair the packets that a port sends, or those that it receives. Their counters go on."""
        place = _place(namespace, ifindex, incoming=incoming)
        _, counted = self.get(namespace, ifindex, incoming=incoming)
        loss, into, out = wanted.loss, 0.0, 0.0
        if wanted.loss_burst > 1:
            out = 100 / wanted.loss_burst
            loss, into = 0.0, out * wanted.loss / (100 - wanted.loss)
        shares = [_share(percent) for percent in (loss, into, out)]
        self._object.update("ends", place, _IMPAIRMENT.pack(*shares, 0, _share(wanted.corrupt), 0, *counted))

    def get(self, namespace: str, ifindex: int, *, incoming: bool) -> tuple[Impairment, Counted]:
        """Return what the kernel does to packets, and how many it was so far."""
        found = self._object.read("ends", _place(namespace, ifindex, incoming=incoming), _IMPAIRMENT.size)
        if found is None:
            return Impairment(), Counted(0, 0)
        loss, into, out, _, corrupt, _, lost, corrupted = _IMPAIRMENT.unpack(found)
        percent = 100 / WHOLE
        impairment = Impairment(loss * percent, corrupt=corrupt * percent)
        if into:
            impairment = impairment._replace(loss=100 * into / (into + out), loss_burst=WHOLE / out)
        return impairment, Counted(lost, corrupted)


def _share(percent: float) -> int:
    return math.floor(percent / 100 * WHOLE)


def _place(namespace: str, ifindex: int, *, incoming: bool) -> bytes:
    with netns.entered(namespace), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        (cookie,) = struct.unpack("=Q", one.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8))
    return _PLACE.pack(cookie, ifindex, HEADER.constants["INGRESS" if incoming else "EGRESS"])
