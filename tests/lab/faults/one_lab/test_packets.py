"""Exact packets: the one that was meant is met, once, and RDMA feels just that."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from testbed.faults import ExactPacket, injected
from testbed.lab import Host, Lab
from testbed.workload.verbs import Completion, Endpoint, connect_pair

PACKETS = 20
SIZE = PACKETS * 1024
pytestmark = pytest.mark.topology("""
name: packets
topology:
  nodes:
    leaf: {kind: switch}
    a: {kind: host}
    b: {kind: host}
  links:
    - endpoints: ["leaf:e1", "a:eth1"]
    - endpoints: ["leaf:e2", "b:eth1"]
""")


@dataclass
class Pair:
    lab: Lab
    near: Endpoint
    far: Endpoint
    before: dict[str, dict[str, int]] = field(default_factory=dict)
    """The counters of both RDMA devices when the test began."""

    def write(self, fault: ExactPacket) -> tuple[Completion, int]:
        """One WRITE of 20 packets under the fault, and the hits."""
        with injected(self.lab, fault):
            return self.near.write(SIZE, within=5), fault.hits(self.lab)

    def counters(self) -> dict[str, dict[str, int]]:
        self.lab.scheduler.sleep(0.1)  # the kernel reads its counters anew after 12 ms
        return {host: self.lab.host(host)["eth1"].rdma_counters() for host in "ab"}

    def counted(self, host: str, name: str) -> int:
        return self.counters()[host][name] - self.before[host][name]


def endpoint(host: Host) -> Endpoint:
    return Endpoint(host["eth1"].device, host.namespace, host["eth1"].address().ip, memory=SIZE)


@pytest.fixture
def pair(lab: Lab) -> Iterator[Pair]:
    with endpoint(lab.host("a")) as near, endpoint(lab.host("b")) as far:
        connect_pair(near, far)
        assert near.write(64, within=1).ok
        made = Pair(lab, near, far)
        made.before = made.counters()
        yield made


@pytest.mark.parametrize("end", ["a:eth1", "leaf:e2"])
def test_the_third_packet_is_lost_once_and_asked_for_again(pair: Pair, end: str) -> None:
    done, hits = pair.write(ExactPacket(end=end, action="drop", number=3))
    assert (done.status, hits) == ("SUCCESS", 1)
    assert done.elapsed_s < 0.06  # a NAK, no timeout
    assert pair.counted("b", "out_of_seq_request") == 1


def test_the_last_packet_costs_a_timeout(pair: Pair) -> None:
    done, hits = pair.write(ExactPacket(end="leaf:e2", action="drop", number=PACKETS))
    assert (done.status, hits) == ("SUCCESS", 1)
    assert 0.06 < done.elapsed_s < 0.09


def test_a_psn_is_met_every_time_it_comes(pair: Pair) -> None:
    """The request after the first WRITE's, which had one packet."""
    psn = (pair.near.address.psn + 1 + 4) % (1 << 24)
    fault = ExactPacket(end="a:eth1", action="drop", psn=psn, dest_qp=pair.far.address.qpn)
    done, hits = pair.write(fault)
    assert done.status == "RETRY_EXC_ERR"
    assert hits >= 4


def test_an_opcode_is_met_and_no_other(pair: Pair) -> None:
    fault = ExactPacket(end="b:eth1", action="drop", opcode="ACKNOWLEDGE", number=1)
    done, hits = pair.write(fault)
    assert (done.status, hits) == ("SUCCESS", 1)
    assert pair.counted("a", "completer_retry_err") == 1
    assert pair.counted("b", "duplicate_request") >= 1


def test_another_queue_pair_is_not_met(pair: Pair) -> None:
    done, hits = pair.write(ExactPacket(end="leaf:e2", action="drop", dest_qp=pair.far.address.qpn + 1))
    assert (done.status, hits) == ("SUCCESS", 0)


def test_a_corrupted_packet_fails_its_icrc_and_is_lost(pair: Pair) -> None:
    done, hits = pair.write(ExactPacket(end="leaf:e2", action="corrupt", number=PACKETS))
    assert (done.status, hits) == ("SUCCESS", 1)
    assert done.elapsed_s > 0.06
    assert pair.far.load(0, SIZE) == pair.near.load(0, SIZE)


def test_a_ce_mark_leaves_the_icrc_valid(pair: Pair) -> None:
    capture = pair.lab["b"]["eth1"].capture("udp port 4791")
    done, hits = pair.write(ExactPacket(end="leaf:e2", action="mark-ce", number=5))
    capture.stop()
    assert (done.status, hits) == ("SUCCESS", 1)
    assert done.elapsed_s < 0.06
    marked = [number for number, frame in enumerate(f for f in capture.frames() if f.roce) if frame.data[15] & 3 == 3]
    assert marked == [4]


def test_a_delayed_packet_is_overtaken(pair: Pair) -> None:
    done, hits = pair.write(ExactPacket(end="leaf:e2", action="delay", number=3, delay=10e-3))
    assert (done.status, hits) == ("SUCCESS", 1)
    assert pair.counted("b", "out_of_seq_request") == 1
    assert pair.counted("b", "duplicate_request") >= 1
