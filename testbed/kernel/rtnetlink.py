"""The netlink socket of a switch while it runs: requests, and news of its tables."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator

from testbed.kernel import netlink

RTM_NEWLINK, RTM_DELLINK, RTM_SETLINK = 16, 17, 19
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 28, 29, 30
RTM_NEWRULE, RTM_DELRULE = 32, 33
RTM_NEWNEXTHOP, RTM_DELNEXTHOP = 104, 105
RTMGRP_NEIGH = 1 << 2
RTMGRP_FORWARDING = 1 << 0 | 1 << 6 | 1 << 10 | 1 << 31
"""All that changes where packets go: links, routes of IPv4 and IPv6, next hops."""
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33


class Rtnetlink:
    """A socket in the namespace the calling thread is in; it may be used from any other later."""

    def __init__(self, groups: int = 0) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.bind((0, groups))

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def request(self, kind: int, body: bytes, flags: int = 0) -> None:
        """One request and its answer, which is there when the send returns. OSError if the kernel refused."""
        self._socket.send(netlink.request(kind, body, flags))
        for _, answer in netlink.messages(self._socket.recv(65536)):
            netlink.check(answer)

    def dump(self, kind: int, body: bytes) -> Iterator[tuple[int, bytes]]:
        """(type, body) of all that the kernel has of a kind."""
        self._socket.send(netlink.request(kind, body, netlink.DUMP))
        while True:
            for found, answer in netlink.messages(self._socket.recv(1 << 20)):
                if found == netlink.DONE:
                    return
                if found == netlink.ERROR:
                    netlink.check(answer)
                yield found, answer

    def listen(self, buffer: int) -> None:
        """From now on `messages` takes what is there without waiting; the kernel keeps up to `buffer` bytes."""
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, buffer)

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """(type, body) of each message that has arrived. OSError (ENOBUFS) if the kernel had to drop some."""
        while True:
            try:
                data = self._socket.recv(1 << 20)
            except BlockingIOError:
                return
            yield from netlink.messages(data)


def missing(error: OSError) -> bool:
    """The thing to delete was not there."""
    return error.errno in (errno.ENOENT, errno.ESRCH)
