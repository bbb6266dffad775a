"""The words of NCCL and of PyTorch's watchdog, of several versions, and outputs of ncclras."""

import json

import pytest

from testbed.records.bundle import logs, ras, watchdog

SECOND = 10**9
AT = 1796008455 * SECOND
WATCHDOG = (
    "[rank3]:[E1130 03:14:15.250000000 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=12, OpType={op}, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600250 "
    "milliseconds before timing out."
)
PLACES = [
    "[rank3]:[E1130 03:14:15.26 ProcessGroupNCCL.cpp:2268] [PG ID 1 PG GUID 0(default_pg) Rank 3]  failure detected by "
    "watchdog at work sequence id: 12 PG status: last enqueued work: 14, last completed work: 11",
    "[rank3]:[E1130 03:14:15.26 ProcessGroupNCCL.cpp:1664] [PG 0(default_pg) Rank 3] Exception (either an error or "
    "timeout) detected by watchdog at work: 12, last enqueued NCCL work: 14, last completed NCCL work: 11.",
    "[rank3]:[E1130 03:14:15.26 ProcessGroupNCCL.cpp:1537] [PG 0(default_pg) Rank 3] Timeout at NCCL work: 12, last "
    "enqueued NCCL work: 14, last completed NCCL work: 11.",
]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("op", "operation"), [("ALLREDUCE", "Allreduce"), ("_ALLGATHER_BASE", "Allgather"), ("BROADCAST", "Bcast")]
)
def test_a_timeout_is_a_call_that_waits(place: str, op: str, operation: str) -> None:
    [call] = watchdog.calls(f"step 1\n{WATCHDOG.format(op=op)}\n{place}\n", 3, "gpu1", 2026)
    assert (call.rank, call.host, call.operation, call.sequence, call.ended) == (3, "gpu1", operation, 12, None)
    assert call.communicator == "process group 0(default_pg)"
    assert call.began == AT + 250_000_000 - 600_250_000_000


def test_a_timeout_of_an_unknown_group_is_of_no_collective() -> None:
    [call] = watchdog.calls(WATCHDOG.format(op="ALLREDUCE"), 3, "gpu1", 2026)
    assert (call.communicator, call.sequence) == ("", 0)
    [call] = watchdog.calls(f"{WATCHDOG.format(op='COALESCED')}\n{PLACES[0]}", 3, "gpu1", 2026)
    assert call.sequence == 0


def test_the_zone_of_a_host_counts_where_a_line_has_none() -> None:
    [here] = watchdog.calls(WATCHDOG.format(op="ALLREDUCE"), 3, "gpu1", 2026, 8 * 3600)
    assert here.began == AT + 250_000_000 - 600_250_000_000 - 8 * 3600 * SECOND


def test_a_timeout_without_a_time_is_an_end_and_no_call() -> None:
    line = "[E ProcessGroupNCCL.cpp:458] " + WATCHDOG.format(op="ALLREDUCE").partition("] ")[2]
    assert list(watchdog.calls(line, 3, "gpu1", 2026)) == []
    found = logs.end(line, 2026)
    assert found
    assert not found.own


PEER = "gpu1:9:9 [0] transport/net_ib.cc:1 NCCL WARN "


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        ("NET/IB : Got completion from peer 10.1.1.2<4791> with error 12, opcode 0, len 0, vendor err 129",
         "RETRY_EXC_ERR", "Got completion"),
        ("NET/IB: Got completion from peer 10.1.1.2<4791> with status=IBV_WC_LOC_PROT_ERR(4) opcode=IBV_WC_SEND(0) "
         "vendor_err=81", "LOC_PROT_ERR", "Got completion"),
        ("Call to ibv_modify_qp failed with error Connection timed out", "", "ibv_modify_qp failed with error Conn"),
        ("Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1, curr state INIT, next state "
         "RTR, local GID index 3, local GID ::ffff:10.1.1.1, remote GID ::ffff:10.1.1.2", "", "remote GID"),
        ("NET/IB : mlx5_0:1 async fatal event: local catastrophic error", "", "async fatal event"),
    ],
)  # fmt: skip
def test_words_of_nccl(line: str, status: str, words: str) -> None:
    found = logs.end(f"step 1\n{PEER}{line}\nNCCL INFO proxy.cc:1 -> 6\n", 2026)
    assert found
    assert (found.status, found.certain) == (status, True)
    assert words in found.text


def test_words_of_ucx_with_mlx5() -> None:
    line = "[gpu1:7:0:7] ib_mlx5_log.c:171  Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81)"
    found = logs.end(line, 2026)
    assert found
    assert found.status == "RETRY_EXC_ERR"


def test_a_port_that_goes_down_has_the_time_of_the_line_before() -> None:
    text = (
        "2026-11-30T03:14:15Z step 7\n"
        f"{PEER}NET/IB : mlx5_1:1 Got async event : port error\n"
        f"{PEER}NET/IB : mlx5_1:1 Got non-fatal async event: port active(9)\n"
        f"{PEER}NET/IB : mlx5_1:1 Got async event : client reregistration\n"
    )
    assert [(one.t, one.port, one.up) for one in logs.port_changes(text, 2026)] == [
        (AT, "mlx5_1", False),
        (AT, "mlx5_1", True),
    ]
    assert list(logs.port_changes(text.partition("\n")[2], 2026)) == []


