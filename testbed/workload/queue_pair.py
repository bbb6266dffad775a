"""An RC queue pair with its memory, from RESET to RTS and to its end."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, Any, Self

from testbed.errors import DeadlineError, InputError, TestbedError
from testbed.kernel import netns
from testbed.kernel.syscalls import readable
from testbed.lab.processes import Ready
from testbed.nic import Connection, HardwareNic
from testbed.workload import ibverbs
from testbed.workload.attributes import Attributes

if TYPE_CHECKING:
    from pyverbs.cq import CompChannel
    from pyverbs.device import Context
    from pyverbs.qp import QPAttr

GID_S = 5.0
"""Seconds for an address to become a GID; the kernel takes milliseconds after the device or the address appears."""
GID_TABLE = 1024
DEPTH = 256
"""Requests that may be outstanding in each direction."""
PORT = 1
ACCESS = "LOCAL_WRITE REMOTE_WRITE REMOTE_READ REMOTE_ATOMIC"
TO_INIT = "STATE PKEY_INDEX PORT ACCESS_FLAGS"
TO_RTR = "STATE AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER"
TO_RTS = "STATE TIMEOUT RETRY_CNT RNR_RETRY SQ_PSN MAX_QP_RD_ATOMIC"
"""Names of flags without their common prefix."""
STATES = ("RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR")
"""The names of enum ibv_qp_state without IBV_QPS_, by their numbers. Source: infiniband/verbs.h."""
CLOSED = "closed"


class ConnectError(TestbedError):
    """A refusal of the kernel to connect a queue pair. `error` is the errno's name: ETIMEDOUT if the neighbour of the
    next hop does not resolve within a second, which also happens without a route: the kernel then resolves the peer
    itself. In a lab the message names the cause."""

    def __init__(self, message: str, error: str) -> None:
        super().__init__(message)
        self.error = error


Changed = Callable[[str, str, str, int, str], None]
"""A receiver of a queue pair's state, one of STATES or CLOSED, as a sentence too, and its device, number and peer."""


@dataclass(frozen=True, slots=True)
class Address:
    """An endpoint's address for its peer. `address` is the virtual address of its memory, `size` that in bytes."""

    ip: IPv4Address | IPv6Address
    qpn: int
    psn: int
    rkey: int
    address: int
    size: int

    @property
    def end(self) -> tuple[str, int]:
        """Return the IP address and the number of the queue pair."""
        return str(self.ip), self.qpn


def gid_of(ip: IPv4Address | IPv6Address) -> str:
    """Return the GID of an address, of IPv4 that of the mapped IPv6 address, as pyverbs writes it: 8 full groups."""
    packed = ip.packed if isinstance(ip, IPv6Address) else bytes(10) + b"\xff\xff" + ip.packed
    return packed.hex(":", 2)


def gid_index(context: Context, ip: IPv4Address | IPv6Address) -> int:
    """Return the index of `ip` in the device's GID table, which follows the interface's addresses a little later."""
    deadline = time.monotonic() + GID_S
    wanted = gid_of(ip)
    while True:
        for entry in context.query_gid_table(GID_TABLE):
            if entry.gid_str() == wanted:
                return int(entry.gid_index)
        if time.monotonic() > deadline:
            raise DeadlineError(
                f"{context.name} has no GID for {ip} after {GID_S:g} s", hint="Check its interface's address."
            )
        time.sleep(0.001)


@contextmanager
def reported(what: str) -> Iterator[None]:
    """Turn an error of verbs into ours."""
    try:
        yield
    except ibverbs.PyverbsError as error:
        raise TestbedError(f"{what}: {error}") from error


