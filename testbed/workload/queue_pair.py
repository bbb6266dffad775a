"""An RC queue pair with its memory, from RESET to RTS and to its end."""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Self

from pyverbs import enums
from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr

from testbed.errors import DeadlineError, InputError, TestbedError
from testbed.kernel import netns
from testbed.kernel.readiness import readable
from testbed.lab.processes import Ready
from testbed.nic import Connection, HardwareNic
from testbed.workload.attributes import Attributes

GID_S = 5.0
"""Seconds for an address to become a GID; the kernel takes milliseconds after the device or the address appears."""
GID_TABLE = 1024
DEPTH = 256
"""Requests that may be outstanding in each direction."""
PORT = 1
ACCESS = (
    enums.IBV_ACCESS_LOCAL_WRITE
    | enums.IBV_ACCESS_REMOTE_WRITE
    | enums.IBV_ACCESS_REMOTE_READ
    | enums.IBV_ACCESS_REMOTE_ATOMIC
)
TO_INIT = enums.IBV_QP_STATE | enums.IBV_QP_PKEY_INDEX | enums.IBV_QP_PORT | enums.IBV_QP_ACCESS_FLAGS
TO_RTR = (
    enums.IBV_QP_STATE
    | enums.IBV_QP_AV
    | enums.IBV_QP_PATH_MTU
    | enums.IBV_QP_DEST_QPN
    | enums.IBV_QP_RQ_PSN
    | enums.IBV_QP_MAX_DEST_RD_ATOMIC
    | enums.IBV_QP_MIN_RNR_TIMER
)
TO_RTS = (
    enums.IBV_QP_STATE
    | enums.IBV_QP_TIMEOUT
    | enums.IBV_QP_RETRY_CNT
    | enums.IBV_QP_RNR_RETRY
    | enums.IBV_QP_SQ_PSN
    | enums.IBV_QP_MAX_QP_RD_ATOMIC
)


STATES = {getattr(enums, f"IBV_QPS_{name}"): name for name in ("RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")}


class ConnectError(TestbedError):
    """The kernel refused to connect a queue pair. `error` is the errno's name: ETIMEDOUT if the neighbour of the next
    hop does not resolve within a second, which is so without a route too: the kernel then asks for the peer itself. The
    message of a lab's host says which it was."""

    def __init__(self, message: str, error: str) -> None:
        super().__init__(message)
        self.error = error


@dataclass(frozen=True, slots=True)
class Address:
    """What a peer must know of an endpoint. `address` is the virtual address of its memory, `size` that in bytes."""

    ip: IPv4Address | IPv6Address
    qpn: int
    psn: int
    rkey: int
    address: int
    size: int


def gid_of(ip: IPv4Address | IPv6Address) -> str:
    """The GID of an address, of IPv4 that of the mapped IPv6 address, as pyverbs writes it: eight groups in full."""
    packed = ip.packed if isinstance(ip, IPv6Address) else bytes(10) + b"\xff\xff" + ip.packed
    return packed.hex(":", 2)


def gid_index(context: Context, ip: IPv4Address | IPv6Address) -> int:
    """Where `ip` is in the device's GID table, which follows the interface's addresses a little later."""
    deadline = time.monotonic() + GID_S
    wanted = gid_of(ip)
    while True:
        for entry in context.query_gid_table(GID_TABLE):
            if entry.gid_str() == wanted:
                return int(entry.gid_index)
        if time.monotonic() > deadline:
            raise DeadlineError(
                f"{context.name} has no GID for {ip} after {GID_S:g} s", hint="Has its interface that address?"
            )
        time.sleep(0.001)


@contextmanager
def reported(what: str) -> Iterator[None]:
    """Turns an error of verbs into ours."""
    try:
        yield
    except PyverbsError as error:
        raise TestbedError(f"{what}: {error}") from error


def open_device(namespace: str, device: str) -> Context:
    """Opens it in its namespace: in exclusive mode it is to be seen only there."""
    with netns.entered(namespace), reported(f"open RDMA device {device} in {namespace}"):
        return Context(name=device)


