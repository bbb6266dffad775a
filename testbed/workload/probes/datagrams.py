"""UD queue pairs of a NIC, which send datagrams to any other NIC and need no connection.

A UD queue pair has no retransmission and no acknowledgement: what is lost is lost, and a loss of one direction shows.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from testbed.kernel.syscalls import readable
from testbed.lab import HostInterface
from testbed.nic import Connection
from testbed.topology import Family, IPAddress
from testbed.workload import ibverbs
from testbed.workload.queue_pair import PORT, ConnectError, completion_channel, gid_index, gid_of, open_device, reported

if TYPE_CHECKING:
    from pyverbs.addr import AH

GLOBAL_ROUTE = 40
"""Bytes before a received datagram: its global route header."""
SLOTS = 64
"""Datagrams that may arrive before somebody looks."""
QKEY = 0x7E57BED
SENDS = 16
"""Datagrams whose bytes are kept: rxe takes them when they are posted, or a little later."""
FIRST_PORT = 0xC000
_GOLDEN_RATIO = 0x61C88647


def source_port(qpn: int) -> int:
    """Return the UDP source port of a UD queue pair of rxe. Source: rxe_qp_init_req in the kernel's rxe_qp.c, and
    hash_32 in linux/hash.h."""
    return FIRST_PORT + ((qpn * _GOLDEN_RATIO & 0xFFFFFFFF) >> 18)


class Way(NamedTuple):
    """How a NIC sends to another one: `handle` is its address handle (AH)."""

    handle: AH
    to: Datagrams


class Datagrams:
    """`paths` UD queue pairs of a NIC, each with another UDP source port. All receive by the first one.

    `size` is the number of bytes of a datagram, at most the MTU of the device. Close it.
    """

    def __init__(self, interface: HostInterface, paths: int, size: int, family: Family = 4) -> None:
        self.interface = interface
        self.ip = interface.address(family).ip
        self._size = size
        self._slot = GLOBAL_ROUTE + size
        self._sent = 0
        self._undo = ExitStack()
        try:
            self._open(paths)
        except BaseException:
            self.close()
            raise

    def _kept(self, resource: Any) -> Any:
        self._undo.callback(resource.close)
        return resource

    def _open(self, paths: int) -> None:
        context = self._kept(open_device(self.interface.node.namespace, self.interface.device))
        self._gid_index = gid_index(context, self.ip)
        with reported(f"make UD queue pairs on {self.interface}"):
            self._pd = self._kept(ibverbs.PD(context))
            memory = SLOTS * self._slot + SENDS * self._size
            self._mr = self._kept(ibverbs.MR(self._pd, memory, ibverbs.IBV_ACCESS_LOCAL_WRITE))
            self._channel, self._descriptor = completion_channel(context)
            self._kept(self._channel)
            self._received = self._kept(ibverbs.CQ(context, SLOTS, None, self._channel, 0))
            self._done = self._kept(ibverbs.CQ(context, SLOTS, None, None, 0))
            self._queue_pairs = [self._queue_pair() for _ in range(paths)]
        for slot in range(SLOTS):
            self._lend(slot)
        self._received.req_notify()

    def _queue_pair(self) -> Any:
        capacity = ibverbs.QPCap(
            max_send_wr=SLOTS, max_recv_wr=SLOTS, max_send_sge=1, max_recv_sge=1, max_inline_data=0
        )
        init = ibverbs.QPInitAttr(ibverbs.IBV_QPT_UD, scq=self._done, rcq=self._received, cap=capacity)
        made = self._kept(ibverbs.QP(self._pd, init))
        attr = ibverbs.QPAttr(qp_state=ibverbs.IBV_QPS_INIT, port_num=PORT)
        attr.qkey = QKEY
        made.modify(attr, ibverbs.flags("IBV_QP_", "STATE PKEY_INDEX PORT QKEY"))
        made.modify(ibverbs.QPAttr(qp_state=ibverbs.IBV_QPS_RTR), ibverbs.IBV_QP_STATE)
        attr = ibverbs.QPAttr(qp_state=ibverbs.IBV_QPS_RTS)
        attr.sq_psn = 0
        made.modify(attr, ibverbs.flags("IBV_QP_", "STATE SQ_PSN"))
        return made

    @property
    def qpn(self) -> int:
        """Return the number of the queue pair that receives."""
        return int(self._queue_pairs[0].qp_num)

    def source_port(self, path: int) -> int:
        """Return the UDP source port of the queue pair number `path`."""
        return source_port(self._queue_pairs[path].qp_num)

    def fileno(self) -> int:
        """Return a descriptor that is readable when a datagram has arrived since the last `arrivals`."""
        return self._descriptor

    def close(self) -> None:
        with reported(f"close the UD queue pairs of {self.interface}"):
            self._undo.close()

    def way(self, to: Datagrams, traffic_class: int = 0) -> Way:
        """Return the way to another NIC: the kernel resolves its MAC now, and a hardware NIC keeps it. ConnectError if
        it cannot, after a second."""
        route = ibverbs.GlobalRoute(
            dgid=ibverbs.GID(gid_of(to.ip)), sgid_index=self._gid_index, hop_limit=64, traffic_class=traffic_class
        )
        try:
            handle = self._kept(ibverbs.AH(self._pd, attr=ibverbs.AHAttr(is_global=1, port_num=PORT, gr=route)))
        except ibverbs.PyverbsRDMAError as error:
            name = errno.errorcode.get(error.error_code, str(error.error_code))
            cause = self.interface.unreached(to.ip)
            raise ConnectError(cause or f"the address {to.ip} is refused: {name}", name) from error
        if (nic := self.interface.nic) and (mac := self._mac(to.ip)):
            numbers = [int(one.qp_num) for one in self._queue_pairs]
            device = self.interface.device
            nic.write(Connection(device, qpn, to.ip, to.qpn, source_port(qpn), mac) for qpn in numbers)
        return Way(handle, to)

    def _mac(self, ip: IPAddress) -> str:
        hop = self.interface.next_hop(ip)
        return (hop and self.interface.neighbour(hop)) or ""

    def send(self, way: Way, data: bytes, path: int) -> None:
        """Send a datagram that begins with `data` by the queue pair number `path`."""
        offset = SLOTS * self._slot + self._sent % SENDS * self._size
        self._sent += 1
        self._mr.write(data, len(data), offset)
        element = ibverbs.SGE(self._mr.buf + offset, self._size, self._mr.lkey)
        request = ibverbs.SendWR(wr_id=0, opcode=ibverbs.IBV_WR_SEND, num_sge=1, sg=[element])
        try:
            request.set_wr_ud(way.handle, way.to.qpn, QKEY)
            with reported(f"send a datagram from {self.interface}"):
                self._done.poll(SLOTS)
                self._queue_pairs[path].post_send(request)
        finally:
            request.close()
            element.close()

    def arrivals(self, length: int) -> Iterator[bytes]:
        """Yield the first `length` bytes of each datagram that has arrived."""
        with reported(f"receive datagrams on {self.interface}"):
            if readable([self._descriptor], 0):
                self._channel.get_cq_event(self._received)
                self._received.ack_events(1)
            self._received.req_notify()
            while found := self._received.poll(SLOTS)[1]:
                for completion in found:
                    slot = completion.wr_id
                    data = bytes(self._mr.read(length, slot * self._slot + GLOBAL_ROUTE))
                    self._lend(slot)
                    yield data

    def _lend(self, slot: int) -> None:
        element = ibverbs.SGE(self._mr.buf + slot * self._slot, self._slot, self._mr.lkey)
        request = ibverbs.RecvWR(wr_id=slot, num_sge=1, sg=[element])
        try:
            self._queue_pairs[0].post_recv(request)
        finally:
            request.close()
            element.close()
