"""
Services at the socket: a connection to a service becomes one to an endpoint (bpf/services.bpf.c).

The programs are attached to the root of the control groups, and mean only the network namespaces that are added.
"""

import ctypes
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address
from pathlib import Path
from typing import NamedTuple

from testbed.kernel import netns
from testbed.kernel.bpf import BpfObject
from testbed.kernel.c_header import CHeader

OBJECT = Path(__file__).with_name("services.o")
HEADER = CHeader(Path(__file__).parent / "bpf" / "layout.h")
GROUP = Path("/sys/fs/cgroup")
PROGRAMS = ("service_connect", "service_sendmsg", "service_recvmsg", "service_getpeername")
PROTOCOLS = {"TCP": socket.IPPROTO_TCP, "UDP": socket.IPPROTO_UDP}
_SO_NETNS_COOKIE = 71
_COOKIE = struct.Struct("=Q")
_PLACE = struct.Struct("=4s2sBx")
_SERVICE = struct.Struct("=IIQ")
_MEMBER = struct.Struct("=II")
assert ctypes.sizeof(HEADER.structures["service"]) == _SERVICE.size


class Port(NamedTuple):
    """A port of a service, or of one of its endpoints."""

    address: IPv4Address
    port: int
    protocol: str

    def packed(self) -> bytes:
        return _PLACE.pack(self.address.packed, self.port.to_bytes(2), PROTOCOLS[self.protocol])


class SocketServices:
    """The programs, as long as they are attached."""

    def __init__(self, failed: Callable[[str], None]) -> None:
        """UnsupportedError with the reason if this kernel refuses them; `failed` gets the verifier's log."""
        self._object = BpfObject(OBJECT, {}, failed)
        self._links = [self._object.attach_cgroup(program, GROUP) for program in PROGRAMS]
        self._numbers: dict[Port, int] = {}
        self._cookies: dict[str, bytes] = {}

    def close(self) -> None:
        for link in self._links:
            link.close()
        self._links = []

    def include(self, namespaces: Iterable[str]) -> None:
        """Mean these network namespaces, by their names, and no others."""
        wanted = set(namespaces)
        for name in self._cookies.keys() - wanted:
            self._object.delete("namespaces", self._cookies.pop(name))
        for name in sorted(wanted - self._cookies.keys()):
            with netns.entered(name), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
                self._cookies[name] = one.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, _COOKIE.size)
            self._object.update("namespaces", self._cookies[name], _COOKIE.pack(1))

    def set(self, services: Mapping[Port, list[Port]]) -> None:
        """Have these services, each with its endpoints."""
        for port in self._numbers.keys() - services.keys():
            self._object.delete("services", port.packed())
            del self._numbers[port]
        for port, endpoints in services.items():
            number = self._numbers.setdefault(port, max(self._numbers.values(), default=0) + 1)
            for place, endpoint in enumerate(endpoints):
                self._object.update("endpoints", _MEMBER.pack(number, place), endpoint.packed())
            self._object.update("services", port.packed(), _SERVICE.pack(number, len(endpoints), self.sent(port)))

    def sent(self, port: Port) -> int:
        """Return how many connections and datagrams a port of a service has sent to endpoints."""
        found = self._object.read("services", port.packed(), _SERVICE.size)
        return int(_SERVICE.unpack(found)[2]) if found else 0