class QueuePair:
    """An RC queue pair in INIT, and `memory` bytes that its peer may write, read and do atomics on; random at first."""

    def __init__(
        self,
        device: str,
        namespace: str,
        ip: IPv4Address | IPv6Address,
        *,
        memory: int = 1 << 16,
        nic: HardwareNic | None = None,
        ready: Ready = readable,
        unreached: Callable[[IPv4Address | IPv6Address], str] = lambda _: "",
    ) -> None:
        """`nic` is the host's hardware NIC if it has one: RTR then ends when the MAC is pinned, in `connection`.
        `ready` waits for completions: in a lab `Lab.ready`. `unreached` says why a peer is not reached."""
        self.device = device
        self.connection: Connection | None = None
        self._nic = nic
        self._ready = ready
        self._unreached = unreached
        self._ip = ip
        self._size = memory
        self._remote: Address | None = None
        self._resources: list[Any] = []
        try:
            self._open(namespace)
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        return f"{self.device} ({self._ip})"

    def _open(self, namespace: str) -> None:
        context = self._kept(open_device(namespace, self.device))
        self._gid_index = gid_index(context, self._ip)
        with reported(f"make a queue pair on {self}"):
            pd = self._kept(PD(context))
            self._mr = self._kept(MR(pd, self._size, ACCESS))
            self._mr.write(os.urandom(self._size), self._size)
            self._channel, self._channel_fd = _completion_channel(context)
            self._kept(self._channel)
            self._cq = self._kept(CQ(context, 2 * DEPTH, None, self._channel, 0))
            capacity = QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH, max_send_sge=1, max_recv_sge=1, max_inline_data=0)
            self._qp = self._kept(QP(pd, QPInitAttr(enums.IBV_QPT_RC, scq=self._cq, rcq=self._cq, cap=capacity)))
            attr = QPAttr(qp_state=enums.IBV_QPS_INIT, port_num=PORT)
            attr.qp_access_flags = ACCESS
            self._qp.modify(attr, TO_INIT)
        psn = secrets.randbits(24)
        self.address = Address(self._ip, self._qp.qp_num, psn, self._mr.rkey, self._mr.buf, self._size)

    def _kept(self, resource: Any) -> Any:
        self._resources.append(resource)
        return resource

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the queue pair, the last thing made first. Its device may have gone before."""
        while self._resources:
            with reported(f"close {self}"):
                self._resources.pop().close()

    # Connecting

    def connect(self, remote: Address, attributes: Attributes | None = None) -> None:
        """INIT to RTR to RTS. ConnectError if the kernel refuses; an unknown neighbour takes it a second either way."""
        attributes = attributes or Attributes()
        self.to_rtr(remote, attributes)
        self.to_rts(attributes)

    def to_rtr(self, remote: Address, attributes: Attributes) -> None:
        """INIT to RTR: the kernel resolves the destination MAC, and a hardware NIC keeps it."""
        attr = QPAttr(qp_state=enums.IBV_QPS_RTR, cur_qp_state=enums.IBV_QPS_INIT)
        attr.path_mtu = getattr(enums, f"IBV_MTU_{attributes.path_mtu}")
        attr.dest_qp_num = remote.qpn
        attr.rq_psn = remote.psn
        attr.max_dest_rd_atomic = attributes.max_rd_atomic
        attr.min_rnr_timer = attributes.min_rnr_timer
        route = GlobalRoute(
            dgid=GID(gid_of(remote.ip)),
            sgid_index=self._gid_index,
            flow_label=attributes.flow_label,
            hop_limit=attributes.hop_limit,
            traffic_class=attributes.traffic_class,
        )
        attr.ah_attr = AHAttr(is_global=1, port_num=PORT, gr=route)
        try:
            self._modify(attr, TO_RTR, f"RTR towards {remote.ip}")
        except ConnectError as error:
            cause = self._unreached(remote.ip)
            raise ConnectError(f"{error.message}: {cause}" if cause else error.message, error.error) from error
        self._remote = remote
        if self._nic:
            self.connection = self._nic.pin(self.address.qpn)

    def to_rts(self, attributes: Attributes) -> None:
        """RTR to RTS."""
        attr = QPAttr(qp_state=enums.IBV_QPS_RTS, cur_qp_state=enums.IBV_QPS_RTR)
        attr.timeout = attributes.timeout
        attr.retry_cnt = attributes.retry_cnt
        attr.rnr_retry = attributes.rnr_retry
        attr.sq_psn = self.address.psn
        attr.max_rd_atomic = attributes.max_rd_atomic
        self._modify(attr, TO_RTS, "RTS")

    def _modify(self, attr: QPAttr, mask: int, step: str) -> None:
        try:
            self._qp.modify(attr, mask)
        except PyverbsRDMAError as error:
            name = errno.errorcode.get(error.error_code, str(error.error_code))
            raise ConnectError(f"{self}: {step}: {name}", name) from error

    @property
    def state(self) -> str:
        """RESET, INIT, RTR, RTS, SQD, SQE or ERR."""
        with reported(f"query the queue pair of {self}"):
            attr, _ = self._qp.query(enums.IBV_QP_STATE)
        return STATES[attr.qp_state]

    # Memory

    def load(self, offset: int = 0, length: int | None = None) -> bytes:
        """`length` bytes of the memory, all from `offset` on if None."""
        length = self._size - offset if length is None else length
        self._inside(offset, length, self._size)
        return bytes(self._mr.read(length, offset))

    def store(self, data: bytes, offset: int = 0) -> None:
        """Puts `data` into the memory."""
        self._inside(offset, len(data), self._size)
        self._mr.write(data, len(data), offset)

    def _inside(self, offset: int, length: int, size: int) -> None:
        if offset < 0 or length < 0 or offset + length > size:
            raise InputError(f"{self}: {length} bytes at {offset} are not within the memory of {size} bytes")


def _completion_channel(context: Context) -> tuple[CompChannel, int]:
    """A channel and its descriptor, which pyverbs does not tell: the kernel gives the lowest number that is free."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.close(descriptor)
        channel = CompChannel(context)
        with suppress(FileNotFoundError):
            if os.readlink(f"/proc/self/fd/{descriptor}") == "anon_inode:[infinibandevent]":
                return channel, descriptor
        channel.close()  # another thread opened a file in between
