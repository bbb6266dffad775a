"""The wire of a machine that lives: bytes in both directions while its job runs, in the last part of its two pmem
devices.

Each side writes one header, in its own device: the bytes it has written so far, and the bytes it has read of the
other's. The bytes follow in a ring. On the real clock each rings the other's doorbell, the second serial port, when it
has written. On the virtual clock the host must not choose when something reaches the guest: the guest polls, and pauses
when it is idle or has no room to write. Then the host reads and writes.
"""

import contextlib
import json
import os
import struct
import tty
from typing import Any, Protocol

from testbed.kernel.syscalls import readable
from testbed.protocol import BUNDLE_BYTES, RESULT_BYTES, WIRE_BYTES

BLOCK = 4096
RING = WIRE_BYTES - BLOCK
INBOX, OUTBOX = BUNDLE_BYTES - WIRE_BYTES, RESULT_BYTES - WIRE_BYTES
HEADER = struct.Struct("<QQQ")
"""Bytes written, bytes read, and why the guest pauses (its own header alone)."""
IDLE, FULL, MOMENT = range(3)
PAUSE_PORT = 0x505
BELL = "/dev/ttyS1"
LOOK_S = 0.05
"""Seconds between two checks for room on the real clock."""


class Device(Protocol):
    """A pmem device."""

    def read(self, offset: int, length: int) -> bytes: ...

    def write(self, offset: int, data: bytes) -> None:
        """Write data. `offset` and the length are multiples of a block."""


class Wire:
    """The guest's end. `fileno` is readable when something has come; on the virtual clock it never is."""

    def __init__(self, bundle: Device, result: Device, *, virtual: bool) -> None:
        self.virtual = virtual
        self._in, self._out = bundle, result
        self._read = self._written = 0
        self._tail = b""
        """The bytes of the outbox's last block, which is not full."""
        self._partial = b""
        if virtual:
            self._port = os.open("/dev/port", os.O_RDWR)
        self._bell = os.open(os.devnull if virtual else BELL, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        if not virtual:
            tty.setraw(self._bell)

    def fileno(self) -> int:
        return self._bell

    def receive(self) -> list[dict[str, Any]]:
        if not self.virtual:
            with contextlib.suppress(BlockingIOError):
                while os.read(self._bell, 4096):
                    pass
        written, _ = self._theirs()
        if written == self._read:
            return []
        data = bytearray()
        while self._read < written:
            at = self._read % RING
            length = min(written - self._read, RING - at)
            data += self._in.read(INBOX + BLOCK + at, length)
            self._read += length
        self._header(IDLE)
        self._ring()
        *lines, self._partial = (self._partial + bytes(data)).split(b"\n")
        return [json.loads(line) for line in lines]

    def send(self, message: bytes) -> None:
        """Send a message, with an end of line added. Wait for room."""
        left = memoryview(message + b"\n")
        while left:
            _, taken = self._theirs()
            at = self._written % RING
            room = min(RING - (self._written - taken) - BLOCK, RING - at)
            if room <= 0:
                self._wait_for_room()
                continue
            piece, left = bytes(left[:room]), left[room:]
            data = self._tail + piece
            self._out.write(OUTBOX + BLOCK + at - len(self._tail), data.ljust(-(-len(data) // BLOCK) * BLOCK, b"\0"))
            self._tail = data[len(data) // BLOCK * BLOCK :]
            self._written += len(piece)
            self._header(IDLE)
        self._ring()

    def pause(self, reason: int) -> None:
        """Stop this machine at this instruction, on the virtual clock, until the host resumes it."""
        self._header(reason)
        os.pwrite(self._port, b"\1", PAUSE_PORT)

    def _theirs(self) -> tuple[int, int]:
        """Return the bytes that the host has written and read. It may write them right now, and the kernel may copy
        them byte by byte: a number is valid when two reads agree."""
        found = self._in.read(INBOX, HEADER.size)
        while found != (again := self._in.read(INBOX, HEADER.size)):
            found = again
        written, taken, _ = HEADER.unpack(found)
        return written, taken

    def _wait_for_room(self) -> None:
        if self.virtual:
            self.pause(FULL)
        else:
            self._ring()
            readable([], LOOK_S)

    def _header(self, reason: int) -> None:
        self._out.write(OUTBOX, HEADER.pack(self._written, self._read, reason).ljust(BLOCK, b"\0"))

    def _ring(self) -> None:
        if not self.virtual:
            with contextlib.suppress(BlockingIOError):  # it still rings for what came before
                os.write(self._bell, b"!")
