"""RDMA devices over netlink: add, delete, move to a namespace, list. What `rdma link` and `rdma dev` do, without the
fork.

Source: include/uapi/rdma/rdma_netlink.h. pyroute2 has no client for this family.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time

from testbed.errors import DeadlineError, TestbedError, UnsupportedError
from testbed.kernel import netlink

NETLINK_RDMA = 20
NL_NLDEV = 5
GET, SET, NEWLINK, DELLINK, PORT_GET, SYS_GET, SYS_SET, GET_CHARDEV = 1, 2, 3, 4, 5, 6, 7, 15
DEV_INDEX, DEV_NAME, PORT_INDEX, NDEV_NAME, LINK_TYPE, SYS_NETNS_MODE, NET_NS_FD = 1, 2, 3, 51, 65, 66, 68
CHARDEV_TYPE, CHARDEV_NAME, CHARDEV = 69, 70, 72
GONE_S = 10.0
"""Seconds that a deletion may take to be complete; it takes milliseconds."""
SYSFS = "/proc/1/root/sys/class/infiniband"
"""As the first process sees it: that of the initial network namespace, whichever one the caller mounted for itself."""


class Rdma:
    """A netlink socket of the namespace it is opened in. In that namespace `add` finds the interfaces."""

    def __init__(self) -> None:
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_RDMA)
        except OSError as error:
            raise UnsupportedError(
                f"this kernel has no RDMA netlink: {error.strerror}", hint="modprobe ib_core"
            ) from error

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Rdma:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(self, operation: int, attributes: bytes, flags: int = 0) -> list[dict[int, bytes]]:
        """Raises OSError with the kernel's errno."""
        self._socket.send(netlink.request((NL_NLDEV << 10) + operation, attributes, flags))
        answers: list[dict[int, bytes]] = []
        while True:
            for kind, body in netlink.messages(self._socket.recv(1 << 16)):
                if kind == netlink.ERROR:
                    netlink.check(body)
                if kind in (netlink.ERROR, netlink.DONE):
                    return answers
                answers.append(dict(netlink.attributes(body)))

    def add(self, name: str, interface: str) -> None:
        """A soft-RoCE device `name` on `interface`. Its GIDs follow asynchronously."""
        wanted = {DEV_NAME: name, LINK_TYPE: "rxe", NDEV_NAME: interface}
        try:
            self.request(NEWLINK, b"".join(netlink.string(kind, value) for kind, value in wanted.items()))
        except OSError as error:
            reason = {
                errno.EEXIST: "the interface has one already, or the name is taken",
                errno.EPERM: "not root, or the interface is a VLAN device: put it on the parent",
                errno.ENODEV: "there is no such interface here",
                errno.EOPNOTSUPP: "the kernel has no rdma_rxe (modprobe rdma_rxe)",
            }.get(error.errno or 0, error.strerror)
            raise TestbedError(f"RDMA device {name} on {interface}: {reason}") from error

    def devices(self) -> dict[str, int]:
        """Name to index of the devices this namespace sees, in the order of their indices."""
        found = {}
        for answer in self.request(GET, b"", netlink.DUMP):
            found[answer[DEV_NAME].rstrip(b"\0").decode()] = struct.unpack("=I", answer[DEV_INDEX])[0]
        return dict(sorted(found.items(), key=lambda item: item[1]))

    def links(self) -> dict[str, str]:
        """Interface to RDMA device of this network namespace."""
        found = {}
        for name, index in self.devices().items():
            if (interface := self.interface(index)) is not None:
                found[interface] = name
        return found

    def interface(self, index: int) -> str | None:
        """The interface of a device, None if that is in another network namespace."""
        (port,) = self.request(PORT_GET, netlink.u32(DEV_INDEX, index) + netlink.u32(PORT_INDEX, 1))
        if NDEV_NAME not in port:  # the kernel tells it where the interface is only
            return None
        return port[NDEV_NAME].rstrip(b"\0").decode()

    def character_device(self, index: int) -> tuple[str, int] | None:
        """Name and number of the device's file in /dev/infiniband; None without ib_uverbs."""
        wanted = netlink.u32(DEV_INDEX, index) + netlink.string(CHARDEV_TYPE, "uverbs")
        try:
            (found,) = self.request(GET_CHARDEV, wanted)
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return None
        return found[CHARDEV_NAME].rstrip(b"\0").decode(), struct.unpack("=Q", found[CHARDEV])[0]

    def delete(self, name: str) -> None:
        """Asks for the end of the device; see `wait_gone`. One that is not there is left so."""
        index = self.devices().get(name)
        if index is not None:
            try:
                self.request(DELLINK, netlink.u32(DEV_INDEX, index))
            except OSError:
                if name in self.devices():  # else it went meanwhile, with its interface
                    raise

    def move(self, name: str, netns: str | os.PathLike[str]) -> None:
        """Exclusive mode: hands the device to another namespace."""
        handle = os.open(netns, os.O_RDONLY)
        try:
            self.request(SET, netlink.u32(DEV_INDEX, self.devices()[name]) + netlink.u32(NET_NS_FD, handle))
        finally:
            os.close(handle)

    @property
    def exclusive(self) -> bool:
        return self.request(SYS_GET, b"")[0][SYS_NETNS_MODE] == b"\0"

    def set_exclusive(self, exclusive: bool) -> None:
        """Possible while no network namespace but the first exists; the end of a deleted one may take some
        milliseconds."""
        if self.exclusive == exclusive:
            return
        deadline = time.monotonic() + GONE_S
        while True:
            try:
                self.request(SYS_SET, netlink.attribute(SYS_NETNS_MODE, bytes([not exclusive])))
            except OSError as error:
                if error.errno == errno.EBUSY and time.monotonic() < deadline:
                    time.sleep(0.005)
                    continue
                raise TestbedError(
                    f"the RDMA netns mode could not be changed: {error.strerror}",
                    hint="The kernel allows it only while no other network namespace exists (`ip netns`).",
                ) from error
            return

    def wait_gone(self, names: list[str]) -> None:
        """Deletion is asynchronous, and a name is free again only when sysfs has lost it: until then a new device gets
        ENFILE."""
        deadline = time.monotonic() + GONE_S
        for name in names:
            while os.path.exists(f"{SYSFS}/{name}") or name in self.devices():
                if time.monotonic() > deadline:
                    raise DeadlineError(f"RDMA device {name} is still there {GONE_S:g} s after its deletion")
                time.sleep(0.001)
