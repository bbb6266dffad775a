"""Queue pairs of this kernel that change to ready-to-receive (RTR), as the soft-RoCE driver handles them.

The kernel resolves the destination MAC at that moment (ib_resolve_eth_dmac) and reports it nowhere. A return probe on
rdma_rxe's function that stores it writes it into our own trace buffer, for queue pairs of any program. The record is
there when ibv_modify_qp returns. Source: Documentation/trace/kprobetrace.rst.
"""

import contextlib
import errno
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path

from testbed.errors import TestbedError, UnsupportedError
from testbed.kernel import ownership
from testbed.kernel.syscalls import closing_fd
from testbed.topology.plan import IPAddress

TRACEFS = Path("/sys/kernel/tracing")
INSTANCE = TRACEFS / "instances/testbed"
EVENT = "testbed/ready_to_receive"
PROBE = (
    "device=qp->ibqp.device->name:string qpn=qp->ibqp.qp_num:u32 remote_qpn=qp->attr.dest_qp_num:u32 "
    "gid=qp->pri_av.grh.dgid.global.subnet_prefix:x64 gid_low=qp->pri_av.grh.dgid.global.interface_id:x64 "
    "flow_label=qp->pri_av.grh.flow_label:u32 mac=qp->pri_av.dmac:x64 mask=mask:u32 status=$retval:s32"
)
FILTER = "mask & 128 && status == 0"
"""IB_QP_AV: the address was set."""
BUFFER_KB = 64
"""Per CPU; enough for some 600 records."""
READ = 1 << 16
_RECORD = re.compile(
    r'device="(?P<device>[^"]*)" qpn=(?P<qpn>\d+) remote_qpn=(?P<remote_qpn>\d+) '
    r"gid=0x(?P<gid>[0-9a-f]+) gid_low=0x(?P<gid_low>[0-9a-f]+) "
    r"flow_label=(?P<flow_label>\d+) mac=0x(?P<mac>[0-9a-f]+) "
)


@dataclass(frozen=True, slots=True)
class Connection:
    """A queue pair of `device` and its destination. `sport` is the UDP source port, `mac` the one that RTR resolved."""

    device: str
    qpn: int
    remote_ip: IPAddress
    remote_qpn: int
    sport: int
    mac: str


def source_port(flow_label: int, qpn: int, remote_qpn: int) -> int:
    """Return the UDP source port of a queue pair. Source: rdma_get_udp_sport in the kernel's include/rdma/ib_verbs.h.

    Only 20 bits of a flow label are used. UCX gives its queue pairs 0xffffffff.
    """
    if not flow_label:
        product = qpn * remote_qpn
        product ^= product >> 20
        product ^= product >> 40
        flow_label = product & 0xFFFFF
    return (flow_label & 0x3FFF) ^ ((flow_label & 0xFC000) >> 14) | 0xC000


def parse(line: str) -> Connection:
    """Parse a line of the trace."""
    found = _RECORD.search(line)
    if not found:
        raise TestbedError(f"the kernel's trace of queue pairs cannot be read: {line!r}")
    # The probe reads 64-bit words of kernel memory: the first six of the eight bytes at `mac` are the address.
    word, high, low = (int(found[name], 16).to_bytes(8, sys.byteorder) for name in ("mac", "gid", "gid_low"))
    gid = IPv6Address(high + low)
    flow_label, qpn, remote_qpn = (int(found[name]) for name in ("flow_label", "qpn", "remote_qpn"))
    sport = source_port(flow_label, qpn, remote_qpn)
    return Connection(found["device"], qpn, gid.ipv4_mapped or gid, remote_qpn, sport, word[:6].hex(":"))


def _write(path: Path, text: str, flags: int = 0) -> None:
    with closing_fd(os.open(path, os.O_WRONLY | flags)) as handle:
        os.write(handle, text.encode() + b"\n")


def arm() -> bool:
    """Make the kernel record from now on; False if it does already. It takes 20 ms, so a snapshot may do it before."""
    enable = INSTANCE / "events" / EVENT / "enable"
    if enable.exists() and enable.read_text().startswith("1"):
        return False
    ownership.claim_probes()
    disarm()  # left by a process killed while arming
    try:
        _write(TRACEFS / "dynamic_events", f"r:{EVENT} rxe_qp_from_attr {PROBE}", os.O_APPEND)
        INSTANCE.mkdir()
        _write(INSTANCE / "buffer_size_kb", str(BUFFER_KB))
        _write(INSTANCE / "buffer_percent", "0")  # the first record wakes a reader
        _write(INSTANCE / "events" / EVENT / "filter", FILTER)
        _write(enable, "1")
    except OSError as error:
        disarm()
        raise UnsupportedError(
            f"this kernel cannot trace queue pairs: {error}",
            hint="`nic: hardware` needs root, tracefs on /sys/kernel/tracing and a kernel with BTF and kprobe events.",
        ) from error
    return True


def disarm() -> None:
    """Undo `arm`, also a partial one."""
    with contextlib.suppress(OSError):
        _write(INSTANCE / "events" / EVENT / "enable", "0")
    with contextlib.suppress(FileNotFoundError):
        INSTANCE.rmdir()
    with contextlib.suppress(OSError):
        _write(TRACEFS / "dynamic_events", f"-:{EVENT}", os.O_APPEND)


class Trace:
    """The connections made since it was opened. A kernel has one reader at a time."""

    def __init__(self) -> None:
        self._armed = arm()
        _write(INSTANCE / "trace", "", os.O_TRUNC)  # old records: a kernel that always records has lost some
        try:
            self._pipe = os.open(INSTANCE / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            raise TestbedError(
                "another process already reads the trace of queue pairs",
                hint="Another lab is running on this kernel: end it first.",
            ) from None

    def fileno(self) -> int:
        return self._pipe

    def close(self) -> None:
        os.close(self._pipe)
        if self._armed:
            disarm()

    def read(self) -> list[Connection]:
        """Return the connections recorded by now, without waiting."""
        return [parse(line) for line in self._lines()]

    def _lines(self) -> Iterator[str]:
        while True:
            try:
                text = os.read(self._pipe, READ).decode(errors="replace")
            except BlockingIOError:
                return
            for line in text.splitlines():
                if line.startswith("CPU:"):  # CPU:0 [LOST 5 EVENTS]
                    raise TestbedError(f"the kernel's trace of queue pairs overflowed: {line.strip()}")
                yield line
