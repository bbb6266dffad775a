"""RDMA devices over netlink: create, delete, move, list, count, as `rdma link` and `rdma dev` do, without the fork.

Source: include/uapi/rdma/rdma_netlink.h. pyroute2 has no client for this family.
"""

import errno
import os
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.errors import DeadlineError, TestbedError, UnsupportedError
from testbed.kernel import netlink, netns
from testbed.kernel.netlink import Netlink, text
from testbed.kernel.syscalls import closing_fd

NETLINK_RDMA = 20
NL_NLDEV = 5
GET, SET, NEWLINK, DELLINK, PORT_GET, SYS_GET, SYS_SET, RES_QP_GET, GET_CHARDEV, STAT_GET = (
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    10,
    15,
    17,
)
DEV_INDEX, DEV_NAME, PORT_INDEX, NDEV_NAME, LINK_TYPE, SYS_NETNS_MODE, NET_NS_FD = 1, 2, 3, 51, 65, 66, 68
CHARDEV_TYPE, CHARDEV_NAME, CHARDEV = 69, 70, 72
RES_QP, RES_LQPN, RES_RQPN, RES_TYPE, RES_STATE, RES_PID, RES_KERN_NAME = 19, 21, 22, 26, 27, 28, 29
STATES = "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"
"""enum ib_qp_state of include/rdma/ib_verbs.h."""
TYPES = {1: "GSI", 2: "RC", 3: "UC", 4: "UD"}
"""enum ib_qp_type."""
STAT_HWCOUNTERS, STAT_NAME, STAT_VALUE = 80, 82, 83
PORT = 1
"""A soft-RoCE device's only port."""
GONE_S = 10.0
"""Seconds that a deletion may take; it usually takes milliseconds."""
SYSFS = "/proc/1/root/sys/class/infiniband"
"""The first process's view, that of the initial network namespace, whichever one the caller has mounted."""


@dataclass(frozen=True, slots=True)
class QueuePair:
    """`remote` is the peer's number if connected; `pid` that of its program, 0 for the kernel's own."""

    number: int
    kind: str
    state: str
    remote: int | None
    pid: int


def _queue_pair(entry: dict[int, bytes]) -> QueuePair:
    kind, state = entry[RES_TYPE][0], entry[RES_STATE][0]
    return QueuePair(
        netlink.number(entry[RES_LQPN]),
        TYPES.get(kind, str(kind)),
        STATES[state],
        netlink.number(entry[RES_RQPN]) if RES_RQPN in entry else None,
        netlink.number(entry[RES_PID]) if RES_PID in entry else 0,
    )


