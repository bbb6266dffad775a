"""RDMA feels faults that change packets at random, and a full neighbour table: counters and completions show it."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from scapy.utils import checksum

from testbed.faults import Fault, LinkCorrupt, LinkDuplicate, LinkReorder, NeighbourTableFull, injected
from testbed.lab import Lab
from testbed.lab.capture import Frame
from testbed.workload.attributes import Attributes, Completion
from testbed.workload.queue_pair import ConnectError
from testbed.workload.verbs import Endpoint, connect_pair, open_endpoint

PACKETS = 20
SIZE = PACKETS * 1024
DATA = bytes(number % 251 for number in range(SIZE))
TIMEOUT_S = 0.06
"""rxe sends unacknowledged packets again after 67 ms (timeout 14)."""
PATIENT = Attributes(retry_cnt=7)
"""Reordering makes rxe go back many times, more often than the default allows."""
VOLATILE = (1, 8, 10, 11, 26, 27, 32)
"""Bytes of an IPv4 RoCE packet that routers may change, so the ICRC counts them as 0xff: ToS, TTL, both checksums,
FECN and BECN (InfiniBand architecture, annex A17)."""
IPV4 = b"\x08\x00"
NO_CHECKSUM = b"\0\0"
"""What rxe sends as the UDP checksum."""
pytestmark = pytest.mark.topology("""
name: traffic
topology:
  nodes:
    leaf: {kind: switch}
    a: {kind: host}
    b: {kind: host}
    c: {kind: host}
  links:
    - endpoints: ["leaf:e1", "a:eth1"]
    - endpoints: ["leaf:e2", "b:eth1"]
    - endpoints: ["leaf:e3", "c:eth1"]
""")


@dataclass
class Outcome:
    """How a WRITE ended, and by how much the counters of both RDMA devices grew."""

    done: Completion
    a: dict[str, int]
    b: dict[str, int]


@dataclass
class Pair:
    lab: Lab
    near: Endpoint
    far: Endpoint

    def counted(self) -> list[dict[str, int]]:
        self.lab.scheduler.sleep(0.1)  # the kernel reads its counters anew after 12 ms
        return [self.lab.host(name)["eth1"].rdma_counters() for name in "ab"]

    def write(self) -> Outcome:
        """One WRITE of 20 packets."""
        before = self.counted()
        done = self.near.write(SIZE, within=30)
        a, b = (
            {name: now[name] - then[name] for name in now} for now, then in zip(self.counted(), before, strict=True)
        )
        return Outcome(done, a, b)

    def write_under(self, fault: Fault) -> tuple[Outcome, list[Frame]]:
        """The same under the fault, with the frames that reached b's NIC from a: the requests."""
        capture = self.lab["b"]["eth1"].capture("greater 1000")
        with injected(self.lab, fault):
            outcome = self.write()
        capture.stop()
        return outcome, list(capture.frames())


@pytest.fixture
def pair(lab: Lab) -> Iterator[Pair]:
    near, far = (open_endpoint(lab.host(name)["eth1"], memory=SIZE) for name in "ab")
    with near, far:
        connect_pair(near, far, PATIENT)
        near.store(DATA)
        assert near.write(64, within=1).ok
        yield Pair(lab, near, far)


def test_without_a_fault_each_packet_is_sent_and_received_once(pair: Pair) -> None:
    outcome = pair.write()
    assert outcome.done.ok
    assert (outcome.a["sent_pkts"], outcome.b["rcvd_pkts"]) == (PACKETS, PACKETS)
    assert {outcome.b[name] for name in ("duplicate_request", "out_of_seq_request")} == {0}
    assert {outcome.a[name] for name in ("rcvd_seq_err", "completer_retry_err")} == {0}


def test_duplicates_are_counted_at_the_receiver_and_do_no_harm(pair: Pair) -> None:
    outcome, requests = pair.write_under(LinkDuplicate(end="leaf:e2", duplicate=100))
    assert len(requests) == 2 * PACKETS
    assert (outcome.a["sent_pkts"], outcome.b["rcvd_pkts"]) == (PACKETS, 2 * PACKETS)
    assert outcome.b["duplicate_request"] == PACKETS
    assert outcome.a["completer_retry_err"] == 0
    assert outcome.done.ok
    assert outcome.done.elapsed_s < TIMEOUT_S
    assert pair.far.load(0, SIZE) == DATA


