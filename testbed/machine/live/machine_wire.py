"""The outside's end of the wire of a running machine: executor/wire.py is the other one, and explains how it works."""

import contextlib
import struct
from collections.abc import Iterator
from typing import Any

from testbed.errors import MachineError
from testbed.machine.memory_files import BLOCK, Bundle, Outcome
from testbed.protocol import MESSAGE_BYTES, WIRE_BYTES, messages

RING = WIRE_BYTES - BLOCK
HEADER = struct.Struct("<QQQ")
IDLE, FULL, MOMENT = range(3)


class Wire:
    def __init__(self, bundle: Bundle, outcome: Outcome) -> None:
        self._bundle, self._outcome = bundle, outcome
        self._out = bundle.size - WIRE_BYTES
        self._in = outcome.size - WIRE_BYTES
        self._waiting = bytearray()
        """Bytes that had no space yet."""
        self._replacing = False
        self._partial = b""
        self._begin()

    def _begin(self) -> None:
        """Begin where the memory files of a starting machine are: at zero."""
        self._written, self._read, _ = HEADER.unpack_from(self._bundle.map, self._out)
        self._acknowledged = self._read

    @contextlib.contextmanager
    def replaced(self) -> Iterator[None]:
        """Let the block save and replace the memory files: messages wait meanwhile. All that the paused guest wrote has
        been received and acknowledged."""
        self._replacing = True
        try:
            yield
        finally:
            self._replacing = False
        self._begin()
        self.push()

    @property
    def reason(self) -> int:
        """Return why the guest has paused: IDLE, FULL or MOMENT."""
        return int(self._theirs()[2])

    def _theirs(self) -> tuple[int, int, int]:
        """Return the guest's header. Copy it before unpacking, which is byte by byte: the guest may write it at this
        moment, each number at once."""
        return HEADER.unpack(self._outcome.map[self._in : self._in + HEADER.size])

    def send(self, line: bytes) -> None:
        """Send a message. Bytes without space are sent when the guest has read: see `push`."""
        self._waiting += line + b"\n"
        self.push()

    def push(self) -> bool:
        """Write waiting bytes as far as there is space. Return whether it wrote anything."""
        if self._replacing:
            return False
        before = self._written
        taken = self._theirs()[1]
        if not self._written - RING <= taken <= self._written:
            raise MachineError(f"the guest's wire is damaged: it has read {taken} bytes of {self._written}")
        while self._waiting and (room := RING - (self._written - taken)):
            at = self._written % RING
            piece = self._waiting[: min(room, RING - at)]
            start = self._out + BLOCK + at
            self._bundle.map[start : start + len(piece)] = bytes(piece)
            self._written += len(piece)
            del self._waiting[: len(piece)]
        self._header()
        return bool(self._written > before)

    def receive(self) -> Iterator[dict[str, Any]]:
        """Yield the messages that have come since."""
        written = self._theirs()[0]
        if not self._read <= written <= self._read + RING:
            raise MachineError(f"the guest's wire is damaged: it wrote {written} bytes after {self._read}")
        data = bytearray()
        while self._read < written:
            at = self._read % RING
            length = min(written - self._read, RING - at)
            start = self._in + BLOCK + at
            data += self._outcome.map[start : start + length]
            self._read += length
        *lines, self._partial = (self._partial + bytes(data)).split(b"\n")
        if len(self._partial) > MESSAGE_BYTES:
            raise MachineError("the guest's wire is damaged: a message has no end")
        for line in lines:
            yield messages.load(line)

    def acknowledge(self) -> None:
        """Report to the guest how much was received, which frees space. On the virtual clock only while the guest is
        paused: the free space that it finds must not depend on the host."""
        self._acknowledged = self._read
        self._header()

    @property
    def waiting(self) -> bool:
        """Return True while the guest has something to read."""
        return bool(self._waiting) or self._theirs()[1] < self._written

    def _header(self) -> None:
        """Write each number at once: the guest may read it at this moment, and struct.pack_into writes zeros first."""
        for at, number in (self._out, self._written), (self._out + 8, self._acknowledged):
            self._bundle.map[at : at + 8] = number.to_bytes(8, "little")