def test_the_output_of_all_ranks_has_the_lines_of_each() -> None:
    text = (
        "[rank1]: a\n"
        "(Worker pid=3) [rank0]:[E1130 03:14:15.2 x.cpp:1] b\n"
        "[1,2]<stderr>:c\n"
        "3: d\n"
        "gpu1:70:71 [0] NCCL INFO ncclCommInitRank comm 0x5 rank 4 nranks 6 cudaDev 0 nvmlDev 0 - Init COMPLETE\n"
        "gpu1:70:79 [0] x.cc:1 NCCL WARN e\n"
        "gpu1:99:99 [0] x.cc:1 NCCL WARN of nobody that is known\n"
        "gpu9.example.com:70:79 [0] x.cc:1 NCCL WARN f\n"
        "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 2] Process group watchdog thread terminated: c\n"
        "9: of no rank\n"
        "epoch 3\n"
    )
    found, others = logs.of_ranks(text, ["gpu1"] * 5 + ["gpu9"])
    assert others.split("\n")[-3:] == ["9: of no rank", "epoch 3", ""]
    assert {rank: own.split("\n")[-1][-1] for rank, own in found.items()} == dict(enumerate("bacdef"))
    assert len(found[4].split("\n")) == 2


HEAD = """\
NCCL version 2.28.7 compiled with CUDA 12.8
Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          2            1          8        8

Communicators... (0.01s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4         2         8         8   RUNNING  INCOMPLETE,MISMATCH
    1         2         4         1         4         8   RUNNING  MISMATCH

"""
MISSING = """\
Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 77 on node 10.0.0.4 managing GPU 1

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
"""
BEHIND = """\
Warnings
========

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different status
  7 ranks have status RUNNING
  Rank 1 has status ABORT -- GPU 0 managed by process 70 on node 10.0.0.1
  Communicator ranks have different AllReduce operation counts
  5 ranks have launched up to operation 90
  2 ranks have launched up to operation 89
  Rank 2 -- GPU 0 managed by process 72 on node 10.0.0.2
  Rank 3 -- GPU 1 managed by process 73 on node 10.0.0.2
  Rank 5 has not launched any operations -- GPU 1 managed by process 75 on node 10.0.0.3

#1-0 (1f264af53edbe986) MISMATCH
  Communicator ranks have different AllGather operation counts
  3 ranks have launched up to operation 4
  Rank 0 has launched up to operation 3 -- GPU 0 managed by process 70 on node 10.0.0.1
"""


@pytest.mark.parametrize(
    "missing", ["  Rank 7 -- GPU 1 managed by process 77 on node 10.0.0.4\n", "  The missing rank: 7\n"]
)
def test_ranks_that_ras_misses_and_those_behind(missing: str) -> None:
    found = ras.read(f"{HEAD}{MISSING}{missing}\n{BEHIND}", 8)
    assert found.missing == {7: "does not answer"}
    assert found.counts == {"AllReduce": {90: 5, 89: 2, 0: 1}}
    assert found.behind() == {rank: ("AllReduce", count, 90) for rank, count in ((2, 89), (3, 89), (5, 0))}
    assert not found.again


def test_ras_of_another_number_of_ranks_says_nothing_of_these() -> None:
    found = ras.read(f"{HEAD}{MISSING}  The missing rank: 7\n\n{BEHIND}", 16)
    assert (found.missing, found.behind()) == ({}, {})


def test_the_last_of_several_queries_counts() -> None:
    after = HEAD + BEHIND.replace(" 89", " 90")
    assert not ras.read(HEAD + BEHIND + after, 8).again
    assert ras.read(HEAD + BEHIND + HEAD + BEHIND, 8).again


def rank(number: int, count: int) -> dict[str, object]:
    return {"rank": number, "host": "10.0.0.1", "collective_counts": {"AllReduce": count, "Broadcast": 1}}


def test_ras_in_json() -> None:
    silent = {"rank": 3, "host": "10.0.0.2", "status": {"unresponsive": True, "considered_dead": False}}
    dead = {"rank": 2, "host": "10.0.0.2", "status": {"unresponsive": True, "considered_dead": True}}
    left = {"rank": 4, "host": "10.0.0.2", "status": {"unresponsive": False, "considered_dead": False}}
    output = {
        "communicators": [
            {"size": 5, "ranks": [rank(0, 9), rank(1, 8)], "missing_ranks": [silent, dead, left]},
            {"size": 2, "ranks": [rank(0, 1), rank(1, 2)], "missing_ranks": []},
        ]
    }
    found = ras.read(json.dumps(output), 5)
    assert found.missing == {3: "does not answer", 2: "is considered dead"}
    assert found.behind() == {1: ("AllReduce", 8, 9)}


@pytest.mark.parametrize("text", ["{", "[3]", '{"communicators": 3}', "[]"])
def test_json_that_is_none_of_ras_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"communicators|Expecting"):
        ras.read(text, 4)


def test_ranks_that_are_none_and_lines_without_their_number_are_left_out() -> None:
    odd = BEHIND.replace("  5 ranks have launched up to operation 90\n  2 ranks have launched up to operation 89\n", "")
    odd = odd.replace("Rank 5 has", "Rank five has")
    found = ras.read(f"{HEAD}{MISSING}  Rank 8 -- GPU 1\n\n{odd}", 8)
    assert (found.missing, found.behind()) == ({}, {})
