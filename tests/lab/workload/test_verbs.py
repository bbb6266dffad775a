"""Verbs endpoints: bytes arrive, failures have their standard name and time, and an end is an end."""

import sys
import threading
import time
from dataclasses import replace
from ipaddress import IPv4Address

import pytest
from pyverbs import enums
from wire_lab import Wire

from testbed.errors import DeadlineError, InputError, TestbedError
from testbed.kernel import netns, rdma
from testbed.workload.attributes import STATUSES, Attributes
from testbed.workload.queue_pair import ConnectError
from testbed.workload.verbs import Endpoint, connect_pair

SOON = 1.0
ROUND_S = 0.068
"""A retransmission timeout of rxe for timeout=14, in whole ticks of the kernel (HZ=250)."""
TICK_S = 0.004


@pytest.fixture
def pair(wire: Wire):
    with wire.left.endpoint() as left, wire.right.endpoint() as right:
        connect_pair(left, right)
        yield left, right


def number(data: bytes) -> int:
    return int.from_bytes(data, sys.byteorder)


@pytest.mark.parametrize("wire", ["shared", "exclusive"], indirect=True)
def test_write_brings_the_bytes_where_they_belong_and_no_other(pair: tuple[Endpoint, Endpoint]) -> None:
    left, right = pair
    before = right.load()

    done = left.write(5000, offset=100, remote_offset=300, within=SOON)

    assert (done.status, done.opcode) == ("SUCCESS", "RDMA_WRITE")
    assert right.load(300, 5000) == left.load(100, 5000)
    assert right.load(0, 300) == before[:300]
    assert right.load(5300) == before[5300:]


def test_read_fetches_the_bytes(pair: tuple[Endpoint, Endpoint]) -> None:
    left, right = pair
    before = right.load()

    done = left.read(9000, offset=10, remote_offset=2000, within=SOON)

    assert (done.status, done.opcode, done.byte_len) == ("SUCCESS", "RDMA_READ", 9000)
    assert left.load(10, 9000) == before[2000:11000]
    assert right.load() == before


def test_send_arrives_in_the_receive_that_was_posted(pair: tuple[Endpoint, Endpoint]) -> None:
    left, right = pair
    receive = right.post_recv(4096, offset=8192)

    sent = left.send(1500, offset=64, within=SOON)
    received = right.wait(receive, within=SOON)

    assert (sent.status, sent.opcode) == ("SUCCESS", "SEND")
    assert (received.status, received.opcode, received.byte_len) == ("SUCCESS", "RECV", 1500)
    assert right.load(8192, 1500) == left.load(64, 1500)


def test_atomics_change_the_peer_and_return_what_was_there(pair: tuple[Endpoint, Endpoint]) -> None:
    left, right = pair
    right.store((40).to_bytes(8, sys.byteorder), 16)

    added = left.fetch_add(2, offset=0, remote_offset=16, within=SOON)
    swapped = left.compare_swap(42, 7, offset=8, remote_offset=16, within=SOON)
    kept = left.compare_swap(42, 9, offset=24, remote_offset=16, within=SOON)

    assert [done.opcode for done in (added, swapped, kept)] == ["FETCH_ADD", "COMP_SWAP", "COMP_SWAP"]
    assert [done.status for done in (added, swapped, kept)] == ["SUCCESS"] * 3
    assert [number(left.load(at, 8)) for at in (0, 8, 24)] == [40, 42, 7]
    assert number(right.load(16, 8)) == 7


def test_several_requests_are_outstanding_and_waited_for_in_any_order(pair: tuple[Endpoint, Endpoint]) -> None:
    left, right = pair
    posted = [left.post_write(1000, offset=at, remote_offset=at) for at in range(0, 20_000, 1000)]

    done = [left.wait(request, within=SOON) for request in reversed(posted)]

    assert {completion.status for completion in done} == {"SUCCESS"}
    assert right.load(0, 20_000) == left.load(0, 20_000)
    with pytest.raises(InputError, match="was already read"):
        left.done(posted[0])


def test_wait_sleeps_until_the_completion_comes(pair: tuple[Endpoint, Endpoint]) -> None:
    left, right = pair
    receive = right.post_recv(64)
    sender = threading.Timer(0.2, lambda: left.post_send(64))
    sender.start()
    busy = time.process_time()

    done = right.wait(receive, within=SOON)

    sender.join()
    assert done.ok
    assert done.elapsed_s == pytest.approx(0.2, abs=0.02)
    assert time.process_time() - busy < 0.05


