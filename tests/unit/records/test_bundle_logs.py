"""Times and words of logs, as systems write them."""

import pytest

from testbed.protocol.flight import Call
from testbed.records.bundle import clocks, logs, times

SECOND = 10**9
AT = 1796008455 * SECOND


@pytest.mark.parametrize(
    ("line", "t"),
    [
        ("2026-11-30T03:14:15.250Z gpu1 kernel: x", AT + 250_000_000),
        ("2026-11-30 04:14:15,250+01:00 x", AT + 250_000_000),
        ("2026-11-30T03:14:15 x", AT),
        ("Nov 30 03:14:15.000001 leaf1 x", AT + 1_000),
        ("Nov 30 03:14:15 leaf1 x", AT),
        ("2026 Nov 30 03:14:15 leaf1 %ETHPORT", AT),
        ("[1796008455.250000] [gpu1:77:0] ucp_worker.c:1", AT + 250_000_000),
        ("03:14:15.250 UTC Mon Nov 30 2026", AT + 250_000_000),
        ("Mon 2026-11-30 04:14:15 CET gpu1 kernel: x", AT),
        ("2026-11-30T11:14:15+08:00 leaf1 x", AT),
        ("2026-11-30 03:14:15 INFO x", AT),
        ("[Mon Nov 30 03:14:15 2026] mlx5_core x", AT),
        ("[rank0]:[E1130 03:14:15.250000111 x.cpp:1] x", AT + 250_000_111),
        ("[rank0]:[W130 03:14:15.0 x.cpp:1] x", AT - 304 * 86400 * SECOND),
        ("2026-13-41T03:14:15 x", None),
        ("no time", None),
    ],
)
def test_times(line: str, t: int | None) -> None:
    assert times.time_of(line, 2026) == t


@pytest.mark.parametrize(
    ("line", "t"),
    [
        ("Nov 30 11:14:15 leaf1 x", AT),
        ("[Mon Nov 30 11:14:15 2026] x", AT),
        ("2026-11-30 11:14:15 CST x", AT),
        ("2026-11-30T03:14:15Z x", AT),
        ("2026-11-30T03:14:15+00:00 x", AT),
        ("2026-11-30 03:14:15 UTC x", AT),
        ("[1796008455.0] x", AT),
        ("03:14:15.250 UTC Mon Nov 30 2026", AT + 250_000_000),
    ],
)
def test_a_zone_in_the_text_comes_before_that_of_the_host(line: str, t: int) -> None:
    assert times.time_of(line, 2026, 8 * 3600) == t


@pytest.mark.parametrize(
    ("line", "port", "up"),
    [
        ("Nov 30 03:14:15 gpu1 kernel: mlx5_core 0000:0c:00.0 ens1f0np0: Link down", "ens1f0np0", False),
        ("Nov 30 03:14:15 gpu1 kernel: ixgbe 0000:01:00.0 eth1: NIC Link is Up 10 Gbps", "eth1", True),
        ("Nov 30 03:14:15 gpu1 systemd-networkd[1]: eth1: Lost carrier", "eth1", False),
        ("Nov 30 03:14:15 gpu1 kernel: IPv6: ADDRCONF(NETDEV_CHANGE): eth1: link becomes ready", "eth1", True),
        ("Nov 30 03:14:15 leaf1 NOTICE swss#orchagent: :- updatePortOperStatus: Port Ethernet48 oper state set from up "
         "to down", "Ethernet48", False),
        ("Nov 30 03:14:15 leaf1 Ebra: %LINEPROTO-5-UPDOWN: Line protocol on Interface Ethernet3/1 (gpu1), changed "
         "state to down", "Ethernet3/1", False),
        ("2026 Nov 30 03:14:15 leaf1 %ETHPORT-5-IF_DOWN_LINK_FAILURE: Interface Ethernet1/4 is down (Link failure)",
         "Ethernet1/4", False),
        ("2026 Nov 30 03:14:15 leaf1 %ETHPORT-5-IF_UP: Interface Ethernet1/4 is up in mode access",
         "Ethernet1/4", True),
    ],
)  # fmt: skip
def test_words_for_a_link(line: str, port: str, up: bool) -> None:
    [change] = logs.link_changes(f"nothing\n{line}\n", 2026)
    assert (change.t, change.port, change.up) == (AT, port, up)


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        ("gpu1:9:9 [0] transport/net_ib.cc:1 NCCL WARN NET/IB : Got completion from peer 10.1.1.2<4791> with status=12 "
         "opcode=32 len=0 vendor err 129 (Recv)", "RETRY_EXC_ERR", "Got completion"),
        ("[1796008455.250000] x: transport retry counter exceeded on rxe0:1", "RETRY_EXC_ERR", "retry"),
        ("ud_ep.c:278  Fatal: UD endpoint 0x6bc to <no>: unhandled timeout error", "", "unhandled timeout"),
        ("[rank3]:[E1130 03:14:15.25 ProcessGroupNCCL.cpp:616] [Rank 3] Watchdog caught collective operation timeout: "
         "WorkNCCL(SeqNum=12, OpType=ALLREDUCE) ran for 600000 milliseconds", "", "Watchdog caught"),
        ("torch.distributed.DistBackendError: NCCL error", "", "DistBackendError"),
    ],
)  # fmt: skip
def test_words_of_an_end(line: str, status: str, words: str) -> None:
    found = logs.end(f"step 1\n{line}\nmore\n", 2026)
    assert found
    assert found.status == status
    assert words in found.text
    assert logs.end("step 1\nstep 2\n", 2026) is None


def call(rank: int, host: str, sequence: int, ended: int) -> Call:
    return Call(rank, host, sequence, "Allreduce", "0-2", sequence, 8, None, ended - 10, ended)


def test_clocks_are_compared_by_collectives_and_by_links() -> None:
    calls = [call(0, "a", n, n * SECOND) for n in range(1, 6)]
    calls += [call(1, "b", n, (n + 3) * SECOND + n) for n in range(1, 6)]
    changes = {("b", "eth1"): [(103 * SECOND, False)], ("leaf", "e2"): [(90 * SECOND, False)]}
    peers = {("b", "eth1"): ("leaf", "e2"), ("leaf", "e2"): ("b", "eth1")}
    ahead = clocks.ahead({"a": SECOND}, calls, changes, peers)
    assert ahead == {"a": SECOND, "b": 4 * SECOND + 3, "leaf": 4 * SECOND + 3 - 13 * SECOND}
    assert clocks.ahead({}, [], {}, {}) == {}