class Rdma(Netlink):
    """A netlink socket of the namespace in which it is opened; `add` finds interfaces there."""

    def __init__(self) -> None:
        try:
            super().__init__(NETLINK_RDMA)
        except OSError as error:
            raise UnsupportedError(
                f"this kernel has no RDMA netlink: {error.strerror}", hint="modprobe ib_core"
            ) from error

    def _ask(self, operation: int, body: bytes = b"", flags: int = 0) -> list[dict[int, bytes]]:
        return [netlink.attributes(answer) for _, answer in self.request((NL_NLDEV << 10) + operation, body, flags)]

    def add(self, name: str, interface: str) -> None:
        """Create a soft-RoCE device `name` on `interface`. Its GIDs follow asynchronously."""
        wanted = {DEV_NAME: name, LINK_TYPE: "rxe", NDEV_NAME: interface}
        try:
            self._ask(NEWLINK, b"".join(netlink.string(kind, value) for kind, value in wanted.items()))
        except OSError as error:
            reason = {
                errno.EEXIST: "the interface already has one, or the name is in use",
                errno.EPERM: "not root, or the interface is a VLAN device: put it on the parent",
                errno.ENODEV: "the interface does not exist here",
                errno.EOPNOTSUPP: "the kernel has no rdma_rxe (modprobe rdma_rxe)",
            }.get(error.errno or 0, error.strerror)
            raise TestbedError(f"RDMA device {name} on {interface}: {reason}") from error

    def devices(self) -> dict[str, int]:
        """Return names and indices of the devices that this namespace sees, by index."""
        found = self._ask(GET, flags=netlink.DUMP)
        indices = {text(answer[DEV_NAME]): struct.unpack("=I", answer[DEV_INDEX])[0] for answer in found}
        return dict(sorted(indices.items(), key=lambda item: item[1]))

    def links(self) -> dict[str, str]:
        """Return this network namespace's RDMA devices by interface."""
        found = {self.interface(index): name for name, index in self.devices().items()}
        return {interface: name for interface, name in found.items() if interface is not None}

    def interface(self, index: int) -> str | None:
        """Return a device's interface; None if it is in another network namespace."""
        (port,) = self._ask(PORT_GET, _port(index))
        return text(port[NDEV_NAME]) if NDEV_NAME in port else None  # the kernel names it only in its own namespace

    def counters(self, index: int) -> dict[str, int]:
        """Return a device's counters (hw_counters in sysfs) by the kernel's names: sent_pkts, completer_retry_err, …

        They are exact; those of sysfs are some milliseconds old. Source: drivers/infiniband/sw/rxe/rxe_hw_counters.c.
        """
        (answer,) = self._ask(STAT_GET, _port(index))
        entries = [netlink.attributes(entry) for _, entry in netlink.elements(answer[STAT_HWCOUNTERS])]
        return {text(entry[STAT_NAME]): struct.unpack("=Q", entry[STAT_VALUE])[0] for entry in entries}

    def queue_pairs(self, index: int) -> list[QueuePair]:
        """Return the queue pairs of a device that this namespace sees, as `rdma resource show qp` does."""
        answers = self._ask(RES_QP_GET, netlink.u32(DEV_INDEX, index), netlink.DUMP)
        found = (entry for answer in answers for _, entry in netlink.elements(answer.get(RES_QP, b"")))
        return [_queue_pair(netlink.attributes(entry)) for entry in found]

    def character_device(self, index: int) -> tuple[str, int] | None:
        """Return name and number of the device's file in /dev/infiniband; None without ib_uverbs."""
        try:
            (found,) = self._ask(GET_CHARDEV, netlink.u32(DEV_INDEX, index) + netlink.string(CHARDEV_TYPE, "uverbs"))
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return None
        return text(found[CHARDEV_NAME]), struct.unpack("=Q", found[CHARDEV])[0]

    def delete(self, name: str) -> None:
        """Begin to delete a device, if it exists; see `wait_gone`."""
        index = self.devices().get(name)
        if index is not None:
            try:
                self._ask(DELLINK, netlink.u32(DEV_INDEX, index))
            except OSError:
                if name in self.devices():  # else it went with its interface meanwhile
                    raise

    def move(self, name: str, namespace: str | os.PathLike[str]) -> None:
        """Move the device to another network namespace, given by its file. Exclusive mode only."""
        with closing_fd(os.open(namespace, os.O_RDONLY)) as handle:
            self._ask(SET, netlink.u32(DEV_INDEX, self.devices()[name]) + netlink.u32(NET_NS_FD, handle))

    @property
    def exclusive(self) -> bool:
        """Return whether a network namespace sees only its own devices."""
        return self._ask(SYS_GET)[0][SYS_NETNS_MODE] == b"\0"

    def set_exclusive(self, exclusive: bool) -> None:
        """Set the mode: only the first network namespace may exist; the end of another may take milliseconds."""
        if self.exclusive == exclusive:
            return
        deadline = time.monotonic() + GONE_S
        while True:
            try:
                self._ask(SYS_SET, netlink.attribute(SYS_NETNS_MODE, bytes([not exclusive])))
            except OSError as error:
                if error.errno == errno.EBUSY and time.monotonic() < deadline:
                    time.sleep(0.005)
                    continue
                there = ", ".join(netns.others()) or "one without a process"
                raise TestbedError(
                    f"the RDMA netns mode could not be changed: {error.strerror}",
                    hint=f"The kernel allows it only while no other network namespace exists. Found: {there}.",
                ) from error
            return

    def wait_gone(self, names: Sequence[str]) -> None:
        """Wait until devices are gone from sysfs too: until then a new device of that name fails with ENFILE."""
        deadline = time.monotonic() + GONE_S
        for name in names:
            while os.path.exists(f"{SYSFS}/{name}") or name in self.devices():
                if time.monotonic() > deadline:
                    raise DeadlineError(f"RDMA device {name} still exists {GONE_S:g} s after its deletion")
                time.sleep(0.001)


def _port(index: int) -> bytes:
    return netlink.u32(DEV_INDEX, index) + netlink.u32(PORT_INDEX, PORT)