def test_a_deadline_names_what_was_awaited(pair: tuple[Endpoint, Endpoint]) -> None:
    _, right = pair
    receive = right.post_recv(64)
    began = time.monotonic()

    with pytest.raises(DeadlineError, match=r"right-eth1 \(10.0.0.2\): RECV .* after 0.3 s"):
        right.wait(receive, within=0.3)

    assert time.monotonic() - began == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize("retry_cnt", [0, 3])
def test_a_black_hole_ends_in_retry_exc_err_after_the_retries(wire: Wire, retry_cnt: int) -> None:
    with wire.left.endpoint() as left, wire.right.endpoint() as right:
        connect_pair(left, right, Attributes(retry_cnt=retry_cnt))
        assert left.write(64, within=SOON).ok
        wire.block(wire.right)

        lost, next_one = left.post_write(64), left.post_write(64)
        done = left.wait(lost, within=SOON)

        assert done.status == "RETRY_EXC_ERR"
        # The first round begins within a tick, and each ends a little after one.
        rounds = retry_cnt + 1
        assert rounds * ROUND_S - TICK_S <= done.elapsed_s <= rounds * (ROUND_S + TICK_S / 2)
        assert left.wait(next_one, within=SOON).status == "WR_FLUSH_ERR"
        assert (left.state, right.state) == ("ERR", "RTS")


def test_without_a_receive_the_sender_gives_up(wire: Wire) -> None:
    with wire.left.endpoint() as left, wire.right.endpoint() as right:
        connect_pair(left, right, Attributes(rnr_retry=1))
        assert left.send(64, within=SOON).status == "RNR_RETRY_EXC_ERR"


def test_memory_that_is_not_the_peers_is_refused_by_the_peer(wire: Wire) -> None:
    with wire.left.endpoint() as left, wire.right.endpoint() as right:
        left.connect(replace(right.address, rkey=right.address.rkey ^ 1))
        right.connect(left.address)
        assert left.write(64, within=SOON).status == "REM_ACCESS_ERR"


def test_an_unknown_neighbour_refuses_the_connection_by_name(wire: Wire) -> None:
    with wire.left.endpoint() as left, wire.right.endpoint() as right:
        with pytest.raises(ConnectError, match=r"RTR towards 10\.0\.0\.77: ETIMEDOUT") as refused:
            left.connect(replace(right.address, ip=IPv4Address("10.0.0.77")))
        assert refused.value.error == "ETIMEDOUT"


def test_states(wire: Wire) -> None:
    with wire.left.endpoint() as left, wire.right.endpoint() as right:
        assert left.state == "INIT"
        left.to_rtr(right.address, Attributes())
        assert left.state == "RTR"
        left.to_rts(Attributes())
        assert left.state == "RTS"


def test_an_address_that_comes_late_is_waited_for(wire: Wire) -> None:
    late = IPv4Address("10.0.0.9")
    timer = threading.Timer(0.1, lambda: wire.left.command("ip", "address", "add", f"{late}/24", "dev", "eth1"))
    timer.start()
    with Endpoint(wire.left.device, "left", late) as endpoint:
        assert endpoint.address.ip == late
    timer.join()


def test_memory_beyond_the_end_is_refused(pair: tuple[Endpoint, Endpoint]) -> None:
    left, right = pair
    for attempt in (
        lambda: left.store(b"xx", (1 << 16) - 1),
        lambda: left.load(-1, 1),
        lambda: left.post_write(1 << 16, offset=1),
        lambda: left.post_read(2, remote_offset=right.address.size - 1),
    ):
        with pytest.raises(InputError, match="are outside the memory"):
            attempt()


def test_an_endpoint_closes_after_its_namespace_has_gone(wire: Wire) -> None:
    with wire.left.endpoint() as left:
        with wire.right.endpoint() as right:
            connect_pair(left, right)
            assert left.write(64, within=SOON).ok
            netns.delete("right")
            with rdma.Rdma() as system:
                system.wait_gone([wire.right.device])
            with pytest.raises(TestbedError):
                right.state  # noqa: B018
        assert left.write(64, within=SOON).status == "RETRY_EXC_ERR"


def test_statuses_have_the_numbers_of_verbs() -> None:
    assert [getattr(enums, f"IBV_WC_{name}") for name in STATUSES] == list(range(len(STATUSES)))


def test_no_such_device(wire: Wire) -> None:
    with pytest.raises(TestbedError, match="open RDMA device nothing in left"):
        Endpoint("nothing", "left", wire.left.ip)