def test_an_atomic_that_arrives_twice_adds_once(pair: Pair) -> None:
    pair.far.store((7).to_bytes(8, "little"))
    _, before = pair.counted()
    with injected(pair.lab, LinkDuplicate(end="leaf:e2", duplicate=100)):
        assert pair.near.fetch_add(5, within=1).ok
    _, after = pair.counted()
    assert after["duplicate_request"] - before["duplicate_request"] == 1
    assert int.from_bytes(pair.far.load(0, 8), "little") == 12


def test_reordering_looks_like_loss_and_costs_retransmissions(pair: Pair) -> None:
    outcome, requests = pair.write_under(LinkReorder(end="leaf:e2", reorder=25, delay=1e-3))
    assert outcome.b["rcvd_pkts"] == outcome.a["sent_pkts"] == len(requests)  # nothing is lost
    assert outcome.b["out_of_seq_request"] > 0
    assert outcome.a["rcvd_seq_err"] > 0
    again = outcome.a["sent_pkts"] - PACKETS
    assert again > outcome.a["rcvd_seq_err"]  # each one costs more than one packet: go-back-N
    assert outcome.done.ok
    assert pair.far.load(0, SIZE) == DATA


def test_packets_with_a_wrong_bit_are_dropped_and_sent_again(pair: Pair) -> None:
    """rxe counts no ICRC errors: packets that b's NIC received and its RDMA device did not are what is left of them."""
    outcome, requests = pair.write_under(LinkCorrupt(end="leaf:e2", corrupt=20))
    mac = bytes.fromhex(pair.lab.host("b")["eth1"].mac.replace(":", ""))
    broken = [frame for frame in requests if not icrc_holds(frame)]
    stopped_before = [frame for frame in requests if icrc_holds(frame) and not reaches_rdma(frame, mac)]
    assert broken
    assert outcome.a["sent_pkts"] - outcome.b["rcvd_pkts"] == len(broken) + len(stopped_before)
    assert outcome.b["out_of_seq_request"] > 0
    assert outcome.a["sent_pkts"] > PACKETS
    assert outcome.done.ok
    assert pair.far.load(0, SIZE) == DATA


def icrc_holds(frame: Frame) -> bool:
    """Whether the last four bytes are the packet's invariant CRC: that of eight bytes 0xff and the packet from its IP
    header on."""
    packet = bytearray(frame.data[14:])
    for byte in VOLATILE:
        packet[byte] = 0xFF
    return zlib.crc32(b"\xff" * 8 + packet[:-4]).to_bytes(4, "little") == packet[-4:]


def reaches_rdma(frame: Frame, mac: bytes) -> bool:
    """Whether the kernel hands a packet whose ICRC holds to the RDMA device: what the ICRC does not cover has an
    address and checksums of its own."""
    to_here = frame.data[:6] == mac or frame.data[0] & 1
    ip, udp_checksum = frame.data[14:34], frame.data[40:42]
    return bool(to_here) and frame.data[12:14] == IPV4 and checksum(ip) == 0 and udp_checksum == NO_CHECKSUM


def test_with_a_full_neighbour_table_a_known_peer_answers_and_a_new_one_is_not_found(pair: Pair) -> None:
    lab, full = pair.lab, table_fulls()
    near, far = (open_endpoint(lab.host(name)["eth1"]) for name in "ac")
    with near, far, injected(lab, NeighbourTableFull(gc_thresh3=1)):
        with pytest.raises(ConnectError, match=r"RTR towards .*: ETIMEDOUT"):
            connect_pair(near, far)
        assert table_fulls() > full
        assert pair.near.write(SIZE, within=1).ok
    near, far = (open_endpoint(lab.host(name)["eth1"]) for name in "ac")
    with near, far:
        connect_pair(near, far)
        assert near.write(64, within=1).ok


def table_fulls() -> int:
    """How often the kernel found no room for an entry of IPv4."""
    head, *cpus = Path("/proc/net/stat/arp_cache").read_text().splitlines()
    column = head.split().index("table_fulls")
    return sum(int(line.split()[column], 16) for line in cpus)