def open_device(namespace: str, device: str) -> Context:
    """Open a device in its namespace: in exclusive mode it is visible only there."""
    with netns.entered(namespace), reported(f"open RDMA device {device} in {namespace}"):
        return ibverbs.Context(name=device)


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
        changed: Changed = lambda *_: None,
    ) -> None:
        """`nic` is the host's hardware NIC if it has one: RTR then ends when the MAC is pinned, in `connection`.
        `ready` waits for completions: in a lab `Lab.ready`. `unreached` returns why a peer is not reached. `changed`
        receives its states."""
        self.device = device
        self.connection: Connection | None = None
        self._nic = nic
        self._ready = ready
        self._unreached = unreached
        self._changed = changed
        self._known_state = ""
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
        access = ibverbs.flags("IBV_ACCESS_", ACCESS)
        context = self._kept(open_device(namespace, self.device))
        self._gid_index = gid_index(context, self._ip)
        with reported(f"make a queue pair on {self}"):
            pd = self._kept(ibverbs.PD(context))
            self._mr = self._kept(ibverbs.MR(pd, self._size, access))
            self._mr.write(os.urandom(self._size), self._size)
            self._channel, self._channel_fd = completion_channel(context)
            self._kept(self._channel)
            self._cq = self._kept(ibverbs.CQ(context, 2 * DEPTH, None, self._channel, 0))
            capacity = ibverbs.QPCap(
                max_send_wr=DEPTH, max_recv_wr=DEPTH, max_send_sge=1, max_recv_sge=1, max_inline_data=0
            )
            self._qp = self._kept(
                ibverbs.QP(pd, ibverbs.QPInitAttr(ibverbs.IBV_QPT_RC, scq=self._cq, rcq=self._cq, cap=capacity))
            )
            attr = ibverbs.QPAttr(qp_state=ibverbs.IBV_QPS_INIT, port_num=PORT)
            attr.qp_access_flags = access
            self._qp.modify(attr, ibverbs.flags("IBV_QP_", TO_INIT))
        psn = secrets.randbits(24)
        self.address = Address(self._ip, self._qp.qp_num, psn, self._mr.rkey, self._mr.buf, self._size)
        self._report("INIT")

    def _report(self, state: str) -> None:
        if state == self._known_state:
            return
        self._known_state = state
        peer = f"{self._remote.ip} QP {self._remote.qpn}" if self._remote else ""
        text = f"QP {self.address.qpn} is {state}" + (f", connected to {peer}" if state == "RTS" else "")
        self._changed(state, text, self.device, self.address.qpn, peer)

    def _kept(self, resource: Any) -> Any:
        self._resources.append(resource)
        return resource

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the queue pair, the last thing made first. Its device may have gone before."""
        if self._known_state:
            self._report(CLOSED)
        while self._resources:
            with reported(f"close {self}"):
                self._resources.pop().close()

    # Connecting

    def connect(self, remote: Address, attributes: Attributes | None = None) -> None:
        """Move from INIT to RTR to RTS. ConnectError if the kernel refuses; an unknown neighbour takes it 1 s."""
        attributes = attributes or Attributes()
        self.to_rtr(remote, attributes)
        self.to_rts(attributes)

    def to_rtr(self, remote: Address, attributes: Attributes) -> None:
        """Move from INIT to RTR: the kernel resolves the destination MAC, and a hardware NIC keeps it."""
        attr = ibverbs.QPAttr(qp_state=ibverbs.IBV_QPS_RTR, cur_qp_state=ibverbs.IBV_QPS_INIT)
        attr.path_mtu = getattr(ibverbs, f"IBV_MTU_{attributes.path_mtu}")
        attr.dest_qp_num = remote.qpn
        attr.rq_psn = remote.psn
        attr.max_dest_rd_atomic = attributes.max_rd_atomic
        attr.min_rnr_timer = attributes.min_rnr_timer
        route = ibverbs.GlobalRoute(
            dgid=ibverbs.GID(gid_of(remote.ip)),
            sgid_index=self._gid_index,
            flow_label=attributes.flow_label,
            hop_limit=attributes.hop_limit,
            traffic_class=attributes.traffic_class,
        )
        attr.ah_attr = ibverbs.AHAttr(is_global=1, port_num=PORT, gr=route)
        try:
            self._modify(attr, TO_RTR, f"RTR towards {remote.ip}")
        except ConnectError as error:
            cause = self._unreached(remote.ip)
            raise ConnectError(f"{error.message}: {cause}" if cause else error.message, error.error) from error
        self._remote = remote
        self._report("RTR")
        if self._nic:
            self.connection = self._nic.pin(self.address.qpn)

    def to_rts(self, attributes: Attributes) -> None:
        attr = ibverbs.QPAttr(qp_state=ibverbs.IBV_QPS_RTS, cur_qp_state=ibverbs.IBV_QPS_RTR)
        attr.timeout = attributes.timeout
        attr.retry_cnt = attributes.retry_cnt
        attr.rnr_retry = attributes.rnr_retry
        attr.sq_psn = self.address.psn
        attr.max_rd_atomic = attributes.max_rd_atomic
        self._modify(attr, TO_RTS, "RTS")
        self._report("RTS")

    def _modify(self, attr: QPAttr, attributes: str, step: str) -> None:
        try:
            self._qp.modify(attr, ibverbs.flags("IBV_QP_", attributes))
        except ibverbs.PyverbsRDMAError as error:
            name = errno.errorcode.get(error.error_code, str(error.error_code))
            raise ConnectError(f"{self}: {step}: {name}", name) from error

    @property
    def state(self) -> str:
        """Return RESET, INIT, RTR, RTS, SQD, SQE or ERR."""
        with reported(f"query the queue pair of {self}"):
            attr, _ = self._qp.query(ibverbs.IBV_QP_STATE)
        return STATES[attr.qp_state]

    # Memory

    def memory(self) -> memoryview:
        """Return the memory itself, without a copy; do not use it after the endpoint is closed."""
        return memoryview((ctypes.c_char * self._size).from_address(self._mr.buf)).cast("B")

    def load(self, offset: int = 0, length: int | None = None) -> bytes:
        """Return `length` bytes of the memory, all from `offset` on if None."""
        length = self._size - offset if length is None else length
        self._inside(offset, length, self._size)
        return bytes(self._mr.read(length, offset))

    def store(self, data: bytes, offset: int = 0) -> None:
        """Store `data` in the memory."""
        self._inside(offset, len(data), self._size)
        self._mr.write(data, len(data), offset)

    def _inside(self, offset: int, length: int, size: int) -> None:
        if offset < 0 or length < 0 or offset + length > size:
            raise InputError(f"{self}: {length} bytes at {offset} are outside the memory of {size} bytes")


def completion_channel(context: Context) -> tuple[CompChannel, int]:
    """Return a channel and its descriptor, which pyverbs does not expose: the kernel gives the lowest free number."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.close(descriptor)
        channel = ibverbs.CompChannel(context)
        with suppress(FileNotFoundError):
            if os.readlink(f"/proc/self/fd/{descriptor}") == "anon_inode:[infinibandevent]":
                return channel, descriptor
        channel.close()  # another thread opened a file in between
