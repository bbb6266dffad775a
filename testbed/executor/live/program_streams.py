"""The output and the input of programs of the user's."""

import base64
import fcntl
import os
import select
import struct
import termios
from typing import Any

from testbed.executor.live.server import Call
from testbed.protocol.live import WINDOW

PIECE = 64 << 10
"""Bytes that are read or written at once."""


class Stream:
    """A sender of one output file of a program; on the real clock at most WINDOW bytes ahead of the outside. On the
    virtual clock the machine pauses instead, when the wire is full."""

    def __init__(self, call: Call, handle: int, name: str) -> None:
        os.set_blocking(handle, False)
        self._call, self._handle, self._name = call, handle, name
        self._ahead = 0
        self.open = True
        self.begun = False
        """True once output has come."""
        call.watch(handle, self._on_output)

    def _on_output(self) -> None:
        self._read()
        if self.open and self._ahead >= WINDOW and not self._call.server.wire.virtual:
            self._call.unwatch(self._handle)

    def _read(self, most: int = PIECE) -> int:
        try:
            data = os.read(self._handle, min(PIECE, most))
        except BlockingIOError:
            return 0
        except OSError:  # a terminal whose programs have ended
            data = b""
        if data:
            self.begun = True
            self._ahead += len(data)
            self._call.back.add(data)
            self._call.report(**{self._name: base64.b64encode(data).decode()})
        else:
            self._close()
        return len(data)

    def acknowledge(self, length: int) -> None:
        """Count so many bytes as read by the outside."""
        held, self._ahead = self._ahead >= WINDOW, self._ahead - length
        if self.open and held and self._ahead < WINDOW:
            self._call.watch(self._handle, self._on_output)

    def finish(self) -> None:
        """Send the rest, and end it: others that have the file may go on writing for ever."""
        if self.open:
            left = waiting(self._handle)
            while left > 0 and (length := self._read(left)):
                left -= length
        self._close()

    def _close(self) -> None:
        if self.open:
            self.open = False
            self._call.unwatch(self._handle)
            os.close(self._handle)


def waiting(handle: int) -> int:
    """Return the number of bytes that a pipe or a terminal has for its reader."""
    found: Any = fcntl.ioctl(handle, termios.FIONREAD, bytes(4))
    return int(struct.unpack("i", found)[0])


class Input:
    """The input of a program until the program reads it. With `reported`, reports give the number of bytes read."""

    def __init__(self, call: Call, handle: int, *, reported: bool) -> None:
        os.set_blocking(handle, False)
        self._call, self._handle, self._reported = call, handle, reported
        self._pending = bytearray()
        self._whole = False
        self._open = True

    @property
    def waits(self) -> bool:
        """Return whether the program has not read all of it."""
        return bool(self._pending)

    def write(self, data: bytes) -> None:
        """Add to the input; no bytes are its end."""
        if not self._open:
            self._report(len(data))
            return
        self._whole |= not data
        idle = not self._pending
        self._pending += data
        if idle:
            self._pass_on()

    def _pass_on(self) -> None:
        try:
            while self._pending:
                length = os.write(self._handle, self._pending[:PIECE])
                del self._pending[:length]
                self._report(length)
        except BlockingIOError:
            self._call.watch(self._handle, self._pass_on, select.EPOLLOUT)
            return
        except OSError:  # nobody reads it any more
            self._report(len(self._pending))
            self._pending.clear()
            self._whole = True
        self._call.unwatch(self._handle)
        if self._whole:
            self.close()

    def _report(self, length: int) -> None:
        if self._reported and length:
            self._call.report(took=length)

    def close(self) -> None:
        if self._open:
            self._open = False
            self._call.unwatch(self._handle)
            os.close(self._handle)
