"""Frames of one EtherType from all interfaces of a namespace, or from one, by a packet socket: packet(7)."""

import ctypes
import errno
import socket
import struct
from collections.abc import Iterator, Sequence

Step = tuple[int, int, int, int]
"""A classic BPF instruction: code, jump if true, jump if false, operand (Documentation/networking/filter.rst)."""
LOAD_BYTE, JUMP_IF_EQUAL, RETURN = 0x30, 0x15, 0x06
HOST, BROADCAST, MULTICAST = socket.PACKET_HOST, socket.PACKET_BROADCAST, socket.PACKET_MULTICAST
"""Destinations of a frame: the interface's MAC, all, a group."""
OUTGOING = socket.PACKET_OUTGOING
"""In place of a destination: a frame that the interface sends."""
_LONGEST = 1 << 14
_SOL_PACKET, _PACKET_STATISTICS = 263, 6
_SO_ATTACH_FILTER, _SO_SNDBUFFORCE, _SO_RCVBUFFORCE, _SO_TIMESTAMPNS = 26, 32, 33, 35
_TIME = struct.Struct("=qq")


class PacketSocket:
    """A socket of the calling thread's namespace, with `buffer` bytes each for receiving and sending."""

    def __init__(self, ethertype: int, buffer: int, program: Sequence[Step] = (), interface: str = "") -> None:
        kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_PACKET, kind, socket.htons(ethertype))
        if program:
            code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in program))
            given = struct.pack("HP", len(program), ctypes.addressof(code))
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, given)
        for option in _SO_RCVBUFFORCE, _SO_SNDBUFFORCE:
            self._socket.setsockopt(socket.SOL_SOCKET, option, buffer)
        if interface:
            self._socket.bind((interface, ethertype))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def frames(self) -> Iterator[tuple[str, int, bytes]]:
        """Yield (interface, destination, frame) of each received frame, without waiting."""
        while True:
            try:
                frame, (interface, _, to, *_) = self._socket.recvfrom(_LONGEST)
            except BlockingIOError:
                return
            yield interface, to, frame

    def begin_times(self) -> None:
        """Let the kernel note when it gets each frame, for `timed_frames`."""
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)

    def timed_frames(self, size: int) -> Iterator[tuple[str, int, int, bytes]]:
        """Yield (interface, destination, CLOCK_REALTIME in ns, first `size` bytes) of each frame, without waiting."""
        while True:
            try:
                frame, ancillary, _, (interface, _, to, *_) = self._socket.recvmsg(size, 64)
            except BlockingIOError:
                return
            seconds, nanoseconds = next(_TIME.unpack_from(value) for _, _, value in ancillary)
            yield interface, to, seconds * 10**9 + nanoseconds, frame

    def lost(self) -> int:
        """Return the number of frames dropped since the last call."""
        _, dropped = struct.unpack("=II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        return int(dropped)

    def send(self, interface: str, frame: bytes) -> None:
        """Send a frame out of an interface. Drop it if the interface is down or its queue is full."""
        try:
            self._socket.sendto(frame, (interface, 0))
        except OSError as error:
            if error.errno not in (errno.ENETDOWN, errno.ENOBUFS):
                raise
