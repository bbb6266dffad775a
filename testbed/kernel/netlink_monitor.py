"""The requests that programs of a namespace send to the kernel over rtnetlink, by a device of type nlmon."""

from collections.abc import Iterator

from testbed.kernel.links import Links
from testbed.kernel.netlink import REQUEST, Message, messages
from testbed.kernel.packet_socket import JUMP_IF_EQUAL, LOAD_BYTE, RETURN, PacketSocket

NAME = "nlmon"
_ALL, _LOAD_WORD, _JUMP_IF_SET, _FLAGS, _SENDER = 0x3, 0x20, 0x45, 6, 12
_OTHERS_REQUESTS = [
    (LOAD_BYTE, 0, 0, _FLAGS),
    (_JUMP_IF_SET, 0, 3, REQUEST),
    (_LOAD_WORD, 0, 0, _SENDER),
    (JUMP_IF_EQUAL, 1, 0, 0),
    (RETURN, 0, 0, 0xFFFF),
    (RETURN, 0, 0, 0),
]
"""Filter for the requests of senders that name themselves, as FRR does and our own sockets do not (nlmsg_pid)."""


class NetlinkMonitor(PacketSocket):
    """A socket of the calling thread's namespace, with `buffer` bytes."""

    def __init__(self, kernel: Links, buffer: int) -> None:
        kernel.add_monitor(NAME)
        super().__init__(_ALL, buffer, _OTHERS_REQUESTS, interface=NAME)

    def requests(self) -> Iterator[Message]:
        """Yield (kind, body) of each request, without waiting."""
        for _, _, frame in self.frames():
            yield from ((kind, body) for kind, _, body in messages(frame))
