"""
Bad cables: losses, and frames that arrive damaged, which no program of a node can see (bpf/impairments.bpf.c).

The programs are on all ports alike, so that their presence says nothing.
"""

import math
import socket
import struct
import sys
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
_IMPAIRMENT = struct.Struct("=IIIIIIQ")
_COUNTER = struct.Struct("=Q")
BPF_FILES, ERRORS = Path("/sys/fs/bpf"), "errors"
"""The map of errors as a file, which `ethtool -S` on a node reads (bin/ethtool)."""
ETHTOOL = Path(__file__).parent / "bin" / "ethtool"
_loaded: list[BpfObject] = []


class Impairment(NamedTuple):
    """What a cable does to packets of one direction, in percent."""

    loss: float = 0.0
    loss_burst: float = 1.0
    """Average number of packets lost in a row."""
    corrupt: float = 0.0


class Port(NamedTuple):
    """An interface, by its network namespace and its number there."""

    namespace: str
    ifindex: int


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
        self.errors = BPF_FILES / ERRORS
        """A file with the map of errors."""
        if not self.errors.exists():
            self._object.pin(ERRORS, self.errors)
        self._undo.callback(self.errors.unlink, missing_ok=True)

    def close(self) -> None:
        self._undo.close()

    def attach(self, port: Port) -> None:
        """Put the programs on a port."""
        with netns.entered(port.namespace):
            for program in PROGRAMS:
                self._undo.callback(self._object.attach_tcx(program, port.ifindex).close)
        self._object.update("errors", _place(port), _COUNTER.pack(0))

    def set(self, port: Port, wanted: Impairment, far: Port, *, incoming: bool) -> None:
        """Impair the packets that a port sends, or those that it receives. Those that are damaged are errors at the
        port `far`."""
        loss, into, out = wanted.loss, 0.0, 0.0
        if wanted.loss_burst > 1:
            out = 100 / wanted.loss_burst
            loss, into = 0.0, out * wanted.loss / (100 - wanted.loss)
        shares = [_share(percent) for percent in (loss, into, out)]
        value = _IMPAIRMENT.pack(*shares, 0, _share(wanted.corrupt), far.ifindex, _cookie(far.namespace))
        self._object.update("ends", _place(port, incoming=incoming), value)

    def get(self, port: Port, *, incoming: bool) -> Impairment:
        """Return what the kernel does to packets."""
        found = self._object.read("ends", _place(port, incoming=incoming), _IMPAIRMENT.size)
        if found is None:
            return Impairment()
        loss, into, out, _, corrupt, _, _ = _IMPAIRMENT.unpack(found)
        impairment = Impairment(100 * loss / WHOLE, corrupt=100 * corrupt / WHOLE)
        if into:
            impairment = impairment._replace(loss=100 * into / (into + out), loss_burst=WHOLE / out)
        return impairment

    def damaged(self, port: Port) -> int:
        """Return the frames that arrived damaged at a port."""
        found = self._object.read("errors", _place(port), _COUNTER.size)
        return int(_COUNTER.unpack(found)[0]) if found else 0


def _share(percent: float) -> int:
    return math.floor(percent / 100 * WHOLE)


def _cookie(namespace: str) -> int:
    with netns.entered(namespace), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        return int.from_bytes(one.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, 8), sys.byteorder)


def _place(port: Port, *, incoming: bool = False) -> bytes:
    return _PLACE.pack(_cookie(port.namespace), port.ifindex, HEADER.constants["INGRESS" if incoming else "EGRESS"])
