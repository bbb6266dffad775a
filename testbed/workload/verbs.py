"""RC endpoints: queue pairs controlled from one process that enters the hosts' namespaces.

Only RoCE is on the wire: the two sides exchange their addresses as Python objects. Nothing polls; a wait sleeps on the
completion channel until its deadline. One thread uses an endpoint at a time.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from testbed.errors import DeadlineError, InputError
from testbed.kernel.syscalls import readable
from testbed.lab import HostInterface
from testbed.protocol.events import QP
from testbed.topology import AnAddress, Family, address_of
from testbed.workload import ibverbs
from testbed.workload.attributes import STATUSES, Attributes, Completion
from testbed.workload.queue_pair import DEPTH, QueuePair, reported

ATOMIC_SIZE = 8


class Endpoint(QueuePair):
    """A queue pair for requests. Exchange `address`, `connect` both sides (`connect_pair` does it), then make requests.

    Lengths and offsets are in bytes; `offset` is in the memory here, `remote_offset` in the peer's. Each `post_…`
    returns a number for `wait` and `done`; the short names wait at once.
    """

    def _open(self, namespace: str) -> None:
        self._posted: dict[int, tuple[str, int]] = {}
        self._completed: dict[int, Completion] = {}
        self._next_id = 1
        super()._open(namespace)

    def post_send(self, length: int, *, offset: int = 0) -> int:
        """Send memory into a receive the peer has posted."""
        return self._post_send("SEND", ibverbs.IBV_WR_SEND, offset, length)

    def post_recv(self, length: int, *, offset: int = 0) -> int:
        """Lend memory to a SEND of the peer, of `length` bytes at most."""
        self._inside(offset, length, self._size)
        element = ibverbs.SGE(self._mr.buf + offset, length, self._mr.lkey)
        request = ibverbs.RecvWR(wr_id=self._next_id, num_sge=1, sg=[element])
        return self._post("RECV", self._qp.post_recv, request, element)

    def post_write(self, length: int, *, offset: int = 0, remote_offset: int = 0) -> int:
        return self._post_send("RDMA_WRITE", ibverbs.IBV_WR_RDMA_WRITE, offset, length, remote_offset)

    def post_read(self, length: int, *, offset: int = 0, remote_offset: int = 0) -> int:
        return self._post_send("RDMA_READ", ibverbs.IBV_WR_RDMA_READ, offset, length, remote_offset)

    def post_fetch_add(self, add: int, *, offset: int = 0, remote_offset: int = 0) -> int:
        """Add to the eight bytes (in the machine's byte order, aligned) there; their old value comes here."""
        opcode = ibverbs.IBV_WR_ATOMIC_FETCH_AND_ADD
        return self._post_send("FETCH_ADD", opcode, offset, ATOMIC_SIZE, remote_offset, add)

    def post_compare_swap(self, compare: int, swap: int, *, offset: int = 0, remote_offset: int = 0) -> int:
        """Set the eight bytes there to `swap` if they are `compare`; their old value comes here."""
        opcode = ibverbs.IBV_WR_ATOMIC_CMP_AND_SWP
        return self._post_send("COMP_SWAP", opcode, offset, ATOMIC_SIZE, remote_offset, compare, swap)

    def _post_send(
        self, name: str, opcode: int, offset: int, length: int, remote_offset: int | None = None, *operands: int
    ) -> int:
        self._inside(offset, length, self._size)
        if self._remote is None:
            raise InputError(f"{self} is not connected")
        element = ibverbs.SGE(self._mr.buf + offset, length, self._mr.lkey)
        request = ibverbs.SendWR(wr_id=self._next_id, opcode=opcode, num_sge=1, sg=[element])
        if remote_offset is not None:
            self._inside(remote_offset, length, self._remote.size)
            target = self._remote.rkey, self._remote.address + remote_offset
            if operands:
                request.set_wr_atomic(*target, *operands)
            else:
                request.set_wr_rdma(*target)
        return self._post(name, self._qp.post_send, request, element)

    def _post(self, name: str, post: Callable[[Any], None], request: Any, element: Any) -> int:
        number, self._next_id = self._next_id, self._next_id + 1
        posted_ns = time.monotonic_ns()
        try:
            with reported(f"{self}: post {name}"):
                post(request)
        finally:
            request.close()  # pyverbs frees neither on its own
            element.close()
        self._posted[number] = name, posted_ns
        return number

    def done(self, wr_id: int) -> bool:
        """Return whether a request has completed by now."""
        self._collect()
        if wr_id not in self._completed and wr_id not in self._posted:
            raise InputError(f"{self}: request {wr_id} was never posted, or its completion was already read")
        return wr_id in self._completed

    def wait(self, wr_id: int, within: float) -> Completion:
        """Return the completion of a request, with any status, in any order. DeadlineError after `within` seconds."""
        deadline = time.monotonic() + within
        while not self.done(wr_id):
            with reported(f"{self}: ask for a completion event"):
                self._cq.req_notify()
            if self.done(wr_id):  # it came before the event was asked for
                break
            left = max(0.0, deadline - time.monotonic())
            if not self._ready([self._channel_fd], left):
                name, _ = self._posted[wr_id]
                raise DeadlineError(f"{self}: {name} (request {wr_id}) has not completed after {within:g} s")
            with reported(f"{self}: take a completion event"):
                self._channel.get_cq_event(self._cq)
                self._cq.ack_events(1)
        return self._completed.pop(wr_id)

    def fileno(self) -> int:
        """Return a descriptor that is readable when something has completed since the last `arrivals`."""
        return self._channel_fd

    def arrivals(self) -> list[Completion]:
        """Return all completions so far, in their order, without waiting; the next one makes this endpoint readable."""
        with reported(f"{self}: take a completion event"):
            if readable([self._channel_fd], 0):
                self._channel.get_cq_event(self._cq)
                self._cq.ack_events(1)
            self._cq.req_notify()
        self._collect()
        found = list(self._completed.values())
        self._completed.clear()
        return found

    def _collect(self) -> None:
        with reported(f"{self}: poll completions"):
            _, found = self._cq.poll(2 * DEPTH)
        t_ns = time.monotonic_ns() if found else 0
        for wc in found:
            opcode, posted_ns = self._posted.pop(wc.wr_id)
            status = STATUSES[wc.status]
            ends = self.address.end, self._remote.end if self._remote else None
            self._completed[wc.wr_id] = Completion(wc.wr_id, opcode, status, wc.byte_len, posted_ns, t_ns, *ends)
        if any(wc.status for wc in found):
            self._report(self.state)

    def send(self, length: int, *, offset: int = 0, within: float) -> Completion:
        return self.wait(self.post_send(length, offset=offset), within)

    def recv(self, length: int, *, offset: int = 0, within: float) -> Completion:
        return self.wait(self.post_recv(length, offset=offset), within)

    def write(self, length: int, *, offset: int = 0, remote_offset: int = 0, within: float) -> Completion:
        return self.wait(self.post_write(length, offset=offset, remote_offset=remote_offset), within)

    def read(self, length: int, *, offset: int = 0, remote_offset: int = 0, within: float) -> Completion:
        return self.wait(self.post_read(length, offset=offset, remote_offset=remote_offset), within)

    def fetch_add(self, add: int, *, offset: int = 0, remote_offset: int = 0, within: float) -> Completion:
        return self.wait(self.post_fetch_add(add, offset=offset, remote_offset=remote_offset), within)

    def compare_swap(
        self, compare: int, swap: int, *, offset: int = 0, remote_offset: int = 0, within: float
    ) -> Completion:
        return self.wait(self.post_compare_swap(compare, swap, offset=offset, remote_offset=remote_offset), within)


def open_endpoint(
    interface: HostInterface, family: Family = 4, *, memory: int = 1 << 16, ip: AnAddress | None = None
) -> Endpoint:
    """Open an endpoint on a host's interface, closed with the host at the latest; `nic: hardware` pins its MAC.
    `family` chooses the GID: that of the first IPv4 or IPv6 address; `ip` is another of its addresses. `memory` in
    bytes. InputError for what is no interface."""
    if not isinstance(interface, HostInterface):
        hint = 'Give one, such as lab.host("host1")["eth1"].'
        raise InputError(f"{interface!r} is not an interface of a host", hint=hint)
    host = interface.node

    def changed(state: str, text: str, device: str, qpn: int, peer: str) -> None:
        interface.emit(QP(interface=interface.name, state=state, device=device, qpn=qpn, peer=peer), text)

    endpoint = Endpoint(
        interface.device,
        host.namespace,
        address_of(ip) if ip else interface.address(family).ip,
        memory=memory,
        nic=interface.nic,
        ready=host.context.scheduler.ready,
        unreached=interface.unreached,
        changed=changed,
    )
    host.defer(endpoint.close)
    return endpoint


@contextmanager
def connected(
    near: HostInterface,
    far: HostInterface,
    attributes: Attributes | None = None,
    *,
    family: Family = 4,
    memory: int = 1 << 16,
    to: AnAddress | None = None,
) -> Iterator[tuple[Endpoint, Endpoint]]:
    """Open an endpoint on each of two interfaces and connect them for the block; `to` is the address of the second one
    if it has several. ConnectError if that fails."""
    with open_endpoint(near, family, memory=memory) as here, open_endpoint(far, family, memory=memory, ip=to) as there:
        connect_pair(here, there, attributes)
        yield here, there


def connect_pair(left: Endpoint, right: Endpoint, attributes: Attributes | None = None) -> None:
    """Connect two endpoints with each other: both are ready to receive before either may send."""
    attributes = attributes or Attributes()
    left.to_rtr(right.address, attributes)
    right.to_rtr(left.address, attributes)
    left.to_rts(attributes)
    right.to_rts(attributes)
